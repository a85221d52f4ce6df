//! How long a receiver waits before it acknowledges.
//!
//! A receiver acknowledges every second segment, or one after 40 ms, and the kernel measures the round-trip time
//! of the first that an ACK covers. Where a slow socket sends one segment at a time, this time includes that
//! from one segment to the next, which is longer than the queue that the law looks for. Where the kernel sends
//! two at once (segmentation offload), or the receiver acknowledges each, there is no such wait. The counters
//! tell which it is.

use super::socket::Progress;

/// How long a receiver waits for a second segment, in seconds.
const DELAYED_ACK_S: f64 = 0.04;
/// A longer time between segments does not tell a receiver that acknowledges each from one whose timer ends.
const COUNTED_S: f64 = 0.75 * DELAYED_ACK_S;
/// What a tick leaves of the counts of the ticks before: half a second counts.
const KEPT: f64 = 0.9;
/// With two segments at once an even number is on its way, but for the end of what a program wrote.
const ODD_MIN: f64 = 0.2;

/// Counts of the bulk sockets of one peer in the last ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct AckDelay {
    delivered: f64,
    acks: f64,
    /// Sockets with data on its way, and those of them with an odd number of segments.
    sockets: f64,
    odd: f64,
}

impl AckDelay {
    /// A tick has passed.
    pub fn forget(&mut self) {
        for count in [&mut self.delivered, &mut self.acks, &mut self.sockets, &mut self.odd] {
            *count *= KEPT;
        }
    }

    /// Takes a socket that sends at a rate of the law.
    pub fn observe(&mut self, one: &Progress) {
        if one.spacing_s < COUNTED_S {
            self.delivered += f64::from(one.delivered_segments);
            self.acks += f64::from(one.acks);
        }
        self.sockets += f64::from(one.sample.unacked.min(1));
        self.odd += f64::from(one.sample.unacked % 2);
    }

    /// Seconds of the socket's round-trip time in which the receiver waited.
    pub fn wait_s(&self, spacing_s: f64) -> f64 {
        if self.odd <= ODD_MIN * self.sockets || self.acks == 0.0 {
            return 0.0;
        }
        if spacing_s >= DELAYED_ACK_S {
            return DELAYED_ACK_S;
        }
        (self.delivered / self.acks - 1.0).clamp(0.0, 1.0) * spacing_s
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::super::socket::Progress;
    use super::*;
    use crate::law::SocketSample;

    /// After a second in which these numbers of segments were on their way in turn.
    fn after(unacked: [u32; 2], delivered_segments: u32, acks: u32, spacing_s: f64) -> AckDelay {
        let mut delay = AckDelay::default();
        for tick in 0..20 {
            delay.forget();
            delay.observe(&Progress {
                sample: SocketSample { unacked: unacked[tick % 2], ..sample(1) },
                rtt_s: None,
                spacing_s,
                acks,
                delivered_segments,
                delivered_in_two: 0,
                retransmitted_segments: 0,
                delivered_bit_per_s: 0.0,
            });
        }
        delay
    }

    #[test]
    fn receiver_waits_for_the_second_of_single_segments_alone() {
        let single = after([1, 2], 4, 2, 0.012);
        assert!((single.wait_s(0.012) - 0.012).abs() < 1e-9 && (single.wait_s(0.02) - 0.02).abs() < 1e-9);
        assert_eq!(single.wait_s(0.1), 0.04, "its timer ends");
        assert_eq!(after([2, 4], 4, 2, 0.012).wait_s(0.012), 0.0, "two at once");
        assert_eq!(after([1, 2], 4, 4, 0.012).wait_s(0.012), 0.0, "each is acknowledged");
        assert_eq!(AckDelay::default().wait_s(0.012), 0.0, "nothing is known");
    }

    #[test]
    fn single_acks_of_sockets_that_send_rarely_say_nothing_of_the_receiver() {
        let mut delay = after([1, 2], 4, 2, 0.012);
        let rarely = after([1, 0], 1, 1, 0.1);
        assert_eq!((rarely.delivered, rarely.acks), (0.0, 0.0));
        (0..200).for_each(|_| delay.forget());
        assert!((delay.wait_s(0.012) - 0.012).abs() < 1e-9, "what was known last counts");
    }
}
