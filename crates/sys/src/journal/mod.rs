//! The undo journal: what must be put back if this program does not get to do it itself.
//!
//! Every change to the system is written here, and on the disk, before it is made. An entry says how to undo
//! one change and how to recognise that it is still ours to undo. When the program ends, it undoes what is
//! left, newest first; after a crash `kagiri undo` finds the journals whose owner is dead and does the same.
//! Undoing is idempotent: what is already gone counts as done.
//!
//! One file per owner, JSON lines: a header naming the owner, then `{"id":1,"undo":{...}}` before each change
//! and `{"done":1}` after it was undone. A last line cut short belongs to a change that was never begun. A
//! file that has grown long is written anew with what is still to be undone.

mod entry;
mod file_system;
pub(crate) mod network;
pub(crate) mod ownership;
mod processes;
mod recovery;
mod remove_tree;
mod undo;

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::unistd::Uid;

pub use entry::{Outcome, SocketId, Undo, UndoResult};
pub use file_system::FileSystem;
pub use recovery::{Leftover, Leftovers};
pub(crate) use remove_tree::outcome_of;
pub(crate) use undo::perform;

use crate::{Error, Result};
use entry::{Header, Line};
use undo::{Removed, perform_by};

/// A file longer than this is written anew. Readers refuse one of 16 MiB.
const COMPACT_BYTES: u64 = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct EntryId(u64);

/// The undo journal of this process. Copies share one file; dropping the last one undoes all pending changes
/// and, if that succeeded, removes the file.
#[derive(Debug, Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    header: Header,
    /// Length of the file, and at which it is written anew.
    bytes: u64,
    compact_bytes: u64,
    next_id: u64,
    /// Changes made and not yet undone, oldest first.
    pending: Vec<(EntryId, Undo)>,
}

/// Where journals are kept: `/run/kagiri` for root, else `RUNTIME/kagiri` in the user's runtime folder
/// (`$XDG_RUNTIME_DIR`, which the caller reads), else `/tmp/kagiri-UID`.
pub fn default_folder(runtime_folder: Option<&Path>) -> PathBuf {
    let user = Uid::effective();
    match runtime_folder {
        _ if user.is_root() => PathBuf::from("/run/kagiri"),
        Some(folder) if folder.is_absolute() => folder.join("kagiri"),
        _ => PathBuf::from(format!("/tmp/kagiri-{user}")),
    }
}

impl Journal {
    /// Opens a new journal of this process in `folder`, making the folder (mode 0700) if need be.
    /// Errors: the folder belongs to another user or others may write to it, or the file cannot be created.
    pub fn open(folder: &Path) -> Result<Self> {
        make_private_folder(folder)?;
        let header = Header::of_this_process()?;
        let (path, file) = create_file(folder, &header)?;
        let mut state =
            State { file, header, bytes: 0, compact_bytes: COMPACT_BYTES, next_id: 1, pending: Vec::new() };
        state.bytes = append(&mut state.file, &path, &state.header)?;
        state.file.sync_data().map_err(|error| Error::file("write journal", &path, error))?;
        // The name must survive a crash as well.
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|e| Error::file("sync", folder, e))?;
        Ok(Self { shared: Arc::new(Shared { path, state: Mutex::new(state) }) })
    }

    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Writes `undo` down and waits until it is on the disk. Call it before the change; when it fails, do not
    /// make the change.
    pub fn record(&self, undo: Undo) -> Result<EntryId> {
        self.record_all(vec![undo]).map(|ids| ids[0])
    }

    /// [`Journal::record`] for several changes with one wait for the disk: the first is undone last.
    pub fn record_all(&self, undos: Vec<Undo>) -> Result<Vec<EntryId>> {
        let mut state = self.state();
        state.compact(&self.shared.path);
        let ids: Vec<EntryId> = (state.next_id..).map(EntryId).take(undos.len()).collect();
        state.next_id += undos.len() as u64;
        let mut written = Vec::with_capacity(undos.len());
        for (id, undo) in ids.iter().copied().zip(undos) {
            state.append(&self.shared.path, &Line::Undo { id, undo: undo.clone() })?;
            written.push((id, undo));
        }
        state.file.sync_data().map_err(|error| Error::file("write journal", &self.shared.path, error))?;
        // Only now: what could not be written down is not made, so it must not be undone.
        state.pending.extend(written);
        Ok(ids)
    }

    /// Says that the change of entry `id` no longer exists: it was undone by other means, or never made.
    pub fn done(&self, id: EntryId) -> Result<()> {
        self.done_all(&[id])
    }

    /// [`Journal::done`] for several entries.
    pub fn done_all(&self, ids: &[EntryId]) -> Result<()> {
        let done: HashSet<EntryId> = ids.iter().copied().collect();
        let mut state = self.state();
        state.pending.retain(|(pending, _)| !done.contains(pending));
        // Not synced: if a line is lost, undoing again finds nothing to do.
        ids.iter().try_for_each(|id| state.append(&self.shared.path, &Line::Done { done: *id }))
    }

    /// Undoes entry `id` now. `None` when it is already done.
    pub fn undo(&self, id: EntryId) -> Option<UndoResult> {
        self.settle(id, perform)
    }

    /// [`Self::undo`], where `step` undoes it by what the caller holds open, and counts what it removes.
    pub(crate) fn undo_by(
        &self,
        id: EntryId,
        step: Arc<dyn Fn(&Removed) -> Outcome + Send + Sync>,
    ) -> Option<UndoResult> {
        self.settle(id, |undo| perform_by(undo, step))
    }

    fn settle(&self, id: EntryId, perform: impl FnOnce(Undo) -> UndoResult) -> Option<UndoResult> {
        let undo =
            self.state().pending.iter().find(|(pending, _)| *pending == id).map(|(_, undo)| undo.clone())?;
        // Not under the lock: undoing may take seconds.
        let result = perform(undo);
        if result.outcome.is_settled() {
            // The change is undone even if that cannot be written down.
            let _ = self.done(id);
        }
        Some(result)
    }

    /// Undoes all that is left, newest first, going on after failures. Failed entries stay in the journal.
    pub fn undo_all(&self) -> Vec<UndoResult> {
        let pending = self.state().pending.clone();
        self.undo_pending(pending)
    }

    /// [`Self::undo_all`] for these entries.
    pub fn undo_each(&self, ids: &[EntryId]) -> Vec<UndoResult> {
        let wanted: HashSet<EntryId> = ids.iter().copied().collect();
        let pending = self.state().pending.clone();
        self.undo_pending(pending.into_iter().filter(|(id, _)| wanted.contains(id)).collect())
    }

    fn undo_pending(&self, pending: Vec<(EntryId, Undo)>) -> Vec<UndoResult> {
        let mut restored = undo::perform_for_sockets(&pending);
        let settled = restored.iter().filter(|(_, outcome)| outcome.is_settled()).map(|(id, _)| *id);
        // The changes are undone even if that cannot be written down.
        let _ = self.done_all(&settled.collect::<Vec<_>>());
        let undo = |(id, undo)| match restored.remove(&id) {
            Some(outcome) => Some(UndoResult { undo, outcome }),
            None => self.undo(id),
        };
        pending.into_iter().rev().filter_map(undo).collect()
    }

    /// How many changes are not undone yet.
    pub fn pending(&self) -> usize {
        self.state().pending.len()
    }

    /// What crashes left in `folder`. A folder that does not exist holds nothing. Waits at most `patience`
    /// for owners that were killed to end, and for other programs that undo a journal.
    pub fn leftovers(folder: &Path, patience: Duration) -> Result<Leftovers> {
        recovery::find(folder, patience)
    }

    /// The journal at `path` as soon as its owner, which is ending, has ended; looks every `step`. `None`:
    /// the owner has removed it in good order, or still lives after `patience`.
    pub fn leftover_at(path: &Path, patience: Duration, step: Duration) -> Result<Option<Leftover>> {
        recovery::wait_for(path, patience, step)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep changes from being undone; the state is consistent after each
        // statement.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn append(&mut self, path: &Path, line: &Line) -> Result<()> {
        self.bytes += append(&mut self.file, path, line)?;
        Ok(())
    }

    /// Writes the file anew if it has grown long: for a program that changes and restores for days. If that
    /// fails, the old file is used on.
    fn compact(&mut self, path: &Path) {
        if self.bytes < self.compact_bytes {
            return;
        }
        let write = || -> Result<(File, u64)> {
            let new = path.with_extension("new");
            let failed = |error| Error::file("write journal", &new, error);
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
            let mut file = options.open(&new).map_err(failed)?;
            file.set_len(0).map_err(failed)?;
            let mut bytes = append(&mut file, &new, &self.header)?;
            for (id, undo) in &self.pending {
                bytes += append(&mut file, &new, &Line::Undo { id: *id, undo: undo.clone() })?;
            }
            file.sync_data().and_then(|()| std::fs::rename(&new, path)).map_err(failed)?;
            if let Some(folder) = path.parent() {
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
            }
            Ok((file, bytes))
        };
        if let Ok((file, bytes)) = write() {
            (self.file, self.bytes) = (file, bytes);
        }
        self.compact_bytes = COMPACT_BYTES.max(2 * self.bytes);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut all = true;
        let mut restored = undo::perform_for_sockets(&state.pending);
        while let Some((id, undo)) = state.pending.pop() {
            if restored.remove(&id).unwrap_or_else(|| perform(undo).outcome).is_settled() {
                let _ = state.append(&self.path, &Line::Done { done: id });
            } else {
                all = false;
            }
        }
        if all {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes `folder` with mode 0700, or checks an existing one.
fn make_private_folder(folder: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Error::file("create journal folder", folder, error))?;
    check_private_folder(folder).map(drop)
}

/// Whether `folder` exists. Another user can make a folder of any name in `/tmp`, with journals in it that
/// name whatever he likes.
/// Errors: It is a link or no folder, belongs to another user, or others may write to it.
fn check_private_folder(folder: &Path) -> Result<bool> {
    let meta = match std::fs::symlink_metadata(folder) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::file("look at the journal folder", folder, error)),
    };
    let what = if !meta.is_dir() {
        "is no folder".to_owned()
    } else if meta.uid() != Uid::effective().as_raw() {
        let owner = nix::unistd::User::from_uid(meta.uid().into()).ok().flatten();
        let name = owner.map_or_else(String::new, |user| format!(" ({})", user.name));
        format!("belongs to user {}{name}", meta.uid())
    } else if meta.mode() & 0o022 != 0 {
        format!("can be written by others (mode {:o})", meta.mode() & 0o777)
    } else {
        return Ok(true);
    };
    let remedy = match Uid::effective().is_root() {
        true => "look at what is in it, then remove it",
        false => "remove it, or set XDG_RUNTIME_DIR to a folder that only you can write",
    };
    Err(Error::Refused(format!(
        "the journal folder {} {what}, so it is not trusted; {remedy}",
        folder.display()
    )))
}

/// A new file named after its owner; a number distinguishes several journals of one process.
fn create_file(folder: &Path, header: &Header) -> Result<(PathBuf, File)> {
    for number in 0..10_000 {
        let path = folder.join(format!("{}-{}-{number}.jsonl", header.pid, header.start_ticks));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path);
        match file {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file("create journal", path, error)),
        }
    }
    Err(Error::Refused(format!("{} holds 10,000 journals of this process already", folder.display())))
}

/// Returns how many bytes it wrote.
fn append(file: &mut File, path: &Path, line: &impl serde::Serialize) -> Result<u64> {
    let failed = |error: std::io::Error| Error::file("write journal", path, error);
    let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    file.write_all(&text).map_err(failed)?;
    Ok(text.len() as u64)
}
