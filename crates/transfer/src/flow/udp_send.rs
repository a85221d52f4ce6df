//! A UDP sender: many datagrams in one call where the kernel cuts them up (`UDP_SEGMENT`), else one.

use sys::net::{Moved, NetError, UdpFlow};
use sys::span::time;

use super::flow_spec::{Header, Stamp};
use super::flow_state::FlowState;
use crate::driver::span_names::SEND;
use crate::driver::{FlowCount, Step, broken};

#[derive(Debug)]
pub(super) struct UdpSender {
    stamp: Stamp,
    datagram_bytes: usize,
    /// How many datagrams one call is given at most.
    datagrams_most: usize,
    count: FlowCount,
}

/// How many datagrams of `datagram_bytes` fit one call.
pub(super) fn datagrams_a_call(datagram_bytes: usize) -> usize {
    (UdpFlow::CALL_BYTES_MAX / datagram_bytes.max(1)).clamp(1, UdpFlow::SEGMENTS_MAX)
}

impl UdpSender {
    /// A sender of datagrams of `datagram_bytes` each, at least the header.
    pub(super) fn new(socket: &UdpFlow, stamp: Stamp, datagram_bytes: usize) -> Result<Self, NetError> {
        let mut datagrams_most = datagrams_a_call(datagram_bytes);
        let segment = u16::try_from(datagram_bytes).unwrap_or(0);
        if datagrams_most > 1 && !socket.set_segment(segment)? {
            datagrams_most = 1;
        }
        Ok(Self { stamp, datagram_bytes, datagrams_most, count: FlowCount::default() })
    }

    pub(super) fn is_segmented(&self) -> bool {
        self.datagrams_most > 1
    }

    /// `room` holds what one call is given, filled with payload.
    pub(super) fn step(&mut self, socket: &UdpFlow, state: &mut FlowState, buffer: &mut [u8]) -> Step {
        let most = (self.datagrams_most * self.datagram_bytes).min(buffer.len());
        let allowed = match state.allow(most) {
            Ok(allowed) => allowed,
            Err(step) => return step,
        };
        let bytes = self.whole(allowed, state.left_bytes());
        let datagrams = bytes.div_ceil(self.datagram_bytes);
        let sent_us = state.now_ns / 1000;
        for (n, datagram) in buffer[..bytes].chunks_mut(self.datagram_bytes).enumerate() {
            self.stamp.write(datagram, Header { sent_us, count: self.count.datagrams + 1 + n as u64 });
        }
        match time(&SEND, || socket.send(&buffer[..bytes])) {
            Ok(Moved::Bytes(bytes)) => {
                self.count.datagrams += datagrams as u64;
                state.counters.set_datagrams(&self.count);
                state.add_bytes(bytes);
                Step::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => {
                self.count.refused += 1;
                state.counters.set_datagrams(&self.count);
                Step::Blocked
            }
            Err(error) if self.is_segmented() && !error.is_peer_gone() && !is_refused(&error) => {
                // The path's packets are smaller than the datagrams, or a device cannot cut them: one by one
                // the network layer may still fragment them.
                self.datagrams_most = 1;
                match socket.set_segment(0) {
                    Ok(_) => Step::Moved,
                    Err(error) => Step::Over(broken(&error, state.bytes)),
                }
            }
            Err(error) => Step::Over(broken(&error, state.bytes)),
        }
    }

    /// How many of the `allowed` bytes go now: whole datagrams, except for the last of the flow. If that one
    /// is too short for its header, it is the header alone, and those before carry less.
    fn whole(&self, allowed: usize, left: Option<u64>) -> usize {
        let (size, header) = (self.datagram_bytes, self.stamp.bytes());
        let left = left.map_or(usize::MAX, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let lacks_room = left > size && (1..header).contains(&(left % size));
        let goal = if lacks_room { left - header } else { left };
        if goal <= allowed { goal } else { (allowed / size).max(1) * size }
    }
}

fn is_refused(error: &NetError) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionRefused
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every total is sent to the byte, in datagrams that all have room for their header. All
        /// datagrams of a call but the last are equal in size.
        #[test]
        fn sender_sends_exactly_the_total_in_equal_datagrams(
            size in 32_usize..3000, calls in 1_usize..44, total in 16_u64..1_000_000,
            stamp in prop::sample::select(&[Stamp::None, Stamp::Counted32, Stamp::Counted64]),
        ) {
            let sender = UdpSender {
                stamp, datagram_bytes: size, datagrams_most: calls, count: FlowCount::default(),
            };
            let mut left = total;
            while left > 0 {
                let allowed = ((calls * size) as u64).min(left) as usize;
                let bytes = sender.whole(allowed, Some(left));
                prop_assert!(0 < bytes && bytes as u64 <= left && bytes <= allowed);
                let last = (bytes - 1) % size + 1;
                prop_assert!(last >= stamp.bytes(), "{last} of {bytes}");
                left -= bytes as u64;
            }
        }
    }
}
