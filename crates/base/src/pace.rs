//! When operations are meant to start, and when a sender that keeps a rate may send. Pure: no clock, so that
//! the tests are tables of cases. Moments are absolute, so that late wake-ups do not add up.

/// The schedule of an open-loop generator.
///
/// Latency counts from the intended time, whether or not the generator managed to start then: leaving late
/// operations out of the account is the "coordinated omission" that flatters a slow target.
pub trait Pacer {
    /// The intended start of operation `k` (from 0), in ns after the start; `None` when there is no such one.
    fn intended_ns(&self, k: u64) -> Option<u64>;
}

/// `count` operations evenly spread over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Even {
    /// How many operations there are.
    pub count: u64,
    pub window_ns: u64,
}

impl Pacer for Even {
    fn intended_ns(&self, k: u64) -> Option<u64> {
        // 128 bits: k * window passes 2^64 after some minutes at a few million operations.
        (k < self.count).then(|| (u128::from(k) * u128::from(self.window_ns) / u128::from(self.count)) as u64)
    }
}

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

const BIT_NS_PER_BYTE_S: u128 = 8_000_000_000;

/// Bytes of one burst are due within this time of each other, which bounds the error of the rate at any
/// moment. A wake-up costs some 3 us, so that one burst every 100 us leaves a core mostly free.
const BURST_NS: u64 = 100_000;

/// A sender that is later than this (its thread was not scheduled, the path was blocked) does not catch up:
/// a burst at full speed would overrun queues and cause loss that the rate does not cause.
const BEHIND_NS_MAX: u64 = 10_000_000;

/// What a sender may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At most this number of bytes, at least one unit.
    Bytes(u64),
    /// Nothing before this moment of the monotonic clock.
    NotBefore(u64),
}

#[derive(Debug, Clone)]
pub struct ByteRate {
    rate_bit_per_s: u64,
    /// When byte 0 is due; moves on when the sender may not catch up.
    origin_ns: u64,
    burst_bytes: u64,
    /// Whether the last answer was [`Due::NotBefore`].
    sleeps: bool,
    overslept_ns: u64,
}

impl ByteRate {
    /// A schedule from `origin_ns` at `rate_bit_per_s` (above 0), in bursts of whole units of `unit_bytes`:
    /// at least one unit, at most `call_bytes`.
    pub fn new(rate_bit_per_s: u64, origin_ns: u64, unit_bytes: u64, call_bytes: u64) -> Self {
        let rate_bit_per_s = rate_bit_per_s.max(1);
        let unit_bytes = unit_bytes.max(1);
        let within = u128::from(rate_bit_per_s) * u128::from(BURST_NS) / BIT_NS_PER_BYTE_S;
        let within = u64::try_from(within).unwrap_or(u64::MAX);
        let burst_bytes = (within.min(call_bytes) / unit_bytes).max(1) * unit_bytes;
        Self { rate_bit_per_s, origin_ns, burst_bytes, sleeps: false, overslept_ns: 0 }
    }

    /// What may be sent at `now_ns` after `sent_bytes`. A burst is due when its first byte is.
    pub fn due(&mut self, sent_bytes: u64, now_ns: u64) -> Due {
        let first_ns = self.origin_ns.saturating_add(self.duration_ns(sent_bytes));
        let slept = std::mem::replace(&mut self.sleeps, now_ns < first_ns);
        if now_ns < first_ns {
            return Due::NotBefore(first_ns);
        }
        let late_ns = now_ns - first_ns;
        if late_ns > BEHIND_NS_MAX {
            let forgiven_ns = late_ns - BEHIND_NS_MAX;
            self.origin_ns = self.origin_ns.saturating_add(forgiven_ns);
            if slept {
                self.overslept_ns = self.overslept_ns.saturating_add(forgiven_ns);
            }
        }
        let overdue_ns = u128::from(late_ns.min(BEHIND_NS_MAX));
        let overdue = u128::from(self.rate_bit_per_s) * overdue_ns / BIT_NS_PER_BYTE_S;
        let bursts = u64::try_from(overdue).unwrap_or(u64::MAX) / self.burst_bytes;
        Due::Bytes(bursts.saturating_add(1).saturating_mul(self.burst_bytes))
    }

    /// The delay of the schedule because the waiting sender was woken too late, ns; without the delay because
    /// the path was blocked.
    pub fn overslept_ns(&self) -> u64 {
        self.overslept_ns
    }

    fn duration_ns(&self, bytes: u64) -> u64 {
        let ns = u128::from(bytes) * BIT_NS_PER_BYTE_S / u128::from(self.rate_bit_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn even_spreads_without_drift_or_overflow() {
        let pace = Even { count: 3, window_ns: 10 };
        assert_eq!([0, 1, 2, 3].map(|k| pace.intended_ns(k)), [Some(0), Some(3), Some(6), None]);
        assert_eq!(Even { count: 0, window_ns: 10 }.intended_ns(0), None);
        let long = Even { count: u64::MAX, window_ns: u64::MAX };
        assert_eq!(long.intended_ns(u64::MAX - 1), Some(u64::MAX - 1));
    }

    #[test]
    fn burst_is_whole_units_of_at_most_100_us() {
        for (bit_per_s, unit, call, burst) in [
            (1_000_000, 1470, 64_680, 1470),
            (1_000_000_000, 1470, 64_680, 8 * 1470),
            (10_000_000_000, 1470, 64_680, 44 * 1470),
            (8_000_000, 1, 1 << 20, 100),
            (u64::MAX, 1, 1 << 20, 1 << 20),
            (0, 1470, 64_680, 1470),
            (1, 0, 0, 1),
        ] {
            let mut rate = ByteRate::new(bit_per_s, 5, unit, call);
            assert_eq!(rate.due(0, 5), Due::Bytes(burst), "{bit_per_s} bit/s");
        }
    }

    #[test]
    fn late_wake_ups_do_not_lower_the_rate() {
        // 80 Mbit/s: 10 bytes a microsecond, bursts of 1,000.
        let mut rate = ByteRate::new(80_000_000, 0, 1000, 1000);
        let (mut now, mut sent, mut woken) = (0, 0, 0_u64);
        while now < 1_000_000_000 {
            match rate.due(sent, now) {
                Due::Bytes(bytes) => sent += bytes.min(1000),
                Due::NotBefore(at) => {
                    woken += 1;
                    now = at + (woken * 7919) % 90_000;
                }
            }
        }
        assert!((9_999_000..=10_002_000).contains(&sent), "{sent}");
        assert_eq!(rate.overslept_ns(), 0);
    }

    #[test]
    fn late_sender_catches_up_at_most_10_ms() {
        let mut rate = ByteRate::new(80_000_000, 0, 1000, 1000);
        assert_eq!(rate.due(0, 1_000_000_000), Due::Bytes(101_000));
        assert_eq!(rate.overslept_ns(), 0, "it was not asleep: the path was blocked");
        assert_eq!(rate.due(101_000, 1_000_000_000), Due::NotBefore(1_000_100_000));
        assert_eq!(rate.due(101_000, 1_500_000_000), Due::Bytes(101_000));
        assert_eq!(rate.overslept_ns(), 489_900_000);
        assert_eq!(rate.due(102_000, 1_600_000_000), Due::Bytes(101_000));
        assert_eq!(rate.overslept_ns(), 489_900_000, "only what followed a sleep");
    }

    #[test]
    fn extreme_rates_and_times_do_not_overflow() {
        let mut rate = ByteRate::new(1, u64::MAX - 1, 1, 1);
        assert_eq!(rate.due(u64::MAX, 0), Due::NotBefore(u64::MAX));
        assert_eq!(rate.due(0, u64::MAX), Due::Bytes(1));
        let mut fast = ByteRate::new(u64::MAX, 0, u64::MAX, u64::MAX);
        assert_eq!(fast.due(0, u64::MAX), Due::Bytes(u64::MAX));
    }

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
