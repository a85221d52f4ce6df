//! Interrupt moderation for datagrams: at a high rate a receiver sleeps and polls instead of waiting for each
//! datagram, because waking it costs the sender more than the datagrams do. Pure: the caller passes the time.

/// Length of a sample of the rate. Meanwhile the receiver waits for each datagram, which times its arrival.
const WATCH_NS: u64 = 1_000_000;
/// Bytes in [`WATCH_NS`] from which on to poll: 8 Gbit/s. Below, neither end lacks the CPU time of a wake-up.
const FAST_BYTES: u64 = 1_000_000;
/// Time from one sample of the rate to the next.
const POLL_NS: u64 = 50_000_000;
/// Length of a pause. At 100 Gbit/s, 1.25 MB arrive meanwhile, for which the queue has room.
const PAUSE_NS: u64 = 100_000;

#[derive(Debug, Default)]
pub(super) struct RxModeration {
    /// Start of the sample.
    since_ns: u64,
    bytes: u64,
    /// End of polling.
    until_ns: u64,
    /// Whether nothing has come since the last pause.
    has_paused: bool,
}

impl RxModeration {
    /// Whether the receiver polls instead of waiting.
    pub(super) fn is_polling(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    pub(super) fn came(&mut self, bytes: usize, now_ns: u64) {
        self.has_paused = false;
        if self.is_polling(now_ns) {
            return;
        }
        self.bytes += bytes as u64;
        let watched_ns = now_ns.saturating_sub(self.since_ns);
        if watched_ns >= WATCH_NS {
            if self.bytes >= FAST_BYTES && watched_ns < 2 * WATCH_NS {
                self.until_ns = now_ns.saturating_add(POLL_NS);
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
        if self.has_paused {
            self.until_ns = 0;
            return None;
        }
        self.has_paused = true;
        Some(now_ns + PAUSE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers 60 kB every `every_us` from one millisecond to another.
    fn run(moderation: &mut RxModeration, ms: std::ops::Range<u64>, every_us: u64) -> u64 {
        let mut polled_us = 0;
        for us in (ms.start * 1000..ms.end * 1000).step_by(every_us as usize) {
            moderation.came(60_000, us * 1000);
            polled_us += if moderation.is_polling(us * 1000) { every_us } else { 0 };
        }
        polled_us
    }

    #[test]
    fn fast_receiver_sleeps_except_for_samples() {
        let mut moderation = RxModeration::default();
        let polled_us = run(&mut moderation, 1000..2000, 12);
        assert!((940_000..990_000).contains(&polled_us), "{polled_us} us of a second");
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
        assert_eq!(moderation.pause_until(now_ns), Some(now_ns + PAUSE_NS));
        moderation.came(1, now_ns + PAUSE_NS);
        assert_eq!(moderation.pause_until(now_ns + PAUSE_NS), Some(now_ns + 2 * PAUSE_NS));
        assert_eq!(moderation.pause_until(now_ns + 2 * PAUSE_NS), None);
        assert!(!moderation.is_polling(now_ns + 2 * PAUSE_NS));
    }
}
