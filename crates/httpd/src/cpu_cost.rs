//! Acting as a slower processor: CPU time burnt for every content byte sent.

use sys::thread::thread_cpu_ns;

/// Content sent to one connection in a turn when bytes cost time, so that no stream waits long for another's.
pub const SLICE_BYTES: usize = 64 << 10;

/// Burns CPU time of this thread in proportion to bytes sent.
///
/// The thread's own CPU clock is read, not the wall clock: a thread that a quota holds back has then not yet
/// paid, just as a slow processor would not have, and the quota divides by the cost per byte as it should.
#[derive(Debug)]
pub struct CpuCost {
    ns_per_byte: f64,
    /// Time owed (or, below zero, paid too much by the grain of the clock).
    owed_ns: f64,
}

impl CpuCost {
    /// `ns_per_byte` of 0 burns nothing.
    pub fn new(ns_per_byte: f64) -> Self {
        Self { ns_per_byte, owed_ns: 0.0 }
    }

    pub fn is_free(&self) -> bool {
        self.ns_per_byte <= 0.0
    }

    /// Burns what `bytes` cost. Returns when it is paid.
    #[inline]
    pub fn burn(&mut self, bytes: usize) {
        if self.is_free() {
            return;
        }
        self.owed_ns += bytes as f64 * self.ns_per_byte;
        let started_ns = thread_cpu_ns();
        loop {
            let paid_ns = thread_cpu_ns().saturating_sub(started_ns) as f64;
            if paid_ns >= self.owed_ns {
                self.owed_ns -= paid_ns;
                return;
            }
            // The clock is a system call; spend most of the time in this program, as real work would.
            for _ in 0..200 {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_cost_is_paid_by_the_thread() {
        let mut cost = CpuCost::new(44.8);
        let before_ns = thread_cpu_ns();
        for _ in 0..10 {
            cost.burn(64 << 10);
        }
        let paid_ns = (thread_cpu_ns() - before_ns) as f64;
        let due_ns = 10.0 * 65536.0 * 44.8;
        assert!(paid_ns >= due_ns * 0.999, "paid {paid_ns} of {due_ns}");
        CpuCost::new(0.0).burn(1 << 30);
    }
}
