//! Memory that is written once and then handed to the kernel by reference.

use std::io;
use std::ptr::{self, NonNull};

use super::NetError;

/// The size of a huge page on most machines; memory is aligned to it.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that never change after they were made, in huge pages where the kernel gives any: pages that lie side by side
/// travel through the stack as one piece.
#[derive(Debug)]
pub struct Payload {
    map: NonNull<u8>,
    map_bytes: usize,
    start: usize,
    bytes: usize,
}

// SAFETY: nothing is ever written after `new`, so references from several threads only read.
unsafe impl Send for Payload {}
// SAFETY: as above.
unsafe impl Sync for Payload {}

impl Payload {
    /// `bytes` (at least 1) of memory, as `fill` leaves them; zeroes where it leaves them alone.
    ///
    /// # Errors
    /// [`NetError`]: no memory.
    pub fn new(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Self, NetError> {
        let fail = |e: io::Error| NetError::new("map", format_args!("{bytes} bytes of memory"), e);
        let room = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES);
        let map_bytes = room.and_then(|b| b.checked_add(HUGE_PAGE_BYTES));
        let map_bytes = map_bytes.ok_or_else(|| fail(io::ErrorKind::OutOfMemory.into()))?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory in use.
        let map = unsafe { libc::mmap(ptr::null_mut(), map_bytes, access, kind, -1, 0) };
        let map = match NonNull::new(map.cast::<u8>()) {
            Some(map) if map.as_ptr().cast() != libc::MAP_FAILED => map,
            _ => return Err(fail(io::Error::last_os_error())),
        };
        let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES).min(HUGE_PAGE_BYTES);
        let mut payload = Self { map, map_bytes, start, bytes: bytes.max(1) };
        let advised = map_bytes - HUGE_PAGE_BYTES;
        // SAFETY: the advised range lies within the mapping made above. A kernel without huge pages refuses: then they
        // are small ones, which is slower and no error.
        let _ = unsafe { libc::madvise(payload.at().as_ptr().cast(), advised, libc::MADV_HUGEPAGE) };
        fill(payload.as_mut_slice());
        Ok(payload)
    }

    fn at(&self) -> NonNull<u8> {
        // SAFETY: `start` is at most one huge page, and the mapping is longer by that than what follows.
        unsafe { self.map.add(self.start) }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping, which lives as long as `self`; nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.at().as_ptr(), self.bytes) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at().as_ptr(), self.bytes) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference to it is left. Pages that a pipe or a socket still
        // refers to stay with the kernel until it is done with them.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}
