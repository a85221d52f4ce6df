//! `kagiri runs rm`.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use base::format::plural;
use base::outcome::State;
use clap::Args;
use jiff::{Span, Timestamp, Zoned};
use report::text::plain;
use store::{Filter, RunSummary};

use crate::exit::{Code, Failure, Outcome};
use crate::{dirs, output};

/// Remove stored runs and their reports.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    kagiri runs rm last\n  \
    kagiri runs rm 20261121-143012-k3f9 last~1\n  \
    kagiri runs rm --older-than 30d\n\n\
    If one of the runs cannot be removed, none is. Later runs use the space; the file of the runs does not \
    shrink.")]
pub struct Remove {
    /// Run ids or their prefixes, 'last', 'last~1' (the run before)
    #[arg(value_name = "RUN", required_unless_present = "older_than")]
    runs: Vec<String>,
    /// Remove all runs that began longer ago than this, except those that are being measured
    #[arg(long, value_name = "TIME", conflicts_with = "runs", value_parser = age)]
    older_than: Option<Span>,
}

/// A length of time with days and weeks: `30d`.
fn age(text: &str) -> Result<Span, String> {
    let span = text.parse::<Span>().ok().filter(|span| !span.is_negative());
    span.ok_or_else(|| "write a number with a unit: 12h, 30d, 8w".to_owned())
}

impl Remove {
    pub fn run(self) -> Outcome {
        // Where there is no store, none is made.
        let mut store = dirs::open_store_to_read()?;
        let stored = store.list(&Filter::default())?;
        let ids: BTreeSet<String> = match &self.older_than {
            Some(age) => {
                let until = Zoned::now().checked_sub(*age).map_err(Failure::usage)?.timestamp();
                older(&stored, until).map(|summary| summary.run.clone()).collect()
            }
            None => self.runs.iter().map(|name| store.resolve_id(name)).collect::<Result<_, _>>()?,
        };
        store.delete(&ids.iter().cloned().collect::<Vec<_>>())?;
        if ids.is_empty() {
            output::print("There are no runs that old.\n")?;
        }
        for summary in stored.iter().filter(|summary| ids.contains(&summary.run)) {
            let report = if remove_report(&summary.run)? { " and its report" } else { "" };
            output::print(&format!(
                "removed {}{report} ({}, {})\n",
                summary.run,
                plain(&summary.name),
                plural(summary.trials.into(), "trial")
            ))?;
        }
        Ok(Code::Measured)
    }
}

/// Runs that began before a moment and are not being measured.
fn older(stored: &[RunSummary], until: Timestamp) -> impl Iterator<Item = &RunSummary> {
    stored.iter().filter(move |summary| summary.started_at < until && summary.state != State::Running)
}

/// Whether there was a report of the run beside the results.
fn remove_report(run: &str) -> Result<bool, Failure> {
    let path = dirs::report_file(run)?;
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Failure::runtime(format!(
            "run {run} was removed, but not its report {}: {error}; remove it yourself",
            path.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_a_length_of_time_that_is_not_negative() {
        for text in ["30d", "12h", "8w", "90min", "1d 12h"] {
            assert!(age(text).is_ok(), "{text}");
        }
        for text in ["", "30", "-30d", "d", "soon"] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
