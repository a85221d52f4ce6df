//! Folders of this program that vanish with it, with all that is in them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::journal::ownership::OWNER_FILE;
use crate::journal::{EntryId, Journal, Undo};
use crate::{Error, Result};

/// A folder (mode 0700) that did not exist before and belongs to this process. It appears with its mark in
/// it, so that it differs from another program's folder of that name. Dropping it removes it and all in it.
#[derive(Debug)]
pub struct OwnedFolder {
    journal: Journal,
    entry: EntryId,
    path: PathBuf,
}

impl OwnedFolder {
    /// Makes it; the folders above it are made, and stay.
    /// Errors: `None` inside when something has that name already, else no rights or no space.
    pub fn create(journal: &Journal, path: &Path) -> Result<Option<Self>> {
        let (above, name) = super::split_name(path)
            .ok_or_else(|| Error::Refused(format!("{} names no folder", path.display())))?;
        let pid = nix::unistd::getpid().as_raw();
        let ticks = crate::proc::start_ticks(Path::new("/"), pid)
            .map_err(|error| Error::file("read", "/proc/self/stat", error))?;
        let owner = format!("{pid} {ticks}");
        let build = |path: &Path, recursive: bool| {
            let made = DirBuilder::new().recursive(recursive).mode(0o700).create(path);
            made.map_err(|error| Error::file("create", path, error))
        };
        build(&above, true)?;
        let draft = above.join(format!(".{}.{pid}", name.to_string_lossy()));
        let tree = |path: &Path| Undo::RemoveTree { path: path.to_path_buf(), owner: owner.clone() };
        let entries = journal.record_all(vec![tree(path), tree(&draft)])?;
        let (entry, draft_entry) = (entries[0], entries[1]);
        let place = || -> Result<bool> {
            build(&draft, false)?;
            let mark = draft.join(OWNER_FILE);
            std::fs::write(&mark, &owner).map_err(|error| Error::file("write", &mark, error))?;
            match renameat2(AT_FDCWD, &draft, AT_FDCWD, path, RenameFlags::RENAME_NOREPLACE) {
                Ok(()) => Ok(true),
                // Network and FUSE file systems may not have this call. The folder then appears before its
                // mark: undoing removes an empty one, too.
                Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => make_in_place(path, &owner),
                Err(Errno::EEXIST | Errno::ENOTEMPTY) => Ok(false),
                Err(error) => Err(Error::file("create", path, error)),
            }
        };
        let placed = place();
        journal.undo(draft_entry);
        match placed {
            Ok(true) => Ok(Some(Self { journal: journal.clone(), entry, path: path.to_path_buf() })),
            Ok(false) => journal.done(entry).map(|()| None),
            Err(error) => {
                journal.undo(entry);
                Err(error)
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// `false`: something has that name already.
fn make_in_place(path: &Path, owner: &str) -> Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(Error::file("create", path, error)),
    }
    let mark = path.join(OWNER_FILE);
    std::fs::write(&mark, owner).map_err(|error| Error::file("write", &mark, error))?;
    Ok(true)
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in the journal, which reports it.
        self.journal.undo(self.entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Outcome;

    #[test]
    fn owned_folder_is_removed_and_foreign_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("journal")).unwrap();
        let path = dir.path().join("above/mine");
        let folder = OwnedFolder::create(&journal, &path).unwrap().unwrap();
        assert!(OwnedFolder::create(&journal, &path).unwrap().is_none(), "the name is taken");
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/b/c"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path(), path.join("out")).unwrap();
        assert_eq!(journal.pending(), 1);
        drop(folder);
        assert!(!path.exists() && journal.pending() == 0);
        assert_eq!(std::fs::read_dir(dir.path().join("above")).unwrap().count(), 0, "no draft is left");

        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("somebody's"), "x").unwrap();
        let entry = journal.record(Undo::RemoveTree { path: path.clone(), owner: "1 2".to_owned() }).unwrap();
        assert!(matches!(journal.undo(entry).unwrap().outcome, Outcome::NotOurs(_)));
        assert!(path.join("somebody's").exists());
        // What an interrupted removal leaves.
        std::fs::remove_file(path.join("somebody's")).unwrap();
        let entry = journal.record(Undo::RemoveTree { path: path.clone(), owner: "1 2".to_owned() }).unwrap();
        assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::Done);
    }

    #[test]
    fn folder_made_in_place_is_marked_and_never_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert!(make_in_place(&path, "1 2").unwrap() && !make_in_place(&path, "3 4").unwrap());
        assert_eq!(std::fs::read_to_string(path.join(OWNER_FILE)).unwrap(), "1 2");
        assert!(make_in_place(&dir.path().join("none/b"), "1 2").is_err());
    }

    #[test]
    fn interrupted_creation_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let remove = |name: &str| {
            let path = dir.path().join(name);
            crate::journal::perform(Undo::RemoveTree { path, owner: "7 9".to_owned() }).outcome
        };
        let make = |name: &str, files: &[(&str, &str)]| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            for (file, text) in files {
                std::fs::write(dir.path().join(name).join(file), text).unwrap();
            }
        };
        make("unmarked", &[]);
        make("unwritten", &[(OWNER_FILE, "")]);
        assert_eq!([remove("unmarked"), remove("unwritten")], [Outcome::Done, Outcome::Done]);
        make("anothers", &[(OWNER_FILE, "7 8")]);
        make("filled", &[(OWNER_FILE, ""), ("precious", "")]);
        for name in ["anothers", "filled"] {
            assert!(matches!(remove(name), Outcome::NotOurs(_)), "{name}");
            assert!(dir.path().join(name).join(OWNER_FILE).exists(), "{name}");
        }
    }
}
