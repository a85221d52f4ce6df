//! When a receiver of datagrams that come thick and fast sleeps a moment instead of waiting for the next one:
//! to be woken for each costs the sender more than the datagrams themselves. Pure: the caller passes
//! the time.

/// Whether they come fast is found out for so long; meanwhile each is waited for, so that its arrival can be
/// timed.
const WATCH_NS: u64 = 1_000_000;
/// Fast is 8 Gbit/s: at less, waking up costs neither end what it lacks.
const FAST_BYTES: u64 = 1_000_000;
/// So long it is taken for granted.
const TRUST_NS: u64 = 50_000_000;
/// A pause_until. At 100 Gbit/s, 1.25 MB come in it, which the queue has room for.
const NAP_NS: u64 = 100_000;

#[derive(Debug, Default)]
pub(super) struct RxModeration {
    /// Of the time in which it watches.
    since_ns: u64,
    bytes: u64,
    /// Until when it may pause_until.
    until_ns: u64,
    /// Whether nothing has come since the last pause_until.
    is_rested: bool,
}

impl RxModeration {
    /// Whether it moderation rather than waits.
    pub(super) fn is_polling(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    pub(super) fn came(&mut self, bytes: usize, now_ns: u64) {
        self.is_rested = false;
        if self.is_polling(now_ns) {
            return;
        }
        self.bytes += bytes as u64;
        let watched_ns = now_ns.saturating_sub(self.since_ns);
        if watched_ns >= WATCH_NS {
            if self.bytes >= FAST_BYTES && watched_ns < 2 * WATCH_NS {
                self.until_ns = now_ns.saturating_add(TRUST_NS);
            }
            // After a time of moderation, this one is too long ago to count.
            (self.since_ns, self.bytes) = (now_ns, 0);
        }
    }

    /// Nothing is there: the moment until which to sleep, or `None` to wait for the next.
    pub(super) fn pause_until(&mut self, now_ns: u64) -> Option<u64> {
        if !self.is_polling(now_ns) {
            return None;
        }
        if self.is_rested {
            self.until_ns = 0;
            return None;
        }
        self.is_rested = true;
        Some(now_ns + NAP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets 60 kB come every so many microseconds from one millisecond to another.
    fn run(moderation: &mut RxModeration, ms: std::ops::Range<u64>, every_us: u64) -> u64 {
        let mut napped_us = 0;
        for us in (ms.start * 1000..ms.end * 1000).step_by(every_us as usize) {
            moderation.came(60_000, us * 1000);
            napped_us += if moderation.is_polling(us * 1000) { every_us } else { 0 };
        }
        napped_us
    }

    #[test]
    fn fast_receiver_sleeps_except_for_samples() {
        let mut moderation = RxModeration::default();
        let napped_us = run(&mut moderation, 1000..2000, 12);
        assert!((940_000..990_000).contains(&napped_us), "{napped_us} us of a second");
    }

    #[test]
    fn slow_receiver_waits_for_each_datagram() {
        let mut moderation = RxModeration::default();
        assert_eq!(run(&mut moderation, 1000..2000, 100), 0);
        assert_eq!(moderation.pause_until(2_000_000_000), None);
    }

    #[test]
    fn sleep_without_data_ends_moderation() {
        let mut moderation = RxModeration::default();
        run(&mut moderation, 1000..1010, 12);
        let now_ns = 1_010_000_000;
        assert_eq!(moderation.pause_until(now_ns), Some(now_ns + NAP_NS));
        moderation.came(1, now_ns + NAP_NS);
        assert_eq!(moderation.pause_until(now_ns + NAP_NS), Some(now_ns + 2 * NAP_NS));
        assert_eq!(moderation.pause_until(now_ns + 2 * NAP_NS), None);
        assert!(!moderation.is_polling(now_ns + 2 * NAP_NS));
    }
}
