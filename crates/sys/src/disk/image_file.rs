//! The file that a disk is made of.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{absolute, space};
use crate::journal::{EntryId, Journal, Undo};
use crate::{Error, Result};

/// A new sparse file: it takes space as it is written to. Dropping it removes it.
#[derive(Debug)]
pub struct ImageFile {
    journal: Journal,
    entry: EntryId,
    path: PathBuf,
}

impl ImageFile {
    /// Makes the file `path` of `size_bytes`. Errors: it exists, or can never fit where it is to be.
    pub fn create(journal: &Journal, path: &Path, size_bytes: u64) -> Result<Self> {
        let path = absolute(path)?;
        if path.symlink_metadata().is_ok() {
            return Err(Error::Refused(format!("{} exists already; name a new file", path.display())));
        }
        let room = space(path.parent().unwrap_or(Path::new("/")))?;
        if room.total_bytes < size_bytes {
            return Err(Error::Refused(format!(
                "a disk of {size_bytes} B does not fit on the file system of {} ({} B)",
                path.display(),
                room.total_bytes
            )));
        }
        let entry = journal.record(Undo::RemoveFile { path: path.clone() })?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        if file.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
            // Another process has created the file since the check above: undoing would remove its file.
            journal.done(entry)?;
        }
        let this = Self { journal: journal.clone(), entry, path };
        let file = file.map_err(|error| Error::file("create", &this.path, error))?;
        file.set_len(size_bytes).map_err(|error| Error::file("size", &this.path, error))?;
        Ok(this)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ImageFile {
    fn drop(&mut self) {
        // What cannot be removed stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn of_two_creators_of_a_file_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let journal = Journal::open(&folder.path().join("journal")).unwrap();
        for _ in 0..20 {
            let together = Barrier::new(2);
            let make = || {
                together.wait();
                ImageFile::create(&journal, &path, 4096)
            };
            let made = std::thread::scope(|scope| {
                [scope.spawn(make), scope.spawn(make)].map(|thread| thread.join().unwrap())
            });
            assert_eq!(made.iter().filter(|one| one.is_ok()).count(), 1, "{made:?}");
            assert_eq!(path.metadata().unwrap().len(), 4096, "it stays: {made:?}");
            drop(made);
            assert!(!path.exists() && journal.pending() == 0);
        }
    }
}
