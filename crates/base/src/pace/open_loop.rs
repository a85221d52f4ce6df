//! Operations at a fixed rate, whatever became of the earlier ones.

use super::Pacer;

/// A sleeping thread is woken within this time on a host that is not overloaded.
const WAKE_UP_NS: u64 = 100_000;

/// Evenly spaced moments of the monotonic clock without an end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenLoop {
    first_ns: u64,
    interval_ns: f64,
}

impl OpenLoop {
    /// The schedule of the generator `index` out of `generators` with the same rate (above 0) and start:
    /// their operations are spread over the interval.
    pub fn new(rate_per_s: f64, start_ns: u64, index: usize, generators: usize) -> Self {
        let interval_ns = 1e9 / rate_per_s;
        let offset_ns = interval_ns * index as f64 / generators.max(1) as f64;
        Self { first_ns: start_ns.saturating_add(offset_ns as u64), interval_ns }
    }

    /// The moment of operation `number` (from 0).
    pub fn moment_ns(&self, number: u64) -> u64 {
        // A multiple of the interval, so that rounding errors do not add up.
        self.first_ns.saturating_add((number as f64 * self.interval_ns) as u64)
    }

    /// The number of operations before `end_ns`.
    pub fn number_before(&self, end_ns: u64) -> u64 {
        if end_ns <= self.first_ns {
            return 0;
        }
        let about = ((end_ns - self.first_ns) as f64 / self.interval_ns) as u64;
        // The division may be off by one either way.
        let near = about.saturating_sub(1)..=about.saturating_add(1);
        near.rev().find(|&number| self.moment_ns(number) < end_ns).map_or(0, |number| number + 1)
    }

    /// An operation that starts later than this is late: a tenth of the interval, and at least a wake-up.
    pub fn late_ns(&self) -> u64 {
        ((self.interval_ns / 10.0) as u64).max(WAKE_UP_NS)
    }
}

impl Pacer for OpenLoop {
    fn intended_ns(&self, k: u64) -> Option<u64> {
        Some(self.moment_ns(k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn generators_share_the_interval() {
        for (index, first_ns) in [(0, 5_000), (1, 255_000), (3, 755_000)] {
            let schedule = OpenLoop::new(1000.0, 5_000, index, 4);
            assert_eq!(schedule.moment_ns(0), first_ns);
            assert_eq!(schedule.intended_ns(1_000_000), Some(first_ns + 1_000_000_000_000), "no drift");
            assert_eq!(schedule.late_ns(), WAKE_UP_NS);
        }
        assert_eq!(OpenLoop::new(0.1, 0, 0, 1).late_ns(), 1_000_000_000);
    }

    proptest! {
        #[test]
        fn number_before_agrees_with_moments(
            rate in 0.01_f64..1e7, start in 0..1_u64 << 50, after in 0..1_u64 << 42, index in 0_usize..3,
        ) {
            let schedule = OpenLoop::new(rate, start, index, 3);
            let end = start + after;
            let number = schedule.number_before(end);
            prop_assert!(schedule.moment_ns(number) >= end);
            prop_assert!(number == 0 || schedule.moment_ns(number - 1) < end);
        }
    }
}
