//! Tables of numbers that fit the terminal: columns that do not fit go into another table beneath.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Style;
use super::paint::Tone;
use crate::text::plain;

/// A column with its head lines and its cells, all of one width when printed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    /// Lines of the head: name, unit.
    pub head: Vec<String>,
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

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.head.iter().chain(&self.cells)
    }

    fn width(&self) -> usize {
        self.texts().map(|text| text.chars().count()).max().unwrap_or(0)
    }

    /// Whether one space beside it could be one of its own.
    fn has_blanks(&self) -> bool {
        self.texts().any(|text| text.contains(' '))
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
    // Two spaces between columns read better, most of all between words; one is better than another table.
    let gaps: [Gap; 3] = [|_, _| 2, apart, |_, _| 1];
    let fewest = blocks(columns, kept, style, gaps[2]).len();
    let best = gaps.into_iter().find(|gap| blocks(columns, kept, style, *gap).len() == fewest);
    printed(columns, kept, style, best.unwrap_or(apart))
}

/// The same for columns of words and of numbers with their units, which one space would let run together:
/// rather another table.
pub(super) fn render_apart(columns: &[Column], style: &Style) -> String {
    let is_one = blocks(columns, 1, style, |_, _| 2).len() == 1;
    printed(columns, 1, style, if is_one { |_, _| 2 } else { apart })
}

/// Whether the columns fit beside each other.
pub(super) fn is_one_table(columns: &[Column], style: &Style) -> bool {
    blocks(columns, 1, style, |_, _| 1).len() == 1
}

/// How many spaces stand between two columns.
type Gap = fn(&Column, &Column) -> usize;

/// One space only between what has none of its own.
fn apart(left: &Column, right: &Column) -> usize {
    if left.has_blanks() || right.has_blanks() { 2 } else { 1 }
}

fn blocks<'a>(columns: &'a [Column], kept: usize, style: &Style, gap: Gap) -> Vec<Vec<&'a Column>> {
    let width_of = |block: &[&Column]| {
        let gaps: usize = block.windows(2).map(|pair| gap(pair[0], pair[1])).sum();
        block.iter().map(|column| column.width()).sum::<usize>() + gaps
    };
    let (kept, rest) = columns.split_at(kept.min(columns.len()));
    let mut blocks: Vec<Vec<&Column>> = vec![kept.iter().collect()];
    for column in rest {
        let last = blocks.last_mut().filter(|block| {
            let wider: Vec<&Column> = block.iter().copied().chain([column]).collect();
            // What fits nowhere stands alone.
            block.len() == kept.len() || width_of(&wider) <= style.columns()
        });
        match last {
            Some(block) => block.push(column),
            None => blocks.push(kept.iter().chain([column]).collect()),
        }
    }
    blocks
}

fn printed(columns: &[Column], kept: usize, style: &Style, gap: Gap) -> String {
    let gaps = |block: &[&Column]| block.windows(2).map(|pair| gap(pair[0], pair[1])).collect::<Vec<_>>();
    let blocks = blocks(columns, kept, style, gap);
    blocks.iter().map(|block| one(block, &gaps(block), style)).collect::<Vec<_>>().join("\n")
}

/// One table; head lines faint, no frame: a rule under the head is enough.
fn one(columns: &[&Column], gaps: &[usize], style: &Style) -> String {
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
            printed.set_padding((0, gaps.get(i).map_or(0, |gap| *gap as u16)));
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
    fn columns_of_words_are_separated() {
        let cells = |text: &str| vec![text.to_owned()];
        let columns = [
            Column::words(&["of"], cells("builder 0 of a host with a name")),
            Column::numbers(&["due"], cells("4808")),
            Column::numbers(&["lost"], cells("1234")),
            Column::numbers(&["took"], cells("1.30 ms")),
        ];
        let rows = |text: String| {
            let rows = text.lines().filter_map(|line| line.strip_prefix("builder 0 of a host with a name"));
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let style = |width| Style { colour: false, width, unicode: true };
        let (usual, far) = (
            |width| rows(render(&columns, 1, &style(width))),
            |width| rows(render_apart(&columns, &style(width))),
        );
        assert_eq!([usual(52), far(52)], [["  4808  1234  1.30 ms"]; 2]);
        assert_eq!([usual(51), far(51)], [["  4808 1234  1.30 ms"]; 2]);
        assert_eq!(usual(50), [" 4808 1234 1.30 ms"]);
        assert_eq!(far(50), ["  4808 1234", "  1.30 ms"]);
    }

    #[test]
    fn foreign_text_stays_in_its_cell() {
        let rows = [vec!["nas".to_owned(), "\u{1b}[2Jmine\nkagiri: all is well".to_owned()]];
        let style = Style { colour: false, width: 80, unicode: true };
        let table = words_table(&["host", "kernel"], &rows, &style);
        assert!(table.lines().count() == 3 && table.contains("nas   [2Jmine kagiri"), "{table}");
        assert!(table.chars().all(|c| c == '\n' || !c.is_control()), "{table:?}");
    }
}
