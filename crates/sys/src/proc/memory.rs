//! Memory of the host: page cache, slab and what is left. `/proc/meminfo`, proc_meminfo(5).

use std::io;
use std::path::Path;

use super::ProcFile;
use super::parse::{decimal, lines, words};
use super::proc_file::malformed;

/// The host's memory at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostMemoryReading {
    pub total_bytes: Option<u64>,
    /// What programs could still get, an estimate of the kernel (since Linux 3.14).
    pub available_bytes: Option<u64>,
    /// Page cache: file content, shared memory included.
    pub page_cache_bytes: Option<u64>,
    /// Kernel objects.
    pub slab_bytes: Option<u64>,
    /// Memory of programs that is not file content.
    pub anonymous_bytes: Option<u64>,
    /// Written by programs, not yet on its way to the disk.
    pub dirty_bytes: Option<u64>,
}

#[derive(Debug)]
pub struct HostMemory {
    file: ProcFile,
}

impl HostMemory {
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { file: ProcFile::open(root, "proc/meminfo")? })
    }

    /// Reads it now. Errors: those of reading, and `InvalidData` when there is no `MemTotal`.
    pub fn read(&mut self) -> io::Result<HostMemoryReading> {
        let reading = parse(self.file.read_once()?);
        if reading.total_bytes.is_none() {
            return Err(malformed(self.file.path(), "a line `MemTotal:`"));
        }
        Ok(reading)
    }
}

pub(super) fn parse(text: &[u8]) -> HostMemoryReading {
    let mut reading = HostMemoryReading::default();
    for line in lines(text) {
        let mut words = words(line);
        let field = match words.next() {
            Some(b"MemTotal:") => &mut reading.total_bytes,
            Some(b"MemAvailable:") => &mut reading.available_bytes,
            Some(b"Cached:") => &mut reading.page_cache_bytes,
            Some(b"Dirty:") => &mut reading.dirty_bytes,
            Some(b"AnonPages:") => &mut reading.anonymous_bytes,
            Some(b"Slab:") => {
                reading.slab_bytes = words.next().and_then(kib);
                // The last one of interest; the kernel prints thirty more lines.
                break;
            }
            _ => continue,
        };
        *field = words.next().and_then(kib);
    }
    reading
}

/// The size of a memory page in bytes (`sysconf(_SC_PAGESIZE)`), the unit of several files of `/proc`.
pub fn page_bytes() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(4096)
}

/// `/proc/meminfo` says kB and means KiB.
fn kib(word: &[u8]) -> Option<u64> {
    decimal(word)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"MemTotal:       24684096 kB\nMemFree:        24403544 kB\n\
        MemAvailable:   24368064 kB\nBuffers:            2224 kB\nCached:            85408 kB\n\
        SwapCached:            0 kB\nDirty:               108 kB\nWriteback:             0 kB\n\
        AnonPages:         10856 kB\nMapped:            10772 kB\nShmem:              8788 kB\n\
        KReclaimable:      99332 kB\nSlab:             122952 kB\nSReclaimable:      99332 kB\n";

    #[test]
    fn real_sample_is_parsed() {
        let reading = parse(SAMPLE);
        assert_eq!(reading.total_bytes, Some(24_684_096 * 1024));
        assert_eq!(reading.page_cache_bytes, Some(85_408 * 1024));
        assert_eq!(reading.slab_bytes, Some(122_952 * 1024));
        assert_eq!(reading.dirty_bytes, Some(108 * 1024));
    }

    #[test]
    fn missing_values_are_none() {
        assert_eq!(parse(b"MemTotal: 5 kB\n").available_bytes, None);
        assert_eq!(parse(b"MemTotal:\nMemFree: x kB\n"), HostMemoryReading::default());
    }

    #[test]
    fn meminfo_of_this_machine_is_complete() {
        let reading = HostMemory::open(Path::new("/")).unwrap().read().unwrap();
        assert!(reading.slab_bytes.unwrap() > 0);
        assert!(reading.available_bytes.unwrap() <= reading.total_bytes.unwrap());
        assert!(reading.page_cache_bytes.is_some() && reading.anonymous_bytes.is_some());
    }
}
