//! Receiving request heads.

use sys::net::{Moved, TcpSocket};

use super::config::Limits;
use super::request::{self, LoggedFields, Parsed, Refusal, Request};

/// What a try to receive brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes,
    Nothing,
    /// The peer closed, or the connection broke.
    End,
}

/// The bytes received and not yet used; at most a request head.
#[derive(Debug)]
pub struct RequestReader {
    bytes: Vec<u8>,
    /// How many of the bytes hold no end of a head.
    searched: usize,
    /// Whether the socket may have bytes to read: set by an edge, cleared by a short read.
    readable: bool,
    /// Whether the peer has closed. No further event comes then, so a short read is not the last one.
    peer_done: bool,
}

impl RequestReader {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), searched: 0, readable: true, peer_done: false }
    }

    /// An event reported bytes to read, and whether the peer has closed after them.
    pub fn set_readable(&mut self, peer_done: bool) {
        self.readable = true;
        self.peer_done |= peer_done;
    }

    /// A read found nothing.
    pub fn clear_readable(&mut self) {
        self.readable = false;
    }

    pub fn is_readable(&self) -> bool {
        self.readable
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn consume(&mut self, bytes: usize) {
        self.bytes.drain(..bytes);
        self.searched = 0;
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn logged_fields(&self) -> LoggedFields {
        LoggedFields { line: request::request_line(&self.bytes), ..LoggedFields::default() }
    }

    pub fn receive(&mut self, socket: &TcpSocket, buffer: &mut [u8], head_bytes_max: usize) -> Received {
        let room = head_bytes_max.saturating_sub(self.bytes.len()).min(buffer.len());
        match socket.recv(&mut buffer[..room]) {
            Ok(Moved::Bytes(n)) => {
                self.readable = n == room || self.peer_done;
                self.bytes.extend_from_slice(&buffer[..n]);
                Received::Bytes
            }
            Ok(Moved::WouldBlock) => {
                self.readable = false;
                Received::Nothing
            }
            Ok(Moved::End) | Err(_) => Received::End,
        }
    }

    /// The next request. `None`: more bytes are needed, and there is room for them.
    pub fn next_request(&mut self, limits: &Limits) -> Option<Result<Box<Request>, Box<Refusal>>> {
        let empty = request::leading_empty(&self.bytes);
        if empty > 0 {
            self.consume(empty);
        }
        let first = *self.bytes.first()?;
        let full = self.bytes.len() >= limits.header_bytes_max;
        let parsed = match request::head_end(&self.bytes, self.searched) {
            Some(_) => request::parse(&self.bytes, limits.headers_max),
            None if full && !self.bytes.contains(&b'\n') => {
                request::refuse(414, "the request line is too long", &self.bytes)
            }
            None if full => request::refuse(431, "the request head is too long", &self.bytes),
            None if !first.is_ascii_alphabetic() => request::refuse(400, "malformed request", &self.bytes),
            None => Parsed::Incomplete,
        };
        self.searched = self.bytes.len();
        match parsed {
            Parsed::Incomplete if full => {
                let logged = LoggedFields::default();
                Some(Err(Box::new(Refusal { status: 400, reason: "malformed request", logged })))
            }
            Parsed::Incomplete => None,
            Parsed::Refused(refusal) => Some(Err(refusal)),
            Parsed::Complete(request, len) => {
                self.consume(len);
                Some(Ok(request))
            }
        }
    }
}
