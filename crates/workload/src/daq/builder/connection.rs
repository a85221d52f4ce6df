//! One source's connection, as the builder holds it.

use std::net::SocketAddr;

use sys::net::{Moved, TcpSocket};

use super::stream::Stream;

/// Orders that wait for room in a connection; what is more is lost, and said again like any lost order.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// So often acknowledgements are delayed anew.
const DELAY_AGAIN_NS: u64 = 1_000_000_000;

/// A connection, of a source or of somebody who has not said who he is.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpSocket,
    pub(super) peer: SocketAddr,
    pub(super) stream: Stream,
    /// Whose it is.
    pub(super) source: Option<u32>,
    /// The source's group.
    pub(super) group: u32,
    /// When it came.
    pub(super) since_ns: u64,
    pub(super) congestion_control: Option<String>,
    /// Whether its events include room for orders.
    pub(super) is_watched_for_room: bool,
    waiting: Vec<u8>,
    /// When its acknowledgements are to be delayed again.
    delay_again_ns: u64,
}

impl Connection {
    /// One that was accepted just now.
    pub(super) fn new(socket: TcpSocket, peer: SocketAddr, now_ns: u64) -> Self {
        Self {
            socket,
            peer,
            stream: Stream::default(),
            source: None,
            group: 0,
            since_ns: now_ns,
            congestion_control: None,
            is_watched_for_room: false,
            waiting: Vec::new(),
            delay_again_ns: 0,
        }
    }

    /// Lets the kernel acknowledge every other fragment: each one at once would cost half of all the work. It goes back to
    /// its own way whenever it has waited in vain for the next one.
    pub(super) fn delay_acknowledgements(&mut self, now_ns: u64) {
        if now_ns >= self.delay_again_ns {
            self.delay_again_ns = now_ns.saturating_add(DELAY_AGAIN_NS);
            // Only more work without.
            let _ = self.socket.delay_acknowledgements();
        }
    }

    /// Says something, or as much as there is room for; the rest waits. `false`: it is lost, for too much waits already.
    pub(super) fn say(&mut self, bytes: &[u8]) -> bool {
        if !self.waiting.is_empty() {
            let fits = self.waiting.len() + bytes.len() <= WAITING_BYTES_MAX;
            if fits {
                self.waiting.extend_from_slice(bytes);
            }
            return fits;
        }
        let said = match self.socket.send(bytes, false) {
            Ok(Moved::Bytes(said)) => said,
            Ok(Moved::WouldBlock) => 0,
            // That it broke is seen by whoever reads it.
            Ok(Moved::End) | Err(_) => return false,
        };
        self.waiting.extend_from_slice(&bytes[said..]);
        true
    }

    /// Says what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match self.socket.send(&self.waiting, false) {
                Ok(Moved::Bytes(said)) => drop(self.waiting.drain(..said)),
                Ok(Moved::WouldBlock) => return,
                Ok(Moved::End) | Err(_) => self.waiting.clear(),
            }
        }
    }

    /// Whether something waits for room.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
