//! Files in which running processes describe what they have changed: one per process, beside the undo
//! journals.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::atomic_file::write_atomically;
use crate::dirs::journal_dir;

/// The records of one command.
pub struct ProcessRecords {
    folder: PathBuf,
}

/// Keeps other processes from taking the same lock, until it is dropped or this process ends.
pub struct RecordLock {
    _file: File,
}

impl ProcessRecords {
    /// `name`: the folder beside the journals.
    pub fn new(name: &str) -> Self {
        Self { folder: journal_dir().join(name) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the record of process `pid`, completely or not at all.
    pub fn write(&self, pid: i32, record: &impl Serialize) -> anyhow::Result<()> {
        self.make_folder()?;
        write_atomically(&self.path_of(pid), &serde_json::to_vec(record)?)
    }

    pub fn remove(&self, pid: i32) {
        // A record whose process has ended means nothing, and a later command removes it.
        let _ = fs::remove_file(self.path_of(pid));
    }

    /// All records that `read` reads, without those whose process (pid, start ticks) has ended: they are
    /// removed, after `at_end` has seen them.
    /// Errors: the folder cannot be read.
    pub fn of_running<T>(
        &self,
        read: impl Fn(&Path) -> Option<T>,
        process: impl Fn(&T) -> (i32, u64),
        at_end: impl Fn(&T),
    ) -> anyhow::Result<Vec<T>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", self.folder.display()));
            }
        };
        let mut all = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // Another version of this program may write another record: it stays.
            let Some(record) = read(&path) else { continue };
            let (pid, start_ticks) = process(&record);
            match sys::process::is_running(pid, start_ticks) {
                true => all.push(record),
                false => {
                    at_end(&record);
                    let _ = fs::remove_file(&path);
                }
            }
        }
        all.sort_by_key(|record| process(record).0);
        Ok(all)
    }

    /// `None`: another process has the lock of this name.
    /// Errors: the file of the lock cannot be made.
    pub fn try_lock(&self, name: &str) -> anyhow::Result<Option<RecordLock>> {
        self.make_folder()?;
        let path = self.folder.join(format!("{name}.lock"));
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RecordLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }

    fn make_folder(&self) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.with_context(|| format!("cannot make {}", self.folder.display()))
    }

    fn path_of(&self, pid: i32) -> PathBuf {
        self.folder.join(format!("{pid}.json"))
    }
}
