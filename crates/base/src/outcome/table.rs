//! Tables of typed cells.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::format::{UNKNOWN, quantity};

/// A table of a workload. Numbers are in their column's unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "TableDocument", into = "TableDocument")]
pub struct Table {
    /// What it is about.
    pub title: String,
    /// Its columns; the first names the rows.
    pub columns: Vec<Column>,
    /// Its rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Sentences below it.
    pub notes: Vec<String>,
}

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Column {
    /// Its head; a column without one belongs to its left neighbour.
    pub title: String,
    /// The base unit of its numbers; empty for counts and texts.
    pub unit: String,
}

/// A cell of a table; in JSON a number, a string, or `null` for an unknown number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Cell {
    /// In the column's unit.
    Number(f64),
    /// A name or a word.
    Text(String),
    /// A number that is not known.
    Unknown,
}

impl Table {
    /// An empty table of columns, each with its title and unit.
    pub fn new(title: impl Into<String>, columns: &[(&str, &str)]) -> Self {
        let column = |(title, unit): &(&str, &str)| Column { title: (*title).into(), unit: (*unit).into() };
        let columns = columns.iter().map(column).collect();
        Self { title: title.into(), columns, ..Self::default() }
    }

    pub fn column(&self, title: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.title == title)
    }

    /// The table without columns in which nothing is known; the first stays.
    #[must_use]
    pub fn without_unknown_columns(mut self) -> Self {
        let is_known =
            |at: usize| at == 0 || self.rows.iter().any(|row| row.get(at).is_some_and(Cell::is_known));
        let known: Vec<bool> = (0..self.columns.len()).map(is_known).collect();
        let keep = |at: &mut usize| {
            *at += 1;
            known.get(*at - 1).copied().unwrap_or(true)
        };
        let mut at = 0;
        self.columns.retain(|_| keep(&mut at));
        for row in &mut self.rows {
            let mut at = 0;
            row.retain(|_| keep(&mut at));
        }
        self
    }

    pub fn texts<'a>(&'a self, row: &'a [Cell]) -> impl Iterator<Item = String> + 'a {
        let unit = |at: usize| self.columns.get(at).map_or("", |column| column.unit.as_str());
        row.iter().enumerate().map(move |(at, cell)| cell.text(unit(at)))
    }
}

impl Cell {
    pub fn is_known(&self) -> bool {
        *self != Self::Unknown
    }

    pub fn text(&self, unit: &str) -> String {
        match self {
            Self::Number(value) => quantity(Some(*value), unit),
            Self::Text(text) => text.clone(),
            Self::Unknown => UNKNOWN.to_owned(),
        }
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        if value.is_finite() { Self::Number(value) } else { Self::Unknown }
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Number(value as f64)
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

/// A table as it is stored and exported. Of a run that was stored before there were typed cells, `head` and
/// `rows` are all there is; they stay beside `columns` and `cells` for the scripts that read them.
#[derive(Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Table")]
struct TableDocument {
    /// What it is about.
    title: String,
    /// The titles of its columns; the first column names the rows.
    head: Vec<String>,
    /// `cells` as text, each number with its unit.
    rows: Vec<Vec<String>>,
    /// Its columns: title, and the unit of its numbers (empty for counts and texts).
    columns: Vec<Column>,
    /// Its rows, each as long as `columns`: a number in its column's unit, a text, or null for an unknown
    /// number.
    cells: Vec<Vec<Cell>>,
    /// Sentences below it.
    notes: Vec<String>,
}

impl From<Table> for TableDocument {
    fn from(table: Table) -> Self {
        Self {
            head: table.columns.iter().map(|column| column.title.clone()).collect(),
            rows: table.rows.iter().map(|row| table.texts(row).collect()).collect(),
            title: table.title,
            columns: table.columns,
            cells: table.rows,
            notes: table.notes,
        }
    }
}

impl From<TableDocument> for Table {
    fn from(document: TableDocument) -> Self {
        let TableDocument { title, head, rows, columns, cells, notes } = document;
        if !columns.is_empty() {
            return Self { title, columns, rows: cells, notes };
        }
        let cell = |text: String| match text.as_str() {
            "?" | "-" | UNKNOWN => Cell::Unknown,
            _ => Cell::Text(text),
        };
        let columns = head.into_iter().map(|title| Column { title, unit: String::new() }).collect();
        let rows = rows.into_iter().map(|row| row.into_iter().map(cell).collect()).collect();
        Self { title, columns, rows, notes }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        let mut table =
            Table::new("Bytes", &[("way", ""), ("sent", "B"), ("lost", ""), ("goodput", "bit/s")]);
        table.rows = vec![vec!["up".into(), 1_448_000_000_u64.into(), None::<u64>.into(), 11.9e9.into()]];
        table
    }

    #[test]
    fn json_carries_numbers_beside_their_text_and_reads_back() {
        let json = serde_json::to_value(table()).unwrap();
        assert_eq!(json["head"], json!(["way", "sent", "lost", "goodput"]));
        assert_eq!(json["rows"], json!([["up", "1.45 GB", "–", "11.9 Gbit/s"]]));
        assert_eq!(json["columns"][1], json!({ "title": "sent", "unit": "B" }));
        assert_eq!(json["cells"], json!([["up", 1_448_000_000.0, null, 11.9e9]]));
        assert_eq!(serde_json::from_value::<Table>(json).unwrap(), table());
    }

    #[test]
    fn table_without_typed_cells_still_reads() {
        let stored =
            json!({ "title": "Bytes", "head": ["way", "sent"], "rows": [["up", "?"], ["down", "1 MB"]] });
        let table: Table = serde_json::from_value(stored).unwrap();
        assert_eq!(table.columns[1], Column { title: "sent".into(), unit: String::new() });
        assert_eq!(table.rows, [["up".into(), Cell::Unknown], ["down".into(), "1 MB".into()]]);
    }

    #[test]
    fn column_in_which_nothing_is_known_is_left_out() {
        let table = table().without_unknown_columns();
        assert_eq!((table.column("lost"), table.column("goodput")), (None, Some(2)));
        assert_eq!(table.rows[0].len(), 3);
    }
}
