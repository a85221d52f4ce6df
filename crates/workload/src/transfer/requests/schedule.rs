//! When requests are intended. Pure: it is told the time.

/// The schedule of one flow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Schedule {
    /// Closed loop: the next as soon as the last is answered or given up.
    Closed,
    /// Open loop: at moments of its own, whatever the answers do.
    Open {
        /// The moment of the first one.
        first_ns: u64,
        /// From one to the next.
        interval_ns: f64,
    },
}

impl Schedule {
    /// Of the flow `index` out of `flows` with the same rate: their requests are spread over the time between two.
    pub(super) fn new(rate_per_s: Option<f64>, start_ns: u64, index: usize, flows: usize) -> Self {
        let Some(rate_per_s) = rate_per_s else { return Self::Closed };
        let interval_ns = 1e9 / rate_per_s;
        let offset_ns = interval_ns * index as f64 / flows.max(1) as f64;
        Self::Open { first_ns: start_ns.saturating_add(offset_ns as u64), interval_ns }
    }

    /// The moment at which request `number` (from 0) is intended; `None` if that depends on the answers.
    pub(super) fn moment_ns(&self, number: u64) -> Option<u64> {
        match self {
            Self::Closed => None,
            // A whole multiple of the interval, so that nothing adds up.
            Self::Open { first_ns, interval_ns } => {
                Some(first_ns.saturating_add((number as f64 * interval_ns) as u64))
            }
        }
    }

    /// How many requests are intended before `end_ns`; none are known of a closed loop.
    pub(super) fn number_before(&self, end_ns: u64) -> u64 {
        match *self {
            Self::Closed => 0,
            Self::Open { first_ns, .. } if end_ns <= first_ns => 0,
            Self::Open { first_ns, interval_ns } => {
                let about = ((end_ns - first_ns) as f64 / interval_ns) as u64;
                // The division may be off by one either way.
                let before = |number: &u64| self.moment_ns(*number).is_some_and(|ns| ns < end_ns);
                let near = about.saturating_sub(1)..=about.saturating_add(1);
                near.rev().find(before).map_or(0, |number| number + 1)
            }
        }
    }

    /// A request that is sent later than intended by more than this is late: a tenth of the time between two, and more
    /// than waking up takes.
    pub(super) fn late_ns(&self) -> u64 {
        match self {
            Self::Closed => u64::MAX,
            Self::Open { interval_ns, .. } => ((interval_ns / 10.0) as u64).max(WAKING_NS),
        }
    }
}

/// A sleeping thread is woken up within this on a host that is not overloaded.
const WAKING_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn flows_share_the_time_between_two_requests() {
        for (index, first_ns) in [(0, 5_000), (1, 255_000), (3, 755_000)] {
            let schedule = Schedule::new(Some(1000.0), 5_000, index, 4);
            assert_eq!(schedule.moment_ns(0), Some(first_ns));
            assert_eq!(schedule.moment_ns(1_000_000), Some(first_ns + 1_000_000_000_000), "nothing adds up");
            assert_eq!(schedule.late_ns(), WAKING_NS);
        }
        assert_eq!(Schedule::new(Some(0.1), 0, 0, 1).late_ns(), 1_000_000_000);
        assert_eq!(Schedule::new(None, 0, 0, 1), Schedule::Closed);
        assert_eq!((Schedule::Closed.moment_ns(3), Schedule::Closed.number_before(u64::MAX)), (None, 0));
    }

    proptest! {
        /// The number before a moment is what the moments themselves say.
        #[test]
        fn numbers_and_moments_agree(
            rate in 0.01_f64..1e7, start in 0..1_u64 << 50, after in 0..1_u64 << 42, index in 0_usize..3,
        ) {
            let schedule = Schedule::new(Some(rate), start, index, 3);
            let end = start + after;
            let number = schedule.number_before(end);
            prop_assert!(schedule.moment_ns(number).unwrap() >= end);
            prop_assert!(number == 0 || schedule.moment_ns(number - 1).unwrap() < end);
        }
    }
}
