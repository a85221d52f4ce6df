//! Folders of this program that vanish with it, with all that is in them.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};

use crate::file::rename::rename_to_new;
use crate::held_folder::HeldFolder;
use crate::journal::ownership::OWNER_FILE;
use crate::journal::{EntryId, FileSystem, Journal, Undo, UndoResult, outcome_of};
use crate::tree::{OwnPaths, open_above};
use crate::{Error, Result};

/// A folder (mode 0700) that did not exist before and belongs to this process. It appears with its mark in
/// it, so that it differs from another program's folder of that name. Dropping it removes it and all in it.
/// It stays open: what is removed is this folder, whatever is renamed or takes its name.
#[derive(Debug)]
pub struct OwnedFolder {
    journal: Journal,
    entry: EntryId,
    path: PathBuf,
    /// What is removed of it; `None`: all.
    own: Option<OwnPaths>,
    held: Arc<HeldFolder>,
    /// Whether removing was tried.
    is_tried: bool,
}

impl OwnedFolder {
    /// Makes it; the folders above it are made, and stay.
    /// Errors: `None` inside when something has that name already, else no rights or no space.
    pub fn create(journal: &Journal, path: &Path) -> Result<Option<Self>> {
        Self::make(journal, path, None)
    }

    /// As [`Self::create`]. What others put into it stays: only `own` is removed.
    pub fn create_with(journal: &Journal, path: &Path, own: OwnPaths) -> Result<Option<Self>> {
        Self::make(journal, path, Some(own))
    }

    fn make(journal: &Journal, path: &Path, own: Option<OwnPaths>) -> Result<Option<Self>> {
        let (above_path, name) = super::split_name(path)
            .ok_or_else(|| Error::Refused(format!("{} names no folder", path.display())))?;
        let pid = nix::unistd::getpid().as_raw();
        let ticks = crate::proc::start_ticks(Path::new("/"), pid)
            .map_err(|error| Error::file("read", "/proc/self/stat", error))?;
        // The number cannot be guessed, so that no other program makes such a mark.
        let owner = format!("{pid} {ticks} {:016x}", crate::random::number());
        let failed = |error: io::Error| Error::file("create", path, error);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&above_path)
            .map_err(|error| Error::file("create", &above_path, error))?;
        let above = open_above(&above_path).map_err(|error| Error::file("open", &above_path, error))?;
        let file_system = FileSystem::keeping(above.as_fd());
        let draft = format!(".{}.{pid}", name.to_string_lossy());
        let tree = |path: PathBuf| {
            let (owner, own, file_system) = (owner.clone(), own.clone(), file_system.clone());
            Undo::RemoveTree { path, owner, own, file_system }
        };
        let entries = journal.record_all(vec![tree(path.to_path_buf()), tree(above_path.join(&draft))])?;
        let (entry, draft_entry) = (entries[0], entries[1]);
        let place = || -> io::Result<Option<HeldFolder>> {
            let Some(held) = make_marked(above.try_clone()?, OsStr::new(&draft), &owner)? else {
                return Err(Errno::EEXIST.into());
            };
            match rename_to_new(&above, draft.as_str(), name.as_os_str()) {
                Ok(()) => Ok(Some(held.renamed(&name))),
                // Network and FUSE file systems may not have this call. The folder then appears before its
                // mark: undoing removes an empty one, too.
                Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
                    make_marked(above.try_clone()?, &name, &owner)
                }
                Err(Errno::EEXIST | Errno::ENOTEMPTY) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        let placed = place();
        journal.undo(draft_entry);
        match placed {
            Ok(Some(held)) => {
                let (journal, path) = (journal.clone(), path.to_path_buf());
                Ok(Some(Self {
                    journal,
                    entry,
                    path,
                    own: own.clone(),
                    held: Arc::new(held),
                    is_tried: false,
                }))
            }
            Ok(None) => journal.done(entry).map(|()| None),
            Err(error) => {
                journal.undo(entry);
                Err(failed(error))
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes all in it that is this program's, but its mark, and counts what is removed.
    /// Errors: the first failure; what could be removed is.
    pub fn empty(&self, removed: &AtomicU64) -> io::Result<()> {
        crate::tree::empty(self.as_fd(), Some(OsStr::new(OWNER_FILE)), self.own.as_ref(), removed).map(drop)
    }

    /// Removes it, as dropping does, and says what came of it. What cannot be removed stays in the journal.
    pub fn remove(mut self) -> Option<UndoResult> {
        self.undo()
    }

    fn undo(&mut self) -> Option<UndoResult> {
        if std::mem::replace(&mut self.is_tried, true) {
            return None;
        }
        let (held, path, own) = (self.held.clone(), self.path.clone(), self.own.clone());
        let step =
            move |removed: &AtomicU64| outcome_of(&path, held.remove(OWNER_FILE, own.as_ref(), removed));
        self.journal.undo_by(self.entry, Arc::new(step))
    }
}

impl AsFd for OwnedFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}

/// Makes a folder with its mark in it; `None`: something has that name already.
/// Errors: also when another program put another folder in its place meanwhile.
fn make_marked(above: OwnedFd, name: &OsStr, owner: &str) -> io::Result<Option<HeldFolder>> {
    match mkdirat(&above, name, Mode::S_IRWXU) {
        Ok(()) => {}
        Err(Errno::EEXIST) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let held = HeldFolder::open(above, name)?;
    let replaced = || io::Error::other("another program put another folder in its place");
    if held.count()? != 0 {
        return Err(replaced());
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mark = openat(held.as_fd(), OWNER_FILE, flags, Mode::from_bits_truncate(0o600))?;
    let mut mark = File::from(mark);
    // Not compared with this user: network file systems may show another one.
    if fstat(held.as_fd())?.st_uid != mark.metadata()?.uid() {
        return Err(replaced());
    }
    mark.write_all(owner.as_bytes())?;
    Ok(Some(held))
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        // What cannot be removed stays in the journal, which reports it.
        self.undo();
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
        let entry = journal
            .record(Undo::RemoveTree {
                path: path.clone(),
                owner: "1 2".to_owned(),
                own: None,
                file_system: None,
            })
            .unwrap();
        assert!(matches!(journal.undo(entry).unwrap().outcome, Outcome::NotOurs(_)));
        assert!(path.join("somebody's").exists());
        // What an interrupted removal leaves.
        std::fs::remove_file(path.join("somebody's")).unwrap();
        let entry = journal
            .record(Undo::RemoveTree {
                path: path.clone(),
                owner: "1 2".to_owned(),
                own: None,
                file_system: None,
            })
            .unwrap();
        assert_eq!(journal.undo(entry).unwrap().outcome, Outcome::Done);
    }

    #[test]
    fn what_others_put_into_an_owned_folder_stays_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("journal")).unwrap();
        let own = || OwnPaths::new(["made/set".into()]);
        let fill = |path: &Path| {
            std::fs::create_dir_all(path.join("made/set/00000001")).unwrap();
            std::fs::create_dir_all(path.join("theirs/00000001")).unwrap();
            for file in ["made/set/00000001/00000002", "made/set/00000003", "made/notes", "theirs/x"] {
                std::fs::write(path.join(file), "x").unwrap();
            }
        };
        let check = |path: &Path, outcome: &Outcome| {
            let Outcome::NotOurs(why) = outcome else { panic!("{outcome:?}") };
            assert!(why.contains("made/notes") && why.contains("theirs"), "{why}");
            assert!(path.join("made/notes").exists() && path.join("theirs/x").exists());
            assert!(path.join("theirs/00000001").exists());
            let count = |path: &Path| std::fs::read_dir(path).unwrap().count();
            assert_eq!((count(path), count(&path.join("made"))), (2, 1), "all else is removed");
        };
        let path = dir.path().join("live");
        let folder = OwnedFolder::create_with(&journal, &path, own()).unwrap().unwrap();
        fill(&path);
        check(&path, &folder.remove().unwrap().outcome);
        assert_eq!(journal.pending(), 0);

        // As `kagiri undo` finds it.
        let path = dir.path().join("left");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(OWNER_FILE), "1 2").unwrap();
        fill(&path);
        let undo = Undo::RemoveTree {
            path: path.clone(),
            owner: "1 2".to_owned(),
            own: Some(own()),
            file_system: None,
        };
        let undo = serde_json::from_str(&serde_json::to_string(&undo).unwrap()).unwrap();
        check(&path, &crate::journal::perform(undo).outcome);
    }

    #[test]
    fn folder_made_in_place_is_marked_and_never_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let make = |above: &Path, owner: &str| make_marked(open_above(above)?, OsStr::new("a"), owner);
        assert!(make(dir.path(), "1 2").unwrap().is_some() && make(dir.path(), "3 4").unwrap().is_none());
        assert_eq!(std::fs::read_to_string(path.join(OWNER_FILE)).unwrap(), "1 2");
        assert!(make(&dir.path().join("none"), "1 2").is_err());
    }

    #[test]
    fn interrupted_creation_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let remove = |name: &str| {
            let path = dir.path().join(name);
            crate::journal::perform(Undo::RemoveTree {
                path,
                owner: "7 9".to_owned(),
                own: None,
                file_system: None,
            })
            .outcome
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
