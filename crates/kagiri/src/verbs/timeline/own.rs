//! `--calls` of the measuring verbs: parts time their own calls, and those of this process can be drawn.

use std::path::PathBuf;

use clap::Args;
use observe::timeline::own;
use workload::calls;

use super::Pictures;
use crate::exit::{Code, Failure, Outcome};
use crate::output;

/// The most spans that a part keeps for the picture; each takes 40 bytes of memory.
const SPANS_MAX: usize = 2_000_000;

/// What a measurement tells of its own calls.
#[derive(Args)]
pub struct CallArgs {
    /// Time the calls to the kernel that carry the load, and show where the time went, blocked and ready ones apart; of
    /// another program: kagiri timeline
    #[arg(long)]
    calls: bool,
    /// With the picture of those that are made here (not on other hosts), one page that works offline
    #[arg(long, value_name = "FILE")]
    calls_html: Option<PathBuf>,
    /// With the same picture for Perfetto
    #[arg(long, value_name = "FILE")]
    calls_pftrace: Option<PathBuf>,
}

impl CallArgs {
    /// Whether calls are timed.
    pub fn are_wanted(&self) -> bool {
        self.calls || self.calls_html.is_some() || self.calls_pftrace.is_some()
    }

    /// Measures, and writes the pictures of that.
    pub fn draw(&self, target: &str, is_quiet: bool, measure: impl FnOnce() -> Outcome) -> Outcome {
        let pictures =
            Pictures { html: self.calls_html.as_deref(), pftrace: self.calls_pftrace.as_deref(), is_quiet };
        if !pictures.are_wanted() {
            return measure();
        }
        pictures.check()?;
        calls::keep(SPANS_MAX);
        let measured = measure();
        let written = match own::watched(target, &calls::take_kept()) {
            Some(watched) => pictures.write(&watched),
            None => Err(Failure::World(anyhow::anyhow!(
                "no calls were timed in this process: there is no picture"
            ))),
        };
        match (measured, written) {
            (Ok(Code::Measured), Err(failure)) => Err(failure),
            // What the measurement came to says more.
            (Ok(code), Err(failure)) => {
                output::error_line(&failure.to_string());
                Ok(code)
            }
            (measured, _) => measured,
        }
    }
}
