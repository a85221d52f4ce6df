//! Several runs on a terminal.

use base::outcome::{Run, State};
use store::RunSummary;

use super::Style;
use super::table::{Column, render};
use crate::text::{clipped, plain};
use crate::{findings, words};
use base::format::{UNKNOWN, number};

/// One line of a list of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub run: String,
    pub workload: String,
    pub name: String,
    /// See [`result_cell`].
    pub result: String,
    /// Empty in all entries of a list: it has no column of limits.
    pub limit: String,
}

impl From<&Run> for Entry {
    fn from(run: &Run) -> Self {
        let capacity = || run.capacity.value.map(|value| words::load(value, &run.capacity.unit));
        let found = run.variants.first().and_then(|first| first.findings.first()).map(findings::median);
        Self {
            run: run.run.clone(),
            workload: run.workload.clone(),
            name: run.name.clone(),
            result: result_cell(run.state, found.or_else(capacity)),
            limit: words::limit_word(run.limit.resource, run.limit.certainty).to_owned(),
        }
    }
}

impl From<&RunSummary> for Entry {
    fn from(summary: &RunSummary) -> Self {
        let capacity = summary.capacity.map(|value| {
            // A lower bound if no higher load failed.
            let least = if summary.interval[1].is_none() { "≥ " } else { "" };
            format!("{least}{}", words::load(value, &summary.unit))
        });
        let found = summary.finding.as_ref().map(findings::median);
        Self {
            run: summary.run.clone(),
            workload: summary.workload.clone(),
            name: summary.name.clone(),
            result: result_cell(summary.state, found.or(capacity)),
            limit: words::limit_word(summary.limit, summary.certainty).to_owned(),
        }
    }
}

/// What a run carries, or how quickly bytes moved, and its state if it is not complete.
pub fn result_cell(state: State, result: Option<String>) -> String {
    match (state, result) {
        (State::Complete, result) => result.unwrap_or_else(|| UNKNOWN.to_owned()),
        (state, Some(result)) => format!("{}, {result}", words::state_word(state)),
        (state, None) => words::state_word(state).to_owned(),
    }
}

/// Runs as a table, in the order given; an id begins with the time of the start. A sentence when there is
/// none. Ends with a line break.
pub fn list_table(entries: &[Entry], style: Style) -> String {
    if entries.is_empty() {
        return "No stored runs; measure with 'kagiri stream' or 'kagiri survey'.\n".to_owned();
    }
    let cells = |f: &dyn Fn(&Entry) -> String| entries.iter().map(|e| plain(&f(e))).collect::<Vec<_>>();
    let mut columns = vec![
        Column::words(&["run"], cells(&|e| e.run.clone())),
        Column::words(&["workload"], cells(&|e| e.workload.clone())),
        Column::words(&["name"], cells(&|e| clipped(&plain(&e.name), 28))),
        Column::numbers(&["result"], cells(&|e| e.result.clone())),
    ];
    if entries.iter().any(|entry| !entry.limit.is_empty()) {
        columns.push(Column::words(&["limit"], cells(&|e| e.limit.clone())));
    }
    style.spell(render(&columns, 1, &style))
}

/// Runs side by side, the first being what the others are held against: capacity, change, prediction, limit.
/// Variants of a run are lines of their own. Ends with a line break.
pub fn comparison(runs: &[&Run], style: Style) -> String {
    let lines: Vec<_> = runs.iter().flat_map(|run| run.variants.iter().map(move |v| (*run, v))).collect();
    let Some((_, first)) = lines.first() else {
        return "Nothing to compare.\n".to_owned();
    };
    let change = |value| words::change(first.capacity.value, value);
    let cells = |f: &dyn Fn(&Run, &base::outcome::VariantOutcome) -> String| {
        lines.iter().map(|(run, variant)| f(run, variant)).collect::<Vec<_>>()
    };
    let number = |value: Option<f64>| value.map_or(UNKNOWN.to_owned(), number);
    let columns = [
        Column::words(&["run"], cells(&|run, _| plain(&run.run))),
        Column::words(&["variant"], cells(&|_, v| clipped(&plain(&v.name), 28))),
        Column::numbers(&["capacity"], cells(&|_, v| number(v.capacity.value))),
        Column::numbers(&["range"], cells(&|_, v| words::interval(&v.capacity))),
        Column::numbers(&["repetitions"], cells(&|_, v| v.repetitions.len().to_string())),
        Column::numbers(&["change"], cells(&|_, v| change(v.capacity.value))),
        Column::numbers(&["predicted"], cells(&|_, v| words::predicted(v))),
        Column::words(&["limit"], cells(&|_, v| words::limit_cell(&v.limit))),
    ];
    let unit =
        format!("Capacities in {}. Change: relative to the first line.\n", plain(&first.capacity.unit));
    style.spell(render(&columns, 2, &style) + &unit)
}
