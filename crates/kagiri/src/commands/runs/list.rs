//! `kagiri runs list`.

use base::format::plural;
use base::outcome::State;
use report::terminal::{Entry, list_table};
use report::text::{clipped, plain};
use store::RunSummary;

use crate::exit::{Code, Outcome};
use crate::remote::Source;
use crate::{output, resume};

const LIST_WIDTH_MAX: usize = 100;
const NAME_WIDTH_LEAST: usize = 8;
/// Where names would be narrower, the column of limits gives way.
const NAME_WIDTH_WANTED: usize = 16;
/// Runs of a list, which has at most 15 lines with its head and its notes.
const ROWS_MAX: usize = 10;

/// A run without a result, as after a mistyped host name.
fn is_void(summary: &RunSummary) -> bool {
    summary.state == State::Failed && summary.trials == 0
}

pub fn list(source: &Source<'_>, all: bool, json: bool) -> Outcome {
    let summaries = source.summaries()?;
    let list_all = format!("{} runs list --all", source.command());
    if json {
        output::print(&(store::printable_json(serde_json::to_string_pretty(&summaries)?) + "\n"))?;
    } else if summaries.is_empty() {
        let place = source.place()?;
        output::print(&format!("There are no runs {place} yet; start with 'kagiri survey'.\n"))?;
    } else {
        let void = summaries.iter().filter(|summary| !all && is_void(summary)).count();
        let mut shown: Vec<&RunSummary> =
            summaries.iter().filter(|summary| all || !is_void(summary)).collect();
        let older = if all { 0 } else { shown.len().saturating_sub(ROWS_MAX) };
        shown.truncate(shown.len() - older);
        let mut entries: Vec<Entry> = shown.into_iter().map(Entry::from).collect();
        let style = output::style();
        fit(&mut entries, style.width.min(LIST_WIDTH_MAX));
        if !entries.is_empty() {
            output::print(&list_table(&entries, style))?;
        }
        if older > 0 {
            let runs = plural(older as u64, "older run");
            output::print(&format!("({runs}: '{list_all}')\n"))?;
        }
        if let left @ 1.. = void {
            let runs = if left == 1 { "1 run that".to_owned() } else { format!("{left} runs that") };
            output::print(&format!("({runs} failed before a trial was made: '{list_all}')\n"))?;
        }
        if let broken @ 1.. = summaries.iter().filter(|run| resume::is_broken_off(run)).count() {
            let runs = plural(broken as u64, "run");
            let program = source.command();
            output::print(&format!("({runs} broke off: '{program} run --resume RUN' goes on with one)\n"))?;
        }
    }
    Ok(Code::Measured)
}

/// Shortens names so that the table fits the width; removes the workload from them, which has its own column.
fn fit(entries: &mut [Entry], columns: usize) {
    let others = |entry: &Entry| {
        [&entry.run, &entry.workload, &entry.result, &entry.limit].map(|cell| cell.chars().count())
    };
    let mut widths = ["run", "workload", "result", "limit"].map(str::len);
    for entry in &*entries {
        for (width, found) in widths.iter_mut().zip(others(entry)) {
            *width = (*width).max(found);
        }
    }
    let gaps = 2 * widths.len();
    let mut left = columns.saturating_sub(widths.iter().sum::<usize>() + gaps);
    if left < NAME_WIDTH_WANTED {
        // Each run stands on one line; its limit is in `runs show`.
        left += widths[3] + 2;
        entries.iter_mut().for_each(|entry| entry.limit.clear());
    }
    let left = left.max(NAME_WIDTH_LEAST);
    for entry in entries {
        if let Some(rest) = entry.name.strip_prefix(&format!("{}: ", entry.workload)) {
            entry.name = rest.to_owned();
        }
        entry.name = clipped(&plain(&entry.name), left);
    }
}

#[cfg(test)]
mod tests {
    use base::outcome::{Certainty, LoadMetric, Resource};
    use report::terminal::Style;

    use super::*;

    fn summary(capacity: Option<f64>, above: Option<f64>, limit: Resource) -> RunSummary {
        RunSummary {
            run: "20261121-143012-k3f9".into(),
            name: "stream: http://storage.example.org:8080/films/long-name.ts".into(),
            workload: "stream".into(),
            state: if capacity.is_some() { State::Complete } else { State::Interrupted },
            started_at: jiff::Timestamp::UNIX_EPOCH,
            ended_at: None,
            capacity,
            interval: [capacity, above],
            unit: "streams".into(),
            finding: None,
            limit,
            certainty: if above.is_some() { Certainty::Confirmed } else { Certainty::Unknown },
            trials: 3,
            is_evaluated: true,
        }
    }

    #[test]
    fn list_marks_lower_bounds_and_fits_100_columns() {
        let all = [
            summary(Some(1200.0), None, Resource::None),
            summary(Some(5.0), Some(5.0), Resource::Network),
            summary(None, None, Resource::None),
            RunSummary { state: State::Complete, ..summary(None, None, Resource::None) },
            RunSummary {
                finding: Some(LoadMetric {
                    metric: "goodput_bit_per_s".into(),
                    values: vec![941e6, 939e6, 943e6],
                }),
                certainty: Certainty::Confirmed,
                ..summary(Some(1.0), None, Resource::None)
            },
        ];
        let mut entries: Vec<Entry> = all.iter().map(Entry::from).collect();
        let words = entries.iter().map(|e| (e.result.as_str(), e.limit.as_str())).collect::<Vec<_>>();
        let expected = [
            ("≥ 1200 streams", "unknown"),
            ("5 streams", "network"),
            ("interrupted", "unknown"),
            ("–", "unknown"),
            ("941 Mbit/s", "none found"),
        ];
        assert_eq!(words, expected);
        fit(&mut entries, LIST_WIDTH_MAX);
        let table = list_table(&entries, Style { colour: false, width: LIST_WIDTH_MAX, unicode: true });
        assert!(table.lines().all(|line| line.chars().count() <= LIST_WIDTH_MAX), "{table}");
        assert_eq!(table.lines().count(), 2 + all.len(), "one table, each run on one line: {table}");
        assert!(table.contains("http://"), "{table}");
        fit(&mut entries, 60);
        let narrow = list_table(&entries, Style { colour: false, width: 60, unicode: true });
        assert!(!narrow.contains("limit") && narrow.contains("result"), "{narrow}");
        assert_eq!(narrow.lines().count(), 2 + all.len(), "one table without the limits: {narrow}");
    }
}
