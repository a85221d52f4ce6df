//! `kagiri qos clear`: no policy in force any more.

use std::time::Duration;

use clap::Args;

use super::{check_root, record};
use crate::commands::undo::undo_leftovers;
use crate::exit::Outcome;
use crate::output;

/// How long a policy in force may take to put back all sockets. After that it is killed, and its guardian
/// puts them back.
const END_WITHIN: Duration = Duration::from_secs(10);

/// End all policies in force, and put back what a crash left.
#[derive(Args)]
#[command(after_help = "Needs root.\n\nExample:\n  kagiri qos clear")]
pub struct Clear {}

impl Clear {
    pub fn run(self) -> Outcome {
        check_root("qos clear ends programs of root")?;
        let policies = record::in_force()?;
        let mut ended = String::new();
        let mut failed = None;
        for record in &policies {
            let name = format!("{} (process {})", output::shown(&record.policy), record.pid);
            output::say(&format!("Ending {name}"));
            match sys::process::terminate(record.pid, record.start_ticks, END_WITHIN) {
                Ok(()) => ended += &format!("Ended {name}.\n"),
                Err(error) => failed = Some(error),
            }
        }
        // One policy that does not end, or an answer that cannot be written, keeps nothing else in force.
        let undone = undo_leftovers(if policies.is_empty() { "No policy is in force.\n" } else { "" });
        output::print(&ended)?;
        failed.map_or(undone, |error| Err(error.into()))
    }
}
