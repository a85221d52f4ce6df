//! The memory into which the kernel writes records, perf_event_open(2), "MMAP layout".

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::records::Head;
use crate::proc::page_bytes;

/// Where `data_head` stands in `struct perf_event_mmap_page`; `data_tail` is 8 bytes further.
const HEAD_OFFSET: usize = 1024;
const TAIL_OFFSET: usize = HEAD_OFFSET + 8;
/// Upper bound of a ring's size; a power of two.
const BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
pub(super) struct Ring {
    start: *mut u8,
    mapped: usize,
    page: usize,
    /// A record that wraps around the end of the ring, joined.
    whole: Vec<u8>,
}

// SAFETY: the mapping belongs to this value alone on our side, and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `event`, at least `bytes` large, or as large as the kernel lets this user
    /// (`/proc/sys/kernel/perf_event_mlock_kb`).
    /// Errors: not even the smallest is allowed.
    pub(super) fn map(event: BorrowedFd, bytes: usize) -> io::Result<Self> {
        let page = page_bytes() as usize;
        let mut data = bytes.clamp(page, BYTES_MAX).next_power_of_two();
        loop {
            match Self::map_exactly(event, data + page, page) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && data > 16 * page => data /= 2,
                other => return other,
            }
        }
    }

    fn map_exactly(event: BorrowedFd, mapped: usize, page: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is open.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self { start: start.cast(), mapped, page, whole: Vec::new() }),
        }
    }

    /// A position that the kernel and we share.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as this lives, the offset lies within it and is a multiple
        // of 8, and the kernel reads and writes this number as a whole.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// What lies in the ring from `offset` on, at most `length` bytes: less where the ring ends.
    fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        let size = self.mapped - self.page;
        let at = offset % size;
        let length = length.min(size - at);
        // SAFETY: within the mapping; the kernel does not write between tail and head, where the callers
        // look.
        unsafe { std::slice::from_raw_parts(self.start.add(self.page + at), length) }
    }

    /// Passes every pending record to `take`, then frees its space.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        let head = self.position(HEAD_OFFSET).load(Ordering::Acquire);
        let mut tail = self.position(TAIL_OFFSET).load(Ordering::Relaxed);
        let mut whole = std::mem::take(&mut self.whole);
        while tail < head {
            let offset = tail as usize;
            // Records are multiples of 8 bytes, so a head is never cut in two.
            let Some(found) = Head::parse(self.bytes(offset, Head::BYTES)) else { break };
            let record = self.bytes(offset, found.size);
            if record.len() == found.size {
                take(record);
            } else {
                whole.clear();
                whole.extend_from_slice(record);
                let rest = found.size - record.len();
                whole.extend_from_slice(self.bytes(offset + record.len(), rest));
                take(&whole);
            }
            tail += found.size as u64;
        }
        self.whole = whole;
        // What cannot be read would be met again for ever.
        self.position(TAIL_OFFSET).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.mapped) };
    }
}
