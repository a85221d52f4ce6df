//! The folder of the files, open: whatever takes its name during a run is neither written to nor removed.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::stat::{Mode, mkdirat};
use sys::clock::Deadline;
use sys::proc::mounts::is_mounted;
use sys::tree::{Identity, OwnPaths, is_removed, open_folder, open_same, path_of_open, remove_own_at};

/// Who removes a folder removes its files first.
const REMOVED_WITHIN: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(20);

pub(super) struct OpenFolder {
    pub(super) folder: OwnedFd,
    /// The directory of the trial's files in it.
    pub(super) tree: OwnedFd,
    pub(super) tree_path: PathBuf,
}

impl OpenFolder {
    /// Opens the folder, removes the trees of other trials and makes `tree`. The error says why it cannot.
    pub(super) fn prepare(
        path: &Path,
        identity: Identity,
        own: &OwnPaths,
        tree: String,
    ) -> Result<Self, String> {
        Self::open(path, identity, own, tree).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => removed(&path.display()),
            _ => format!("{}: {error}", path.display()),
        })
    }

    fn open(path: &Path, identity: Identity, own: &OwnPaths, tree: String) -> io::Result<Self> {
        let folder = open_same(path, identity)?;
        for other in std::fs::read_dir(path_of_open(folder.as_fd()))?.flatten() {
            let name = other.file_name();
            if other.file_type().is_ok_and(|kind| kind.is_dir()) && *name != *tree {
                // What stays of it is removed with the folder, unless it is not kagiri's.
                let _ = remove_own_at(folder.as_fd(), &name, Some(own), &AtomicU64::new(0));
            }
        }
        match mkdirat(&folder, tree.as_str(), Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let opened = open_folder(folder.as_fd(), tree.as_ref())?;
        Ok(Self { folder, tree: opened, tree_path: path.join(tree) })
    }
}

/// Why the storage is gone. Asks nothing of the file system, which may hang.
pub(super) fn lost(path: &Path, folder: &OwnedFd, tree: &OwnedFd) -> Option<String> {
    let path = path.display();
    if is_mounted(folder.as_fd()).is_ok_and(|is_mounted| !is_mounted) {
        return Some(format!(
            "the file system of {path} was unmounted during the run; mount it again, and remove that folder"
        ));
    }
    (is_removed(folder.as_fd()) || is_removed(tree.as_fd())).then(|| removed(&path))
}

fn removed(path: &dyn Display) -> String {
    format!("another program removed the folder {path} or the files in it during the run; run it again")
}

/// The same after the files were made or used; what failed may have met a folder that is just being removed.
pub(super) fn lost_soon(has_failed: bool, lost: &dyn Fn() -> Option<String>) -> Option<String> {
    let deadline = Deadline::after(REMOVED_WITHIN);
    loop {
        let found = lost();
        if found.is_some() || !has_failed || !deadline.pause(LOOK) {
            return found;
        }
    }
}
