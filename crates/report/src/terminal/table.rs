//! Tables of numbers that fit the terminal: columns that do not fit go into another table beneath.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Style;
use super::paint::Tone;
use crate::units::plain;

/// A column with its head lines and its cells, all of one width when printed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// Lines of the head: name, unit.
    pub head: Vec<String>,
    /// One per row.
    pub cells: Vec<String>,
    /// Numbers stand right, words left.
    pub right: bool,
}

impl Column {
    pub(super) fn numbers(head: &[&str], cells: Vec<String>) -> Self {
        Self { head: head.iter().map(|h| (*h).to_owned()).collect(), cells, right: true }
    }

    pub(super) fn words(head: &[&str], cells: Vec<String>) -> Self {
        Self { right: false, ..Self::numbers(head, cells) }
    }

    fn width(&self) -> usize {
        self.head.iter().chain(&self.cells).map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

/// A table of words with one head line; what others wrote may be among them. Ends with a line break.
pub fn words_table(heads: &[&str], rows: &[Vec<String>], style: &Style) -> String {
    let cells =
        |at: usize| rows.iter().map(|row| row.get(at).map(|text| plain(text)).unwrap_or_default()).collect();
    let columns: Vec<_> =
        heads.iter().enumerate().map(|(at, head)| Column::words(&[head], cells(at))).collect();
    style.spell(render(&columns, 1, style))
}

/// The columns as text, the first `kept` of them repeated in every table.
pub(super) fn render(columns: &[Column], kept: usize, style: &Style) -> String {
    // Two spaces between columns read better; one is better than another table.
    let all: usize = columns.iter().map(Column::width).sum();
    let gap = if all + 2 * columns.len().saturating_sub(1) <= style.columns() { 2 } else { 1 };
    let (kept, rest) = columns.split_at(kept.min(columns.len()));
    let width_of = |columns: &[Column]| columns.iter().map(|c| c.width() + gap).sum::<usize>();
    let mut blocks: Vec<Vec<&Column>> = Vec::new();
    let mut used = usize::MAX;
    for column in rest {
        let wanted = column.width() + gap;
        match blocks.last_mut() {
            Some(block) if used + wanted <= style.columns() + gap => {
                block.push(column);
                used += wanted;
            }
            _ => {
                blocks.push(kept.iter().chain([column]).collect());
                used = width_of(kept) + wanted;
            }
        }
    }
    if blocks.is_empty() {
        blocks.push(kept.iter().collect());
    }
    blocks.iter().map(|block| one(block, gap, style)).collect::<Vec<_>>().join("\n")
}

/// One table; head lines faint, no frame: a rule under the head is enough.
fn one(columns: &[&Column], gap: usize, style: &Style) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let heads = columns.iter().map(|c| c.head.len()).max().unwrap_or(0);
    for line in 0..heads {
        table.add_row(columns.iter().map(|c| c.head.get(line).map_or("", String::as_str)));
    }
    table.add_row(columns.iter().map(|column| "─".repeat(column.width())));
    for row in 0..columns.iter().map(|c| c.cells.len()).max().unwrap_or(0) {
        table.add_row(columns.iter().map(|c| c.cells.get(row).map_or("", String::as_str)));
    }
    for (i, column) in columns.iter().enumerate() {
        if let Some(printed) = table.column_mut(i) {
            printed.set_padding((0, if i + 1 == columns.len() { 0 } else { gap as u16 }));
            printed.set_cell_alignment(if column.right { CellAlignment::Right } else { CellAlignment::Left });
        }
    }
    let lines = table.lines().enumerate().map(|(i, line)| match line.trim_end() {
        head if i <= heads => style.paint(Tone::Faint, head),
        row => row.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_in_its_cell() {
        let rows = [vec!["nas".to_owned(), "\u{1b}[2Jmine\nkagiri: all is well".to_owned()]];
        let style = Style { colour: false, width: 80, unicode: true };
        let table = words_table(&["host", "kernel"], &rows, &style);
        assert!(table.lines().count() == 3 && table.contains("nas   [2Jmine kagiri"), "{table}");
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
    }
}
