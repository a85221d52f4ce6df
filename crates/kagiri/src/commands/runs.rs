//! `kagiri runs`: lists, shows, compares, exports, imports and removes stored runs.

mod list;
mod remove;

use std::path::PathBuf;

use anyhow::Context;
use base::outcome::Run;
use clap::Subcommand;
use report::text::plain;
use store::IMPORT_BYTES_MAX;
use store::compare::Comparison;

use crate::args::existing;
use crate::atomic_file::write_atomically;
use crate::exit::{Code, Failure, Outcome};
use crate::json_document::Document;
use crate::remote::Source;
use crate::{dirs, output, resume};

/// List, show, compare, export, import and remove stored runs.
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
        /// Include older runs, and those that failed before their first trial
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
        kagiri runs compare last               compare the variants of one run\n  \
        kagiri runs compare old.json last --fail-on worse   for a script\n\n\
        A difference is reported only if it exceeds the variation between repetitions: measure \
        with --repeat 5. --fail-on worse looks at the result (the capacity, or the main number of one load) \
        and at every metric that a plan requires something of; which direction is worse is declared with \
        each metric, or follows from the requirement.")]
    Compare {
        /// Run ids or their prefixes, 'last', 'last~1' (the run before), or exported files
        #[arg(required = true)]
        runs: Vec<String>,
        /// Exit with code 3 if a result got worse by more than the noise
        #[arg(long, value_enum, value_name = "CHANGE")]
        fail_on: Option<FailOn>,
        /// Print all numbers that differ, and notes
        #[arg(long, conflicts_with = "json")]
        full: bool,
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
    /// Remove stored runs and their reports
    Rm(remove::Remove),
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

/// The change that fails a comparison.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FailOn {
    /// A result is worse than before by more than the noise
    Worse,
}

impl Runs {
    /// Whether a console can do it: it reads stored runs alone.
    pub fn is_of_a_console(&self) -> bool {
        !matches!(self, Self::Import { .. } | Self::Rm(_) | Self::Schema)
    }

    pub fn run(self) -> Outcome {
        match self {
            Self::Import { files } => import(&files),
            Self::Rm(remove) => remove.run(),
            Self::Schema => {
                output::print(&(serde_json::to_string_pretty(&store::json_schema())? + "\n"))?;
                Ok(Code::Measured)
            }
            read => read.run_on(&Source::here()?),
        }
    }

    /// Reads stored runs of this host or of a console.
    pub fn run_on(self, source: &Source<'_>) -> Outcome {
        match self {
            Self::List { all, json } => list::list(source, all, json),
            Self::Show { run, json, plan } => show(source, &run, json, plan),
            Self::Compare { runs, fail_on, full, json } => {
                let compared = compare(source, &runs)?;
                print_comparison(&compared, full, json)?;
                Ok(match fail_on {
                    Some(FailOn::Worse) => code_of_worse(&compared),
                    None => Code::Measured,
                })
            }
            Self::Export { run, output, format } => export(source, &run, &output, format),
            Self::Import { .. } | Self::Rm(_) | Self::Schema => {
                Err(Failure::usage("only stored runs can be read there"))
            }
        }
    }
}

fn show(source: &Source<'_>, name: &str, json: bool, plan: bool) -> Outcome {
    let run = source.find(name)?;
    if plan {
        output::print(&plan_toml(&run)?)?;
    } else if json {
        output::print(&String::from_utf8_lossy(&store::export(&run)?))?;
    } else {
        let text = report::terminal::summary(&run, &output::extras(&run, None), output::style(), None);
        // A run of a file is not stored here.
        let command = resume::command(&run, &source.command()).filter(|_| source.has_stored(name));
        let more = command.map(|command| format!("Go on with it: {command}\n")).unwrap_or_default();
        output::print(&(text + &more))?;
    }
    Ok(Code::Measured)
}

/// The plan file that repeats a run.
fn plan_toml(run: &Run) -> Result<String, Failure> {
    let plan: base::plan::Plan = serde_json::from_value(run.plan.clone())
        .with_context(|| format!("the plan of run {} cannot be read", run.run))?;
    Ok(plan.to_toml().with_context(|| format!("the plan of run {} cannot be written", run.run))?)
}

fn compare(source: &Source<'_>, names: &[String]) -> Result<Comparison, Failure> {
    let runs = names.iter().map(|name| source.find(name)).collect::<Result<Vec<_>, _>>()?;
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
    Ok(store::compare::compare(&runs, output::metric_specs(&runs[0])))
}

fn print_comparison(compared: &Comparison, full: bool, json: bool) -> Result<(), Failure> {
    output::print(&match (json, full) {
        (true, _) => Document::new(compared).text()?,
        (false, true) => report::terminal::differences(compared, output::style()),
        (false, false) => report::terminal::brief_differences(compared, output::style()),
    })
}

/// What cannot be compared has not got worse, but a script should know.
fn code_of_worse(comparison: &Comparison) -> Code {
    for sentence in report::terminal::undecided(comparison) {
        output::say(&format!("--fail-on worse: not decided: {sentence}"));
    }
    let worse = report::terminal::worse(comparison);
    for sentence in &worse {
        output::say(&format!("--fail-on worse: {sentence}"));
    }
    if worse.is_empty() { Code::Measured } else { Code::RequirementMissed }
}

fn export(source: &Source<'_>, name: &str, path: &std::path::Path, format: Format) -> Outcome {
    let run = source.find(name)?;
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
