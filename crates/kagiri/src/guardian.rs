//! Starts the second process that undoes changes when this one is killed.

use std::process::Command;

use anyhow::Context;
use sys::journal::Journal;
use sys::shaping::Guardian;

use crate::exit::Failure;

/// `command`: the one whose subcommand `guard` is started.
/// Errors: it cannot be started; nothing may be changed then.
pub fn start_guardian(command: &str, journal: &Journal) -> Result<Guardian, Failure> {
    let program = std::env::current_exe().context("cannot find this program to start the guardian")?;
    let mut guard = Command::new(program);
    guard.args([command, "guard"]).arg(journal.path());
    Ok(Guardian::start(guard)?)
}
