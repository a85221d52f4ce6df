//! A file system that a host's program serves: its folder, the program, and its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::child::{Child, LAST_WORDS_WITHIN, Spawn};
use sys::clock::Deadline;
use sys::file::OwnedFolder;
use sys::journal::{EntryId, Journal, Undo};
use sys::proc::mounts::{Mount as Mounted, mounts};

use super::processes::end_of;
use crate::disk::with_timeout;
use crate::error::{Error, Result};
use crate::file::Mount;
use crate::state::{MountState, ProcessState};

/// Between two looks whether it is mounted, and before a program that ended is started again.
const LOOK: Duration = Duration::from_millis(20);
const AGAIN: Duration = Duration::from_millis(200);
/// A shell's exit codes for a program that it cannot start.
const NO_PROGRAM: std::ops::RangeInclusive<i32> = 126..=127;
/// A program whose mount was cut off ends by itself, or is killed.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Dropping it unmounts it and removes its folders.
#[derive(Debug)]
pub(super) struct HostMount {
    host: String,
    point: PathBuf,
    child: Option<Child>,
    journal: Journal,
    /// Its folder and what is mounted there.
    entries: Vec<EntryId>,
    cache: OwnedFolder,
}

impl HostMount {
    /// Makes the folder to mount at in `data`, and one for the program's cache in `cache_in`.
    pub(super) fn make_folders(journal: &Journal, host: &str, data: &Path, cache_in: &Path) -> Result<Self> {
        let path = cache_in.join(format!("{host}-cache"));
        let cache = OwnedFolder::create(journal, &path)?;
        let cache = cache.ok_or_else(|| Error::Refused(format!("{} exists already", path.display())))?;
        let point = data.join(format!("{host}-mount"));
        let mut this = Self {
            host: host.to_owned(),
            point,
            child: None,
            journal: journal.clone(),
            entries: Vec::new(),
            cache,
        };
        let target = this.point.clone();
        this.entries.push(journal.record(Undo::RemoveFolder { path: target.clone() })?);
        std::fs::create_dir(&target).map_err(|error| Error::io("create", &target, error))?;
        this.entries.push(journal.record(Undo::UnmountFuse { target })?);
        Ok(this)
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    pub(super) fn start(&mut self, journal: &Journal, program: Spawn) -> Result<()> {
        let child = program.env("KAGIRI_LAB_CACHE", self.cache.path()).start(journal)?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the file system is mounted and lists its folder. A program that ended before is started
    /// again: its server may not be up yet.
    ///
    /// # Errors
    /// What the program wrote last, when the time is over or it cannot be started.
    pub(super) fn wait(
        &mut self,
        journal: &Journal,
        how: &Mount,
        again: &dyn Fn() -> Result<Spawn>,
    ) -> Result<()> {
        let deadline = Deadline::after(how.within.duration());
        let mut problem = "it is not mounted".to_owned();
        // Why the last program ended: the one at the deadline may just have begun.
        let mut last_end = None;
        loop {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_none() && self.mounted().is_some() {
                match with_timeout(&self.point, |path| std::fs::read_dir(path)?.next().transpose()) {
                    Ok(_) => return Ok(()),
                    Err(error) => problem = error.to_string(),
                }
            }
            let is_hopeless =
                ended.and_then(|status| status.code()).is_some_and(|code| NO_PROGRAM.contains(&code));
            if ended.is_some() {
                last_end = Some(self.failed(how, &problem));
            }
            if is_hopeless || deadline.passed() {
                return Err(last_end.unwrap_or_else(|| self.failed(how, &problem)));
            }
            if ended.is_some() {
                deadline.pause(AGAIN);
                // A mount that its program has left is in the way.
                sys::disk::detach_fuse(&self.point);
                self.start(journal, again()?)?;
            } else {
                deadline.pause(LOOK);
            }
        }
    }

    fn failed(&mut self, how: &Mount, problem: &str) -> Error {
        let (ended, output) = match self.child.as_mut() {
            Some(child) => {
                let deadline = Deadline::after(LAST_WORDS_WITHIN);
                end_of(child, false, deadline)
                    .map_or_else(|| (None, child.output_tail()), |(how, said)| (Some(how), said))
            }
            None => (None, String::new()),
        };
        let state = match ended {
            Some(ended) => format!("it ended with {ended}"),
            None => format!("after {} {problem}", how.within),
        };
        let said = if output.trim().is_empty() { "nothing".to_owned() } else { tail(output.trim()) };
        let host = &self.host;
        Error::Refused(format!("the mount of host {host}: `{}`: {state}; it wrote: {said}", how.command))
    }

    fn mounted(&self) -> Option<Mounted> {
        let mounts = mounts(Path::new("/")).ok()?;
        mounts.into_iter().rev().find(|mount| mount.target == self.point && mount.is_fuse())
    }

    pub(super) fn state(&self) -> MountState {
        let file_system = self.mounted().map(|mount| mount.fs_type);
        let problem = match file_system {
            None => Some("it is not mounted".to_owned()),
            Some(_) => {
                with_timeout(&self.point, |path| sys::disk::space(path).map_err(std::io::Error::other))
                    .err()
                    .map(|error| error.to_string())
            }
        };
        MountState { host: self.host.clone(), target: self.point.clone(), file_system, problem }
    }

    pub(super) fn process_state(&mut self) -> Option<ProcessState> {
        let child = self.child.as_mut()?;
        let (ended, output) = end_of(child, true, Deadline::after(LAST_WORDS_WITHIN)).unzip();
        Some(ProcessState { what: format!("mount of {}", self.host), pid: child.pid(), ended, output })
    }
}

/// The last lines of what a program wrote.
fn tail(said: &str) -> String {
    const LINES: usize = 5;
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Drop for HostMount {
    fn drop(&mut self) {
        // The journal keeps and reports what cannot be undone.
        if let Some(mount) = self.entries.pop() {
            self.journal.undo(mount);
        }
        if let Some(mut child) = self.child.take() {
            // Dropping it kills it.
            let _ = child.wait(END_WITHIN);
        }
        for entry in self.entries.drain(..).rev() {
            self.journal.undo(entry);
        }
    }
}
