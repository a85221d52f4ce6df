//! From which share on a resource counts as used up: one table for every workload and for the explanation of
//! a search.

/// From which share on something counts as used up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LimitRule {
    /// At or above this share it is used up.
    pub used_up_from: f64,
    /// Above this share it cannot be: the ceiling that the share was taken of is wrong.
    pub refuted_above: f64,
}

impl LimitRule {
    pub fn is_used_up(&self, share: f64) -> bool {
        (self.used_up_from..=self.refuted_above).contains(&share)
    }

    /// Whether this share says that its ceiling is wrong.
    pub fn is_refuted(&self, share: f64) -> bool {
        share > self.refuted_above
    }
}

/// A rule for shares that need no ceiling.
const fn from(used_up_from: f64) -> LimitRule {
    LimitRule { used_up_from, refuted_above: f64::INFINITY }
}

/// Usage against a ceiling (quota, calibration, line rate). Below 95 % the mean of a hold leaves room for
/// another load; a calibrated ceiling can be exceeded by its own error, and a shaped link by the shaper's
/// first burst.
pub const CEILING: LimitRule = LimitRule { used_up_from: 0.95, refuted_above: 1.08 };

/// A thread's time on a CPU, or ready and waiting for one: the rest is lost to wake-ups and short waits.
pub const THREAD: LimitRule = from(0.9);

/// The same: from this share on it may be the limit, if nothing else is.
pub const THREAD_SIGN: LimitRule = from(0.5);

/// The busiest second of a thread that offers load: above this share it offered less than it should.
pub const BUSIEST_SECOND: LimitRule = from(0.95);

/// The same: from this share on its own work may have delayed what it sent.
pub const BUSIEST_SECOND_SIGN: LimitRule = from(0.8);

/// A thread's time ready and waiting for a CPU: it is held back, however little CPU it used.
pub const CPU_WAIT: LimitRule = from(0.5);

/// The same for the thread of a builder: its host's CPUs are the limit.
pub const BUILDER_CPU_WAIT: LimitRule = from(0.4);

/// The same: from this share on it may be why a connection waited.
pub const CPU_WAIT_SIGN: LimitRule = from(0.1);

/// A connection's busy time spent waiting for one thing: more than anything else.
pub const WAITING: LimitRule = from(0.5);

/// The same: from this share on it may be the limit, if nothing else is.
pub const WAITING_SIGN: LimitRule = from(0.2);

/// Samples in which all data of a send buffer was in flight: the path would have held more.
pub const DRAINED_BUFFER: LimitRule = from(0.6);

/// A sender's time with data in flight: with less, it had no more data to send.
pub const SENDER_BUSY: LimitRule = from(0.5);

/// Packets or events that were lost for want of room: fewer are an accident.
pub const LOSS: LimitRule = from(0.01);

/// Usage of a load that passed, as a multiple of its ceiling, above which the ceiling is wrong: more than
/// [`CEILING`] allows, since it takes a ceiling away instead of leaving a limit open.
pub const REFUTED_BY_A_PASS: f64 = 1.1;

/// Rate of a burst, as a multiple of its link's, below which its senders pace it: it fills no buffer.
pub const BURST_MIN: f64 = 4.0;

/// Usage, as a multiple of another's or of a given ceiling, above which it is more; below, they are the same
/// within the sampling's imprecision.
pub const EXCEEDED_FROM: f64 = 1.05;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_at_the_threshold_is_used_up() {
        for (rule, share, is_used_up) in
            [(WAITING, 0.4, false), (WAITING, 0.5, true), (LOSS, 0.02, true), (THREAD, 0.9, true)]
        {
            assert_eq!(rule.is_used_up(share), is_used_up, "{rule:?} {share}");
        }
        assert!(!THREAD.is_refuted(3.0));
    }
}
