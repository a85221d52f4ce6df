//! Memory that takes no page before it is touched.

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// Zeroed bytes at the beginning of a page, mapped by mmap(2). An allocator may clear memory that it hands
/// out again, which touches it.
#[derive(Debug)]
pub struct PagedMemory {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is private to this value, which owns it as a Vec owns its memory.
unsafe impl Send for PagedMemory {}

impl PagedMemory {
    /// At least one byte.
    ///
    /// # Errors
    /// The kernel's reason: no address space, or too many mappings (`vm.max_map_count`).
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // No memory is set aside for it: many threads have more than they use.
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping, at an address that the kernel chooses, changes no memory in use.
        let begin = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, bytes })
    }
}

impl Deref for PagedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable, `bytes` long, zeroed by the kernel, and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.begin.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PagedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and not borrowed elsewhere.
        unsafe { slice::from_raw_parts_mut(self.begin.as_ptr(), self.bytes) }
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no slice of it outlives it.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_writable_and_takes_no_page_before_it_is_touched() {
        let resident_pages = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap()
        };
        let before = resident_pages();
        let mut many: Vec<PagedMemory> = (0..64).map(|_| PagedMemory::new(16 << 20).unwrap()).collect();
        // Other tests of this process take memory, too, but no 512 MiB.
        assert!(resident_pages() < before + (512 << 20) / 4096);
        let one = &mut many[5];
        assert!(one.iter().step_by(4096).all(|byte| *byte == 0));
        one[(16 << 20) - 1] = 7;
        assert_eq!((one[(16 << 20) - 1], one.len(), one.as_ptr().addr() % 4096), (7, 16 << 20, 0));
        assert_eq!(PagedMemory::new(0).unwrap().len(), 1);
    }
}
