//! One source's connection to one builder, with what it still has to send.

use std::collections::VecDeque;

use sys::net::{TcpInfo, TcpSocket};

use crate::daq::wire::{Head, Kind, Order, Piece, WireError};

/// How a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not begun, or lost and to be begun again.
    Down,
    /// The handshake is under way.
    Connecting,
    /// It stands.
    Open,
    /// It ended for good.
    Ended,
}

/// A fragment that is to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) event: u64,
    /// When the order came.
    pub(super) received_ns: u64,
    /// When it is this source's turn: then, or later by the stagger.
    pub(super) due_ns: u64,
    /// Of a [`crate::daq::wire::Piece`].
    pub(super) flags: u16,
}

/// A message that has been begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    pub(super) piece: Piece,
    /// Bytes handed to the kernel, of header and payload; of datagrams, of the payload.
    pub(super) written: usize,
}

impl Current {
    /// Rather than the answer to a question.
    pub(super) fn is_fragment(&self) -> bool {
        self.piece.kind == Kind::Fragment
    }
}

/// TCP's counters of what went wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    pub(super) retransmits: u64,
    pub(super) timeouts: Option<u64>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) dsacks: Option<u64>,
}

impl Troubles {
    /// As the kernel says.
    pub(super) fn of(info: &TcpInfo) -> Self {
        Self {
            retransmits: info.retransmits_total.unwrap_or(0).into(),
            timeouts: info.timeouts_total.map(u64::from),
            timeout_ms: info.timeout_recovery_ms.map(u64::from),
            dsacks: info.duplicates_reported_segments.map(u64::from),
        }
    }

    /// What was added since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let less = |now: Option<u64>, then: Option<u64>| now.map(|now| now.saturating_sub(then.unwrap_or(0)));
        Self {
            retransmits: self.retransmits.saturating_sub(before.retransmits),
            timeouts: less(self.timeouts, before.timeouts),
            timeout_ms: less(self.timeout_ms, before.timeout_ms),
            dsacks: less(self.dsacks, before.dsacks),
        }
    }

    /// Both together.
    pub(super) fn plus(&self, other: &Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            retransmits: self.retransmits.saturating_add(other.retransmits),
            timeouts: sum(self.timeouts, other.timeouts),
            timeout_ms: sum(self.timeout_ms, other.timeout_ms),
            dsacks: sum(self.dsacks, other.dsacks),
        }
    }
}

/// The connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    pub(super) socket: Option<TcpSocket>,
    /// Waits to be begun; bounded by whoever adds to it.
    pub(super) pending: VecDeque<Pending>,
    pub(super) current: Option<Current>,
    /// The answer to a clock question, to go out between two fragments; only the latest counts.
    pub(super) answer: Option<Piece>,
    /// Whether it waits for room to write.
    pub(super) is_blocked: bool,
    /// The beginning of an order of which more is to come.
    pub(super) partial: Vec<u8>,
    /// Counts fragments, for the builder.
    pub(super) sequence: u32,
    /// Fragments sent to the last byte.
    pub(super) sent: u64,
    /// Fragments begun and not ended.
    pub(super) cut: u64,
    /// How many times it was begun anew.
    pub(super) tries: u32,
    /// The last event that it sent and when, and the one before that.
    pub(super) last: Option<(u64, u64)>,
    pub(super) before_last: Option<(u64, u64)>,
    /// The counters at the last look.
    pub(super) seen: Troubles,
    /// All troubles up to the last look, those of earlier connections included and those of the handshake not.
    pub(super) troubles: Troubles,
    /// What the last look at a connection that ended brought.
    pub(super) last_seen: Option<(Troubles, u64)>,
}

impl Connection {
    /// Not begun yet.
    pub(super) fn new() -> Self {
        Self {
            state: State::Down,
            socket: None,
            pending: VecDeque::new(),
            current: None,
            answer: None,
            is_blocked: false,
            partial: Vec::new(),
            sequence: 0,
            sent: 0,
            cut: 0,
            tries: 0,
            last: None,
            before_last: None,
            seen: Troubles::default(),
            troubles: Troubles::default(),
            last_seen: None,
        }
    }

    /// Looks at TCP's counters; returns what was added since the last look, and the last event sent before `cutoff_ns`
    /// (`otherwise`, if that is not known any more). `None`: nothing was.
    pub(super) fn look(&mut self, cutoff_ns: u64, otherwise: u64) -> Option<(Troubles, u64)> {
        let info = self.socket.as_ref().filter(|_| self.state != State::Connecting)?.info().ok()?;
        let now = Troubles::of(&info);
        let added = now.since(&self.seen);
        self.seen = now;
        self.troubles = self.troubles.plus(&added);
        let is_quiet = added.retransmits == 0 && added.timeouts.unwrap_or(0) == 0;
        if is_quiet && added.dsacks.unwrap_or(0) == 0 {
            return None;
        }
        let sent = [self.last?].into_iter().chain(self.before_last);
        let before = sent.into_iter().find(|&(_, sent_ns)| sent_ns < cutoff_ns);
        Some((added, before.map_or(otherwise, |(event, _)| event)))
    }

    /// Lets go of the socket; what was begun on it is cut.
    pub(super) fn drop_socket(&mut self) -> Option<TcpSocket> {
        self.last_seen = self.look(u64::MAX, 0).or(self.last_seen);
        self.seen = Troubles::default();
        self.give_up_current();
        self.partial = Vec::new();
        (self.answer, self.is_blocked) = (None, false);
        self.socket.take()
    }

    /// Forgets the message that has been begun.
    pub(super) fn give_up_current(&mut self) {
        let current = self.current.take();
        self.cut += u64::from(current.is_some_and(|current| current.is_fragment() && current.written > 0));
    }

    /// Ends it for good; nothing more is sent.
    pub(super) fn end(&mut self) -> Option<TcpSocket> {
        self.state = State::Ended;
        self.pending = VecDeque::new();
        self.drop_socket()
    }
}

/// Takes bytes of the builder and hands each whole order to `each`; what is left of an order goes to `partial`.
///
/// # Errors
/// [`WireError`]: what comes is not of this protocol.
pub(super) fn read(
    partial: &mut Vec<u8>,
    bytes: &[u8],
    mut each: impl FnMut(Order),
) -> Result<(), WireError> {
    // Mostly whole orders come, and nothing is kept.
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
    // What cannot become a header is not waited for.
    if rest.len() >= 12 {
        Head::read(rest)?;
    }
    *partial = rest.to_vec();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    fn order(event: u64) -> Order {
        Order::of_event(Kind::Pull, 1, event)
    }

    #[test]
    fn orders_are_read_however_they_are_cut() {
        let bytes: Vec<u8> = (0..5).flat_map(|event| order(event).encode()).collect();
        for size in [1, 7, 63, 64, 65, 320] {
            let (mut partial, mut events) = (Vec::new(), Vec::new());
            for piece in bytes.chunks(size) {
                read(&mut partial, piece, |order| events.push(order.event)).unwrap();
            }
            assert_eq!(events, [0, 1, 2, 3, 4], "in pieces of {size}");
            assert!(partial.is_empty());
        }
    }

    #[test]
    fn what_is_no_order_is_refused() {
        let mut partial = Vec::new();
        assert_eq!(read(&mut partial, b"HTTP/1.1 400 Bad", |_| ()), Err(WireError::Magic));
        let mut long = order(1).encode();
        long[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
        assert_eq!(read(&mut partial, &long, |_| ()), Err(WireError::HeaderLength(u16::MAX)));
    }

    #[test]
    fn troubles_add_up_and_unknown_is_not_none() {
        let one = Troubles { retransmits: 3, timeouts: Some(1), timeout_ms: None, dsacks: Some(2) };
        let two = Troubles { retransmits: 5, timeouts: Some(1), timeout_ms: None, dsacks: Some(2) };
        let added = two.since(&one);
        assert_eq!((added.retransmits, added.timeouts, added.timeout_ms), (2, Some(0), None));
        assert_eq!(Troubles::default().plus(&one), one);
    }
}
