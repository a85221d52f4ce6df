//! `kagiri undo`: put back whatever a crash left changed.

use clap::Args;
use sys::journal::Journal;

use crate::exit::{Code, Failure, Outcome};
use crate::{measure, output};

/// Put back whatever a crash left changed on this system.
#[derive(Args)]
#[command(
    after_help = "Whatever a measurement changes (groups, mounts, links, files) is written down first and put back at its \
    end. After a crash or a second Ctrl-C this puts back the rest; the next measurement does so too. It touches \
    nothing else, and says so if there is nothing.\n\n\
    Example:\n  \
    kagiri undo"
)]
pub struct Undo {}

/// What came of one crashed process's journal.
pub struct Replayed {
    /// One line for every change that was looked at.
    pub lines: Vec<String>,
    /// How many changes could not be put back.
    pub failed: usize,
}

/// Replay the journals of all processes that are no more.
///
/// # Errors
/// The folder of the journals cannot be read, so that what was left is not known.
pub fn replay_all() -> Result<Vec<Replayed>, sys::Error> {
    let leftovers = Journal::leftovers(&measure::journal_dir())?;
    let replay = |leftover| {
        let results = Journal::replay(leftover);
        let failed = results.iter().filter(|result| !result.outcome.is_settled()).count();
        Replayed { lines: results.iter().map(ToString::to_string).collect(), failed }
    };
    Ok(leftovers.into_iter().map(replay).collect())
}

impl Undo {
    /// Do it, and say what was done.
    pub fn perform(self) -> Outcome {
        let all = replay_all()?;
        for line in all.iter().flat_map(|replayed| &replayed.lines) {
            output::print(&format!("{line}\n"));
        }
        if all.is_empty() {
            output::print("Nothing was left changed.\n");
        }
        match all.iter().map(|replayed| replayed.failed).sum::<usize>() {
            0 => Ok(Code::Measured),
            n => Err(Failure::World(anyhow::anyhow!(
                "{n} changes could not be put back; see the lines above, mend the cause and run 'kagiri undo' again"
            ))),
        }
    }
}
