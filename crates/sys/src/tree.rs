//! Removes trees through descriptors: every directory is opened from the one above it, and links are not
//! followed. Whoever puts a link or another folder in the place of a directory therefore leads it nowhere.

mod own;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::ReadDir;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};

pub use own::{Foreign, OwnPaths};

const THREADS: usize = 4;

/// What a directory is besides its name (stat(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Errors: what fstat(2) says.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self::from(&fstat(directory)?))
    }
}

impl From<&FileStat> for Identity {
    fn from(stat: &FileStat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// Opens the directory `name` of `above`, which must not be a link.
/// Errors: what openat(2) says; ENOTDIR or ELOOP for a link.
pub fn open_folder(above: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(above, name, flags, Mode::empty())?)
}

/// Opens the directory that new folders are made in; it need not be readable.
/// Errors: what open(2) says.
pub fn open_above(path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// The directory at `path` if it is the one of this identity.
/// Errors: it is another one, or what open(2) says.
pub fn open_same(path: &Path, identity: Identity) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = open(path, flags, Mode::empty())?;
    match Identity::of(folder.as_fd())? == identity {
        true => Ok(folder),
        false => Err(io::Error::other("another program put another folder in its place")),
    }
}

/// A path that leads to an open directory, whatever has its name now. Valid while it is open; needs `/proc`.
pub fn path_of_open(directory: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Where an open directory is now; ` (deleted)` ends the path of one that was removed. Asks nothing of the
/// file system, which may hang.
/// Errors: what readlink(2) says.
pub fn place_of_open(directory: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(path_of_open(directory))
}

/// Whether an open directory was removed. Asks nothing of the file system, which may hang.
pub fn is_removed(directory: BorrowedFd<'_>) -> bool {
    place_of_open(directory).is_ok_and(|path| path.to_string_lossy().ends_with(" (deleted)"))
}

/// Its entries, `.` and `..` left out. Needs `/proc`.
pub(crate) fn entries(directory: BorrowedFd<'_>) -> io::Result<ReadDir> {
    std::fs::read_dir(path_of_open(directory))
}

/// Success, too, if there was nothing of the name.
pub(crate) fn absent_is_fine(result: nix::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the tree `name` of `above` by several threads, and counts what is removed. A link is removed, not
/// followed. Succeeds if there is none.
/// Errors: the first failure; what could be removed is.
pub fn remove_at(above: BorrowedFd<'_>, name: &OsStr, removed: &AtomicU64) -> io::Result<()> {
    remove_own_at(above, name, None, removed)
}

/// As [`remove_at`]; with `own` only what is this program's. Its paths are relative to `above`.
/// Errors: also that something else is in it, which stays.
pub fn remove_own_at(
    above: BorrowedFd<'_>,
    name: &OsStr,
    own: Option<&OwnPaths>,
    removed: &AtomicU64,
) -> io::Result<()> {
    if own.is_some_and(|own| !own.has(Path::new(""), name)) {
        return Err(io::Error::other(format!("{} is not ours", Path::new(name).display())));
    }
    let flags = match open_folder(above, name) {
        Ok(folder) => {
            let foreign = Emptying::new(folder.as_fd(), Path::new(name), None, own, removed)?.run()?;
            if foreign.count > 0 {
                return Err(io::Error::other(format!("left what is not ours: {foreign}")));
            }
            UnlinkatFlags::RemoveDir
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => return Ok(()),
            Some(libc::ENOTDIR | libc::ELOOP) => UnlinkatFlags::NoRemoveDir,
            _ => return Err(error),
        },
    };
    absent_is_fine(unlinkat(above, name, flags))?;
    removed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Removes all in `root` but its entry `keep`, see [`remove_at`]; with `own` only what is this program's.
/// Returns what is not. Each thread has few descriptors open.
/// Errors: the first failure, with the path below `root`; what could be removed is.
pub fn empty(
    root: BorrowedFd<'_>,
    keep: Option<&OsStr>,
    own: Option<&OwnPaths>,
    removed: &AtomicU64,
) -> io::Result<Foreign> {
    Emptying::new(root, Path::new(""), keep, own, removed)?.run()
}

/// Directories of a tree, found while it is emptied.
#[derive(Default)]
struct Found {
    /// Relative to the root, each behind the one that it is in.
    dirs: Vec<PathBuf>,
    /// How many of them a thread has taken.
    taken: usize,
    /// Threads that may find more.
    at_work: usize,
}

struct Emptying<'a> {
    root: BorrowedFd<'a>,
    /// Of the root. What is mounted below it is left alone.
    device: u64,
    /// Where `own` has the root.
    prefix: &'a Path,
    keep: Option<&'a OsStr>,
    own: Option<&'a OwnPaths>,
    removed: &'a AtomicU64,
    found: Mutex<Found>,
    is_more: Condvar,
    foreign: Mutex<(Foreign, BTreeSet<PathBuf>)>,
    failure: Mutex<Option<io::Error>>,
}

impl<'a> Emptying<'a> {
    fn new(
        root: BorrowedFd<'a>,
        prefix: &'a Path,
        keep: Option<&'a OsStr>,
        own: Option<&'a OwnPaths>,
        removed: &'a AtomicU64,
    ) -> io::Result<Self> {
        Ok(Self {
            root,
            device: Identity::of(root)?.device,
            prefix,
            keep,
            own,
            removed,
            found: Mutex::default(),
            is_more: Condvar::new(),
            foreign: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    fn run(self) -> io::Result<Foreign> {
        self.add(vec![PathBuf::new()]);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, || self.work()).ok())
                .collect();
            if threads.is_empty() {
                self.work();
            }
        });
        let dirs = std::mem::take(&mut self.lock().dirs);
        let (foreign, kept) = std::mem::take(&mut *self.foreign());
        // Consecutive ones are often in the same directory.
        let mut above: Option<(&Path, Option<OwnedFd>)> = None;
        for dir in dirs.iter().skip(1).rev().filter(|dir| !kept.contains(*dir)) {
            let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { continue };
            if above.as_ref().is_none_or(|(path, _)| *path != parent) {
                above = self.open(parent).map(|fd| (parent, fd)).map_err(|error| self.fail(dir, error)).ok();
            }
            let Some((_, fd)) = &above else { continue };
            let fd = fd.as_ref().map_or(self.root, AsFd::as_fd);
            match absent_is_fine(unlinkat(fd, name, UnlinkatFlags::RemoveDir)) {
                Ok(()) => drop(self.removed.fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.fail(dir, error),
            }
        }
        let failure = self.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failure.map_or(Ok(foreign), Err)
    }

    fn foreign(&self) -> std::sync::MutexGuard<'_, (Foreign, BTreeSet<PathBuf>)> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves what is not this program's, and so the directories that it is in.
    fn leave(&self, path: PathBuf) {
        let mut foreign = self.foreign();
        foreign.1.extend(path.ancestors().skip(1).map(Path::to_path_buf));
        foreign.0.add(self.prefix.join(path));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, dirs: Vec<PathBuf>) {
        self.lock().dirs.extend(dirs);
        self.is_more.notify_all();
    }

    fn fail(&self, path: &Path, error: io::Error) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| io::Error::new(error.kind(), format!("{}: {error}", path.display())));
    }

    /// The next directory; `None`: all are taken, and no thread finds more.
    fn take(&self) -> Option<PathBuf> {
        let mut found = self.lock();
        loop {
            if let Some(dir) = found.dirs.get(found.taken).cloned() {
                found.taken += 1;
                found.at_work += 1;
                return Some(dir);
            }
            if found.at_work == 0 {
                return None;
            }
            found = self.is_more.wait(found).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(dir) = self.take() {
            if let Err(error) = self.empty_one(&dir) {
                self.fail(&dir, error);
            }
            self.lock().at_work -= 1;
            self.is_more.notify_all();
        }
    }

    /// Opens a directory from the root on, one component after the other; `None`: it is the root.
    fn open(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let mut opened: Option<OwnedFd> = None;
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(Errno::EINVAL.into()) };
            opened = Some(open_folder(opened.as_ref().map_or(self.root, AsFd::as_fd), name)?);
        }
        Ok(opened)
    }

    fn empty_one(&self, path: &Path) -> io::Result<()> {
        let opened = match self.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let dir = opened.as_ref().map_or(self.root, AsFd::as_fd);
        if Identity::of(dir)?.device != self.device {
            return Err(io::Error::other("another file system is mounted there"));
        }
        let above = self.prefix.join(path);
        let mut dirs = Vec::new();
        for entry in entries(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if opened.is_none() && self.keep == Some(name.as_os_str()) {
                continue;
            }
            if self.own.is_some_and(|own| !own.has(&above, &name)) {
                self.leave(path.join(name));
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                dirs.push(path.join(name));
                continue;
            }
            // By its directory: the kernel then walks no path for each file.
            match absent_is_fine(unlinkat(dir, name.as_os_str(), UnlinkatFlags::NoRemoveDir)) {
                Ok(()) => drop(self.removed.fetch_add(1, Ordering::Relaxed)),
                Err(error) => self.fail(&path.join(name), error),
            }
        }
        self.add(dirs);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
