//! How long a receiver waits before it acknowledges.
//!
//! A receiver acknowledges every second segment, or one after 40 ms, and the kernel measures the round-trip
//! time of the first that an ACK covers. Where a slow socket sends one segment at a time, this time includes
//! that from one segment to the next, which is longer than the queue that the law looks for. Where the kernel
//! sends two at once (segmentation offload), or the receiver acknowledges each, there is no such wait. The
//! counters tell which it is.

use super::socket::Progress;

/// How long a receiver waits for a second segment, in seconds.
const DELAYED_ACK_S: f64 = 0.04;
/// Share of it, of the time between two segments and of the round-trip time beyond the least, from which on a
/// single ACK counts as one that the receiver's timer sent.
const TIMER_SHARE: f64 = 0.75;
/// What a tick leaves of the counts of the ticks before: half a second counts.
const KEPT: f64 = 0.9;
/// With two segments at once an even number is on its way, but for the end of what a program wrote.
const ODD_MIN: f64 = 0.2;

/// Whether the bulk sockets of one peer send single segments: counts of the last ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct AckDelay {
    /// Sockets with data on its way, and those of them with an odd number of segments.
    sockets: f64,
    odd: f64,
    /// Sockets that were fast enough to tell had each segment acknowledged.
    acknowledges_each: bool,
}

impl AckDelay {
    /// A tick has passed.
    pub fn forget(&mut self) {
        self.sockets *= KEPT;
        self.odd *= KEPT;
    }

    /// Takes a socket that sends at a rate of the law.
    pub fn observe(&mut self, one: &Progress) {
        self.sockets += f64::from(one.sample.unacked.min(1));
        self.odd += f64::from(one.sample.unacked % 2);
        if one.spacing_s < TIMER_SHARE * DELAYED_ACK_S && one.delivered_segments >= 2 {
            self.acknowledges_each = one.acks >= one.delivered_segments;
        }
    }

    /// Seconds of this round-trip time in which the receiver waited.
    pub fn wait_s(&self, one: &Progress, rtt_s: f64) -> f64 {
        if self.odd <= ODD_MIN * self.sockets || one.acks == 0 {
            return 0.0;
        }
        let pairs = (f64::from(one.delivered_segments) / f64::from(one.acks) - 1.0).clamp(0.0, 1.0);
        let least_s = TIMER_SHARE * DELAYED_ACK_S;
        let is_long = rtt_s - f64::from(one.sample.min_rtt_us) * 1e-6 >= least_s;
        let is_timer = !self.acknowledges_each && one.spacing_s >= least_s && is_long;
        let single_s = if is_timer { DELAYED_ACK_S } else { 0.0 };
        pairs * one.spacing_s.min(DELAYED_ACK_S) + (1.0 - pairs) * single_s
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::super::socket::Progress;
    use super::*;
    use crate::law::SocketSample;

    fn progress(unacked: u32, delivered_segments: u32, acks: u32, spacing_s: f64) -> Progress {
        Progress {
            sample: SocketSample { unacked, min_rtt_us: 10_000, ..sample(1) },
            rtt_s: None,
            spacing_s,
            acks,
            delivered_segments,
            delivered_in_two: 0,
            retransmitted_segments: 0,
            delivered_bit_per_s: 0.0,
        }
    }

    /// After a second in which these numbers of segments were on their way in turn.
    fn after(unacked: [u32; 2]) -> AckDelay {
        let mut delay = AckDelay::default();
        for tick in 0..20 {
            delay.forget();
            delay.observe(&progress(unacked[tick % 2], 4, 2, 0.012));
        }
        delay
    }

    #[test]
    fn receiver_waits_for_the_second_of_single_segments_alone() {
        let single = after([1, 2]);
        let wait_ms = |delay: AckDelay, segments, acks, spacing_ms: f64, rtt_ms: f64| {
            let wait_s = delay.wait_s(&progress(1, segments, acks, spacing_ms / 1000.0), rtt_ms / 1000.0);
            (wait_s * 1000.0).round()
        };
        assert_eq!(wait_ms(single, 4, 2, 12.0, 22.0), 12.0);
        assert_eq!(wait_ms(single, 3, 2, 12.0, 22.0), 6.0, "one of two acknowledges two");
        assert_eq!(wait_ms(single, 4, 4, 12.0, 22.0), 0.0, "each is acknowledged");
        assert_eq!(wait_ms(single, 1, 1, 100.0, 50.0), 40.0, "a timer ends");
        assert_eq!(wait_ms(single, 1, 1, 100.0, 12.0), 0.0, "each is acknowledged");
        assert_eq!(wait_ms(after([2, 4]), 4, 2, 12.0, 22.0), 0.0, "two at once");
        assert_eq!(wait_ms(after([1, 0]), 1, 1, 100.0, 50.0), 40.0, "rarely any");
        assert_eq!(wait_ms(AckDelay::default(), 4, 2, 12.0, 22.0), 0.0, "nothing is known");
    }
}
