//! A table measured elsewhere, read from CSV text. `docs/explain.md` is the reader's page.

mod cells;
mod columns;

use std::collections::{BTreeMap, BTreeSet};

use base::names::first_of;
use base::outcome::{Ceiling, Resource};
use base::verdict::Verdict;
use csv::{ReaderBuilder, StringRecord, Trim};

use self::cells::{Dimension, short};
use self::columns::{Column, LOAD_EXAMPLES, Role};
use super::table::{LoadTable, Row, Series};

/// Longer texts are not tables of usage against load.
pub const TABLE_BYTES_MAX: usize = 4 << 20;
/// More rows than this were not measured load by load.
pub const ROWS_MAX: usize = 10_000;
const COLUMNS_MAX: usize = 200;
/// Columns that an error lists.
const NAMED_MAX: usize = 5;

/// Why a text is not a table. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("the table has more than {limit} {what}; shorten it to one row per trial")]
    TooLarge { limit: usize, what: &'static str },
    #[error("line {line}: this is not UTF-8 text; save the table as CSV in UTF-8")]
    NotText { line: u64 },
    /// Nothing but comments and blank lines, or a header alone.
    #[error("the table has no rows; its first line names the columns, such as 'streams,cpu %,disk Mbit/s'")]
    Empty,
    #[error("line {line}: {problem}")]
    Header { line: u64, problem: String },
    /// A row has too few or too many cells.
    #[error("line {line}: the row has {cells} cells, but the header names {columns} columns")]
    Ragged { line: u64, cells: usize, columns: usize },
    #[error("line {line}, column '{column}': '{text}' cannot be read: {problem}; expected {expected}")]
    Cell { line: u64, column: String, text: String, problem: String, expected: &'static str },
}

/// Read a table from CSV text: comma, semicolon or tab separated, `#` begins a comment line.
/// Errors: The first thing that is wrong, with its line, column and text.
pub fn read(bytes: &[u8], ceilings: BTreeMap<Resource, Ceiling>) -> Result<LoadTable, TableError> {
    if bytes.len() > TABLE_BYTES_MAX {
        return Err(TableError::TooLarge { limit: TABLE_BYTES_MAX, what: "bytes" });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        TableError::NotText { line: 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64 }
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let delimiter = delimiter(text);
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .comment(Some(b'#'))
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let mut columns: Option<Vec<Column>> = None;
    let mut table = LoadTable { ceilings, elsewhere: true, load_unit: "load".into(), ..LoadTable::default() };
    let mut texts_seen = BTreeSet::new();
    for record in reader.records() {
        let record = record
            .map_err(|error| TableError::NotText { line: error.position().map_or(1, csv::Position::line) })?;
        let line = line_of(text, &record);
        let Some(columns) = &columns else {
            columns = Some(header(&record, line)?);
            continue;
        };
        if record.iter().all(|cell| cell.is_empty()) {
            continue;
        }
        if table.rows.len() == ROWS_MAX {
            return Err(TableError::TooLarge { limit: ROWS_MAX, what: "rows" });
        }
        table.rows.push(row(&record, line, columns, delimiter != b',', &mut texts_seen)?);
    }
    let columns = columns.filter(|_| !table.rows.is_empty()).ok_or(TableError::Empty)?;
    finish(&mut table, &columns, &texts_seen);
    Ok(table)
}

/// The load's unit and the list of columns that were not used; counters with texts in them are dropped.
fn finish(table: &mut LoadTable, columns: &[Column], texts_seen: &BTreeSet<String>) {
    for column in columns {
        if let Some(unit) = &column.load_unit {
            table.load_unit.clone_from(unit);
        }
        let series = |name: &String| Series {
            counter: name.clone(),
            header: short(&column.header),
            has_unit: column.header_has_time_unit(),
        };
        match &column.role {
            Role::Latency(name) => table.latencies.push(series(name)),
            Role::Throughput(name) => table.throughputs.push(series(name)),
            _ => {}
        }
        if let Role::Other(name) = &column.role {
            table.ignored_columns.push(short(&column.header));
            if texts_seen.contains(name) {
                for row in &mut table.rows {
                    row.counters.remove(name);
                }
            }
        }
    }
}

/// The separator of the columns, found in the header. A semicolon or a tab is never part of a column's name.
fn delimiter(text: &str) -> u8 {
    let header =
        text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')).unwrap_or_default();
    [b';', b'\t'].into_iter().find(|mark| header.as_bytes().contains(mark)).unwrap_or(b',')
}

/// The line on which a record stands: its position lies before the blank and comment lines that were skipped.
fn line_of(text: &str, record: &StringRecord) -> u64 {
    let Some(position) = record.position() else { return 1 };
    let from = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let lines = text.get(from..).unwrap_or_default().split_inclusive('\n');
    let is_skipped = |line: &&str| line.trim_end_matches(['\r', '\n']).is_empty() || line.starts_with('#');
    position.line() + lines.take_while(is_skipped).count() as u64
}

/// The columns; every column that is used must be there at most once.
fn header(record: &StringRecord, line: u64) -> Result<Vec<Column>, TableError> {
    let error = |problem: String| TableError::Header { line, problem };
    if record.len() > COLUMNS_MAX {
        return Err(TableError::TooLarge { limit: COLUMNS_MAX, what: "columns" });
    }
    if record
        .iter()
        .all(|cell| cells::is_blank(cell) || cells::quantity(cell, Dimension::Plain, Some(1.0), true).is_ok())
    {
        return Err(error(
            "the first line must name the columns, such as 'streams,cpu %,disk Mbit/s'".into(),
        ));
    }
    let columns = record.iter().map(Column::from_header).collect::<Result<Vec<_>, _>>().map_err(error)?;
    let columns = one_load(columns);
    for (index, column) in columns.iter().enumerate() {
        let twin = columns[..index].iter().find(|other| other.role == column.role);
        if let (Some(twin), false) = (twin, matches!(column.role, Role::Other(_))) {
            let (first, second) = (short(&twin.header), short(&column.header));
            let problem = format!("the columns '{first}' and '{second}' mean the same; remove or rename one");
            return Err(error(problem));
        }
    }
    if !columns.iter().any(|column| column.role == Role::Load) {
        let names: Vec<String> = record.iter().map(short).collect();
        let problem =
            format!("no load column (found: {}); name it {LOAD_EXAMPLES}", first_of(&names, NAMED_MAX));
        return Err(error(problem));
    }
    let is_result =
        |role: &Role| !matches!(role, Role::Load | Role::Verdict | Role::Counter(_) | Role::Other(_));
    if !columns.iter().any(|column| is_result(&column.role)) {
        let problem = "no resource column; name one cpu %, disk Mbit/s, network Mbit/s or memory KB (or a \
                       result: throughput, p99 ms, errors)";
        return Err(error(problem.into()));
    }
    Ok(columns)
}

/// A rate is the load only where no other column is; beside a load it is the throughput.
fn one_load(columns: Vec<Column>) -> Vec<Column> {
    let load = columns.iter().position(|column| column.role == Role::Load && !column.is_rate);
    let load = load.or_else(|| columns.iter().position(|column| column.is_rate));
    let one = |(at, column): (usize, Column)| match column.is_rate && Some(at) != load {
        true => column.into_throughput(),
        false => column,
    };
    columns.into_iter().enumerate().map(one).collect()
}

fn row(
    record: &StringRecord,
    line: u64,
    columns: &[Column],
    decimal_comma: bool,
    texts_seen: &mut BTreeSet<String>,
) -> Result<Row, TableError> {
    if record.len() != columns.len() {
        return Err(TableError::Ragged { line, cells: record.len(), columns: columns.len() });
    }
    let mut row = Row { load: f64::NAN, ..Row::default() };
    let mut failures: Option<f64> = None;
    for (column, cell) in columns.iter().zip(record) {
        let error = |problem: String, expected: &'static str| TableError::Cell {
            line,
            column: short(&column.header),
            text: short(cell),
            problem,
            expected,
        };
        if cells::is_blank(cell) {
            if column.role == Role::Load {
                return Err(error("every row needs its load".into(), Dimension::Plain.example()));
            }
            continue;
        }
        if column.role == Role::Verdict {
            let expected = "pass, fail or invalid, or 1 for pass and 0 for fail";
            let verdict =
                cells::verdict(cell).ok_or_else(|| error("it is not a verdict".into(), expected))?;
            row.verdict = Some(verdict);
            continue;
        }
        let value = cells::quantity(cell, column.dimension, column.factor, decimal_comma);
        let value = match (column.dimension, value) {
            (Dimension::Failures, Err(problem)) => cells::failures(cell).ok_or(problem),
            (_, value) => value,
        };
        if let (Role::Other(name), Err(_)) = (&column.role, &value) {
            texts_seen.insert(name.clone());
            continue;
        }
        let value = value.map_err(|problem| error(problem, column.dimension.example()))?;
        match &column.role {
            Role::Load => row.load = value,
            Role::Usage(resource) => {
                row.usage.insert(*resource, value);
            }
            Role::Counter(name) => {
                row.counters.insert((*name).to_owned(), value);
            }
            Role::Other(name) | Role::Latency(name) | Role::Throughput(name) => {
                row.counters.insert(name.clone(), value);
            }
            Role::Failures(name) => {
                row.counters.insert(name.clone(), value);
                failures = Some(failures.unwrap_or(0.0) + value);
            }
            Role::Verdict => {}
        }
    }
    let judged = failures.map(|failures| if failures > 0.0 { Verdict::Fail } else { Verdict::Pass });
    row.verdict = row.verdict.or(judged);
    Ok(row)
}
