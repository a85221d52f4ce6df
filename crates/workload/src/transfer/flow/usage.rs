//! What a thread used from a moment on.

use sys::clock::monotonic_ns;
use sys::thread::{thread_cpu_ns, thread_ready_ns};

use super::order::ThreadReport;

/// The accounts of this thread at its beginning.
#[derive(Debug)]
pub(in crate::transfer) struct Usage {
    from_ns: u64,
    cpu_ns: u64,
    ready_ns: Option<u64>,
}

impl Usage {
    /// Begins now, or at `start_ns` if that is later.
    pub(in crate::transfer) fn begin(start_ns: u64) -> Self {
        Self { from_ns: monotonic_ns().max(start_ns), cpu_ns: thread_cpu_ns(), ready_ns: thread_ready_ns() }
    }

    /// What was used until now; for the same thread.
    pub(in crate::transfer) fn end(self) -> ThreadReport {
        let ready_ns = thread_ready_ns().zip(self.ready_ns).map(|(now, before)| now.saturating_sub(before));
        ThreadReport {
            cpu_ns: thread_cpu_ns().saturating_sub(self.cpu_ns),
            ready_ns,
            wall_ns: monotonic_ns().saturating_sub(self.from_ns),
        }
    }
}
