//! `--calls` of the measuring commands: parts time their own system calls; those of this process can be
//! drawn.

use std::path::PathBuf;

use clap::Args;
use observe::timeline::self_trace;
use serde_json::json;
use workload::calls;
use workload::settings::Settings;

use crate::args::WorkloadArgs;
use crate::exit::{Code, Failure, Outcome};
use crate::output;
use crate::pictures::Pictures;

/// Most spans that a part keeps for the picture, of 40 bytes each.
const SPANS_MAX: usize = 2_000_000;

/// Arguments for timing kagiri's own system calls.
#[derive(Args)]
pub struct CallArgs {
    /// As --calls, and write a timeline of this host's calls as an HTML page that works offline
    #[arg(long, value_name = "FILE")]
    calls_html: Option<PathBuf>,
    /// As --calls, and write this host's calls as a trace for Perfetto
    #[arg(long, value_name = "FILE")]
    calls_pftrace: Option<PathBuf>,
}

impl CallArgs {
    /// Turns on `calls` where a picture is asked for.
    pub fn want<S: Settings>(&self, settings: &mut WorkloadArgs<S>) {
        if self.calls_html.is_some() || self.calls_pftrace.is_some() {
            settings.set("calls", json!(true));
        }
    }

    /// Runs `measure` and writes the pictures of its calls.
    pub fn draw(&self, target: &str, is_quiet: bool, measure: impl FnOnce() -> Outcome) -> Outcome {
        let pictures =
            Pictures { html: self.calls_html.as_deref(), pftrace: self.calls_pftrace.as_deref(), is_quiet };
        if !pictures.are_wanted() {
            return measure();
        }
        pictures.check()?;
        calls::keep(SPANS_MAX);
        let measured = measure();
        let written = match self_trace::watched(target, &calls::take_kept()) {
            Some(watched) => pictures.write(&watched),
            None => Err(Failure::runtime("no calls were timed in this process, so there is no picture")),
        };
        match (measured, written) {
            (Ok(Code::Measured), Err(failure)) => Err(failure),
            // The result of the measurement is more important.
            (Ok(code), Err(failure)) => {
                output::error_line(&failure.to_string());
                Ok(code)
            }
            (measured, _) => measured,
        }
    }
}
