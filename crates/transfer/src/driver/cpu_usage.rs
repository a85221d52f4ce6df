//! What a thread used from a moment on.

use std::path::Path;

use sys::clock::monotonic_ns;
use sys::thread::{thread_cpu_ns, thread_ready_ns};

use super::ThreadReport;

/// The accounts of this thread at its beginning.
#[derive(Debug)]
pub(crate) struct CpuUsage {
    from_ns: u64,
    cpu_ns: u64,
    ready_ns: Option<u64>,
    throttled_ns: Option<u64>,
}

/// Time for which the control group of this process had used up its quota, ns, summed over CPUs; `None`
/// without a quota.
fn throttled_ns() -> Option<u64> {
    let own = i32::try_from(std::process::id()).ok()?;
    sys::cgroup::cpu_reader_of(Path::new("/"), own).ok()?.read().ok()?.throttled_ns
}

impl CpuUsage {
    /// Begins now, or at `start_ns` if that is later.
    pub(crate) fn begin(start_ns: u64) -> Self {
        // First, as it takes the longest.
        let throttled_ns = throttled_ns();
        Self {
            from_ns: monotonic_ns().max(start_ns),
            cpu_ns: thread_cpu_ns(),
            ready_ns: thread_ready_ns(),
            throttled_ns,
        }
    }

    pub(crate) fn end(self) -> ThreadReport {
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let cpu_ns = thread_cpu_ns().saturating_sub(self.cpu_ns);
        let wall_ns = monotonic_ns().saturating_sub(self.from_ns);
        let ready_ns = since(thread_ready_ns(), self.ready_ns);
        // A thread whose group has used up its quota is off the run queue since Linux 6.18 (throttling is put
        // off until the way out of the kernel), so that the wait counts as no wait for a CPU. It is
        // one.
        let throttled_ns = since(throttled_ns(), self.throttled_ns).filter(|ns| *ns > 0);
        let throttled_ns = throttled_ns.map(|ns| ns.min(wall_ns.saturating_sub(cpu_ns)));
        ThreadReport { cpu_ns, ready_ns: ready_ns.max(throttled_ns), wall_ns }
    }
}
