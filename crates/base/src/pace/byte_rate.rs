//! When a sender that keeps a rate may send: absolute moments, so that late wake-ups do not add up.

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
    /// Up to so many bytes, at least one unit.
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
}
