//! The page cache of one file: how much of it is there, and dropping it. Needs no rights beyond reading the
//! file.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags, PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, fstatfs};
use nix::unistd::{AccessFlags, faccessat, geteuid};

use super::super::proc::page_bytes;
use crate::{Error, Result};

/// Drops the whole file at `path` from the page cache, so that the next reader gets it from the disk.
///
/// What was written is first put on the disk (fdatasync(2)), because only clean pages can be dropped
/// (posix_fadvise(2), `POSIX_FADV_DONTNEED`). Pages that are mapped or being read stay; see
/// [`resident_bytes`].
pub fn drop_file_cache(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::file("open", path, error))?;
    file.sync_data().map_err(|error| Error::file("put on the disk", path, error))?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .map_err(|error| Error::file("drop the cache of", path, error))
}

/// How much of the file at `path` is in the page cache, in bytes (whole pages).
///
/// By cachestat(2) (since Linux 6.5); before, and on overlayfs, by mincore(2). `None` where only mincore(2)
/// could tell, and the user neither owns the file nor may write to it: for them it calls every page resident.
pub fn resident_bytes(path: &Path) -> Result<Option<u64>> {
    let file = File::open(path).map_err(|error| Error::file("open", path, error))?;
    resident_pages(&file)
        .map(|pages| pages.map(|pages| pages.saturating_mul(page_bytes())))
        .map_err(|error| Error::file("look at the cache of", path, error))
}

fn resident_pages(file: &File) -> io::Result<Option<u64>> {
    let facts = file.metadata()?;
    // cachestat looks at the pages of the overlay's own inode, which has none.
    if fstatfs(file)?.filesystem_type() != OVERLAYFS_SUPER_MAGIC {
        match cachestat(file.as_raw_fd()) {
            Ok(pages) => return Ok(Some(pages)),
            // ENOSYS: an older kernel. EPERM: a sandbox that does not know the call. EOPNOTSUPP: hugetlbfs.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)) => {}
            Err(error) => return Err(error),
        }
    }
    let may_look = facts.uid() == geteuid().as_raw() || may_write(file);
    may_look.then(|| mincore(file.as_raw_fd(), facts.len())).transpose()
}

/// Whether the kernel lets this user write to the file, however it was opened.
fn may_write(file: &File) -> bool {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    faccessat(AT_FDCWD, link.as_str(), AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

/// `struct cachestat_range` of linux/mman.h; a length of 0 means "to the end".
#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of linux/mman.h, in pages.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same number on every architecture (scripts/syscall.tbl); libc has no name for it yet.
const SYS_CACHESTAT: libc::c_long = 451;

fn cachestat(file: RawFd) -> io::Result<u64> {
    let range = CachestatRange { offset: 0, length: 0 };
    let mut stat = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and outlive the call; flags must be 0.
    let code = unsafe { libc::syscall(SYS_CACHESTAT, file, &raw const range, &raw mut stat, 0) };
    if code == 0 { Ok(stat.cached) } else { Err(io::Error::last_os_error()) }
}

/// Mapped at most this much at once, so that a huge file needs little memory for the answer.
const WINDOW_BYTES: u64 = 1 << 30;

fn mincore(file: RawFd, length: u64) -> io::Result<u64> {
    let mut pages = 0;
    let mut offset = 0;
    while offset < length {
        let window = WINDOW_BYTES.min(length - offset);
        pages += mincore_window(file, offset, window)?;
        offset += window;
    }
    Ok(pages)
}

fn mincore_window(file: RawFd, offset: u64, window: u64) -> io::Result<u64> {
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let size = usize::try_from(window).map_err(too_large)?;
    let offset = libc::off_t::try_from(offset).map_err(too_large)?;
    let mut present = vec![0u8; usize::try_from(window.div_ceil(page_bytes())).map_err(too_large)?];
    // SAFETY: a new mapping at a place of the kernel's choice, which shares the file's pages (what `mincore`
    // looks at) and is never read; it is unmapped below.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, file, offset) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping covers `size` bytes, and `present` has a byte for each of its pages.
    let code = unsafe { libc::mincore(start, size, present.as_mut_ptr().cast()) };
    let error = io::Error::last_os_error();
    // SAFETY: exactly what was mapped above, and nothing refers to it.
    unsafe { libc::munmap(start, size) };
    if code != 0 {
        return Err(error);
    }
    Ok(present.iter().filter(|page| **page & 1 == 1).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A file of `pages` pages next to the test program, which is on a disk (`/tmp` may be memory).
    fn file(pages: u64) -> tempfile::NamedTempFile {
        let folder = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(folder.parent().unwrap()).unwrap();
        let content = vec![7u8; usize::try_from(pages * page_bytes()).unwrap()];
        file.write_all(&content).unwrap();
        file
    }

    #[test]
    fn written_files_are_resident_until_dropped() {
        let file = file(100);
        let bytes = 100 * page_bytes();
        assert_eq!(resident_bytes(file.path()).unwrap(), Some(bytes));
        drop_file_cache(file.path()).unwrap();
        let left = resident_bytes(file.path()).unwrap();
        assert_eq!(left, Some(0), "clean unused pages are dropped");
        std::fs::read(file.path()).unwrap();
        assert_eq!(resident_bytes(file.path()).unwrap(), Some(bytes));
    }

    #[test]
    fn both_calls_agree_where_both_see_the_pages() {
        let file = file(33);
        let length = 33 * page_bytes();
        assert_eq!(mincore(file.as_raw_fd(), length).unwrap(), 33);
        if fstatfs(file.as_file()).unwrap().filesystem_type() != OVERLAYFS_SUPER_MAGIC
            && let Ok(pages) = cachestat(file.as_raw_fd())
        {
            assert_eq!(pages, 33);
        }
    }

    #[test]
    fn empty_files_are_not_resident_and_missing_ones_are_errors() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(resident_bytes(empty.path()).unwrap(), Some(0));
        assert!(drop_file_cache(Path::new("/nowhere")).is_err());
        assert!(resident_bytes(Path::new("/nowhere")).is_err());
    }
}
