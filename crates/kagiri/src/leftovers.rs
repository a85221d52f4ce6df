//! Undoes what crashed processes left changed on this system.

use std::time::Duration;

use sys::journal::{Journal, Leftover};

use crate::dirs::journal_dir;

/// How long to wait for a killed process to end, and for another program that undoes a journal.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of replaying the journal of one crashed process.
pub struct Replayed {
    /// One line per change.
    pub lines: Vec<String>,
    /// Number of changes that could not be undone.
    pub failed: usize,
}

/// Replays the journals of all processes that have ended.
/// Errors: The journals cannot be read.
pub fn replay_all() -> Result<Vec<Replayed>, sys::Error> {
    let leftovers = Journal::leftovers(&journal_dir(), PATIENCE)?;
    let replay = |leftover: Leftover| {
        let damage = leftover.damage();
        let results = leftover.replay();
        let failed = results.iter().filter(|result| !result.outcome.is_settled()).count();
        let lines = results.iter().map(ToString::to_string).chain(damage.iter().map(ToString::to_string));
        Replayed { lines: lines.collect(), failed: failed + usize::from(damage.is_some()) }
    };
    let unreadable = |error: sys::Error| Replayed { lines: vec![error.to_string()], failed: 1 };
    let unreadable = leftovers.unreadable.into_iter().map(unreadable);
    Ok(leftovers.journals.into_iter().map(replay).chain(unreadable).collect())
}

/// Undoes what crashed processes left, before anything else is changed.
pub fn clean_leftovers(say: &dyn Fn(&str)) {
    match replay_all() {
        Ok(results) => results.iter().flat_map(|leftover| &leftover.lines).for_each(|line| say(line)),
        Err(error) => say(&format!("cannot read what a crash may have left: {error}")),
    }
}
