//! A folder that stays open with the one above it, so that it can be removed even if another folder takes its
//! name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::tree::{
    Foreign, Identity, OwnPaths, absent_is_fine, empty, entries, is_removed, open_folder, place_of_open,
};

/// Longer text files are not read.
const TEXT_BYTES_MAX: u64 = 4096;

/// What became of a folder that was to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    Done,
    /// Another program had removed it.
    Gone,
    /// Another program renamed it or put something else in its place. What is this program's was
    /// removed from it; it is at this path.
    Moved(PathBuf),
    /// There are entries in it that are not this program's. All others were removed.
    Shared(Foreign),
}

/// A folder that stays open, and so does the one above it.
#[derive(Debug)]
pub struct HeldFolder {
    above: OwnedFd,
    name: OsString,
    folder: OwnedFd,
}

impl HeldFolder {
    /// Opens `name` of `above`, which must not be a link.
    /// Errors: what openat(2) says; ENOTDIR or ELOOP for a link.
    pub fn open(above: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let folder = open_folder(above.as_fd(), name)?;
        Ok(Self { above, name: name.to_owned(), folder })
    }

    /// The same folder after it was renamed in the one above it.
    pub fn renamed(self, name: &OsStr) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Number of its entries.
    /// Errors: what getdents(2) says.
    pub fn count(&self) -> io::Result<usize> {
        entries(self.as_fd()).map(Iterator::count)
    }

    /// The text of a short file in it; `None`: there is none.
    /// Errors: it is no short text file, or what openat(2) says.
    pub fn text(&self, name: &str) -> io::Result<Option<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        file.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Removes all in it but `mark`, then that, then the folder itself if it still has its name. With `own`
    /// only what is this program's: if there is more, the folder stays without its mark.
    /// Errors: the first failure, with the path below the folder; the mark stays then.
    pub fn remove(&self, mark: &str, own: Option<&OwnPaths>, removed: &AtomicU64) -> io::Result<Removal> {
        let foreign = empty(self.as_fd(), Some(OsStr::new(mark)), own, removed)?;
        if !self.has_its_name()? {
            return Ok(match is_removed(self.as_fd()) {
                true => Removal::Gone,
                false => Removal::Moved(place_of_open(self.as_fd())?),
            });
        }
        absent_is_fine(unlinkat(&self.folder, mark, UnlinkatFlags::NoRemoveDir))?;
        if foreign.count > 0 {
            return Ok(Removal::Shared(foreign));
        }
        match unlinkat(&self.above, self.name.as_os_str(), UnlinkatFlags::RemoveDir) {
            Ok(()) => Ok(Removal::Done),
            Err(Errno::ENOENT) => Ok(Removal::Gone),
            Err(error) => Err(error.into()),
        }
    }

    fn has_its_name(&self) -> io::Result<bool> {
        match fstatat(&self.above, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(named) => Ok(Identity::from(&named) == Identity::of(self.as_fd())?),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for HeldFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}
