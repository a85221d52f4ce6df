//! A connection that replies in order: kagiri's own protocol and HTTP/1.1.

use sys::clock::monotonic_ns;
use sys::net::Moved;

use super::super::connection::{Channel, Link};
use super::super::message::{Broken, broken};
use super::super::protocol::{Came, Incoming, Outgoing, Protocol, Reply};
use super::super::shared::Shared;
use super::super::stats::Fault;
use super::Client;
use crate::wire::MessageHeader;

/// The message that is written, and the replies as far as they have come.
#[derive(Debug)]
pub(super) struct Ordered {
    outgoing: Outgoing,
    /// Whether `outgoing` is not complete: it belongs to the newest message.
    pub(super) is_writing: bool,
    incoming: Incoming,
}

impl Ordered {
    pub(super) fn new(protocol: &Protocol) -> Self {
        Self { outgoing: Outgoing::default(), is_writing: false, incoming: Incoming::new(protocol) }
    }

    /// Forgets what was on the connection: a new one follows.
    pub(super) fn reset(&mut self) {
        self.is_writing = false;
        self.incoming.reset();
    }

    /// Makes this message the one that is written.
    pub(super) fn set(&mut self, protocol: &Protocol, header: MessageHeader, is_first: bool) {
        self.is_writing = true;
        self.outgoing.set(protocol, header, is_first);
    }
}

impl Client {
    /// Writes as much of the message as the kernel takes in one call; whether it took any.
    pub(super) fn write_ordered(&mut self, shared: &mut Shared) -> Result<bool, Broken> {
        let Link::Open { channel: Channel::Stream(transport), .. } = &mut self.link else { return Ok(false) };
        let Ordered { outgoing, is_writing, .. } = &mut self.ordered;
        if !*is_writing {
            return Ok(false);
        }
        let mut has_moved = false;
        if !outgoing.is_complete() {
            let (part, more) = outgoing.part(&shared.spec.protocol, &mut shared.scratch);
            match transport.send(part, more).map_err(broken)? {
                Moved::Bytes(bytes) => outgoing.advance(bytes),
                Moved::WouldBlock | Moved::End => return Ok(false),
            }
            has_moved = true;
        }
        // What TLS has taken, the kernel need not have yet.
        if outgoing.is_complete() && transport.flush().map_err(broken)? {
            let now_ns = monotonic_ns();
            (*is_writing, self.free_since_ns) = (false, now_ns);
            if let Some(message) = self.messages.newest() {
                message.at.written = now_ns;
            }
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// The message whose reply is all that it can wait for, on a connection whose reads can wait.
    pub(in super::super) fn awaited_reply(&self) -> Option<u64> {
        let can_wait = self.link.waits() && !self.ordered.is_writing;
        self.messages.oldest().filter(|_| can_wait).map(|message| message.number)
    }

    /// Reads once; whether anything came. `waits`: the read may wait for it.
    pub(in super::super) fn read(&mut self, shared: &mut Shared, waits: bool) -> Result<bool, Broken> {
        let Link::Open { channel: Channel::Stream(transport), .. } = &mut self.link else { return Ok(false) };
        let moved = match waits {
            true => transport.recv_waiting(&mut shared.receive),
            false => transport.recv(&mut shared.receive),
        };
        let moved = moved.map_err(broken)?;
        let bytes = match moved {
            Moved::WouldBlock => return Ok(false),
            Moved::Bytes(bytes) => bytes,
            Moved::End => {
                let is_whole = !transport.is_truncated();
                if let Some(reply) = self.ordered.incoming.closed().filter(|_| is_whole) {
                    self.complete(reply, monotonic_ns(), shared)?;
                }
                self.lose(Fault::Broken, "the server closed the connection", shared);
                return Ok(true);
            }
        };
        let now_ns = monotonic_ns();
        let mut at = 0;
        while at < bytes {
            match self.ordered.incoming.take(&shared.receive[at..bytes]) {
                Came::More => break,
                Came::Reply(taken, reply) => {
                    at += taken;
                    self.complete(reply, now_ns, shared)?;
                }
                Came::Wrong => return Err((Fault::Malformed, "the server's reply is malformed".to_owned())),
            }
        }
        Ok(true)
    }

    /// The next reply in order has come.
    fn complete(&mut self, reply: Reply, now_ns: u64, shared: &mut Shared) -> Result<(), Broken> {
        let unknown = || (Fault::Malformed, "the server replied to nothing that was sent".to_owned());
        let was_free = self.is_free(shared);
        // A wrong number loses the message with the connection.
        let number = self.messages.front().ok_or_else(unknown)?.number;
        if reply.number.is_some_and(|replied| replied != number) {
            return Err(unknown());
        }
        let (message, was_given_up) = self.messages.take_front().ok_or_else(unknown)?;
        let is_unsent = self.ordered.is_writing && self.messages.len() == 0;
        if !was_given_up {
            self.count(&message, reply, now_ns, shared);
        }
        self.pause_after(&reply, now_ns);
        if !was_free {
            self.free_since_ns = self.free_since_ns.max(now_ns);
        }
        // A reply before the end of its request leaves the connection in the middle of one.
        if shared.spec.is_fresh || !reply.keeps_alive || is_unsent {
            self.close(shared);
        }
        Ok(())
    }
}
