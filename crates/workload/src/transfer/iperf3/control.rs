//! The control connection: bytes of state and JSON, each within its deadline.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use sys::clock::Deadline;
use sys::net::{Epoll, Events, Interest, Moved, NetError, TcpSocket};

use super::json::{frame, length, parse};
use super::{Bell, Failure, Iperf3Error, State};

const SOCKET: u64 = 0;
const BELL: u64 = 1;
/// Texts are read in pieces of this size: memory is taken for what has come, not for what is announced.
const PIECE_BYTES: usize = 16 << 10;

/// What a wait ended with. Neither: its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transfer) struct Woken {
    /// The peer said something, or is gone.
    pub(in crate::transfer) readable: bool,
    /// The bell rang.
    pub(in crate::transfer) rung: bool,
}

/// A control connection.
#[derive(Debug)]
pub struct Control {
    socket: TcpSocket,
    peer: SocketAddr,
    epoll: Epoll,
    bell: Arc<Bell>,
    /// Whether a wish to stop ends what is being said; not when the end itself is being told.
    heeds_stop: bool,
    /// How long each step may take.
    step: Duration,
}

impl Control {
    /// Takes over a connection to `peer`, on which each step may take up to `step`.
    ///
    /// # Errors
    /// [`NetError`].
    pub fn new(
        socket: TcpSocket,
        peer: SocketAddr,
        bell: Arc<Bell>,
        step: Duration,
    ) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&socket, SOCKET, Interest::READ)?;
        epoll.add(&*bell, BELL, Interest::READ)?;
        // Every message is waited for.
        socket.set_nodelay(true)?;
        Ok(Self { socket, peer, epoll, bell, heeds_stop: true, step })
    }

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(in crate::transfer) fn step(&self) -> Duration {
        self.step
    }

    /// From now on a wish to stop does not cut off what is said, and each step takes at most `step`.
    pub(in crate::transfer) fn conclude(&mut self, step: Duration) {
        self.heeds_stop = false;
        self.step = step;
    }

    /// Waits for the peer or the bell, at most until `until`.
    pub(in crate::transfer) fn wait(&self, until: Deadline) -> Result<Woken, NetError> {
        let mut events = Events::with_capacity(2);
        self.epoll.wait(&mut events, Some(until.left()))?;
        let mut woken = Woken { readable: false, rung: false };
        for event in events.iter() {
            match event.token {
                SOCKET => woken.readable = true,
                _ => woken.rung = true,
            }
        }
        if woken.rung {
            self.bell.hush();
        }
        Ok(woken)
    }

    fn wait_for(&self, interest: Interest, until: Deadline, during: &'static str) -> Result<(), Iperf3Error> {
        self.epoll.modify(&self.socket, SOCKET, interest)?;
        let ready = loop {
            if self.heeds_stop && self.bell.is_stopped() {
                break Err(Iperf3Error::Stopped);
            }
            if until.passed() {
                break Err(Iperf3Error::Silent { peer: self.peer, during, within: self.step });
            }
            if self.wait(until)?.readable {
                break Ok(());
            }
        };
        self.epoll.modify(&self.socket, SOCKET, Interest::READ)?;
        ready
    }

    fn read(&self, buffer: &mut [u8], until: Deadline, during: &'static str) -> Result<(), Iperf3Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.socket.recv(&mut buffer[filled..]) {
                Ok(Moved::Bytes(n)) => filled += n,
                Ok(Moved::WouldBlock) => self.wait_for(Interest::READ, until, during)?,
                Ok(Moved::End) => return Err(Iperf3Error::Closed { peer: self.peer, during }),
                Err(error) if error.is_peer_gone() => {
                    return Err(Iperf3Error::Closed { peer: self.peer, during });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], during: &'static str) -> Result<(), Iperf3Error> {
        let until = Deadline::after(self.step);
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.send(&bytes[sent..], false) {
                Ok(Moved::Bytes(n)) => sent += n,
                Ok(_) => self.wait_for(Interest::WRITE, until, during)?,
                Err(error) if error.is_peer_gone() => {
                    return Err(Iperf3Error::Closed { peer: self.peer, during });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens the connection: the first thing that a client sends.
    pub(in crate::transfer) fn say_cookie(&self, cookie: &super::Cookie) -> Result<(), Iperf3Error> {
        self.write(cookie.bytes(), "opening the control connection")
    }

    /// Says a state.
    pub(super) fn say(&self, state: State, during: &'static str) -> Result<(), Iperf3Error> {
        self.write(&[state.byte()], during)
    }

    /// Says why the server gives up. Whether it arrives does not matter any more.
    pub(super) fn say_failure(&mut self, failure: Failure) {
        self.conclude(Duration::from_millis(200));
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend_from_slice(&failure.bytes());
        let _ = self.write(&bytes, "giving up");
    }

    /// Receives a byte, whatever it means.
    ///
    /// # Errors
    /// [`Iperf3Error`]: silence, the end of the connection.
    pub(in crate::transfer) fn receive_byte(&self, during: &'static str) -> Result<u8, Iperf3Error> {
        let mut byte = [0];
        self.read(&mut byte, Deadline::after(self.step), during)?;
        Ok(byte[0])
    }

    /// Hears a state. What ends a test is an error.
    ///
    /// # Errors
    /// [`Iperf3Error`]: silence, the end of the connection, a refusal, a byte that is no state.
    pub(super) fn hear(&self, during: &'static str) -> Result<State, Iperf3Error> {
        let byte = self.receive_byte(during)?;
        let peer = self.peer;
        match State::read(byte) {
            Some(State::AccessDenied) => Err(Iperf3Error::Busy(peer)),
            Some(State::ServerTerminate | State::ClientTerminate) => Err(Iperf3Error::Terminated(peer)),
            Some(State::ServerError) => {
                let mut bytes = [0; Failure::BYTES];
                // Old servers say no more than that they give up.
                let until = Deadline::after(self.step);
                let told = self.read(&mut bytes, until, during);
                let failure = told.map_or(Failure { code: 0, errno: 0 }, |()| Failure::read(bytes));
                Err(Iperf3Error::GaveUp { peer, failure })
            }
            Some(state) => Ok(state),
            None => Err(Iperf3Error::Unexpected { peer, byte, during }),
        }
    }

    /// Hears the one state that is due.
    pub(super) fn expect(&self, due: State, during: &'static str) -> Result<(), Iperf3Error> {
        let state = self.hear(during)?;
        if state == due {
            return Ok(());
        }
        Err(Iperf3Error::Unexpected { peer: self.peer, byte: state.byte(), during })
    }

    /// Sends an object.
    pub(super) fn send(&self, object: &Map<String, Value>, during: &'static str) -> Result<(), Iperf3Error> {
        // An object of strings and values is always written.
        self.send_frame(&serde_json::to_vec(object).unwrap_or_default(), during)
    }

    /// Receives an object of at most `bytes_max`.
    pub(super) fn receive(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<Map<String, Value>, Iperf3Error> {
        let text = self.receive_frame(bytes_max, during)?;
        parse(&text).map_err(|source| Iperf3Error::Json { peer: self.peer, source })
    }

    /// Sends a text, its length before it. The other end refuses more than it has agreed to.
    ///
    /// # Errors
    /// [`Iperf3Error`]: the other end does not take it in time, or is gone.
    pub(in crate::transfer) fn send_frame(
        &self,
        text: &[u8],
        during: &'static str,
    ) -> Result<(), Iperf3Error> {
        self.write(&frame(text), during)
    }

    /// Receives a text of 2 to `bytes_max` bytes, whatever it says.
    ///
    /// # Errors
    /// [`Iperf3Error`]: silence, the end of the connection, another length.
    pub(in crate::transfer) fn receive_frame(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<Vec<u8>, Iperf3Error> {
        let until = Deadline::after(self.step);
        let mut head = [0; 4];
        self.read(&mut head, until, during)?;
        let len = length(head, bytes_max).map_err(|source| Iperf3Error::Json { peer: self.peer, source })?;
        let mut text = Vec::new();
        while text.len() < len {
            let at = text.len();
            text.resize(len.min(at + PIECE_BYTES), 0);
            self.read(&mut text[at..], until, during)?;
        }
        Ok(text)
    }
}
