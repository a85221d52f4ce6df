//! Undoes what crashed processes left changed on this system.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use files::objects::access::address::Address;
use files::objects::access::leftover::remove_leftover;
use sys::journal::{Journal, Leftover, Outcome, Undo, UndoResult};

use crate::dirs::journal_dir;

/// How long to wait for a killed process to end, and for another program that undoes a journal.
const PATIENCE: Duration = Duration::from_secs(10);
/// Changes of one kind and process that are listed when all went well; more are counted.
const DONE_SHOWN: usize = 8;

/// Result of replaying the journal of one crashed process.
pub struct Replayed {
    /// A line for each change that is left, and for the first ones that were undone.
    pub lines: Vec<String>,
    /// Number of changes that could not be undone.
    pub failed: usize,
}

/// Replays the journals of all processes that have ended; the deletion of objects ends when `stop` is raised.
/// Errors: The journals cannot be read.
pub fn replay_all(stop: &AtomicBool) -> Result<Vec<Replayed>, sys::Error> {
    let leftovers = Journal::leftovers(&journal_dir(), PATIENCE)?;
    let replay = |leftover: Leftover| {
        let damage = leftover.damage();
        let journal = leftover.path().to_owned();
        let results = leftover.replay_with(&|undo| delete_objects(undo, stop));
        let failed = results.iter().filter(|result| is_left(result)).count();
        let (left, done): (Vec<&UndoResult>, Vec<&UndoResult>) =
            results.iter().partition(|result| is_left(result));
        let mut lines = shortened(&done);
        lines.extend(left.iter().map(ToString::to_string));
        lines.extend(damage.iter().map(ToString::to_string));
        if results.iter().any(|result| is_tree(result) && !result.outcome.is_settled()) {
            // A disk that never returns must not keep this command from ever succeeding.
            lines.push(format!(
                "What is on a file system that is not mounted or does not answer stays in the journal: mount \
                 it, or remove the journal's file {}",
                journal.display()
            ));
        }
        Replayed { lines, failed: failed + usize::from(damage.is_some()) }
    };
    let unreadable = |error: sys::Error| Replayed { lines: vec![error.to_string()], failed: 1 };
    let unreadable = leftovers.unreadable.into_iter().map(unreadable);
    Ok(leftovers.journals.into_iter().map(replay).chain(unreadable).collect())
}

/// A line for each change, but for the many of one kind.
fn shortened(done: &[&UndoResult]) -> Vec<String> {
    let mut counts: HashMap<Discriminant<Undo>, usize> = HashMap::new();
    let mut lines = Vec::new();
    for result in done {
        let count = counts.entry(discriminant(&result.undo)).or_default();
        *count += 1;
        if *count <= DONE_SHOWN {
            lines.push(result.to_string());
        }
    }
    let more: usize = counts.values().map(|count| count.saturating_sub(DONE_SHOWN)).sum();
    lines.extend((more > 0).then(|| format!("... and {more} more changes of these kinds")));
    lines
}

fn is_tree(result: &UndoResult) -> bool {
    matches!(result.undo, Undo::RemoveTree { .. })
}

/// Whether the user has to look at it: a folder that lost its mark is not tried again.
fn is_left(result: &UndoResult) -> bool {
    !result.outcome.is_settled() || is_tree(result) && matches!(result.outcome, Outcome::NotOurs(_))
}

/// Deletes objects with the credentials of the environment.
fn delete_objects(undo: &Undo, stop: &AtomicBool) -> Option<Outcome> {
    let Undo::DeleteObjects { bucket, prefix, endpoint } = undo else { return None };
    let own = Address { bucket: bucket.clone(), prefix: prefix.clone() };
    Some(match remove_leftover(&own, endpoint.as_deref(), stop) {
        Ok(removed) if removed.deleted == 0 => Outcome::AlreadyGone,
        Ok(_) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    })
}

/// Undoes what crashed processes left, before anything else is changed.
pub fn clean_leftovers(stop: &AtomicBool, say: &dyn Fn(&str)) {
    match replay_all(stop) {
        Ok(results) => results.iter().flat_map(|leftover| &leftover.lines).for_each(|line| say(line)),
        Err(error) => say(&format!("cannot read what a crash may have left: {error}")),
    }
}
