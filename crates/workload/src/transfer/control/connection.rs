//! One connection, its bytes and texts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Epoll, Events, Interest, Moved, NetError, TcpSocket};

use super::{Bell, ControlError, Cookie, frame, length};

const SOCKET: u64 = 0;
const BELL: u64 = 1;
/// Texts are read in pieces of this size: memory is taken for what has come, not for what is announced.
const PIECE_BYTES: usize = 16 << 10;

/// Long texts may come and go as slowly as this, bytes/s: 1 Mbit/s.
const BYTES_PER_S_MIN: f64 = 125e3;

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

    /// Ends the connection when the peer's host is silent for `limit`, also while nothing is said.
    pub(in crate::transfer) fn limit_silence(&self, limit: Duration) -> Result<(), NetError> {
        self.socket.set_silence_limit(limit)
    }

    /// The other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// How long each step may take.
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

    fn wait_for(
        &self,
        interest: Interest,
        until: Deadline,
        during: &'static str,
    ) -> Result<(), ControlError> {
        self.epoll.modify(&self.socket, SOCKET, interest)?;
        let ready = loop {
            if self.heeds_stop && self.bell.is_stopped() {
                break Err(ControlError::Stopped);
            }
            if until.passed() {
                break Err(ControlError::Silent { peer: self.peer, during, within: self.step });
            }
            if self.wait(until)?.readable {
                break Ok(());
            }
        };
        self.epoll.modify(&self.socket, SOCKET, Interest::READ)?;
        ready
    }

    /// By when so many bytes must have come or gone, however steadily they do.
    fn whole(&self, bytes: usize) -> Deadline {
        Deadline::after(self.step.saturating_add(Duration::from_secs_f64(bytes as f64 / BYTES_PER_S_MIN)))
    }

    fn read(&self, buffer: &mut [u8], until: Deadline, during: &'static str) -> Result<(), ControlError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.socket.recv(&mut buffer[filled..]) {
                Ok(Moved::Bytes(n)) => filled += n,
                Ok(Moved::WouldBlock) => self.wait_for(Interest::READ, until, during)?,
                Ok(Moved::End) => return Err(ControlError::Closed { peer: self.peer, during }),
                Err(error) if error.is_peer_gone() => {
                    return Err(ControlError::Closed { peer: self.peer, during });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Says bytes, whatever they mean.
    ///
    /// # Errors
    /// [`ControlError`]: the other end does not take them in time, or is gone.
    pub(in crate::transfer) fn say_bytes(
        &self,
        bytes: &[u8],
        during: &'static str,
    ) -> Result<(), ControlError> {
        let whole = self.whole(bytes.len());
        let mut until = Deadline::after(self.step);
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.send(&bytes[sent..], false) {
                Ok(Moved::Bytes(n)) => (sent, until) = (sent + n, Deadline::after(self.step).min(whole)),
                Ok(_) => self.wait_for(Interest::WRITE, until, during)?,
                Err(error) if error.is_peer_gone() => {
                    return Err(ControlError::Closed { peer: self.peer, during });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens the connection: the first thing that a client sends.
    pub(in crate::transfer) fn say_cookie(&self, cookie: &Cookie) -> Result<(), ControlError> {
        self.say_bytes(cookie.bytes(), "opening the control connection")
    }

    /// Says a byte, whatever it means.
    pub(in crate::transfer) fn say_byte(&self, byte: u8, during: &'static str) -> Result<(), ControlError> {
        self.say_bytes(&[byte], during)
    }

    /// Receives a byte, whatever it means.
    ///
    /// # Errors
    /// [`ControlError`]: silence, the end of the connection.
    pub(in crate::transfer) fn receive_byte(&self, during: &'static str) -> Result<u8, ControlError> {
        let [byte] = self.receive_bytes(during)?;
        Ok(byte)
    }

    /// Receives so many bytes, whatever they mean.
    ///
    /// # Errors
    /// [`ControlError`]: silence, the end of the connection.
    pub(in crate::transfer) fn receive_bytes<const N: usize>(
        &self,
        during: &'static str,
    ) -> Result<[u8; N], ControlError> {
        let mut bytes = [0; N];
        self.read(&mut bytes, Deadline::after(self.step), during)?;
        Ok(bytes)
    }

    /// Sends a text, its length before it. The other end refuses more than it has agreed to.
    ///
    /// # Errors
    /// [`ControlError`]: the other end does not take it in time, or is gone.
    pub(in crate::transfer) fn send_frame(
        &self,
        text: &[u8],
        during: &'static str,
    ) -> Result<(), ControlError> {
        self.say_bytes(&frame(text), during)
    }

    /// Receives a text of 2 to `bytes_max` bytes, whatever it says.
    ///
    /// # Errors
    /// [`ControlError`]: silence, the end of the connection, another length.
    pub(in crate::transfer) fn receive_frame(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<Vec<u8>, ControlError> {
        let mut head = [0; 4];
        self.read(&mut head, Deadline::after(self.step), during)?;
        let len =
            length(head, bytes_max).map_err(|source| ControlError::Length { peer: self.peer, source })?;
        let whole = self.whole(len);
        let mut text = Vec::new();
        while text.len() < len {
            let at = text.len();
            text.resize(len.min(at + PIECE_BYTES), 0);
            self.read(&mut text[at..], Deadline::after(self.step).min(whole), during)?;
        }
        Ok(text)
    }
}
