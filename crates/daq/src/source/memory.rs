//! Memory that the sources use.

use std::path::Path;

use sys::proc::SocketMemory;

/// Resident memory of this process plus the kernel's socket queues of `connections`, bytes; `None` if it
/// cannot be read.
///
/// The kernel reports the queues of the whole host only: each connection counts with the mean.
pub(super) fn used_bytes(connections: u64) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok();
    let resident = status.as_deref().and_then(resident_bytes);
    let queues = SocketMemory::open(Path::new("/")).and_then(|mut memory| memory.read());
    let queues = queues.ok().and_then(|reading| reading.tcp_bytes.zip(reading.tcp_allocated));
    let own = queues.map_or(0, |(bytes, all)| bytes / all.max(1) * connections.min(all));
    resident.map(|resident| resident.saturating_add(own))
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_parsed() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  12 kB\n"), Some(12 << 10));
        assert_eq!(resident_bytes("VmRSS: many kB"), None);
        assert!(used_bytes(0).is_some_and(|bytes| bytes > 1 << 20));
    }
}
