//! `kagiri undo`: undoes changes that a crash left.

use std::sync::atomic::Ordering;

use clap::Args;

use crate::exit::{Code, Failure, Outcome};
use crate::leftovers::replay_all;
use crate::output;
use crate::stop::stop_flag;

/// Undo changes to this system that kagiri left behind when it crashed.
#[derive(Args)]
#[command(
    after_help = "kagiri records every change to the system (control groups, mounts, links, files) in a \
    journal before it makes the change, and undoes it at the end. This command, \
    or else the next measurement, undoes what a crash or a second Ctrl-C left.\n\n\
    Example:\n  \
    kagiri undo"
)]
pub struct Undo {}

impl Undo {
    pub fn run(self) -> Outcome {
        undo_leftovers("Nothing to undo.\n")
    }
}

/// Undoes what crashes left, and prints a line for each change, or `if_none`.
pub fn undo_leftovers(if_none: &str) -> Outcome {
    let stop = stop_flag()?;
    let all = replay_all(&stop)?;
    for line in all.iter().flat_map(|replayed| &replayed.lines) {
        output::print(&format!("{}\n", output::shown(line)))?;
    }
    if all.is_empty() {
        output::print(if_none)?;
    }
    match all.iter().map(|replayed| replayed.failed).sum::<usize>() {
        0 => Ok(Code::Measured),
        _ if stop.load(Ordering::Relaxed) => Ok(Code::Interrupted),
        n => Err(Failure::runtime(format!(
            "{n} changes or journals could not be undone; see the lines above, fix the cause and run 'kagiri \
             undo' again"
        ))),
    }
}
