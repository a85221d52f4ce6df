//! The longest queue that the law lets stand.

use std::collections::VecDeque;

/// Bounds in seconds.
const TARGET_S: [f64; 2] = [0.004, 0.020];
/// Share of the time for transfer.
const SHARE: f64 = 0.2;
/// A shallow buffer that overflows lowers the target to this share of the longest queue seen.
const OVERFLOW_SHARE: f64 = 0.6;
const WINDOW_NS: u64 = 1_000_000_000;
/// The limit by a shallow buffer rises by this share per second.
const RECOVERY_PER_S: f64 = 0.05;

/// Target of the queue with the limit that shallow buffers need.
#[derive(Debug, Clone, Default)]
pub struct QueueTarget {
    cap_s: Option<f64>,
    /// Queues of the last second.
    recent: VecDeque<(u64, f64)>,
}

impl QueueTarget {
    /// In seconds: a fifth of the time that the shortest target leaves for the transfer, 4 to 20 ms, and no
    /// longer than a buffer that overflowed lately.
    pub fn value_s(&self, target_s: f64, base_s: f64) -> f64 {
        let wanted = (SHARE * (target_s - base_s)).clamp(TARGET_S[0], TARGET_S[1]);
        self.cap_s.map_or(wanted, |cap_s| wanted.min(cap_s))
    }

    /// Takes the queue of a tick.
    pub fn observe(&mut self, now_ns: u64, queue_s: f64, dt_s: f64) {
        self.recent.push_back((now_ns, queue_s));
        while self.recent.front().is_some_and(|(at, _)| at + WINDOW_NS < now_ns) {
            self.recent.pop_front();
        }
        // Beyond the largest target the limit has no effect.
        self.cap_s = self.cap_s.map(|cap_s| cap_s * (1.0 + RECOVERY_PER_S).powf(dt_s));
        self.cap_s = self.cap_s.filter(|cap_s| *cap_s < TARGET_S[1]);
    }

    /// The buffer overflowed.
    pub fn overflowed(&mut self) {
        let longest = self.recent.iter().map(|(_, queue_s)| *queue_s).fold(0.0, f64::max);
        self.cap_s = Some((OVERFLOW_SHARE * longest).max(TARGET_S[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_fifth_of_the_time_for_transfer_within_bounds() {
        let target = QueueTarget::default();
        for (target_s, base_s, expected) in
            [(0.05, 0.0, 0.01), (0.5, 0.0, 0.02), (0.05, 0.04, 0.004), (0.05, 1.0, 0.004)]
        {
            assert!((target.value_s(target_s, base_s) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn overflow_lowers_the_target_which_recovers() {
        let mut target = QueueTarget::default();
        target.observe(0, 0.9, 0.05);
        target.observe(1_100_000_000, 0.015, 0.05);
        target.overflowed();
        assert!((target.value_s(0.5, 0.0) - 0.009).abs() < 1e-9, "0.9 s was more than a second ago");
        for tick in 0..20 {
            target.observe(2_000_000_000 + tick, 0.001, 0.05);
        }
        assert!((target.value_s(0.5, 0.0) - 0.009 * 1.05).abs() < 1e-6, "5 % in a second");
        for tick in 0..400 {
            target.observe(3_000_000_000 + tick, 0.001, 0.05);
        }
        assert_eq!(target.value_s(0.5, 0.0), 0.02);
        let mut shallow = QueueTarget::default();
        shallow.observe(0, 0.001, 0.05);
        shallow.overflowed();
        assert_eq!(shallow.value_s(0.5, 0.0), 0.004);
    }
}
