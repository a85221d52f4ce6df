//! Reconciles counted, lost and delivered events.

/// The open events of one kind on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LossCounters {
    pub(super) opened: u64,
    /// By the kernel.
    pub(super) counted: u64,
    /// For lack of room in the ring.
    pub(super) lost: u64,
    /// To the reader.
    pub(super) delivered: u64,
}

impl LossCounters {
    /// Events that the kernel counted and then neither delivered nor lost, because they were disabled in
    /// between: kernels from 6.12.77 and 6.18.17 on check again before they deliver
    /// (`perf_swevent_event()` in kernel/events/core.c). At most one per open event.
    pub(super) fn cut_off(&self) -> u64 {
        self.counted.saturating_sub(self.delivered + self.lost).min(self.opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_record_per_event_is_cut_off() {
        let counters = LossCounters { opened: 2, counted: 100, lost: 10, delivered: 90 };
        assert_eq!(counters.cut_off(), 0);
        assert_eq!(LossCounters { delivered: 89, ..counters }.cut_off(), 1);
        assert_eq!(LossCounters { delivered: 80, ..counters }.cut_off(), 2, "the others are missing");
        assert_eq!(LossCounters { delivered: 91, ..counters }.cut_off(), 0);
    }
}
