//! `kagiri tune undo`: no setting changed any more.

use std::time::Duration;

use clap::Args;

use super::record;
use crate::commands::qos::check_root;
use crate::commands::undo::undo_leftovers;
use crate::exit::Outcome;
use crate::output;

/// How long a process may take to restore its settings. After that it is killed, and its guardian restores
/// them.
const END_WITHIN: Duration = Duration::from_secs(10);

/// End each 'tune set' that runs, and restore what a crash left.
#[derive(Args)]
#[command(after_help = "Settings that 'tune set --keep' has left are not undone: it printed the commands \
    for that. Needs root.\n\nExample:\n  kagiri tune undo")]
pub struct Undo {}

impl Undo {
    pub fn run(self) -> Outcome {
        check_root("tune undo changes settings of the kernel")?;
        let records = record::running()?;
        let mut ended = String::new();
        let mut failed = None;
        for record in &records {
            match sys::process::terminate(record.pid, record.start_ticks, END_WITHIN) {
                Ok(()) => {
                    ended +=
                        &format!("Ended process {}, which had set {}.\n", record.pid, record.assignments())
                }
                Err(error) => failed = Some(error),
            }
        }
        // One process that does not end must not keep the others' changes.
        let undone =
            undo_leftovers(if records.is_empty() { "'kagiri tune set' has changed nothing.\n" } else { "" });
        // `shown` takes the last line's end.
        if !ended.is_empty() {
            output::print(&(output::shown(&ended) + "\n"))?;
        }
        failed.map_or(undone, |error| Err(error.into()))
    }
}
