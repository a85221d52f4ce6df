//! An accepted connection.

use std::net::SocketAddr;

use sys::net::{Moved, TcpSocket};

use crate::assembly::message_parser::{MessageParser, MessageSink};
use crate::wire::{FragmentHeader, WireError};

/// Limit of queued orders; more are lost, and repeated like any lost order.
const QUEUED_BYTES_MAX: usize = 64 << 10;
/// How often delayed acknowledgements are requested again.
const DELAY_AGAIN_NS: u64 = 1_000_000_000;
/// From so many missing payload bytes on, the kernel copies straight to their place.
const DIRECT_BYTES: u32 = 64 << 10;

/// What identifies a connection after its hello.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) source: u32,
    pub(super) group: u32,
    pub(super) congestion_control: Option<String>,
}

/// Result of [`Connection::receive`].
pub(super) enum Received {
    /// Nothing was there.
    Nothing,
    /// The buffer was filled, so that there may be more; `false`: it was not.
    Bytes {
        is_full: bool,
    },
    Invalid(WireError),
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpSocket,
    peer: SocketAddr,
    parser: MessageParser,
    identity: Option<Identity>,
    queued: Vec<u8>,
    /// Whether epoll reports when it is writable.
    is_write_watched: bool,
    delay_again_ns: u64,
    is_peer_done: bool,
}

impl Connection {
    pub(super) fn new(socket: TcpSocket, peer: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            parser: MessageParser::default(),
            identity: None,
            queued: Vec::new(),
            is_write_watched: false,
            delay_again_ns: 0,
            is_peer_done: false,
        }
    }

    pub(super) const fn socket(&self) -> &TcpSocket {
        &self.socket
    }

    pub(super) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether the peer sends no more.
    pub(super) const fn is_peer_done(&self) -> bool {
        self.is_peer_done
    }

    pub(super) const fn set_peer_done(&mut self) {
        self.is_peer_done = true;
    }

    pub(super) const fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.identity = Some(identity);
    }

    pub(super) fn source(&self) -> Option<u32> {
        self.identity.as_ref().map(|identity| identity.source)
    }

    /// The fragment of which at most `left_max` bytes are still to come, if it is at least twice as large.
    pub(super) fn nearly_complete(&self, left_max: u32) -> Option<&FragmentHeader> {
        self.parser.nearly_complete(left_max)
    }

    /// Receives once, into `scratch` or directly to the payload's place; `on_read` gets the sink between
    /// reading and parsing.
    pub(super) fn receive<S: MessageSink>(
        &mut self,
        scratch: &mut [u8],
        sink: &mut S,
        on_read: impl FnOnce(&mut S) -> u64,
    ) -> Received {
        let is_direct = self.parser.bytes_left() >= DIRECT_BYTES;
        let buffer = if is_direct { self.parser.buffer(sink) } else { &mut [] };
        let (moved, asked, in_place) = if buffer.is_empty() {
            (self.socket.recv(scratch), scratch.len(), false)
        } else {
            (self.socket.recv(buffer), buffer.len(), true)
        };
        let now_ns = on_read(sink);
        self.delay_acknowledgements(now_ns);
        let bytes = match moved {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Received::Nothing,
            Ok(Moved::End) | Err(_) => return Received::Closed,
        };
        if in_place {
            self.parser.received_in_place(bytes, sink);
        } else if let Err(error) = self.parser.parse(&scratch[..bytes], sink) {
            return Received::Invalid(error);
        }
        Received::Bytes { is_full: bytes >= asked }
    }

    /// Lets the kernel acknowledge every other fragment: acknowledging each would double the work. The kernel
    /// leaves that mode whenever it waited in vain.
    fn delay_acknowledgements(&mut self, now_ns: u64) {
        if now_ns >= self.delay_again_ns {
            self.delay_again_ns = now_ns.saturating_add(DELAY_AGAIN_NS);
            // An optimisation: errors do not matter.
            let _ = self.socket.delay_acknowledgements();
        }
    }

    /// Sends as much as there is room for and queues the rest; too much is dropped.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if !self.queued.is_empty() {
            if self.queued.len() + bytes.len() <= QUEUED_BYTES_MAX {
                self.queued.extend_from_slice(bytes);
            }
            return;
        }
        let sent = match self.socket.send(bytes, false) {
            Ok(Moved::Bytes(sent)) => sent,
            Ok(Moved::WouldBlock) => 0,
            // Reading reports the error.
            Ok(Moved::End) | Err(_) => return,
        };
        self.queued.extend_from_slice(&bytes[sent..]);
    }

    /// Sends what is queued, as far as there is room. Returns whether write events must be switched on or
    /// off.
    pub(super) fn flush(&mut self) -> Option<bool> {
        while !self.queued.is_empty() {
            match self.socket.send(&self.queued, false) {
                Ok(Moved::Bytes(sent)) => drop(self.queued.drain(..sent)),
                Ok(Moved::WouldBlock) => break,
                Ok(Moved::End) | Err(_) => self.queued.clear(),
            }
        }
        (self.has_queued() != self.is_write_watched).then(|| self.has_queued())
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    pub(super) fn set_write_watched(&mut self, is_watched: bool) {
        self.is_write_watched = is_watched;
    }
}
