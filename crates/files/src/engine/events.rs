//! The event generator: flowops that are limited take events, which come at a rate.

use std::sync::atomic::{AtomicU64, Ordering};

const PS_PER_S: f64 = 1e12;
/// Events that nobody takes are kept for so long.
const BACKLOG_PS: u64 = 5_000_000_000_000;

/// Events at an even rate. Each taker gets the moment of its own event without a lock.
#[derive(Debug)]
pub(crate) struct Events {
    interval_ps: u64,
    start_ns: u64,
    /// The moment of the next event, after the start.
    next_ps: AtomicU64,
}

impl Events {
    pub(crate) fn new(per_s: u64, start_ns: u64) -> Self {
        let interval_ps = (PS_PER_S / per_s.max(1) as f64).max(1.0) as u64;
        Self { interval_ps, start_ns, next_ps: AtomicU64::new(0) }
    }

    /// Takes events; the moment of the monotonic clock at which the last of them comes.
    pub(crate) fn take(&self, events: u64, now_ns: u64) -> u64 {
        let now_ps = now_ns.saturating_sub(self.start_ns).saturating_mul(1000);
        let oldest = now_ps.saturating_sub(BACKLOG_PS);
        let span = self.interval_ps.saturating_mul(events);
        let moved = |next: u64| Some(next.max(oldest).saturating_add(span));
        let before = self.next_ps.fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
        let begin = before.unwrap_or_else(|next| next).max(oldest);
        self.start_ns.saturating_add(begin.saturating_add(span) / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_at_their_rate_and_a_backlog_is_bounded() {
        let events = Events::new(1000, 5_000);
        assert_eq!([events.take(1, 5_000), events.take(2, 5_000)], [1_005_000, 3_005_000]);
        assert_eq!(events.take(0, 5_000), 3_005_000);
        let late = 100_000_000_000;
        // Of the 100 s only the last 5 are left.
        assert_eq!(events.take(1, late), 95_001_000_000);
    }
}
