//! Where the blocks of a file are on its disk (`FS_IOC_FIEMAP`, Documentation/filesystems/fiemap.rst).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::{Error, Result};

/// One contiguous piece of a file on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file, in bytes.
    pub offset_bytes: u64,
    /// Where it begins on the device of the file system, in bytes; `None`: the file system does not know, or
    /// has not decided yet.
    pub disk_offset_bytes: Option<u64>,
    pub len_bytes: u64,
    /// Reserved and never written: it reads as zeros, without the disk.
    pub unwritten: bool,
}

impl Extent {
    /// Whether `next` follows directly, in the file and on the disk.
    fn is_followed_by(&self, next: &Self) -> bool {
        let follows = |begin: u64, next: u64| begin.checked_add(self.len_bytes) == Some(next);
        follows(self.offset_bytes, next.offset_bytes)
            && self.disk_offset_bytes.zip(next.disk_offset_bytes).is_some_and(|(a, b)| follows(a, b))
    }

    /// The part of it between `start` and `end` of the file.
    fn clipped(self, start: u64, end: u64) -> Option<Self> {
        let skip = start.saturating_sub(self.offset_bytes);
        let offset_bytes = self.offset_bytes + skip;
        let len_bytes = self.len_bytes.min(end.saturating_sub(self.offset_bytes)).checked_sub(skip)?;
        let disk_offset_bytes = self.disk_offset_bytes.map(|at| at + skip);
        (len_bytes > 0).then_some(Self { offset_bytes, disk_offset_bytes, len_bytes, ..self })
    }
}

/// `extents`, with those joined that follow each other in the file and on the disk: between two of the
/// result a disk has to seek. Whether an extent was written makes no difference.
pub fn merge_extents(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if last.is_followed_by(&extent) => {
                last.len_bytes += extent.len_bytes;
                last.unwritten &= extent.unwritten;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

/// The extents of the file at `path`, merged ([`merge_extents`]), in the order of the file; holes are left
/// out. What was written is put on the disk first, so that it has a place there. `None`: the file system
/// cannot say (tmpfs, FUSE).
/// Errors: [`Error::File`].
pub fn extents(path: &Path) -> Result<Option<Vec<Extent>>> {
    let file = File::open(path).map_err(|error| Error::file("open", path, error))?;
    let found = extents_of(&file, 0, u64::MAX);
    found.map_err(|error| Error::file("look at the extents of", path, error))
}

/// As [`extents`], of `len_bytes` bytes of an open file from `offset_bytes`.
pub fn extents_of(file: &File, offset_bytes: u64, len_bytes: u64) -> io::Result<Option<Vec<Extent>>> {
    let end = offset_bytes.saturating_add(len_bytes);
    let mut found = Vec::new();
    let mut at = offset_bytes;
    while at < end {
        let Some(batch) = fiemap(file, at, end - at)? else { return Ok(None) };
        let Some(last) = batch.last() else { break };
        let next = last.logical.saturating_add(last.length);
        let is_last = last.flags & FIEMAP_EXTENT_LAST != 0 || next <= at;
        found.extend(batch.iter().filter_map(|raw| raw.extent().clipped(offset_bytes, end)));
        if is_last {
            break;
        }
        at = next;
    }
    Ok(Some(merge_extents(found)))
}

/// The extents of a content that lies in `pieces` of a file (offset and length in bytes), by their places in
/// the content, merged. `None` and errors: as [`extents_of`].
pub fn extents_of_pieces(
    file: &File,
    pieces: impl IntoIterator<Item = (u64, u64)>,
) -> io::Result<Option<Vec<Extent>>> {
    let (mut all, mut before) = (Vec::new(), 0);
    for (at, len) in pieces {
        let Some(extents) = extents_of(file, at, len)? else { return Ok(None) };
        let place = |extent: Extent| before + extent.offset_bytes - at;
        all.extend(extents.into_iter().map(|extent| Extent { offset_bytes: place(extent), ..extent }));
        before += len;
    }
    Ok(Some(merge_extents(all)))
}

const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
const FIEMAP_EXTENT_UNKNOWN: u32 = 2;
const FIEMAP_EXTENT_DELALLOC: u32 = 4;
const FIEMAP_EXTENT_UNWRITTEN: u32 = 0x800;
/// Extents read per call.
const BATCH: usize = 256;

/// `struct fiemap_extent` of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

impl RawExtent {
    fn extent(&self) -> Extent {
        let located = self.flags & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC) == 0;
        Extent {
            offset_bytes: self.logical,
            disk_offset_bytes: located.then_some(self.physical),
            len_bytes: self.length,
            unwritten: self.flags & FIEMAP_EXTENT_UNWRITTEN != 0,
        }
    }
}

/// `struct fiemap` of linux/fiemap.h, without its extents.
#[repr(C)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
struct Fiemap {
    header: Header,
    extents: [RawExtent; BATCH],
}

/// The first extents that touch the range; `None`: the file system has no such call.
fn fiemap(file: &File, start: u64, length: u64) -> io::Result<Option<Vec<RawExtent>>> {
    const FS_IOC_FIEMAP: libc::Ioctl =
        nix::request_code_readwrite!(b'f', 11, size_of::<Header>()) as libc::Ioctl;
    let (extent_count, flags) = (BATCH as u32, FIEMAP_FLAG_SYNC);
    let header = Header { start, length, flags, mapped_extents: 0, extent_count, reserved: 0 };
    let mut map = Box::new(Fiemap { header, extents: [RawExtent::default(); BATCH] });
    // SAFETY: the structure has the kernel's layout and room for as many extents as it announces, and it
    // outlives the call.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) };
    if code == 0 {
        let mapped = (map.header.mapped_extents as usize).min(BATCH);
        return Ok(Some(map.extents[..mapped].to_vec()));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // EBADR: the file system knows extents and not how to write back first.
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS | libc::EBADR) => Ok(None),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, disk: impl Into<Option<u64>>, len: u64) -> Extent {
        Extent { offset_bytes: offset, disk_offset_bytes: disk.into(), len_bytes: len, unwritten: false }
    }

    #[test]
    fn only_extents_adjacent_in_file_and_on_disk_are_merged() {
        let found = merge_extents([
            extent(0, 100, 10),
            Extent { unwritten: true, ..extent(10, 110, 10) },
            extent(20, 200, 10),
            extent(40, 210, 10),
            extent(50, None, 10),
            extent(60, None, 10),
        ]);
        let expected = [
            extent(0, 100, 20),
            extent(20, 200, 10),
            extent(40, 210, 10),
            extent(50, None, 10),
            extent(60, None, 10),
        ];
        assert_eq!(found, expected);
        assert_eq!(merge_extents([]), []);
    }

    #[test]
    fn extents_are_clipped_to_the_range() {
        let whole = extent(100, 1000, 50);
        assert_eq!(whole.clipped(0, u64::MAX), Some(whole));
        assert_eq!(whole.clipped(110, 120), Some(extent(110, 1010, 10)));
        assert_eq!(whole.clipped(0, 100), None);
        assert_eq!(whole.clipped(150, 200), None);
    }

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<RawExtent>(), size_of::<Header>()), (56, 32));
        assert_eq!(size_of::<Fiemap>(), 32 + 56 * BATCH);
    }

    #[test]
    fn extents_of_pieces_are_placed_in_the_content() {
        // Next to the test program, which is on a disk (`/tmp` may be memory).
        let folder = std::env::current_exe().unwrap();
        let file = tempfile::NamedTempFile::new_in(folder.parent().unwrap()).unwrap();
        std::fs::write(file.path(), [1; 12 << 10]).unwrap();
        let pieces = [(8 << 10, 4 << 10), (0, 4 << 10)];
        let Some(found) = extents_of_pieces(file.as_file(), pieces).unwrap() else { return };
        let places: Vec<_> = found.iter().map(|one| (one.offset_bytes, one.len_bytes)).collect();
        assert_eq!(places, [(0, 4 << 10), (4 << 10, 4 << 10)]);
    }

    #[test]
    fn missing_file_is_named() {
        let error = extents(Path::new("/nowhere/f")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/f"), "{error}");
    }
}
