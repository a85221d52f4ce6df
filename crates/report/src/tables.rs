//! Tables of a workload as text.

use base::outcome::{Cell, Table};

/// A table whose cells are formatted.
pub(crate) struct Printed<'a> {
    pub title: &'a str,
    pub columns: Vec<PrintedColumn<'a>>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<String>>,
    pub notes: &'a [String],
}

pub(crate) struct PrintedColumn<'a> {
    pub title: &'a str,
    pub is_number: bool,
}

/// Formats the cells. A column without a title is joined with its left neighbour.
pub(crate) fn printed(table: &Table) -> Printed<'_> {
    let is_untitled =
        |at: usize| at > 0 && table.columns.get(at).is_some_and(|column| column.title.trim().is_empty());
    // Runs stored before cells were typed have their numbers as text.
    let is_number = |cell: &Cell| match cell {
        Cell::Number(_) => true,
        Cell::Text(text) => text.starts_with(|c: char| c.is_ascii_digit() || c == '-'),
        Cell::Unknown => false,
    };
    // The first column names the rows, whatever it begins with.
    let holds_numbers = |at: usize| at > 0 && table.rows.iter().filter_map(|row| row.get(at)).any(is_number);
    let columns = table.columns.iter().enumerate().filter(|(at, _)| !is_untitled(*at));
    let columns =
        columns.map(|(at, column)| PrintedColumn { title: &column.title, is_number: holds_numbers(at) });
    let joined = |row: &Vec<Cell>| {
        let mut cells: Vec<String> = Vec::new();
        for (at, text) in table.texts(row).enumerate() {
            match cells.last_mut().filter(|_| is_untitled(at)) {
                None => cells.push(text),
                Some(_) if text.trim().is_empty() => {}
                Some(left) if left.is_empty() => *left = text,
                Some(left) => *left += &format!(", {text}"),
            }
        }
        cells
    };
    Printed {
        title: &table.title,
        columns: columns.collect(),
        rows: table.rows.iter().map(joined).collect(),
        notes: &table.notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_without_title_joins_its_left_neighbour() {
        let columns = [("event", ""), ("took", "s"), ("", ""), ("cause", "")];
        let mut table = Table::new("Slowest events", &columns);
        table.rows = vec![
            vec!["5".into(), 0.00486.into(), "complete".into(), "queueing".into()],
            vec!["6".into(), 0.005.into(), "".into(), "loss".into()],
            vec!["7".into(), Cell::Unknown, "".into(), "loss".into()],
        ];
        let shown = printed(&table);
        let titles: Vec<_> = shown.columns.iter().map(|column| (column.title, column.is_number)).collect();
        assert_eq!(titles, [("event", false), ("took", true), ("cause", false)]);
        assert_eq!(shown.rows[0], ["5", "4.86 ms, complete", "queueing"]);
        assert_eq!(shown.rows[1], ["6", "5 ms", "loss"]);
        assert_eq!(shown.rows[2], ["7", "–", "loss"]);
        table.columns[0].title.clear();
        assert_eq!(printed(&table).columns.len(), 3, "the first column names the rows");
    }
}
