//! CPU time that the hypervisor took from this host while flows moved.

use std::path::Path;

use sys::clock::monotonic_ns;
use sys::proc::HostCpu;

/// `steal` of all CPUs at one moment (proc_stat(5)).
#[derive(Debug, Clone, Copy)]
pub(crate) struct StealReading {
    at_ns: u64,
    /// Since boot; absent if the kernel does not count it.
    steal_ns: Option<u64>,
}

impl StealReading {
    pub(crate) fn begin() -> Self {
        let read = || HostCpu::open(Path::new("/")).ok()?.read().ok()?.total.steal_ns;
        Self { at_ns: monotonic_ns(), steal_ns: read() }
    }

    /// What was taken from this reading until now, as a share of one core.
    pub(crate) fn share(self) -> Option<f64> {
        self.share_until(Self::begin())
    }

    fn share_until(self, now: Self) -> Option<f64> {
        let taken_ns = now.steal_ns?.saturating_sub(self.steal_ns?);
        let wall_ns = now.at_ns.checked_sub(self.at_ns).filter(|ns| *ns > 0)?;
        Some(taken_ns as f64 / wall_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_of_one_core_and_unknown_without_the_counter() {
        let at = |at_ns, steal_ns| StealReading { at_ns, steal_ns };
        assert_eq!(at(1_000, Some(10)).share_until(at(3_000, Some(1_030))), Some(0.51));
        assert_eq!(at(1_000, None).share_until(at(3_000, Some(1_030))), None);
        assert_eq!(at(1_000, Some(10)).share_until(at(1_000, Some(10))), None);
    }
}
