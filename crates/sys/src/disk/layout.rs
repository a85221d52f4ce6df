//! How a file system places what is written: the hint of a file, and the free space that is left.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::{Error, Result};

/// Asks the file system to place an empty file in pieces of at least `bytes` (`FS_IOC_FSSETXATTR`, xfs: the
/// extent size hint). `Ok(false)`: this file system takes no such hint.
pub fn set_extent_size_hint(file: &File, bytes: u32) -> io::Result<bool> {
    let mut attributes = FsXattr::default();
    // SAFETY: the request is defined for `struct fsxattr`.
    if !unsafe { call(file, FS_IOC_FSGETXATTR, &mut attributes) }? {
        return Ok(false);
    }
    attributes.xflags |= FS_XFLAG_EXTSIZE;
    attributes.extsize = bytes;
    // SAFETY: the request is defined for `struct fsxattr`.
    if !unsafe { call(file, FS_IOC_FSSETXATTR, &mut attributes) }? {
        return Ok(false);
    }
    // Others than xfs may take the call and ignore the hint.
    let mut now = FsXattr::default();
    // SAFETY: the request is defined for `struct fsxattr`.
    Ok(unsafe { call(file, FS_IOC_FSGETXATTR, &mut now) }? && now.extsize == bytes)
}

/// Hands what was written to `len_bytes` of the file from `offset_bytes` over to the disk, so that the file
/// system has to place it now (`sync_file_range(2)`); does not wait until it is there.
pub fn start_writeback(file: &File, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
    let offset = libc::off64_t::try_from(offset_bytes).map_err(io::Error::other)?;
    let len = libc::off64_t::try_from(len_bytes).map_err(io::Error::other)?;
    // SAFETY: only numbers are passed, and the descriptor is open.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The lengths in bytes of the free pieces of the file system that holds `dir`, in the order of its disk
/// (`FS_IOC_GETFSMAP`: ext4, xfs; needs root). `None`: the file system or its permissions do not allow it.
/// Errors: [`Error::File`].
pub fn free_pieces(dir: &Path) -> Result<Option<Vec<u64>>> {
    let folder = File::open(dir).map_err(|error| Error::file("open", dir, error))?;
    let mut low = FsMap::default();
    let mut pieces = Vec::new();
    loop {
        let found = fsmap(&folder, low);
        let Some(batch) = found.map_err(|error| Error::file("look at the free space of", dir, error))? else {
            return Ok(None);
        };
        pieces.extend(batch.iter().filter(|piece| piece.is_free()).map(|piece| piece.length));
        match batch.last() {
            Some(last) if last.flags & FMR_OF_LAST == 0 => low = *last,
            _ => return Ok(Some(pieces)),
        }
    }
}

const FS_XFLAG_EXTSIZE: u32 = 0x800;
const FMR_OF_SPECIAL_OWNER: u32 = 0x10;
const FMR_OF_LAST: u32 = 0x20;
const FMR_OWN_FREE: u64 = 1;
/// Pieces read per call.
const BATCH: usize = 512;

const FS_IOC_FSGETXATTR: libc::Ioctl = nix::request_code_read!(b'X', 31, size_of::<FsXattr>()) as libc::Ioctl;
const FS_IOC_FSSETXATTR: libc::Ioctl =
    nix::request_code_write!(b'X', 32, size_of::<FsXattr>()) as libc::Ioctl;
const FS_IOC_GETFSMAP: libc::Ioctl =
    nix::request_code_readwrite!(b'X', 59, size_of::<FsMapHead>()) as libc::Ioctl;

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    padding: [u8; 8],
}

/// `struct fsmap` of linux/fsmap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FsMap {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

impl FsMap {
    const END: Self = Self {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        length: 0,
        reserved: [0; 3],
    };

    fn is_free(&self) -> bool {
        self.flags & FMR_OF_SPECIAL_OWNER != 0 && self.owner == FMR_OWN_FREE
    }
}

/// `struct fsmap_head` of linux/fsmap.h, without its records.
#[repr(C)]
struct FsMapHead {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [FsMap; 2],
}

#[repr(C)]
struct FsMaps {
    head: FsMapHead,
    records: [FsMap; BATCH],
}

/// The pieces of the disk from `low` on; `None`: the kernel does not list them.
fn fsmap(folder: &File, low: FsMap) -> io::Result<Option<Vec<FsMap>>> {
    let keys = [low, FsMap::END];
    let head = FsMapHead { iflags: 0, oflags: 0, count: BATCH as u32, entries: 0, reserved: [0; 6], keys };
    let mut maps = Box::new(FsMaps { head, records: [FsMap::default(); BATCH] });
    // SAFETY: the request is defined for `struct fsmap_head` and as many records behind it as its `count`
    // says; `maps` has them.
    if !unsafe { call(folder, FS_IOC_GETFSMAP, &mut *maps) }? {
        return Ok(None);
    }
    let count = (maps.head.entries as usize).min(BATCH);
    Ok(Some(maps.records[..count].to_vec()))
}

/// `Ok(false)`: this file system does not know the call, or not for this user.
///
/// # Safety
/// `T` is the structure that `request` is defined for, in the kernel's layout, with room for all that the
/// kernel writes.
unsafe fn call<T>(file: &File, request: libc::Ioctl, argument: &mut T) -> io::Result<bool> {
    // SAFETY: the caller passes the structure of the request, and it outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS | libc::EPERM | libc::EINVAL) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<FsXattr>(), size_of::<FsMap>(), size_of::<FsMapHead>()), (28, 64, 192));
    }

    #[test]
    fn what_a_file_system_cannot_do_is_no_error() {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut file = File::create(memory.path().join("f")).unwrap();
        assert!(!set_extent_size_hint(&file, 1 << 20).unwrap());
        assert_eq!(free_pieces(memory.path()).unwrap(), None);
        file.write_all(b"something").unwrap();
        start_writeback(&file, 0, 9).unwrap();
        let error = free_pieces(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
