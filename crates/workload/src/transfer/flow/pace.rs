//! When a sender at a rate may send: absolute moments, so that late wake-ups do not add up.

const BIT_NS_PER_BYTE_S: u128 = 8_000_000_000;

/// Bytes that leave together are due within this of each other: what the rate is wrong by at any moment is at most so
/// much. A wake-up costs some 3 us, so that one burst every 100 us leaves a core mostly free.
const BURST_NS: u64 = 100_000;

/// A sender that fell behind by more (the thread was not scheduled, the path was blocked) does not catch up on the
/// rest: a burst at full speed would overrun queues and make loss that the rate does not cause.
const BEHIND_NS_MAX: u64 = 10_000_000;

/// What a sender may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send up to so many bytes, at least one unit.
    Bytes(u64),
    /// Nothing before this moment of the monotonic clock.
    NotBefore(u64),
}

/// The schedule of one sender. Pure: it is told the time.
#[derive(Debug, Clone)]
pub(super) struct Pacer {
    rate_bit_per_s: u64,
    /// The moment at which byte 0 is due; moves on when the sender may not catch up.
    origin_ns: u64,
    burst_bytes: u64,
    /// Whether it was told to wait, and has not asked since.
    sleeps: bool,
    overslept_ns: u64,
}

impl Pacer {
    /// A schedule from `origin_ns` at `rate_bit_per_s` (above 0), in bursts of whole units of `unit_bytes`, one at
    /// least and `call_bytes` at most.
    pub(super) fn new(rate_bit_per_s: u64, origin_ns: u64, unit_bytes: u64, call_bytes: u64) -> Self {
        let rate_bit_per_s = rate_bit_per_s.max(1);
        let unit_bytes = unit_bytes.max(1);
        let within = u128::from(rate_bit_per_s) * u128::from(BURST_NS) / BIT_NS_PER_BYTE_S;
        let within = u64::try_from(within).unwrap_or(u64::MAX);
        let burst_bytes = (within.min(call_bytes) / unit_bytes).max(1) * unit_bytes;
        Self { rate_bit_per_s, origin_ns, burst_bytes, sleeps: false, overslept_ns: 0 }
    }

    /// What may be sent at `now_ns` after `sent_bytes`. A burst is due when its first byte is.
    pub(super) fn due(&mut self, sent_bytes: u64, now_ns: u64) -> Due {
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

    /// By how much the schedule was put off because the sender had nothing to do but wait, and was woken too late, ns.
    /// What it could not send sooner because the path was blocked is no part of it.
    pub(super) fn overslept_ns(&self) -> u64 {
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

    #[test]
    fn bursts_are_whole_units_within_a_tenth_of_a_millisecond() {
        for (rate, unit, call, burst) in [
            (1_000_000, 1470, 64_680, 1470),
            (1_000_000_000, 1470, 64_680, 8 * 1470),
            (10_000_000_000, 1470, 64_680, 44 * 1470),
            (8_000_000, 1, 1 << 20, 100),
            (u64::MAX, 1, 1 << 20, 1 << 20),
            (0, 1470, 64_680, 1470),
            (1, 0, 0, 1),
        ] {
            let mut pacer = Pacer::new(rate, 5, unit, call);
            assert_eq!(pacer.due(0, 5), Due::Bytes(burst), "{rate} bit/s");
        }
    }

    #[test]
    fn late_wake_ups_do_not_add_up() {
        // 80 Mbit/s: 10 bytes a microsecond, bursts of 1,000.
        let mut pacer = Pacer::new(80_000_000, 0, 1000, 1000);
        let (mut now, mut sent, mut woken) = (0, 0, 0_u64);
        while now < 1_000_000_000 {
            match pacer.due(sent, now) {
                Due::Bytes(bytes) => sent += bytes.min(1000),
                Due::NotBefore(at) => {
                    woken += 1;
                    now = at + (woken * 7919) % 90_000;
                }
            }
        }
        assert!((9_999_000..=10_002_000).contains(&sent), "{sent}");
        assert_eq!(pacer.overslept_ns(), 0);
    }

    #[test]
    fn a_sender_that_fell_far_behind_does_not_make_up_for_it() {
        let mut pacer = Pacer::new(80_000_000, 0, 1000, 1000);
        assert_eq!(pacer.due(0, 1_000_000_000), Due::Bytes(101_000));
        assert_eq!(pacer.overslept_ns(), 0, "it was not asleep: the path was blocked");
        assert_eq!(pacer.due(101_000, 1_000_000_000), Due::NotBefore(1_000_100_000));
        assert_eq!(pacer.due(101_000, 1_500_000_000), Due::Bytes(101_000));
        assert_eq!(pacer.overslept_ns(), 489_900_000);
        assert_eq!(pacer.due(102_000, 1_600_000_000), Due::Bytes(101_000));
        assert_eq!(pacer.overslept_ns(), 489_900_000, "only what followed a sleep");
    }

    #[test]
    fn no_rate_and_no_time_overflows() {
        let mut pacer = Pacer::new(1, u64::MAX - 1, 1, 1);
        assert_eq!(pacer.due(u64::MAX, 0), Due::NotBefore(u64::MAX));
        assert_eq!(pacer.due(0, u64::MAX), Due::Bytes(1));
        let mut fast = Pacer::new(u64::MAX, 0, u64::MAX, u64::MAX);
        assert_eq!(fast.due(0, u64::MAX), Due::Bytes(u64::MAX));
    }
}
