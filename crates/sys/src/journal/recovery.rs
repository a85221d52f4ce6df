//! Recovers journals that a crash left behind.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use super::entry::{Header, Line, Owner, VERSION};
use super::undo::perform_for_sockets;
use super::{EntryId, Outcome, Undo, UndoResult, perform};
use crate::clock::Deadline;
use crate::proc::boot_id;
use crate::{Error, Result};

/// Larger files are no journals.
const MOST_BYTES: u64 = 16 << 20;
/// How often to look whether an owner that was killed has ended, or another program has undone a journal.
const STEP: Duration = Duration::from_millis(20);

/// A journal whose owner has died. While it exists, no other program can replay it.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
    file: Flock<File>,
    header: Header,
    pending: Vec<(EntryId, Undo)>,
    /// Lines that could not be read, other than a last one cut short.
    damaged: usize,
}

/// What crashes left in a folder.
#[derive(Debug, Default)]
pub struct Leftovers {
    /// The journals whose owner has died, in the order of their names.
    pub journals: Vec<Leftover>,
    /// Why others cannot be replayed. They stay, and do not keep these from being replayed.
    pub unreadable: Vec<Error>,
}

impl Leftover {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn owner_pid(&self) -> i32 {
        self.header.pid
    }

    /// Why not all of it can be undone: lines that could not be read.
    pub fn damage(&self) -> Option<Error> {
        let (damaged, path) = (self.damaged, self.path.display());
        (damaged > 0).then(|| {
            Error::Refused(format!(
                "the journal {path} has {damaged} damaged lines: the changes that they name are not undone; \
                 undo them by hand, then remove the file"
            ))
        })
    }

    /// What is to be undone, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Undo> {
        self.pending.iter().map(|(_, undo)| undo)
    }

    /// Undoes everything, newest first, continuing after failures. Failed steps are tried once more at the
    /// end, since a later step may have ended the process in their way. Removes the journal when all is
    /// settled, else keeps the failures for another attempt.
    pub fn replay(self) -> Vec<UndoResult> {
        self.replay_with(&|_| None)
    }

    /// [`Self::replay`], where `by_caller` undoes what it returns an outcome for.
    pub fn replay_with(mut self, by_caller: &dyn Fn(&Undo) -> Option<Outcome>) -> Vec<UndoResult> {
        let mut results: Vec<UndoResult> = Vec::new();
        let mut failed: Vec<(usize, EntryId)> = Vec::new();
        let mut restored = match self.header.boot_id == boot_id() {
            true => perform_for_sockets(&self.pending),
            false => HashMap::new(),
        };
        while let Some((id, undo)) = self.pending.pop() {
            let result = match restored.remove(&id) {
                Some(outcome) => self.settle(id, UndoResult { undo, outcome }),
                None => self.perform(id, undo, by_caller),
            };
            if !result.outcome.is_settled() {
                failed.push((results.len(), id));
            }
            results.push(result);
        }
        for (place, id) in failed {
            if results[place..].iter().any(|result| result.outcome == Outcome::Done) {
                results[place] = self.perform(id, results[place].undo.clone(), by_caller);
            }
        }
        if results.iter().all(|result| result.outcome.is_settled()) && self.damaged == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
        results
    }

    fn perform(&self, id: EntryId, undo: Undo, by_caller: &dyn Fn(&Undo) -> Option<Outcome>) -> UndoResult {
        // After a restart of the machine only files and objects are left; a process or device of that name is
        // another one.
        let survives = matches!(
            undo,
            Undo::RemoveFile { .. }
                | Undo::RemoveFolder { .. }
                | Undo::RemoveTree { .. }
                | Undo::DeleteObjects { .. }
        );
        let result = if let Some(outcome) = by_caller(&undo) {
            UndoResult { undo, outcome }
        } else if survives || self.header.boot_id == boot_id() {
            perform(undo)
        } else {
            UndoResult { undo, outcome: Outcome::AlreadyGone }
        };
        self.settle(id, result)
    }

    /// Writes down that an entry is settled, if it is.
    fn settle(&self, id: EntryId, result: UndoResult) -> UndoResult {
        if result.outcome.is_settled()
            && let Ok(line) = serde_json::to_string(&Line::Done { done: id })
        {
            // If this is lost, the next replay finds nothing to do.
            let _ = writeln!(&*self.file, "{line}");
        }
        result
    }
}

/// Waits at most `patience` until the journal at `path` can be replayed because its owner has ended, looking
/// every `step`. `None`: it does not exist any more, so its owner has ended in good order, or the owner
/// lives.
pub(super) fn wait_for(path: &Path, patience: Duration, step: Duration) -> Result<Option<Leftover>> {
    let deadline = Deadline::after(patience);
    loop {
        match open(path)? {
            Opened::Leftover(leftover) => return Ok(Some(leftover)),
            Opened::Nothing if !path.exists() => return Ok(None),
            _ => {}
        }
        if !deadline.pause(step) {
            return Ok(None);
        }
    }
}

pub(super) fn find(folder: &Path, patience: Duration) -> Result<Leftovers> {
    if !super::check_private_folder(folder)? {
        return Ok(Leftovers::default());
    }
    let entries =
        std::fs::read_dir(folder).map_err(|error| Error::file("read journal folder", folder, error))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    paths.sort_unstable();
    let mut found = Leftovers::default();
    let deadline = Deadline::after(patience);
    for path in paths {
        let opened = loop {
            match open(&path) {
                Ok(Opened::Busy(_)) if !deadline.passed() => std::thread::sleep(STEP),
                opened => break opened,
            }
        };
        match opened {
            Ok(Opened::Leftover(leftover)) => found.journals.push(leftover),
            Ok(Opened::Nothing) => {}
            Ok(Opened::Busy(why)) => found.unreadable.push(Error::Refused(format!(
                "the journal {}, after {} s: {why}, so what it names is not undone; try again",
                path.display(),
                patience.as_secs()
            ))),
            Err(error) => found.unreadable.push(error),
        }
    }
    Ok(found)
}

enum Opened {
    Leftover(Leftover),
    /// Its owner lives, or has ended in good order.
    Nothing,
    /// Soon it may be a leftover; the reason why it is not yet.
    Busy(String),
}

/// Opens one journal.
fn open(path: &Path) -> Result<Opened> {
    // A FIFO of that name must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).append(true).custom_flags(flags).open(path);
    let file = match file {
        Ok(file) => file,
        // Its owner has just ended in good order.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Opened::Nothing),
        Err(error) => return Err(Error::file("open journal", path, error)),
    };
    let refuse = |why: &str| {
        Err(Error::Refused(format!(
            "the journal {} {why}: what it names is not undone; undo it by hand, then remove the file",
            path.display()
        )))
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return refuse("is no file");
    }
    let Ok(file) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
        return Ok(Opened::Busy("another program is undoing it".to_owned()));
    };
    if !path.exists() {
        // The program that held the lock has undone it.
        return Ok(Opened::Nothing);
    }
    let mut text = Vec::new();
    (&*file)
        .take(MOST_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| Error::file("read journal", path, error))?;
    if text.len() as u64 > MOST_BYTES {
        return refuse("is longer than 16 MiB");
    }
    let Some(whole) = text.iter().rposition(|byte| *byte == b'\n') else {
        // The owner was interrupted before its first line was whole, so before any change; or it is writing
        // it now.
        return Ok(Opened::Nothing);
    };
    let mut lines = text.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let Ok(header) = serde_json::from_slice::<Header>(first) else {
        return refuse("has a damaged first line");
    };
    match header.owner() {
        Owner::Lives => return Ok(Opened::Nothing),
        Owner::Ends => {
            return Ok(Opened::Busy(format!("its process {} was killed and has not ended", header.pid)));
        }
        Owner::Ended => {}
    }
    if !is_at(&file, path) {
        // The owner wrote its journal anew after this file was opened.
        return Ok(Opened::Busy("its owner wrote it anew and has ended".to_owned()));
    }
    if header.kagiri_journal > VERSION {
        return Err(Error::Refused(format!(
            "the journal {} was written by a newer kagiri (format {}); undo it with that one",
            path.display(),
            header.kagiri_journal
        )));
    }
    // What replaying appends must not become part of a line that was cut short.
    file.set_len(whole as u64 + 1).map_err(|error| Error::file("write journal", path, error))?;
    let (pending, damaged) = parse_lines(lines);
    Ok(Opened::Leftover(Leftover { path: path.to_path_buf(), file, header, pending, damaged }))
}

/// Whether `path` is the name of `file`.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    let named = std::fs::symlink_metadata(path).map(place);
    file.metadata().map(place).is_ok_and(|opened| named.is_ok_and(|named| named == opened))
}

/// What is still to be undone, and how many lines could not be read. What follows the last line end is a line
/// whose writing was interrupted (or nothing); no change was made for that line.
fn parse_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> (Vec<(EntryId, Undo)>, usize) {
    let mut pending = Vec::new();
    let mut damaged = 0;
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_none() {
            break;
        }
        match serde_json::from_slice(line) {
            Ok(Line::Undo { id, undo }) => pending.push((id, undo)),
            Ok(Line::Done { done }) => pending.retain(|(id, _)| *id != done),
            Err(_) => damaged += 1,
        }
    }
    (pending, damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> (Vec<(EntryId, Undo)>, usize) {
        parse_lines(text.as_bytes().split(|byte| *byte == b'\n'))
    }

    const A: &str = r#"{"id":1,"undo":{"do":"remove_file","path":"/a"}}"#;
    const B: &str = r#"{"id":2,"undo":{"do":"kill_process","pid":7,"start_ticks":9,"group":true}}"#;

    #[test]
    fn done_entries_are_dropped_and_cut_lines_ignored() {
        let (pending, damaged) = parse(&format!("{A}\n{B}\n{{\"done\":1}}\n{{\"id\":3,\"un"));
        assert_eq!(damaged, 0);
        assert_eq!(pending, [(EntryId(2), Undo::KillProcess { pid: 7, start_ticks: 9, group: true })]);
        // Even a cut that happens to look whole: it was not synced.
        assert_eq!(parse(A), (Vec::new(), 0));
    }

    #[test]
    fn damaged_lines_are_counted_and_skipped() {
        let (pending, damaged) = parse(&format!("{A}\ngarbage\n{B}\n"));
        assert_eq!((pending.len(), damaged), (2, 1));
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text: Vec<u8>) {
            parse_lines(text.split(|byte| *byte == b'\n'));
        }
    }
}
