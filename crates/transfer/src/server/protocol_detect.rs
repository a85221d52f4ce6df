//! Detects the protocol of a connection by its first 37 bytes.
//!
//! An unidentified connection costs a descriptor and 37 bytes for at most [`HandshakeLimits::within`]. There
//! are at most [`HandshakeLimits::half_open_max`] of them: the oldest is closed first, so that idle
//! connections do not keep clients out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Epoll, Events, Interest, Listener, Moved, NetError, TcpSocket};

use crate::control::{COOKIE_BYTES, Cookie};
use crate::native::session_id::is_kagiri;

const LISTENER: u64 = u64::MAX;
/// Connections to accept before open ones are read again.
const ACCEPT_MAX: usize = 64;
/// Pause of accepting when no descriptor is left.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Bounds on unidentified connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Time for the first 37 bytes.
    pub within: Duration,
    /// Unidentified connections at a time.
    pub half_open_max: usize,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { within: Duration::from_secs(5), half_open_max: 512 }
    }
}

/// The protocol of a connection, with its cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerProtocol {
    /// kagiri's own.
    Kagiri(Cookie),
    /// iperf3's: a data connection if the cookie is known, else the control connection of a new test.
    Iperf3(Cookie),
}

/// An identified connection.
#[derive(Debug)]
pub struct Identified {
    /// The socket, read up to the end of the cookie.
    pub socket: TcpSocket,
    /// The other end.
    pub peer: SocketAddr,
    /// Its number in the order of accepting.
    pub sequence: u64,
    /// Its protocol.
    pub hello: PeerProtocol,
}

/// Unidentified connections that were closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// They sent something else.
    pub unidentified: u64,
    /// They sent too little in time, or closed.
    pub silent: u64,
    /// They made room for new ones.
    pub evicted: u64,
}

/// The result of a wait.
#[derive(Debug, Default)]
pub struct Detected {
    /// In the order of their cookies.
    pub identified: Vec<Identified>,
    /// Ready tokens of [`ProtocolDetector::watch`].
    pub others: Vec<u64>,
}

#[derive(Debug)]
struct HalfOpen {
    socket: TcpSocket,
    peer: SocketAddr,
    deadline: Deadline,
    bytes: [u8; COOKIE_BYTES],
    filled: usize,
}

enum Outcome {
    More,
    All(PeerProtocol),
    Unknown,
    Gone,
}

/// Accepts connections and reads their cookies.
#[derive(Debug)]
pub struct ProtocolDetector {
    listener: Listener,
    epoll: Epoll,
    limits: HandshakeLimits,
    /// By sequence, which is also the order of the deadlines.
    half_open: BTreeMap<u64, HalfOpen>,
    next: u64,
    counts: HandshakeCounts,
    exhausted_until: Option<Deadline>,
}

impl ProtocolDetector {
    /// Accepts from `listener`.
    ///
    /// # Errors
    /// [`NetError`]: no descriptors left.
    pub fn new(listener: Listener, limits: HandshakeLimits) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self {
            listener,
            epoll,
            limits,
            half_open: BTreeMap::new(),
            next: 0,
            counts: HandshakeCounts::default(),
            exhausted_until: None,
        })
    }

    /// Watches another descriptor; its `token` is at least 2^63.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn watch(&self, what: &impl AsFd, token: u64) -> Result<(), NetError> {
        debug_assert!(token >= 1 << 63 && token != LISTENER, "sequences stay below");
        self.epoll.add(what, token, Interest::READ)
    }

    /// Counts of closed unidentified connections.
    pub fn counts(&self) -> HandshakeCounts {
        self.counts
    }

    /// The number of unidentified connections.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Waits for cookies until `until`.
    ///
    /// # Errors
    /// [`NetError`]: the wait failed. Errors of one connection do not affect the others.
    pub fn wait(&mut self, until: Deadline) -> Result<Detected, NetError> {
        let mut events = Events::with_capacity(256);
        let first = self.half_open.values().next().map(|half| half.deadline);
        let until = [first, self.exhausted_until].into_iter().flatten().fold(until, Deadline::min);
        self.epoll.wait(&mut events, Some(until.left()))?;
        let mut detected = Detected::default();
        for event in events.iter() {
            match event.token {
                LISTENER => detected.identified.extend(self.accept_connections()),
                token if token >= 1 << 63 => detected.others.push(token),
                sequence => detected.identified.extend(self.read_cookie(sequence)),
            }
        }
        if self.exhausted_until.is_some_and(|until| until.passed()) {
            let open = self.epoll.add(&self.listener, LISTENER, Interest::READ).is_ok();
            self.exhausted_until = (!open).then(|| Deadline::after(EXHAUSTED));
        }
        while let Some(oldest) = self.half_open.first_entry() {
            if !oldest.get().deadline.passed() {
                break;
            }
            oldest.remove();
            self.counts.silent += 1;
        }
        Ok(detected)
    }

    fn accept_connections(&mut self) -> Vec<Identified> {
        let mut identified = Vec::new();
        for _ in 0..ACCEPT_MAX {
            let (socket, peer) = match self.listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => break,
                Err(_) => {
                    // Usually no descriptor is left. The listener stays readable: polling it would burn CPU.
                    if self.epoll.delete(&self.listener).is_ok() {
                        self.exhausted_until = Some(Deadline::after(EXHAUSTED));
                    }
                    identified.extend(self.evict_oldest());
                    break;
                }
            };
            let sequence = self.next;
            self.next += 1;
            if self.epoll.add(&socket, sequence, Interest::READ).is_err() {
                continue;
            }
            if self.half_open.len() >= self.limits.half_open_max {
                identified.extend(self.evict_oldest());
            }
            let deadline = Deadline::after(self.limits.within);
            let half = HalfOpen { socket, peer, deadline, bytes: [0; COOKIE_BYTES], filled: 0 };
            self.half_open.insert(sequence, half);
            identified.extend(self.read_cookie(sequence));
        }
        identified
    }

    /// Closes the oldest, unless it has sent its cookie meanwhile.
    fn evict_oldest(&mut self) -> Option<Identified> {
        let oldest = *self.half_open.first_key_value()?.0;
        let identified = self.read_cookie(oldest);
        self.counts.evicted += u64::from(self.half_open.remove(&oldest).is_some());
        identified
    }

    fn read_cookie(&mut self, sequence: u64) -> Option<Identified> {
        let heard = self.half_open.get_mut(&sequence)?.read();
        if matches!(heard, Outcome::More) {
            return None;
        }
        let half = self.half_open.remove(&sequence)?;
        match heard {
            Outcome::All(hello) if self.epoll.delete(&half.socket).is_ok() => {
                return Some(Identified { socket: half.socket, peer: half.peer, sequence, hello });
            }
            Outcome::Unknown => self.counts.unidentified += 1,
            _ => self.counts.silent += 1,
        }
        None
    }
}

impl HalfOpen {
    fn read(&mut self) -> Outcome {
        while self.filled < COOKIE_BYTES {
            match self.socket.recv(&mut self.bytes[self.filled..]) {
                Ok(Moved::Bytes(n)) => self.filled += n,
                Ok(Moved::WouldBlock) => return Outcome::More,
                Ok(Moved::End) | Err(_) => return Outcome::Gone,
            }
        }
        match Cookie::read(&self.bytes) {
            Some(cookie) if is_kagiri(&cookie) => Outcome::All(PeerProtocol::Kagiri(cookie)),
            Some(cookie) => Outcome::All(PeerProtocol::Iperf3(cookie)),
            None => Outcome::Unknown,
        }
    }
}

#[cfg(test)]
#[path = "protocol_detect_tests.rs"]
mod tests;
