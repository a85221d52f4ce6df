//! One source's connection to one builder, with the fragments that it has yet to send.

use std::collections::VecDeque;

use sys::net::{NetError, TcpInfo, TcpSocket};

use crate::wire::{CommonHeader, FragmentHeader, HEADER_BYTES, HELLO_BYTES, Kind, Order, WireError};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Not started, or lost and to be started again.
    #[default]
    Down,
    Connecting,
    Open,
    /// Ended for good.
    Ended,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) event: u64,
    pub(super) received_ns: u64,
    /// When the source's turn comes: on arrival, or later by the stagger.
    pub(super) due_ns: u64,
    /// Flags of the [`crate::wire::FragmentHeader`].
    pub(super) flags: u16,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    pub(super) header: FragmentHeader,
    /// Bytes written to the socket: header and payload over TCP, payload alone in datagrams.
    pub(super) written: usize,
}

impl Current {
    /// `false`: the answer to a clock probe.
    pub(super) fn is_fragment(&self) -> bool {
        self.header.kind == Kind::Fragment
    }
}

#[derive(Debug)]
pub(super) enum Step {
    Done,
    Moved,
    Blocked,
    /// `None`: the builder closed it.
    Lost(Option<NetError>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LossCounters {
    pub(super) retransmits: Option<u64>,
    pub(super) timeouts: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) dsacks: Option<u64>,
}

impl LossCounters {
    pub(super) fn from_tcp_info(info: &TcpInfo) -> Self {
        Self {
            retransmits: info.retransmits_total.map(u64::from),
            timeouts: info.timeouts_total.map(u64::from),
            timeout_ms: info.timeout_recovery_ms.map(u64::from),
            dsacks: info.duplicates_reported_segments.map(u64::from),
        }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let less = |now: Option<u64>, then: Option<u64>| now.map(|now| now.saturating_sub(then.unwrap_or(0)));
        Self {
            retransmits: less(self.retransmits, before.retransmits),
            timeouts: less(self.timeouts, before.timeouts),
            timeout_ms: less(self.timeout_ms, before.timeout_ms),
            dsacks: less(self.dsacks, before.dsacks),
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            retransmits: sum(self.retransmits, other.retransmits),
            timeouts: sum(self.timeouts, other.timeouts),
            timeout_ms: sum(self.timeout_ms, other.timeout_ms),
            dsacks: sum(self.dsacks, other.dsacks),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) socket: Option<TcpSocket>,
    /// Fragments to send; the caller bounds the length.
    pub(super) pending: VecDeque<Pending>,
    pub(super) current: Option<Current>,
    /// The latest answer to a clock probe, sent between two fragments.
    pub(super) answer: Option<FragmentHeader>,
    /// Whether it waits for the socket to become writable.
    pub(super) is_blocked: bool,
    /// The first bytes of an order that has not arrived completely.
    pub(super) partial: Vec<u8>,
    /// Number of the next fragment to this builder.
    pub(super) sequence: u32,
    pub(super) sent: u64,
    pub(super) cut: u64,
    pub(super) tries: u32,
    /// Events up to this one may have been lost with an earlier connection.
    pub(super) lost_to: Option<u64>,
    /// Those of them that were sent again since.
    pub(super) sent_again: Vec<u64>,
    /// Event and send time of the last two fragments.
    pub(super) last: Option<(u64, u64)>,
    pub(super) before_last: Option<(u64, u64)>,
    pub(super) sampled: LossCounters,
    /// Losses up to the last sample, over all connections of this source, without those of handshakes.
    pub(super) losses: LossCounters,
    /// Losses found when the connection closed, and the last event sent before.
    pub(super) final_losses: Option<(LossCounters, u64)>,
}

impl Connection {
    /// Samples TCP's counters. Returns what was added since the last sample, and the last event sent before
    /// `cutoff_ns` (`otherwise` if that is not known); `None`: nothing was added.
    pub(super) fn sample_losses(&mut self, cutoff_ns: u64, otherwise: u64) -> Option<(LossCounters, u64)> {
        let info = self.socket.as_ref().filter(|_| self.state != State::Connecting)?.info().ok()?;
        let now = LossCounters::from_tcp_info(&info);
        let added = now.since(&self.sampled);
        self.sampled = now;
        self.losses = self.losses.plus(&added);
        let is_quiet = added.retransmits.unwrap_or(0) == 0 && added.timeouts.unwrap_or(0) == 0;
        if is_quiet && added.dsacks.unwrap_or(0) == 0 {
            return None;
        }
        let sent = [self.last?].into_iter().chain(self.before_last);
        let before = sent.into_iter().find(|&(_, sent_ns)| sent_ns < cutoff_ns);
        Some((added, before.map_or(otherwise, |(event, _)| event)))
    }

    /// Whether the builder's TCP has not acknowledged the hello.
    pub(super) fn is_hello_lost(&self) -> bool {
        let info = self.socket.as_ref().and_then(|socket| socket.info().ok());
        let acked_bytes = info.and_then(|info| info.acked_bytes);
        acked_bytes.is_some_and(|acked_bytes| acked_bytes < (HEADER_BYTES + HELLO_BYTES) as u64)
    }

    /// Closes the socket; a fragment that was begun counts as cut.
    pub(super) fn drop_socket(&mut self) -> Option<TcpSocket> {
        self.final_losses = self.sample_losses(u64::MAX, 0).or(self.final_losses);
        self.sampled = LossCounters::default();
        self.drop_current();
        self.partial = Vec::new();
        (self.answer, self.is_blocked) = (None, false);
        self.socket.take()
    }

    /// Whether the fragment of this event was sent over an earlier connection and is to be sent again; `true`
    /// once.
    pub(super) fn take_lost(&mut self, event: u64) -> bool {
        let is_waiting = self.pending.iter().any(|pending| pending.event == event)
            || self.current.is_some_and(|current| current.is_fragment() && current.header.event == event);
        let is_lost = self.lost_to.is_some_and(|to| event <= to) && !is_waiting;
        let is_first = is_lost && !self.sent_again.contains(&event);
        if is_first {
            self.sent_again.push(event);
        }
        is_first
    }

    pub(super) fn drop_current(&mut self) {
        let current = self.current.take();
        self.cut += u64::from(current.is_some_and(|current| current.is_fragment() && current.written > 0));
    }

    pub(super) fn end(&mut self) -> Option<TcpSocket> {
        self.state = State::Ended;
        self.pending = VecDeque::new();
        self.drop_socket()
    }
}

/// Passes each complete order in `bytes` to `each`, and keeps an incomplete one in `partial`.
pub(super) fn decode_orders(
    partial: &mut Vec<u8>,
    bytes: &[u8],
    mut each: impl FnMut(Order),
) -> Result<(), WireError> {
    // Mostly whole orders arrive, and nothing is kept.
    let joined;
    let mut rest = if partial.is_empty() {
        bytes
    } else {
        partial.extend_from_slice(bytes);
        joined = std::mem::take(partial);
        &joined
    };
    loop {
        match Order::decode(rest) {
            Ok((order, length)) => {
                each(order);
                rest = &rest[length..];
            }
            Err(WireError::Short) => break,
            Err(error) => return Err(error),
        }
    }
    // Fail early: a wrong header never becomes complete.
    if rest.len() >= 12 {
        CommonHeader::read(rest)?;
    }
    *partial = rest.to_vec();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    fn order(event: u64) -> Order {
        Order { event, ..Order::new(Kind::Pull, 1, 0, 1) }
    }

    #[test]
    fn decode_orders_accepts_any_segmentation() {
        let bytes: Vec<u8> = (0..5).flat_map(|event| order(event).encode()).collect();
        for size in [1, 7, 63, 64, 65, 320] {
            let (mut partial, mut events) = (Vec::new(), Vec::new());
            for header in bytes.chunks(size) {
                decode_orders(&mut partial, header, |order| events.push(order.event)).unwrap();
            }
            assert_eq!(events, [0, 1, 2, 3, 4], "in pieces of {size}");
            assert!(partial.is_empty());
        }
    }

    #[test]
    fn decode_orders_rejects_other_bytes() {
        let mut partial = Vec::new();
        assert_eq!(decode_orders(&mut partial, b"HTTP/1.1 400 Bad", |_| ()), Err(WireError::Magic));
        let mut long = order(1).encode();
        long[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
        assert_eq!(decode_orders(&mut partial, &long, |_| ()), Err(WireError::HeaderLength(u16::MAX)));
    }

    #[test]
    fn loss_counters_add_and_keep_unknown() {
        let one = LossCounters { retransmits: Some(3), timeouts: Some(1), timeout_ms: None, dsacks: Some(2) };
        let two = LossCounters { retransmits: Some(5), timeouts: Some(1), timeout_ms: None, dsacks: Some(2) };
        let added = two.since(&one);
        assert_eq!((added.retransmits, added.timeouts, added.timeout_ms), (Some(2), Some(0), None));
        assert_eq!(LossCounters::default().plus(&one), one);
    }
}
