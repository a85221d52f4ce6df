//! Converts the kernel's realtime timestamps to monotonic time.
//!
//! Until the clock is set, realtime minus monotonic is constant to the nanosecond: both are slewed alike (the
//! kernel keeps one clock and adds `wall_to_monotonic`). Readings of monotonic, realtime, monotonic bound
//! that constant; the intersection of the bounds is soon some 30 ns wide. When they no longer intersect the
//! clock has been set, and the estimate restarts.

use nix::sys::time::TimeSpec;

use crate::clock::{monotonic_ns, realtime_ns};

const NS_PER_S: i64 = 1_000_000_000;

/// Readings of the two clocks in a row: monotonic, realtime, monotonic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    before_ns: u64,
    realtime_ns: u64,
    after_ns: u64,
}

impl Reading {
    fn take() -> Self {
        let before_ns = monotonic_ns();
        let realtime_ns = realtime_ns();
        Self { before_ns, realtime_ns, after_ns: monotonic_ns() }
    }

    /// Bounds of the difference between the clocks.
    fn difference_ns(&self) -> (i64, i64) {
        let minus = |monotonic: u64| self.realtime_ns.wrapping_sub(monotonic).cast_signed();
        (minus(self.after_ns), minus(self.before_ns))
    }
}

/// The current estimate of realtime minus monotonic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    least_ns: i64,
    most_ns: i64,
    /// Since when the clock has not been set.
    since_ns: u64,
}

impl Timestamps {
    pub(crate) fn start() -> Self {
        Self::from(Reading::take())
    }

    /// The monotonic time of a datagram's timestamp: never early, late by at most the width of the bounds.
    /// `None` if the clock was detectably set since the timestamp.
    pub(crate) fn monotonic_ns(&mut self, stamp: TimeSpec) -> Option<u64> {
        let stamp_ns = stamp.tv_sec().checked_mul(NS_PER_S)?.checked_add(stamp.tv_nsec())?;
        self.convert(stamp_ns, Reading::take())
    }

    fn convert(&mut self, stamp_ns: i64, now: Reading) -> Option<u64> {
        let (least_ns, most_ns) = now.difference_ns();
        let (least_ns, most_ns) = (self.least_ns.max(least_ns), self.most_ns.min(most_ns));
        if least_ns > most_ns {
            *self = Self::from(now);
            return None;
        }
        (self.least_ns, self.most_ns) = (least_ns, most_ns);
        let at_ns = u64::try_from(stamp_ns.checked_sub(least_ns)?).ok()?;
        // What was stamped before the clock was set forward seems older than the last setting; before it was
        // set back, younger than now. What passes nevertheless is late, as a stamp may be, and never
        // early.
        (self.since_ns <= at_ns && at_ns <= now.after_ns).then_some(at_ns)
    }
}

impl From<Reading> for Timestamps {
    fn from(now: Reading) -> Self {
        let (least_ns, most_ns) = now.difference_ns();
        Self { least_ns, most_ns, since_ns: now.after_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two readings of the monotonic clock `width` apart, with realtime read in between, `difference` ahead.
    fn reading(at: u64, width: u64, inner: u64, difference: i64) -> Reading {
        let realtime_ns = (at + inner.min(width)).checked_add_signed(difference).unwrap();
        Reading { before_ns: at, realtime_ns, after_ns: at + width }
    }

    proptest! {
        /// However the clock is set, a stamp is never taken for an earlier time than it was made at.
        #[test]
        fn timestamps_are_never_early(
            start in 1_000_000_000_u64..1 << 50,
            events in prop::collection::vec(
                (1_u64..1_000_000, 1_u64..1_000_000, 0_u64..500, 0_u64..500,
                 prop::option::weighted(0.2, -2_000_000_i64..2_000_000)),
                1..40,
            ),
        ) {
            let mut difference = 1_700_000_000_000_000_000_i64;
            let mut stamps = Timestamps::from(reading(start, 40, 20, difference));
            let mut now = start + 40;
            for (until_stamp, waiting, width, inner, set_by) in events {
                now += until_stamp;
                let stamped_at = now;
                let stamp_ns = stamped_at.cast_signed() + difference;
                // The worst moment to set the clock is while a datagram waits.
                difference += set_by.unwrap_or(0);
                now += waiting;
                let taken = reading(now, width, inner, difference);
                now += width;
                if let Some(at) = stamps.convert(stamp_ns, taken) {
                    let slack = set_by.map_or(500, i64::unsigned_abs).max(500);
                    prop_assert!(at + 1000 >= stamped_at, "{at} is before {stamped_at}");
                    prop_assert!(at <= now && (set_by.is_some() || at <= stamped_at + slack));
                }
            }
        }
    }

    #[test]
    fn clock_step_is_detected_once() {
        let mut stamps = Timestamps::from(reading(1000, 40, 20, 5_000_000));
        assert_eq!(stamps.convert(5_002_000, reading(2100, 40, 20, 5_000_000)), Some(2020));
        assert_eq!(stamps.convert(5_003_000, reading(3100, 40, 20, 9_000_000)), None);
        assert_eq!(stamps.convert(5_003_050, reading(3200, 40, 20, 9_000_000)), None, "stamped before");
        assert_eq!(stamps.convert(9_004_000, reading(4100, 40, 20, 9_000_000)), Some(4020));
    }

    #[test]
    fn clock_difference_is_known_to_a_microsecond() {
        let mut stamps = Timestamps::start();
        for _ in 0..10_000 {
            let now = Reading::take();
            stamps.convert(now.realtime_ns.cast_signed(), now);
        }
        assert!((0..1000).contains(&(stamps.most_ns - stamps.least_ns)), "{stamps:?}");
    }
}
