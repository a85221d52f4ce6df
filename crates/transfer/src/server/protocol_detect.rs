//! Detects the protocol of a connection by its first 37 bytes.
//!
//! An unidentified connection costs a descriptor and 37 bytes for at most [`HandshakeLimits::within`]. There
//! are at most [`HandshakeLimits::half_open_max`] of them: the oldest is closed first, so that idle
//! connections do not keep clients out.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use reactor::{ACCEPTS_MAX, Accepted, Acceptor, Reactor, Slab, Timeouts, Token};
use sys::net::{Interest, Listener, Moved, NetError, TcpSocket};

use crate::control::{COOKIE_BYTES, Cookie};
use crate::native::session_id::is_kagiri;

const LISTENER: Token = Token::single(1);
/// The class of unidentified connections.
const HALF_OPEN: u8 = 2;

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

#[derive(Debug)]
pub struct Identified {
    /// The socket, read up to the end of the cookie.
    pub socket: TcpSocket,
    pub peer: SocketAddr,
    /// Its number in the order of accepting.
    pub sequence: u64,
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

#[derive(Debug)]
struct HalfOpen {
    socket: TcpSocket,
    peer: SocketAddr,
    sequence: u64,
    bytes: [u8; COOKIE_BYTES],
    filled: usize,
}

enum Outcome {
    More,
    All(PeerProtocol),
    Unknown,
    Gone,
}

/// Accepts connections and reads their cookies. Its tokens are of the classes 1 and 2.
#[derive(Debug)]
pub struct ProtocolDetector {
    acceptor: Acceptor,
    limits: HandshakeLimits,
    half_open: Slab<HalfOpen>,
    timeouts: Timeouts<(), 1>,
    next: u64,
    counts: HandshakeCounts,
    identified: VecDeque<Identified>,
}

impl ProtocolDetector {
    /// Accepts from `listener`. Pass on its events and timers to [`ProtocolDetector::on_ready`] and
    /// [`ProtocolDetector::on_timer`], and call [`ProtocolDetector::close_silent`] after each wait.
    pub fn new(listener: Listener, limits: HandshakeLimits, reactor: &Reactor) -> Result<Self, NetError> {
        let within_ns = u64::try_from(limits.within.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            acceptor: Acceptor::new(listener, LISTENER, reactor)?,
            limits,
            half_open: Slab::new(HALF_OPEN),
            timeouts: Timeouts::new([within_ns]),
            next: 0,
            counts: HandshakeCounts::default(),
            identified: VecDeque::new(),
        })
    }

    pub fn counts(&self) -> HandshakeCounts {
        self.counts
    }

    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// The next identified connection, in the order of their cookies.
    pub fn next_identified(&mut self) -> Option<Identified> {
        self.identified.pop_front()
    }

    /// When [`ProtocolDetector::close_silent`] has something to close.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.timeouts.next_ns()
    }

    /// Closes connections whose cookie did not come in time.
    pub fn close_silent(&mut self, now_ns: u64) {
        while let Some((token, ())) = self.timeouts.expired(now_ns) {
            self.remove(token);
            self.counts.silent += 1;
        }
    }

    /// Accepting may go on after a pause.
    pub fn on_timer(&mut self, reactor: &mut Reactor) {
        self.acceptor.on_timer(reactor);
    }

    /// A connection waits or has sent something. Errors of one connection do not affect the others.
    pub fn on_ready(&mut self, reactor: &mut Reactor, token: Token) {
        if token != LISTENER {
            return self.read_cookie(reactor, token);
        }
        for _ in 0..ACCEPTS_MAX {
            match self.acceptor.accept(reactor) {
                Accepted::Connection(socket, peer) => self.add(reactor, socket, peer),
                Accepted::None => return,
                Accepted::OutOfDescriptors => {
                    self.acceptor.pause(reactor);
                    return self.evict_oldest(reactor);
                }
            }
        }
    }

    fn add(&mut self, reactor: &mut Reactor, socket: TcpSocket, peer: SocketAddr) {
        let sequence = self.next;
        self.next += 1;
        if self.half_open.len() >= self.limits.half_open_max {
            self.evict_oldest(reactor);
        }
        let half = HalfOpen { socket, peer, sequence, bytes: [0; COOKIE_BYTES], filled: 0 };
        let token = self.half_open.insert(half);
        self.timeouts.set(token, (), reactor.now_ns());
        match reactor.watch(&self.half_open[token].socket, token, Interest::READ) {
            Ok(()) => self.read_cookie(reactor, token),
            Err(_) => drop(self.remove(token)),
        }
    }

    fn remove(&mut self, token: Token) -> Option<HalfOpen> {
        self.timeouts.clear(token);
        self.half_open.remove(token)
    }

    /// Closes the oldest, unless it has sent its cookie meanwhile.
    fn evict_oldest(&mut self, reactor: &Reactor) {
        let Some(oldest) = self.timeouts.oldest(()) else { return };
        self.read_cookie(reactor, oldest);
        self.counts.evicted += u64::from(self.remove(oldest).is_some());
    }

    fn read_cookie(&mut self, reactor: &Reactor, token: Token) {
        let Some(half) = self.half_open.get_mut(token) else { return };
        let heard = half.read();
        if matches!(heard, Outcome::More) {
            return;
        }
        let Some(HalfOpen { socket, peer, sequence, .. }) = self.remove(token) else { return };
        match heard {
            Outcome::All(hello) if reactor.unwatch(&socket).is_ok() => {
                self.identified.push_back(Identified { socket, peer, sequence, hello });
            }
            Outcome::Unknown => self.counts.unidentified += 1,
            _ => self.counts.silent += 1,
        }
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
