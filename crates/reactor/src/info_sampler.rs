//! Reading `TCP_INFO` of many connections, a few at a time.

use std::ops::Range;

/// When to read `TCP_INFO` of which connection: all of them once a period, a few each time the loop comes by,
/// since each reading is a system call. Pure: the caller passes the time and reads.
#[derive(Clone, Copy, Debug)]
pub struct InfoSampler {
    period_ns: u64,
    next_ns: u64,
    /// The next connection of the pass under way.
    cursor: Option<usize>,
}

impl InfoSampler {
    /// One pass each `period_ns`, the first at once.
    pub const fn new(period_ns: u64) -> Self {
        Self { period_ns, next_ns: 0, cursor: None }
    }

    /// When there is something to do; 0 while a pass is under way.
    pub const fn next_ns(&self) -> u64 {
        if self.cursor.is_some() { 0 } else { self.next_ns }
    }

    /// Whether a pass is to begin now. Call [`InfoSampler::begin`] then, unless nothing can have changed.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.next_ns = now_ns.saturating_add(self.period_ns);
        }
        is_due && self.cursor.is_none()
    }

    /// Begins a pass, unless one is under way.
    pub fn begin(&mut self) {
        self.cursor.get_or_insert(0);
    }

    /// The connections of `count` to read now, at most `at_once`; empty when no pass is under way.
    pub fn take(&mut self, count: usize, at_once: usize) -> Range<usize> {
        let Some(from) = self.cursor else { return 0..0 };
        let to = from.saturating_add(at_once.max(1)).min(count);
        self.cursor = (to < count).then_some(to);
        from.min(to)..to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_reads_every_connection_once_a_period() {
        let mut sampler = InfoSampler::new(100);
        assert!(sampler.is_due(5) && !sampler.is_due(6));
        assert_eq!((sampler.next_ns(), sampler.take(7, 3)), (105, 0..0), "no pass without begin");
        sampler.begin();
        assert_eq!(sampler.next_ns(), 0);
        sampler.begin();
        assert_eq!([0, 1, 2, 3].map(|_| sampler.take(7, 3)), [0..3, 3..6, 6..7, 0..0]);
        assert!(!sampler.is_due(104) && sampler.is_due(105));
    }

    #[test]
    fn pass_ends_when_connections_have_gone() {
        let mut sampler = InfoSampler::new(100);
        sampler.begin();
        assert_eq!((sampler.take(9, 5), sampler.take(3, 5).len(), sampler.take(9, 5)), (0..5, 0, 0..0));
    }
}
