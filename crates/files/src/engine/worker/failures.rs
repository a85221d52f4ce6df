//! What failed flowops and writes mean for a thread and for the run.

use sys::clock::monotonic_ns;
use wml::Quit;

use super::super::compile::Planned;
use super::super::flowops::fault::{Fault, advice, is_final};
use super::super::report::Ended;
use super::{Stop, Worker};

/// Failures of a flowop in a row after which the run ends: it does not work.
const FAILURES_MAX: u64 = 1000;

impl Worker {
    /// What a flowop that did not succeed means for the thread and for the run.
    #[cold]
    pub(super) fn fail(&mut self, planned: &Planned, fault: Fault) -> Result<(), Stop> {
        let shared = self.shared.clone();
        let row = &shared.compiled.rows[planned.row];
        match fault {
            Fault::Skipped => {
                self.last_ns = monotonic_ns();
                return Ok(());
            }
            Fault::Over => {}
            Fault::Finished => match shared.settings.quit {
                Quit::AllDone => {}
                Quit::Timeout | Quit::FirstDone => shared.end(Ended::Done),
            },
            Fault::Exhausted { set, wanted } => match shared.settings.quit {
                Quit::AllDone => {}
                Quit::FirstDone => shared.end(Ended::Done),
                Quit::Timeout => shared.end(Ended::Exhausted(format!(
                    "after {:.1} s the fileset {set} had no file left to {wanted} for {} (line {} of \
                     the program); give it more files or use fewer threads",
                    shared.elapsed_s(),
                    row.name,
                    planned.line
                ))),
            },
            Fault::Program(problem) => {
                shared
                    .end(Ended::Failed(format!("line {}: {} cannot run: {problem}", planned.line, row.name)));
            }
            Fault::Call { call, error } => {
                let message = format!("{call}: {}", error.desc());
                let counts = &mut self.rows[planned.row];
                *counts.errors.entry(message.clone()).or_default() += 1;
                counts.failures += 1;
                let is_hopeless = is_final(error) || counts.failures >= FAILURES_MAX;
                self.last_ns = monotonic_ns();
                if !is_hopeless {
                    return Ok(());
                }
                let (name, after_s) = (&row.name, shared.elapsed_s());
                shared.end(Ended::Failed(format!(
                    "{name} failed after {after_s:.1} s: {message}{}",
                    advice(error)
                )));
            }
        }
        Err(Stop)
    }

    /// Waits for the asynchronous writes under way, and counts those that failed. A write that hangs makes
    /// this thread one that hangs.
    pub(super) fn finish_writes(&mut self) {
        for failed in self.files.outstanding.clone().finish_all() {
            let message = format!("write: {}", failed.error.desc());
            let row = &self.shared.compiled.rows[failed.row];
            if is_final(failed.error) {
                let (name, advice) = (&row.name, advice(failed.error));
                self.shared.end(Ended::Failed(format!("{name} failed: {message}{advice}")));
            }
            *self.rows[failed.row].errors.entry(message).or_default() += failed.count;
        }
    }
}
