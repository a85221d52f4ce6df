//! One connection of the server: messages that arrive, and replies that leave.

use std::collections::VecDeque;

use sys::clock::monotonic_ns;
use sys::net::{Moved, NetError, TcpSocket};

use super::{LogEntry, ServerReport};
use crate::payload;
use crate::readiness::Readiness;
use crate::wire::{HEADER_BYTES, HELLO_BYTES, Hello, MessageHeader, ReplyHeader};

/// Reads and writes of one connection before others have their turn.
const CALLS_MAX: usize = 16;
/// Messages that wait for their reply; with more, the connection is not read.
const PENDING_MAX: usize = 1 << 14;
/// The first bytes of a reply go out together with its header.
const FIRST_BYTES: usize = 16 << 10;

/// A message that has arrived.
#[derive(Debug, Clone, Copy)]
struct Pending {
    number: u64,
    reply_bytes: u64,
    first_byte_ns: u64,
    last_byte_ns: u64,
    due_ns: u64,
}

/// A reply that leaves.
#[derive(Debug)]
struct Reply {
    head: [u8; HEADER_BYTES as usize],
    bytes: u64,
    sent: u64,
    of: Pending,
}

/// What arrives.
#[derive(Debug, Clone, Copy)]
enum Arriving {
    /// This many bytes of the hello or of a header have come.
    Head(usize),
    /// So much of the payload is missing.
    Payload { header: MessageHeader, first_byte_ns: u64, left: u64 },
}

/// How far a connection has come after it was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    /// Nothing more until its socket is ready, or until this moment.
    Waits(Option<u64>),
    /// It is to be served again, after others.
    Again,
    /// The peer closed it, or is wrong.
    Over,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpSocket,
    /// Absent until it has come.
    pub(super) hello: Option<Hello>,
    pub(super) readiness: Readiness,
    /// Replies since it came to the thread that serves it.
    pub(super) replies: u32,
    head: [u8; HELLO_BYTES],
    arriving: Arriving,
    pending: VecDeque<Pending>,
    reply: Option<Reply>,
    /// The peer has sent all: it is closed when all replies have left.
    is_read: bool,
}

/// What all connections share.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) receive: Vec<u8>,
    pub(super) send: Vec<u8>,
    pub(super) service_ns: u64,
    /// Bytes and messages of all connections.
    pub(super) received_bytes: u64,
    pub(super) messages: u64,
    pub(super) log: Option<super::Log>,
}

impl Buffers {
    pub(super) fn new(service_ns: u64, log: Option<super::Log>) -> Self {
        let send = payload::slice(0, FIRST_BYTES as u64).to_vec();
        Self { receive: vec![0; 256 << 10], send, service_ns, received_bytes: 0, messages: 0, log }
    }

    /// What was served with them.
    pub(super) const fn report(&self) -> ServerReport {
        ServerReport { messages: self.messages, received_bytes: self.received_bytes, refused: 0 }
    }
}

impl Connection {
    pub(super) fn new(socket: TcpSocket) -> Self {
        let arriving = Arriving::Head(0);
        let (head, pending) = ([0; HELLO_BYTES], VecDeque::new());
        Self {
            socket,
            hello: None,
            readiness: Readiness::UNKNOWN,
            replies: 0,
            head,
            arriving,
            pending,
            reply: None,
            is_read: false,
        }
    }

    /// Takes the hello from its socket; `None` until it is complete.
    pub(super) fn greet(&mut self) -> Result<Option<Hello>, NetError> {
        while let Arriving::Head(have @ 0..HELLO_BYTES) = self.arriving {
            match self.socket.recv(&mut self.head[have..])? {
                Moved::Bytes(bytes) => self.arriving = Arriving::Head(have + bytes),
                Moved::WouldBlock => return Ok(None),
                Moved::End => return Err(self.end()),
            }
        }
        let hello = Hello::from_bytes(&self.head).ok_or_else(|| self.end())?;
        (self.hello, self.arriving) = (Some(hello), Arriving::Head(0));
        Ok(Some(hello))
    }

    fn end(&self) -> NetError {
        NetError {
            action: "read from",
            target: "a client".to_owned(),
            source: std::io::ErrorKind::UnexpectedEof.into(),
        }
    }

    /// Whether all messages that have come have their replies.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.reply.is_none()
    }

    /// Waits for bytes as long as its socket may ([`TcpSocket::set_wait`]), and serves it; also whether bytes
    /// came.
    pub(super) fn serve_waiting(&mut self, buffers: &mut Buffers) -> (Served, bool) {
        match self.receive(buffers, true) {
            Ok(has_come) => (self.serve(buffers), has_come),
            Err(_) => (Served::Over, false),
        }
    }

    /// Reads messages and sends replies, as much as is fair to others.
    pub(super) fn serve(&mut self, buffers: &mut Buffers) -> Served {
        let is_again = self.read(buffers);
        let was_full = self.pending.len() >= PENDING_MAX;
        let written = self.write(buffers);
        match (is_again, written) {
            (Err(_), _) | (_, Err(_)) => Served::Over,
            (Ok(true), Ok(_)) => Served::Again,
            // What was left unread causes no further event.
            (Ok(false), Ok(_)) if was_full && self.pending.len() < PENDING_MAX => Served::Again,
            (Ok(false), Ok(_)) if self.is_read && self.is_idle() => Served::Over,
            (Ok(false), Ok(served)) => served,
        }
    }

    /// Whether there may be more to read.
    fn read(&mut self, buffers: &mut Buffers) -> Result<bool, NetError> {
        for _ in 0..CALLS_MAX {
            let may_read = !self.is_read && self.readiness.may_read();
            if !may_read || self.pending.len() >= PENDING_MAX || !self.receive(buffers, false)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads once; whether something came. `waits`: the read may wait for it.
    fn receive(&mut self, buffers: &mut Buffers, waits: bool) -> Result<bool, NetError> {
        let moved = match waits {
            true => self.socket.recv_waiting(&mut buffers.receive)?,
            false => self.socket.recv(&mut buffers.receive)?,
        };
        self.readiness.after_read(moved, buffers.receive.len());
        match moved {
            Moved::WouldBlock => return Ok(false),
            Moved::End => self.is_read = true,
            Moved::Bytes(bytes) => {
                buffers.received_bytes += bytes as u64;
                self.take(&buffers.receive[..bytes], monotonic_ns(), buffers.service_ns)?;
            }
        }
        Ok(true)
    }

    fn take(&mut self, mut bytes: &[u8], now_ns: u64, service_ns: u64) -> Result<(), NetError> {
        const HEAD: usize = HEADER_BYTES as usize;
        while !bytes.is_empty() {
            match self.arriving {
                Arriving::Head(have) => {
                    let taken = bytes.len().min(HEAD - have);
                    self.head[have..have + taken].copy_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    self.arriving = Arriving::Head(have + taken);
                    if have + taken == HEAD {
                        let head: &[u8; HEAD] = self.head.first_chunk().expect("a hello is longer");
                        let header = MessageHeader::from_bytes(head).ok_or_else(|| self.end())?;
                        let left = header.bytes - u64::from(HEADER_BYTES);
                        self.arriving = Arriving::Payload { header, first_byte_ns: now_ns, left };
                    }
                }
                Arriving::Payload { header, first_byte_ns, left } => {
                    let taken = left.min(bytes.len() as u64);
                    bytes = &bytes[taken as usize..];
                    self.arriving = Arriving::Payload { header, first_byte_ns, left: left - taken };
                }
            }
            if let Arriving::Payload { header, first_byte_ns, left: 0 } = self.arriving {
                self.arriving = Arriving::Head(0);
                let MessageHeader { number, reply_bytes, .. } = header;
                let due_ns = now_ns.saturating_add(service_ns);
                self.pending.push_back(Pending {
                    number,
                    reply_bytes,
                    first_byte_ns,
                    last_byte_ns: now_ns,
                    due_ns,
                });
            }
        }
        Ok(())
    }

    /// Sends replies that are due. It then waits for the next message, for room in its socket, or for the
    /// moment of the next reply.
    fn write(&mut self, buffers: &mut Buffers) -> Result<Served, NetError> {
        for _ in 0..CALLS_MAX {
            if self.reply.is_none() {
                let Some(next) = self.pending.front().copied() else { return Ok(Served::Waits(None)) };
                let now_ns = monotonic_ns();
                if next.due_ns > now_ns {
                    return Ok(Served::Waits(Some(next.due_ns)));
                }
                self.pending.pop_front();
                let header = ReplyHeader {
                    bytes: next.reply_bytes,
                    number: next.number,
                    server_ns: now_ns.saturating_sub(next.last_byte_ns),
                };
                self.reply =
                    Some(Reply { head: header.to_bytes(), bytes: next.reply_bytes, sent: 0, of: next });
            }
            let Some(reply) = &mut self.reply else { return Ok(Served::Waits(None)) };
            let left = reply.bytes - reply.sent;
            let first = FIRST_BYTES as u64;
            let part: &[u8] = if reply.sent < first {
                buffers.send[..reply.head.len()].copy_from_slice(&reply.head);
                &buffers.send[reply.sent as usize..reply.bytes.min(first) as usize]
            } else {
                payload::slice(reply.sent, left)
            };
            match self.socket.send(part, (part.len() as u64) < left)? {
                Moved::Bytes(bytes) => reply.sent += bytes as u64,
                Moved::WouldBlock | Moved::End => return Ok(Served::Waits(None)),
            }
            if reply.sent == reply.bytes {
                buffers.messages += 1;
                self.replies = self.replies.saturating_add(1);
                if let (Some(log), Some(reply)) = (&buffers.log, self.reply.take()) {
                    let Pending { first_byte_ns, last_byte_ns, .. } = reply.of;
                    let entry = LogEntry { first_byte_ns, last_byte_ns, replied_ns: monotonic_ns() };
                    log.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(entry);
                }
                self.reply = None;
            }
        }
        Ok(if self.is_idle() { Served::Waits(None) } else { Served::Again })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn replies_of_many_messages_take_several_turns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut connection = Connection::new(listener.accept().unwrap().0.try_into().unwrap());
        let message = |number| MessageHeader { bytes: 24, reply_bytes: 24, number }.to_bytes();
        let messages: Vec<u8> = (0..40).flat_map(message).collect();
        peer.write_all(&messages).unwrap();
        let mut buffers = Buffers::new(0, None);
        let turns: Vec<Served> = (0..3).map(|_| connection.serve(&mut buffers)).collect();
        assert_eq!(turns, [Served::Again, Served::Again, Served::Waits(None)]);
        peer.read_exact(&mut [0; 40 * 24]).unwrap();
        assert_eq!(buffers.messages, 40);
    }
}
