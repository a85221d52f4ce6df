//! Arguments of every command that measures.

use std::path::{Path, PathBuf};

use anyhow::Context;
use base::plan::Plan;
use clap::Args;

use crate::exit::Failure;

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
    /// Exit with code 3 unless this condition holds: a metric of the JSON document or 'capacity', e.g.
    /// 'capacity>=4' or 'slack_min>=500ms'; repeatable
    #[arg(long, value_name = "CONDITION")]
    pub require: Vec<String>,
    /// Repeat the measurement N times, with interleaved variants [default: 1, or as in the plan]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Seed of the random numbers: the same seed offers the same load [default: 1, or as in the plan]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl MeasureArgs {
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
    let found = std::fs::metadata(path).with_context(|| format!("cannot {act} {}", path.display()));
    let found = found.map_err(Failure::of_named)?;
    match is_right(&found) {
        true => Ok(found),
        false => Err(Failure::usage(format!("cannot {act} {}: it is not {kind}", path.display()))),
    }
}
