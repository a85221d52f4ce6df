//! The first 37 bytes of every connection: they tell kagiri, iperf3 and strangers apart.
//!
//! Whoever connects and says nothing, or little, costs a descriptor and 37 bytes for at most [`GreetLimits::within`],
//! and there are at most [`GreetLimits::half_open_max`] of that kind: the oldest go first, so that strangers who only
//! hold connections open do not keep others out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Epoll, Events, Interest, Listener, Moved, NetError, TcpSocket};

use crate::transfer::control::{COOKIE_BYTES, Cookie};

const LISTENER: u64 = u64::MAX;
/// Connections taken in at once, before those that are there are looked at again.
const ACCEPT_MAX: usize = 64;
/// How long nobody is let in when this process has no descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Bounds on those who have not said who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreetLimits {
    /// How long a connection may take to say its first 37 bytes.
    pub within: Duration,
    /// How many connections may be about to.
    pub half_open_max: usize,
}

impl Default for GreetLimits {
    fn default() -> Self {
        Self { within: Duration::from_secs(5), half_open_max: 512 }
    }
}

/// What a connection says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hello {
    /// It speaks kagiri's own protocol.
    Kagiri(Cookie),
    /// It belongs to a test of iperf3: if the cookie is known, as a data connection; if not, as the control connection
    /// of a new test.
    Iperf3(Cookie),
}

/// A connection that has said who it is.
#[derive(Debug)]
pub struct Greeted {
    /// The connection; what follows the greeting is unread.
    pub socket: TcpSocket,
    /// The other end.
    pub peer: SocketAddr,
    /// As which it was accepted.
    pub sequence: u64,
    /// What it said.
    pub hello: Hello,
}

/// How many did not become one of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GreetCounts {
    /// Said something else.
    pub strangers: u64,
    /// Said too little in time, or left before.
    pub silent: u64,
    /// Had to make room for others.
    pub crowded_out: u64,
}

/// What a wait brought.
#[derive(Debug, Default)]
pub struct Greetings {
    /// Who has said who he is, in the order of having said it.
    pub greeted: Vec<Greeted>,
    /// Tokens of others that are watched along ([`Greeter::watch`]) and are ready.
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

/// What became of a connection when it was readable.
enum Heard {
    More,
    All(Hello),
    Stranger,
    Gone,
}

/// Takes in connections and hears their first words.
#[derive(Debug)]
pub struct Greeter {
    listener: Listener,
    epoll: Epoll,
    limits: GreetLimits,
    /// By their sequence, which is also the order of their deadlines.
    half_open: BTreeMap<u64, HalfOpen>,
    next: u64,
    counts: GreetCounts,
    exhausted_until: Option<Deadline>,
}

impl Greeter {
    /// Greets whoever connects to `listener`.
    ///
    /// # Errors
    /// [`NetError`]: no descriptors left.
    pub fn new(listener: Listener, limits: GreetLimits) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self {
            listener,
            epoll,
            limits,
            half_open: BTreeMap::new(),
            next: 0,
            counts: GreetCounts::default(),
            exhausted_until: None,
        })
    }

    /// Watches something else along, whose `token` is at least 2^63.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn watch(&self, what: &impl AsFd, token: u64) -> Result<(), NetError> {
        debug_assert!(token >= 1 << 63 && token != LISTENER, "sequences stay below");
        self.epoll.add(what, token, Interest::READ)
    }

    /// Who did not become one of ours so far.
    pub fn counts(&self) -> GreetCounts {
        self.counts
    }

    /// How many connections are about to say who they are.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Waits for greetings, at most until `until`.
    ///
    /// # Errors
    /// [`NetError`], of the waiting itself. What happens to one connection does not hurt the others.
    pub fn wait(&mut self, until: Deadline) -> Result<Greetings, NetError> {
        let mut events = Events::with_capacity(256);
        let first = self.half_open.values().next().map(|half| half.deadline);
        let until = [first, self.exhausted_until].into_iter().flatten().fold(until, Deadline::min);
        self.epoll.wait(&mut events, Some(until.left()))?;
        let mut greetings = Greetings::default();
        for event in events.iter() {
            match event.token {
                LISTENER => greetings.greeted.extend(self.let_in()),
                token if token >= 1 << 63 => greetings.others.push(token),
                sequence => greetings.greeted.extend(self.listen_to(sequence)),
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
        Ok(greetings)
    }

    /// Takes in who waits, and hears those who have spoken already.
    fn let_in(&mut self) -> Vec<Greeted> {
        let mut greeted = Vec::new();
        for _ in 0..ACCEPT_MAX {
            let (socket, peer) = match self.listener.accept() {
                Ok(Some(accepted)) => accepted,
                Ok(None) => break,
                Err(_) => {
                    // Out of descriptors, as a rule. The listener stays readable; asking it again and again would only
                    // burn CPU.
                    if self.epoll.delete(&self.listener).is_ok() {
                        self.exhausted_until = Some(Deadline::after(EXHAUSTED));
                    }
                    greeted.extend(self.crowd_out());
                    break;
                }
            };
            let sequence = self.next;
            self.next += 1;
            if self.epoll.add(&socket, sequence, Interest::READ).is_err() {
                continue;
            }
            if self.half_open.len() >= self.limits.half_open_max {
                greeted.extend(self.crowd_out());
            }
            let deadline = Deadline::after(self.limits.within);
            let half = HalfOpen { socket, peer, deadline, bytes: [0; COOKIE_BYTES], filled: 0 };
            self.half_open.insert(sequence, half);
            greeted.extend(self.listen_to(sequence));
        }
        greeted
    }

    /// The oldest goes, unless it has spoken meanwhile.
    fn crowd_out(&mut self) -> Option<Greeted> {
        let oldest = *self.half_open.first_key_value()?.0;
        let greeted = self.listen_to(oldest);
        self.counts.crowded_out += u64::from(self.half_open.remove(&oldest).is_some());
        greeted
    }

    fn listen_to(&mut self, sequence: u64) -> Option<Greeted> {
        let heard = self.half_open.get_mut(&sequence)?.hear();
        if matches!(heard, Heard::More) {
            return None;
        }
        let half = self.half_open.remove(&sequence)?;
        match heard {
            Heard::All(hello) if self.epoll.delete(&half.socket).is_ok() => {
                return Some(Greeted { socket: half.socket, peer: half.peer, sequence, hello });
            }
            Heard::Stranger => self.counts.strangers += 1,
            _ => self.counts.silent += 1,
        }
        None
    }
}

impl HalfOpen {
    fn hear(&mut self) -> Heard {
        while self.filled < COOKIE_BYTES {
            match self.socket.recv(&mut self.bytes[self.filled..]) {
                Ok(Moved::Bytes(n)) => self.filled += n,
                Ok(Moved::WouldBlock) => return Heard::More,
                Ok(Moved::End) | Err(_) => return Heard::Gone,
            }
        }
        match Cookie::read(&self.bytes) {
            Some(cookie) if cookie.is_kagiri() => Heard::All(Hello::Kagiri(cookie)),
            Some(cookie) => Heard::All(Hello::Iperf3(cookie)),
            None => Heard::Stranger,
        }
    }
}

#[cfg(test)]
#[path = "greet_tests.rs"]
mod tests;
