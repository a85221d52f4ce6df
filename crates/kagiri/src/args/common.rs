//! Arguments of every command that measures.

use std::path::{Path, PathBuf};

use base::plan::Plan;
use base::units::{Span, UnitError};
use clap::{Arg, Args};

use crate::exit::Failure;

/// The help of `--ceiling`.
pub const CEILING: &str = "Known maximum of a resource (disk, network, cpu or memory), to predict the \
    load that exhausts it: disk=110Mbit/s, cpu=2cores (or cpu=200%), memory=512MiB; repeatable";

/// Arguments of every command that measures.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Result")]
pub struct MeasureArgs {
    /// Print one JSON document on standard output and nothing else
    #[arg(long)]
    pub json: bool,
    /// Write the report (HTML), the tables (CSV) and the run (JSON) into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[arg(long, value_name = "CONDITION")]
    #[arg(help = require_text("'capacity>=4' or, of streams, 'slack_min>=500ms' (least video buffered)"))]
    pub require: Vec<String>,
    /// Repeat the measurement N times [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Seed of the random numbers; the same seed repeats the same random choices [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print all tables, evidence and doubts
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Write one JSON object per line while it measures: progress, finished trials, the end; to standard
    /// output, where nothing else is written then, or to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub json_lines: Option<PathBuf>,
    /// Least time between two lines of progress of --json-lines
    #[arg(long, value_name = "TIME", hide = true, requires = "json_lines", value_parser = time)]
    pub progress_every: Option<Span>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what passed in each interval of this length
    #[arg(skip)]
    pub interval: Option<Span>,
}

/// A time on the command line: a bare number is in seconds.
pub fn time(text: &str) -> Result<Span, UnitError> {
    with_seconds(text).as_deref().unwrap_or(text).parse()
}

/// A bare number with the unit of seconds; `None` for anything else.
pub fn with_seconds(text: &str) -> Option<String> {
    let is_bare = text.trim().parse::<f64>().is_ok_and(f64::is_finite);
    is_bare.then(|| format!("{}s", text.trim()))
}

fn require_text(example: &str) -> String {
    format!("Exit with code 3 unless this holds, e.g. {example}; a wrong name lists all metrics; repeatable")
}

/// Gives `--require` an example with metrics of one workload.
pub fn require_help(example: &str) -> impl FnOnce(Arg) -> Arg {
    let text = require_text(example);
    |arg| arg.help(text)
}

impl MeasureArgs {
    pub fn has_json_lines_on_stdout(&self) -> bool {
        self.json_lines.as_ref().is_some_and(|path| path.as_os_str() == "-")
    }

    /// Whether standard output takes JSON, and no text.
    pub fn has_json_on_stdout(&self) -> bool {
        self.json || self.has_json_lines_on_stdout()
    }

    /// Applies the command line to a plan.
    pub fn over(&self, mut plan: Plan) -> Plan {
        plan.repeats = self.repeat.unwrap_or(plan.repeats);
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.require.extend(self.require.iter().cloned());
        plan
    }
}

/// Metadata of a file or directory that the user named, if it exists and is of the expected kind.
pub fn existing(
    path: &Path,
    act: &str,
    is_right: fn(&std::fs::Metadata) -> bool,
    kind: &str,
) -> Result<std::fs::Metadata, Failure> {
    let found = std::fs::metadata(path).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "run as a user who may enter it".to_owned(),
            _ => format!("give the path of {kind}"),
        };
        let problem = format!("cannot {act} {}: {error}; {advice}", path.display());
        Failure::of_named(anyhow::Error::new(error).context(problem))
    })?;
    match is_right(&found) {
        true => Ok(found),
        false => Err(Failure::usage(format!("cannot {act} {}: it is not {kind}", path.display()))),
    }
}
