//! The busiest second of a thread.

use sys::thread::thread_cpu_ns;

const SECOND_NS: u64 = 1_000_000_000;

/// The largest share of a CPU that the calling thread used in a second.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    from_ns: u64,
    from_cpu_ns: u64,
    most: Option<f64>,
}

impl Busiest {
    pub(super) fn new(from_ns: u64) -> Self {
        Self { from_ns, from_cpu_ns: thread_cpu_ns(), most: None }
    }

    /// Call it often; it reads a clock once a second.
    pub(super) fn look(&mut self, now_ns: u64) {
        if now_ns >= self.from_ns.saturating_add(SECOND_NS) {
            self.take(now_ns);
        }
    }

    fn take(&mut self, now_ns: u64) {
        let cpu_ns = thread_cpu_ns();
        let share =
            cpu_ns.saturating_sub(self.from_cpu_ns) as f64 / now_ns.saturating_sub(self.from_ns) as f64;
        self.most = Some(self.most.map_or(share, |most| most.max(share)));
        (self.from_ns, self.from_cpu_ns) = (now_ns, cpu_ns);
    }

    /// The share; the last part of a second counts if it is half of one, or all there is.
    pub(super) fn end(mut self, now_ns: u64) -> Option<f64> {
        let so_far_ns = now_ns.saturating_sub(self.from_ns);
        if so_far_ns > SECOND_NS / 2 || (self.most.is_none() && so_far_ns > 0) {
            self.take(now_ns);
        }
        self.most
    }
}
