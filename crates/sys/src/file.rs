//! Directories that cannot be left, and files that appear whole or not at all.
//!
//! [`Directory`] opens only what lies beneath it: `..`, absolute paths and symbolic links that lead out are
//! refused by the kernel itself (`openat2(2)`, `RESOLVE_BENEATH`, Linux 5.6), so path traversal is impossible
//! by construction. [`PendingFile`] is a file without a name until it is complete.

mod in_place;
mod owned;
mod rename;

use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, ReadDir};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FallocateFlags, OFlag, OpenHow, ResolveFlag, fallocate, openat2, renameat,
};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, fsync, linkat, unlinkat};

use crate::Error;

pub use in_place::rewrite_in_place;
pub use owned::OwnedFolder;

/// How often a lookup is tried again that raced with a rename (`openat2(2)` answers EAGAIN).
const RACES_MAX: usize = 16;

/// An open directory, and the only way to what lies beneath it.
///
/// Calls with a relative path return plain `io::Error`s: the caller knows the path and words the message.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

impl Directory {
    /// Opens a directory by any path.
    /// Errors: [`Error::File`]: missing, not a directory, no permission; [`Error::Refused`]: the kernel lacks
    /// `openat2`.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|e| Error::file("open directory", path, e))?;
        let directory = Self { fd: file.into() };
        match directory.subdirectory(Path::new("")) {
            Ok(_) => Ok(directory),
            Err(e) if e.raw_os_error() == Some(libc::ENOSYS) => Err(Error::Refused(format!(
                "{} cannot be served safely: this kernel has no openat2 (Linux 5.6 or newer is needed)",
                path.display()
            ))),
            Err(e) => Err(Error::file("open directory", path, e)),
        }
    }

    /// Opens what lies at `relative` for reading: a file, a directory, or whatever else is there (never
    /// waiting for the writer of a FIFO). Look at its metadata before use. An empty path is the directory
    /// itself.
    /// Errors: EXDEV when the path leads out, ELOOP through a magic link, and what `open(2)` says.
    pub fn open_beneath(&self, relative: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        self.resolve(relative, flags, Mode::empty(), ResolveFlag::empty()).map(File::from)
    }

    /// Opens the directory at `relative`.
    /// Errors: As [`Directory::open_beneath`], and ENOTDIR.
    pub fn subdirectory(&self, relative: &Path) -> io::Result<Self> {
        self.subdirectory_by(relative, ResolveFlag::empty())
    }

    /// As [`Directory::subdirectory`], through directories only, so that each has one path.
    /// Errors: also ELOOP where there is a symbolic link.
    pub fn subdirectory_without_links(&self, relative: &Path) -> io::Result<Self> {
        self.subdirectory_by(relative, ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    fn subdirectory_by(&self, relative: &Path, further: ResolveFlag) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        self.resolve(relative, flags, Mode::empty(), further).map(|fd| Self { fd })
    }

    /// Removes the file (not a directory) with this name, one path component, from the disk: the directory is
    /// synced (`fsync(2)`). A link is removed, not followed.
    /// Errors: what `unlink(2)` says.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        if name.as_bytes().contains(&b'/') {
            return Err(Errno::EINVAL.into());
        }
        unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir)?;
        sync_directory(&self.fd)
    }

    /// Its entries, `.` and `..` left out, in the file system's order. Needs `/proc`.
    pub fn entries(&self) -> io::Result<ReadDir> {
        std::fs::read_dir(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    fn resolve(
        &self,
        relative: &Path,
        flags: OFlag,
        mode: Mode,
        further: ResolveFlag,
    ) -> io::Result<OwnedFd> {
        let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | further);
        for _ in 0..RACES_MAX {
            match openat2(&self.fd, relative, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
        Err(io::Error::from(Errno::EAGAIN))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a published file took a new name or an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    Created,
    Replaced,
}

/// A file being written that has no name yet. Dropping it leaves nothing behind.
///
/// Where the file system can, it has no name at all (`O_TMPFILE`), so that even a killed process leaves
/// nothing; elsewhere it has a hidden name starting with [`PendingFile::PREFIX`] that dropping removes.
#[derive(Debug)]
pub struct PendingFile {
    directory: Directory,
    file: File,
    hidden_name: Option<CString>,
}

impl PendingFile {
    /// How hidden names start; listings leave them out.
    pub const PREFIX: &'static str = ".kagiri-pending-";

    /// A new, empty file that will appear in `directory`, with permissions 0666 less the umask.
    pub fn create(directory: Directory) -> io::Result<Self> {
        let mode = Mode::from_bits_truncate(0o666);
        match directory.resolve(Path::new(""), OFlag::O_TMPFILE | OFlag::O_RDWR, mode, ResolveFlag::empty()) {
            Ok(fd) => return Ok(Self { directory, file: fd.into(), hidden_name: None }),
            // What `open(2)` names for file systems and kernels without O_TMPFILE.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
            Err(e) => return Err(e),
        }
        let name = hidden_name();
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_RDWR;
        let path = Path::new(OsStr::from_bytes(name.as_bytes()));
        let fd = directory.resolve(path, flags, mode, ResolveFlag::empty())?;
        Ok(Self { directory, file: fd.into(), hidden_name: Some(name) })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The space of the file system that the file is on (fstatvfs(3)).
    pub fn space(&self) -> io::Result<crate::disk::Space> {
        Ok(crate::disk::space_of(&nix::sys::statvfs::fstatvfs(&self.file)?))
    }

    /// [`reserve`] in this file.
    pub fn reserve(&self, offset_bytes: u64, len_bytes: u64, grow: bool) -> io::Result<bool> {
        reserve(&self.file, offset_bytes, len_bytes, grow)
    }

    /// Gives the file its name, replacing a file that has it, in one step: a reader sees the old or the new
    /// file, never a part, also after a power failure. The file and its name are on the disk when this
    /// returns (`fsync(2)` of both). `name` is one path component.
    /// Errors: `io::Error` (EISDIR when a directory has the name); nothing is left behind then, unless only
    /// the name could not be put on the disk.
    pub fn publish(self, name: &OsStr) -> io::Result<Published> {
        self.publish_by(name, true)
    }

    /// As [`PendingFile::publish`], if nothing has the name.
    /// Errors: also EEXIST.
    pub fn publish_new(self, name: &OsStr) -> io::Result<()> {
        self.publish_by(name, false).map(drop)
    }

    fn publish_by(self, name: &OsStr, replaces: bool) -> io::Result<Published> {
        if name.is_empty() || name.as_bytes().contains(&b'/') || name == "." || name == ".." {
            return Err(io::Error::from(Errno::EINVAL));
        }
        self.file.sync_all()?;
        let directory = self.directory.fd.try_clone()?;
        let published = self.name(name, replaces)?;
        sync_directory(&directory)?;
        Ok(published)
    }

    fn name(mut self, name: &OsStr, may_replace: bool) -> io::Result<Published> {
        if self.hidden_name.is_none() {
            match self.link(name) {
                Ok(()) => return Ok(Published::Created),
                Err(Errno::EEXIST) if may_replace => {}
                Err(e) => return Err(e.into()),
            }
            // `linkat` cannot replace: take a hidden name first, then rename over.
            let hidden = hidden_name();
            self.link(OsStr::from_bytes(hidden.as_bytes()))?;
            self.hidden_name = Some(hidden);
        }
        let Some(hidden) = self.hidden_name.clone() else { return Err(Errno::EINVAL.into()) };
        if !may_replace {
            rename::rename_to_new(&self.directory, hidden.as_c_str(), name)?;
            self.hidden_name = None;
            return Ok(Published::Created);
        }
        let replaces = nix::sys::stat::fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
        renameat(&self.directory, hidden.as_c_str(), &self.directory, name)?;
        self.hidden_name = None;
        Ok(if replaces { Published::Replaced } else { Published::Created })
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let source = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        linkat(AT_FDCWD, &source, &self.directory, name, AtFlags::AT_SYMLINK_FOLLOW)
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(name) = &self.hidden_name {
            // A failure leaves a file whose name says what it is.
            let _ = unlinkat(&self.directory, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Reserves `len_bytes` from `offset_bytes` of `file` in one request, so that the file system can lay them
/// out contiguously (`fallocate(2)`); `grow` also makes the file that long. `Ok(false)`: this file system
/// cannot reserve.
/// Errors: ENOSPC or EDQUOT when it does not fit, EFBIG.
pub fn reserve(file: &File, offset_bytes: u64, len_bytes: u64, grow: bool) -> io::Result<bool> {
    let too_large = || io::Error::from(Errno::EFBIG);
    let offset = libc::off_t::try_from(offset_bytes).map_err(|_| too_large())?;
    let len = libc::off_t::try_from(len_bytes).map_err(|_| too_large())?;
    if len == 0 {
        return Ok(true);
    }
    let flags = if grow { FallocateFlags::empty() } else { FallocateFlags::FALLOC_FL_KEEP_SIZE };
    loop {
        return match fallocate(file, flags, offset, len) {
            Ok(()) => Ok(true),
            Err(Errno::EINTR) => continue,
            Err(Errno::EOPNOTSUPP) => Ok(false),
            Err(e) => Err(e.into()),
        };
    }
}

fn sync_directory(fd: &OwnedFd) -> io::Result<()> {
    match fsync(fd) {
        // Some file systems cannot sync a directory.
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A unique name: process id and a count.
fn hidden_name() -> CString {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}{}-{count}", PendingFile::PREFIX, std::process::id());
    CString::new(name).expect("the name is made of letters and digits")
}

/// A text file that a user names, of at most `bytes_max` bytes.
///
/// # Errors
/// Also when the file is longer.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {} MiB", bytes_max >> 20)));
    }
    Ok(text)
}

/// The last component of `path` and what is before it; `None` when the path has no name at its end.
pub fn split_name(path: &Path) -> Option<(PathBuf, OsString)> {
    let name = path.file_name()?.to_os_string();
    Some((path.parent().unwrap_or(Path::new("")).to_path_buf(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;

    fn names(path: &Path) -> Vec<String> {
        let mut all: Vec<_> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn path_traversal_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        std::fs::write(outer.path().join("secret"), "x").unwrap();
        let root = outer.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/ok"), "fine").unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("sub/ok", root.join("inside")).unwrap();
        let directory = Directory::open(&root).unwrap();
        for bad in ["../secret", "/etc/passwd", "up", "absolute", "sub/../../secret"] {
            let e = directory.open_beneath(Path::new(bad)).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::EXDEV), "{bad}: {e}");
        }
        let mut text = String::new();
        directory.open_beneath(Path::new("inside")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "fine");
        assert_eq!(directory.entries().unwrap().count(), 4);
        symlink("sub", root.join("by")).unwrap();
        assert!(directory.subdirectory(Path::new("by")).is_ok());
        assert!(directory.subdirectory_without_links(Path::new("sub")).is_ok());
        let e = directory.subdirectory_without_links(Path::new("by")).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::ELOOP), "{e}");
    }

    #[test]
    fn pending_file_appears_complete_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let open = || PendingFile::create(Directory::open(dir.path()).unwrap()).unwrap();
        let pending = open();
        pending.file().write_all(b"half").unwrap();
        drop(pending);
        assert_eq!(names(dir.path()), Vec::<String>::new());
        for (text, published) in [("one", Published::Created), ("two", Published::Replaced)] {
            let pending = open();
            assert!(pending.reserve(0, 3, true).unwrap());
            pending.file().write_all(text.as_bytes()).unwrap();
            assert_eq!(pending.publish(OsStr::new("name")).unwrap(), published);
            assert_eq!(std::fs::read_to_string(dir.path().join("name")).unwrap(), text);
        }
        assert_eq!(names(dir.path()), ["name"]);
        std::fs::create_dir(dir.path().join("taken")).unwrap();
        assert!(open().publish(OsStr::new("taken")).is_err());
        assert!(open().publish(OsStr::new("a/b")).is_err());
        assert_eq!(names(dir.path()), ["name", "taken"]);
    }

    #[test]
    fn new_file_does_not_replace_another() {
        let dir = tempfile::tempdir().unwrap();
        for is_hidden in [false, true] {
            let name = OsStr::new(if is_hidden { "hidden" } else { "nameless" });
            let open = || {
                let mut pending = PendingFile::create(Directory::open(dir.path()).unwrap()).unwrap();
                if is_hidden && pending.hidden_name.is_none() {
                    // As on a file system without O_TMPFILE.
                    let hidden = hidden_name();
                    pending.link(OsStr::from_bytes(hidden.as_bytes())).unwrap();
                    pending.hidden_name = Some(hidden);
                }
                pending
            };
            let (first, second) = (open(), open());
            first.file().write_all(b"first").unwrap();
            first.publish_new(name).unwrap();
            assert_eq!(second.publish_new(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"first");
        }
        assert_eq!(names(dir.path()), ["hidden", "nameless"]);
    }

    #[test]
    fn missing_directory_is_named() {
        let error = Directory::open(Path::new("/no/such/place")).unwrap_err().to_string();
        assert!(error.contains("/no/such/place"), "{error}");
    }
}
