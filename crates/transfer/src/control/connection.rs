//! One connection: its bytes and messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Epoll, Events, Interest, Moved, NetError, TcpSocket};

use ::iperf3::{Cookie, frame, length};

use super::{ControlError, StopHandle};

const SOCKET: u64 = 0;
const WAKER: u64 = 1;
/// Messages are read in pieces: memory grows with what has arrived, not with what is announced.
const PIECE_BYTES: usize = 16 << 10;

/// Long messages may be as slow as this, bytes/s: 1 Mbit/s.
const BYTES_PER_S_MIN: f64 = 125e3;

/// What ended a wait; neither: its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Woken {
    /// The peer sent something, or is gone.
    pub(crate) readable: bool,
    /// The stop handle woke.
    pub(crate) rung: bool,
}

#[derive(Debug)]
pub struct Control {
    socket: TcpSocket,
    peer: SocketAddr,
    epoll: Epoll,
    stop_handle: Arc<StopHandle>,
    /// Whether a stop cuts off a message; not while the end itself is announced.
    is_interruptible: bool,
    /// How long each step may take.
    step: Duration,
}

impl Control {
    /// A control connection to `peer`, on which each step may take up to `step`.
    pub fn new(
        socket: TcpSocket,
        peer: SocketAddr,
        stop_handle: Arc<StopHandle>,
        step: Duration,
    ) -> Result<Self, NetError> {
        let epoll = Epoll::new()?;
        epoll.add(&socket, SOCKET, Interest::READ)?;
        epoll.add(&*stop_handle, WAKER, Interest::READ | Interest::EDGE)?;
        // The peer waits for every message.
        socket.set_nodelay(true)?;
        Ok(Self { socket, peer, epoll, stop_handle, is_interruptible: true, step })
    }

    /// Ends the connection when the peer's host is silent for `limit`, also between messages.
    pub(crate) fn limit_silence(&self, limit: Duration) -> Result<(), NetError> {
        self.socket.set_silence_limit(limit)
    }

    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// How long each step may take.
    pub(crate) fn step(&self) -> Duration {
        self.step
    }

    /// From now on a stop does not cut off messages, and each step takes at most `step`.
    pub(crate) fn conclude(&mut self, step: Duration) {
        self.is_interruptible = false;
        self.step = step;
    }

    /// Waits for the peer or the stop handle, at most until `until`.
    pub(crate) fn wait(&self, until: Deadline) -> Result<Woken, NetError> {
        let mut events = Events::with_capacity(2);
        self.epoll.wait(&mut events, Some(until.left()))?;
        let mut woken = Woken { readable: false, rung: false };
        for event in events.iter() {
            match event.token {
                SOCKET => woken.readable = true,
                _ => woken.rung = true,
            }
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
            if self.is_interruptible && self.stop_handle.is_stopped() {
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

    /// The deadline of a whole message of this size, however steadily its bytes move.
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

    /// Sends bytes.
    pub(crate) fn send_bytes(&self, bytes: &[u8], during: &'static str) -> Result<(), ControlError> {
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

    /// Sends the first message of a client.
    pub(crate) fn send_cookie(&self, cookie: &Cookie) -> Result<(), ControlError> {
        self.send_bytes(cookie.bytes(), "opening the control connection")
    }

    pub(crate) fn send_byte(&self, byte: u8, during: &'static str) -> Result<(), ControlError> {
        self.send_bytes(&[byte], during)
    }

    /// Receives a byte.
    pub(crate) fn receive_byte(&self, during: &'static str) -> Result<u8, ControlError> {
        let [byte] = self.receive_bytes(during)?;
        Ok(byte)
    }

    /// Receives `N` bytes.
    pub(crate) fn receive_bytes<const N: usize>(
        &self,
        during: &'static str,
    ) -> Result<[u8; N], ControlError> {
        let mut bytes = [0; N];
        self.read(&mut bytes, Deadline::after(self.step), during)?;
        Ok(bytes)
    }

    /// Sends a message with its length in front. The peer limits the length.
    pub(crate) fn send_frame(&self, text: &[u8], during: &'static str) -> Result<(), ControlError> {
        self.send_bytes(&frame(text), during)
    }

    /// Receives a message of 2 to `bytes_max` bytes.
    pub(crate) fn receive_frame(
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
