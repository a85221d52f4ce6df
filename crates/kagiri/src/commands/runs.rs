//! `kagiri runs`: lists, shows, compares, exports and imports stored runs.

use std::path::PathBuf;

use anyhow::Context;
use base::outcome::{Run, State};
use clap::Subcommand;
use report::terminal::{Entry, list_table, result_cell};
use report::text::{clipped, plain};
use store::{Filter, IMPORT_BYTES_MAX, RunSummary};

use crate::args::existing;
use crate::atomic_file::write_atomically;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::{dirs, output};

const LIST_WIDTH_MAX: usize = 100;
const NAME_WIDTH_LEAST: usize = 8;

/// List, show, compare, export and import stored runs.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    kagiri runs list\n  \
    kagiri runs compare last~1 last        show what differs\n  \
    kagiri runs export last -o run.json    for 'kagiri runs import' elsewhere\n\n\
    Name a run by its id or a prefix of it, by 'last' or 'last~1' (the run before), or by an exported file.")]
pub enum Runs {
    /// List stored runs, newest first
    #[command(after_help = "Example:\n  kagiri runs list")]
    List {
        /// Include runs that failed before their first trial
        #[arg(long)]
        all: bool,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the result of a run
    #[command(after_help = "Examples:\n  \
        kagiri runs show                           the last run\n  \
        kagiri runs show last~1 --json\n  \
        kagiri runs show last --plan > plan.toml   then: kagiri run plan.toml")]
    Show {
        /// Run id or its prefix, 'last', 'last~1' (the run before), or an exported file
        #[arg(default_value = "last")]
        run: String,
        /// Print the JSON document
        #[arg(long)]
        json: bool,
        /// Print the plan (TOML) that repeats the run
        #[arg(long, conflicts_with = "json")]
        plan: bool,
    },
    /// Compare several runs with the first of them, or the variants of one run with each other
    #[command(after_help = "Examples:\n  \
        kagiri runs compare last~1 last        compare the last two runs\n  \
        kagiri runs compare last               compare the variants of one run\n\n\
        A difference is reported only if it exceeds the variation between repetitions: measure \
        with --repeat 5.")]
    Compare {
        /// Run ids or their prefixes, 'last', 'last~1' (the run before), or exported files
        #[arg(required = true)]
        runs: Vec<String>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Write a run, or a table of its trials or samples, to a file or standard output
    #[command(after_help = "Examples:\n  \
        kagiri runs export last -o run.json                 for 'kagiri runs import'\n  \
        kagiri runs export --format trials-csv -o runs.csv  for a spreadsheet")]
    Export {
        /// Run id or its prefix, 'last', 'last~1' (the run before), or an exported file
        #[arg(default_value = "last")]
        run: String,
        /// Output file; '-' for standard output
        #[arg(long, short, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// What to write
        #[arg(long, value_enum, default_value = "json")]
        format: Format,
    },
    /// Add exported runs to the stored ones
    #[command(after_help = "Example:\n  kagiri runs import run.json")]
    Import {
        /// Files that 'kagiri runs export' wrote as JSON
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the JSON schema of the document that measurements print with --json
    #[command(after_help = "Example:\n  kagiri runs schema > run.schema.json")]
    Schema,
}

/// Export format.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Format {
    /// The whole run, for 'kagiri runs import'
    Json,
    /// A table with one row per trial
    TrialsCsv,
    /// A table with one row per sample
    SeriesCsv,
}

impl Runs {
    pub fn run(self) -> Outcome {
        match self {
            Self::List { all, json } => list(all, json),
            Self::Show { run, json, plan } => show(&run, json, plan),
            Self::Compare { runs, json } => compare(&runs, json),
            Self::Export { run, output, format } => export(&run, &output, format),
            Self::Import { files } => import(&files),
            Self::Schema => {
                output::print(&(serde_json::to_string_pretty(&store::json_schema())? + "\n"))?;
                Ok(Code::Measured)
            }
        }
    }
}

/// A run without a result, as after a mistyped host name.
fn is_void(summary: &RunSummary) -> bool {
    summary.state == State::Failed && summary.trials == 0
}

fn list(all: bool, json: bool) -> Outcome {
    let summaries = dirs::open_store_to_read()?.list(&Filter::default())?;
    if json {
        output::print(&(store::printable_json(serde_json::to_string_pretty(&summaries)?) + "\n"))?;
    } else if summaries.is_empty() {
        let data = dirs::data_dir()?;
        output::print(&format!(
            "There are no runs in {} yet; start with 'kagiri survey'.\n",
            data.display()
        ))?;
    } else {
        let shown = summaries.iter().filter(|summary| all || !is_void(summary));
        let mut entries: Vec<Entry> = shown.map(entry).collect();
        let style = output::style();
        fit(&mut entries, style.width.min(LIST_WIDTH_MAX));
        if !entries.is_empty() {
            output::print(&list_table(&entries, style))?;
        }
        if let left @ 1.. = summaries.len() - entries.len() {
            let runs = if left == 1 { "1 run that".to_owned() } else { format!("{left} runs that") };
            output::print(&format!("({runs} failed before a trial was made: 'kagiri runs list --all')\n"))?;
        }
    }
    Ok(Code::Measured)
}

fn entry(summary: &RunSummary) -> Entry {
    let capacity = summary.capacity.map(|value| {
        // A lower bound if no higher load failed.
        let least = if summary.interval[1].is_none() { "≥ " } else { "" };
        format!("{least}{}", report::words::load(value, &summary.unit))
    });
    let found = summary.finding.as_ref().map(report::findings::median);
    Entry {
        run: summary.run.clone(),
        workload: summary.workload.clone(),
        name: summary.name.clone(),
        result: result_cell(summary.state, found.or(capacity)),
        limit: report::words::limit_word(summary.limit, summary.certainty).to_owned(),
    }
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
    let left = columns.saturating_sub(widths.iter().sum::<usize>() + gaps).max(NAME_WIDTH_LEAST);
    for entry in entries {
        if let Some(rest) = entry.name.strip_prefix(&format!("{}: ", entry.workload)) {
            entry.name = rest.to_owned();
        }
        entry.name = clipped(&plain(&entry.name), left);
    }
}

fn show(name: &str, json: bool, plan: bool) -> Outcome {
    let run = dirs::find_run(&dirs::open_store_to_read()?, name)?;
    if plan {
        output::print(&plan_toml(&run)?)?;
    } else if json {
        output::print(&String::from_utf8_lossy(&store::export(&run)?))?;
    } else {
        let text = report::terminal::summary(&run, &output::extras(&run, None), output::style(), None);
        output::print(&text)?;
    }
    Ok(Code::Measured)
}

/// The plan file that repeats a run.
fn plan_toml(run: &Run) -> Result<String, Failure> {
    let plan: base::plan::Plan = serde_json::from_value(run.plan.clone())
        .with_context(|| format!("the plan of run {} cannot be read", run.run))?;
    Ok(plan.to_toml().with_context(|| format!("the plan of run {} cannot be written", run.run))?)
}

fn compare(names: &[String], json: bool) -> Outcome {
    let store = dirs::open_store_to_read()?;
    let runs = names.iter().map(|name| dirs::find_run(&store, name)).collect::<Result<Vec<_>, _>>()?;
    if runs.len() == 1 && runs[0].variants.len() < 2 {
        return Err(Failure::usage(
            "a run with one variant needs a second run to compare with; name two runs",
        ));
    }
    if let Some(other) = runs.iter().find(|run| run.workload != runs[0].workload) {
        let sides = [&runs[0], other].map(|run| format!("{} ({})", plain(&run.run), plain(&run.workload)));
        return Err(Failure::usage(format!(
            "{} and {} are runs of different workloads, so their numbers mean different things and cannot be \
             compared; name runs of one workload",
            sides[0], sides[1]
        )));
    }
    let comparison = store::compare::compare(&runs, output::metric_specs(&runs[0]));
    if json {
        output::print(&Document::new(&comparison).text()?)?;
    } else {
        output::print(&report::terminal::differences(&comparison, output::style()))?;
    }
    Ok(Code::Measured)
}

fn export(name: &str, path: &std::path::Path, format: Format) -> Outcome {
    let run = dirs::find_run(&dirs::open_store_to_read()?, name)?;
    let bytes = match format {
        Format::Json => store::export(&run)?,
        Format::TrialsCsv => report::export::trials_csv(&run).into_bytes(),
        Format::SeriesCsv => report::export::series_csv(&run).into_bytes(),
    };
    if path.as_os_str() == "-" {
        output::print(&String::from_utf8_lossy(&bytes))?;
    } else {
        write_atomically(path, &bytes).map_err(Failure::of_named)?;
    }
    Ok(Code::Measured)
}

fn import(files: &[PathBuf]) -> Outcome {
    let mut store = dirs::open_store()?;
    for file in files {
        let size = existing(file, "read", std::fs::Metadata::is_file, "a file")?.len();
        if size > IMPORT_BYTES_MAX {
            return Err(Failure::usage(format!(
                "{} is larger than 1 GiB, too large for a run",
                file.display()
            )));
        }
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let imported = store.import(&bytes).with_context(|| format!("cannot import {}", file.display()))?;
        let word = if imported.new { "" } else { " (was stored already)" };
        output::print(&format!("{}{word}\n", imported.run))?;
    }
    Ok(Code::Measured)
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
        let mut entries: Vec<Entry> = all.iter().map(entry).collect();
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
    }
}
