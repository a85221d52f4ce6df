//! One client: its schedule, its connection, its messages under way.

use std::collections::VecDeque;

use sys::clock::monotonic_ns;
use sys::net::{Moved, TcpSocket};

use super::connection::{Channel, Link};
use super::message::{Began, Broken, UnderWay, broken};
use super::protocol::{Came, Incoming, Outgoing, Protocol, Reply, of_status};
use super::schedule::{Place, Schedule};
use super::shared::Shared;
use super::stats::{Fault, Moments};
use crate::readiness::Readiness;
use crate::report::Waits;
use crate::settings::{Class, Sizes};
use crate::wire::MessageHeader;

/// Messages under way on one connection; with more, an open loop waits.
const UNDER_WAY_MAX: usize = 1 << 14;
/// Pause of a closed loop after an error, so that a server that refuses is not flooded.
const AFTER_ERROR_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Client {
    /// The number of its class.
    pub(super) class: usize,
    /// Its number among all clients of the trial.
    pub(super) number: u32,
    pub(super) sizes: Option<Sizes>,
    reply_bytes: u64,
    count: Option<u64>,
    random: fastrand::Rng,
    place: Place,
    schedule: Schedule,
    pub(super) link: Link,
    /// Of its socket.
    pub(super) readiness: Readiness,
    outgoing: Outgoing,
    /// Whether `outgoing` is not complete: it belongs to the last message under way.
    is_writing: bool,
    incoming: Incoming,
    /// From the oldest on; the first `given_up` of them have timed out.
    under_way: VecDeque<UnderWay>,
    given_up: usize,
    /// Since when the next message could have been sent.
    pub(super) free_since_ns: u64,
    pub(super) is_done: bool,
    /// The moment that its timer is set to.
    pub(super) timer_ns: u64,
    /// What its connection had waited for when the hold began.
    base: Waits,
}

impl Client {
    pub(super) fn new(
        class: &Class,
        class_index: usize,
        number: u32,
        place: Place,
        protocol: &Protocol,
    ) -> Self {
        Self {
            class: class_index,
            number,
            sizes: None,
            reply_bytes: class.reply_bytes,
            count: class.count,
            random: fastrand::Rng::with_seed(place.seed ^ u64::from(number)),
            place,
            schedule: Schedule::new(class, 0, place),
            link: Link::None,
            readiness: Readiness::UNKNOWN,
            outgoing: Outgoing::default(),
            is_writing: false,
            incoming: Incoming::new(protocol),
            under_way: VecDeque::new(),
            given_up: 0,
            free_since_ns: 0,
            is_done: false,
            timer_ns: u64::MAX,
            base: Waits::default(),
        }
    }

    /// The common start is known.
    pub(super) fn begin(&mut self, class: &Class, start_ns: u64) {
        self.schedule = Schedule::new(class, start_ns, self.place);
        self.free_since_ns = start_ns;
    }

    /// The hold begins: what its connection has waited for until now is left out.
    pub(super) fn mark(&mut self) {
        if let Some(Ok(info)) = self.link.socket().map(TcpSocket::info) {
            self.base = Waits::of(&info);
        }
    }

    /// Its connection stands: a message that waited for it can be written.
    pub(super) fn connected(&mut self, channel: Channel, shared: &mut Shared) {
        self.link = Link::Open { channel, is_first: true };
        self.base = Waits::default();
        let Some(waiting) = self.under_way.back_mut() else { return };
        waiting.at.connected = monotonic_ns();
        self.put(shared);
    }

    /// Makes the newest message the one that is written.
    fn put(&mut self, shared: &mut Shared) {
        let (Link::Open { channel, is_first }, Some(message)) = (&mut self.link, self.under_way.back())
        else {
            return;
        };
        let UnderWay { number, bytes, .. } = *message;
        self.is_writing = true;
        let header = MessageHeader { bytes, reply_bytes: self.reply_bytes, number };
        let problem = match channel {
            Channel::Stream(_) => {
                self.outgoing.set(&shared.spec.protocol, header, *is_first);
                None
            }
            Channel::Http2(http2) => {
                let request = shared.spec.protocol.http2(bytes);
                request.and_then(|(request, body)| http2.send(request, body)).err()
            }
        };
        *is_first = false;
        if let Some(why) = problem {
            self.lose(Fault::Broken, &why, shared);
        }
    }

    /// Whether messages follow each other without waiting for replies.
    fn is_pipelined(&self, shared: &Shared) -> bool {
        let is_native = matches!(*shared.spec.protocol, Protocol::Native { .. });
        is_native && !shared.spec.is_fresh && self.schedule.is_open()
    }

    /// Whether its next message need not wait for others of it.
    fn is_free(&self, shared: &Shared) -> bool {
        let waiting = self.under_way.len() - self.given_up;
        let has_room = self.under_way.len() < UNDER_WAY_MAX
            && !matches!(self.link, Link::Connecting | Link::Handshake(_));
        !self.is_writing && has_room && (waiting == 0 || self.is_pipelined(shared))
    }

    /// Whether all messages that it was meant to send have begun.
    fn has_sent_all(&self, shared: &Shared) -> bool {
        let is_counted = self.count.is_some_and(|count| self.schedule.number() >= count);
        is_counted || self.schedule.due_ns() >= shared.end_ns
    }

    /// When the oldest message that waits for its reply times out.
    fn deadline_ns(&self, shared: &Shared) -> Option<u64> {
        let oldest = self.under_way.get(self.given_up)?;
        Some(oldest.at.intended.saturating_add(shared.spec.timeout_ns))
    }

    /// The next moment at which it has something to do; `None`: it is done.
    pub(super) fn next_ns(&self, shared: &Shared) -> Option<u64> {
        let has_sent_all = self.has_sent_all(shared);
        let deadline_ns = self.deadline_ns(shared);
        if has_sent_all && deadline_ns.is_none() {
            return None;
        }
        let can_begin = !has_sent_all && self.is_free(shared);
        let due_ns = can_begin.then(|| self.schedule.due_ns());
        Some(deadline_ns.into_iter().chain(due_ns).fold(shared.last_ns(), u64::min))
    }

    /// Begins the next message if it is due.
    pub(super) fn begin_next(&mut self, shared: &mut Shared) -> Began {
        if !self.is_free(shared) || self.has_sent_all(shared) {
            return Began::Nothing;
        }
        let (due_ns, now_ns) = (self.schedule.due_ns(), monotonic_ns());
        if due_ns > now_ns {
            return Began::Nothing;
        }
        let intended = if self.schedule.is_open() { due_ns } else { now_ns };
        let (number, late_ns) = (self.schedule.number(), self.schedule.late_ns());
        self.schedule.sent(now_ns);
        let stats = &mut shared.stats[self.class];
        if intended.saturating_add(shared.spec.timeout_ns) <= now_ns {
            // Its time was over before the connection was free.
            stats.failed(intended, Fault::Timeout, now_ns, String::new);
            return Began::Message;
        }
        let behind_ns = now_ns.saturating_sub(due_ns.max(self.free_since_ns));
        if behind_ns > late_ns {
            stats.late(intended, behind_ns);
        }
        let bytes = match &self.sizes {
            Some(sizes) => sizes.bytes(number, self.number, &mut self.random),
            None => 0,
        };
        let at = Moments { intended, started: now_ns, connected: now_ns, written: u64::MAX };
        self.under_way.push_back(UnderWay { number, at, bytes });
        if !matches!(self.link, Link::Open { .. }) {
            return Began::NeedsLink;
        }
        self.put(shared);
        Began::Message
    }

    /// Writes as much of the message as the kernel takes in one call; whether it took any.
    pub(super) fn write(&mut self, shared: &mut Shared) -> Result<bool, Broken> {
        let transport = match &mut self.link {
            Link::Open { channel: Channel::Stream(transport), .. } => transport,
            Link::Open { channel: Channel::Http2(_), .. } => return self.drive(shared),
            Link::None | Link::Connecting | Link::Handshake(_) => return Ok(false),
        };
        if !self.is_writing {
            return Ok(false);
        }
        let mut has_moved = false;
        if !self.outgoing.is_complete() {
            let (part, more) = self.outgoing.part(&shared.spec.protocol, &mut shared.scratch);
            match transport.send(part, more).map_err(broken)? {
                Moved::Bytes(bytes) => self.outgoing.advance(bytes),
                Moved::WouldBlock | Moved::End => return Ok(false),
            }
            has_moved = true;
        }
        // What TLS has taken, the kernel need not have yet.
        if self.outgoing.is_complete() && transport.flush().map_err(broken)? {
            self.written(monotonic_ns());
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// The kernel has the last byte of the message.
    fn written(&mut self, now_ns: u64) {
        (self.is_writing, self.free_since_ns) = (false, now_ns);
        if let Some(message) = self.under_way.back_mut() {
            message.at.written = now_ns;
        }
    }

    /// Writes and reads as much as can be now by HTTP/2; whether anything moved.
    fn drive(&mut self, shared: &mut Shared) -> Result<bool, Broken> {
        let Link::Open { channel: Channel::Http2(http2), .. } = &mut self.link else { return Ok(false) };
        let driven = http2.drive().map_err(|why| (Fault::Broken, why))?;
        let now_ns = monotonic_ns();
        let is_ending = driven.is_closed || (driven.status.is_some() && http2.is_ending());
        if let Some(written_ns) = driven.written_ns {
            self.written(written_ns);
        }
        match driven.status {
            Some(status) => self.complete(of_status(status, !is_ending), now_ns, shared)?,
            None if is_ending => self.lose(Fault::Broken, "the server closed the connection", shared),
            None => {}
        }
        Ok(driven.has_moved || driven.status.is_some())
    }

    /// The message whose reply is all that it can wait for, on a connection whose reads can wait.
    pub(super) fn awaited_reply(&self) -> Option<u64> {
        let can_wait = self.link.waits() && !self.is_writing && !self.readiness.may_read();
        self.under_way.get(self.given_up).filter(|_| can_wait).map(|message| message.number)
    }

    /// Reads once; whether anything came. `waits`: the read may wait for it.
    pub(super) fn read(&mut self, shared: &mut Shared, waits: bool) -> Result<bool, Broken> {
        let Link::Open { channel: Channel::Stream(transport), .. } = &mut self.link else { return Ok(false) };
        let moved = match waits {
            true => transport.recv_waiting(&mut shared.receive),
            false if self.readiness.may_read() => transport.recv(&mut shared.receive),
            false => return Ok(false),
        };
        let moved = moved.map_err(broken)?;
        // What TLS returns does not tell how much the socket still has.
        self.readiness.after_read(moved, if transport.has_tls() { 0 } else { shared.receive.len() });
        let bytes = match moved {
            Moved::WouldBlock => return Ok(false),
            Moved::Bytes(bytes) => bytes,
            Moved::End => {
                let is_whole = !transport.is_truncated();
                if let Some(reply) = self.incoming.closed().filter(|_| is_whole) {
                    self.complete(reply, monotonic_ns(), shared)?;
                }
                self.lose(Fault::Broken, "the server closed the connection", shared);
                return Ok(true);
            }
        };
        let now_ns = monotonic_ns();
        let mut at = 0;
        while at < bytes {
            match self.incoming.take(&shared.receive[at..bytes]) {
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

    /// A reply has come.
    fn complete(&mut self, reply: Reply, now_ns: u64, shared: &mut Shared) -> Result<(), Broken> {
        let unknown = || (Fault::Malformed, "the server replied to nothing that was sent".to_owned());
        let message = *self.under_way.front().ok_or_else(unknown)?;
        if reply.number.is_some_and(|number| number != message.number) {
            return Err(unknown());
        }
        self.under_way.pop_front();
        let is_unsent = self.is_writing && self.under_way.is_empty();
        let stats = &mut shared.stats[self.class];
        if self.given_up > 0 {
            self.given_up -= 1;
        } else if let Some(status) = reply.bad_status {
            stats.failed(message.at.intended, Fault::Status, now_ns, || format!("status {status}"));
        } else {
            stats.answered(message.at, reply.server_ns, message.bytes, now_ns);
        }
        self.free_since_ns = self.free_since_ns.max(now_ns);
        self.schedule.not_before(now_ns + if reply.bad_status.is_some() { AFTER_ERROR_NS } else { 0 });
        // A reply before the end of its request leaves the connection in the middle of one.
        if shared.spec.is_fresh || !reply.keeps_alive || is_unsent {
            self.close(shared);
        }
        Ok(())
    }

    /// Gives up messages whose time is over.
    pub(super) fn give_up(&mut self, shared: &mut Shared) {
        let now_ns = monotonic_ns();
        while self.deadline_ns(shared).is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            let intended_ns = self.under_way[self.given_up].at.intended;
            shared.stats[self.class].failed(intended_ns, Fault::Timeout, now_ns, String::new);
            (self.free_since_ns, self.given_up) = (now_ns, self.given_up + 1);
            self.schedule.not_before(now_ns);
            if matches!(*shared.spec.protocol, Protocol::Http { .. }) || shared.spec.is_fresh {
                // Its late reply would be taken for that of the next request.
                self.close(shared);
            }
        }
    }

    /// Messages that were due and could not be sent until the last moment are errors.
    pub(super) fn expire(&mut self, shared: &mut Shared) {
        let now_ns = monotonic_ns();
        while now_ns >= shared.last_ns() && !self.has_sent_all(shared) {
            let due_ns = self.schedule.due_ns();
            self.schedule.sent(due_ns);
            if !self.schedule.is_open() {
                // A closed loop owes nothing beyond the message that it waited for.
                return self.schedule.not_before(shared.end_ns);
            }
            shared.stats[self.class].failed(due_ns, Fault::Timeout, now_ns, String::new);
        }
    }

    /// The connection broke, with the messages on it.
    pub(super) fn lose(&mut self, fault: Fault, why: &str, shared: &mut Shared) {
        let now_ns = monotonic_ns();
        for message in self.under_way.drain(..).skip(self.given_up) {
            shared.stats[self.class].failed(message.at.intended, fault, now_ns, || why.to_owned());
            self.schedule.not_before(now_ns + AFTER_ERROR_NS);
        }
        self.free_since_ns = now_ns;
        self.close(shared);
    }

    /// Closes the connection, on which nothing is waited for any more.
    fn close(&mut self, shared: &mut Shared) {
        self.end(shared);
        self.link = Link::None;
        self.under_way.clear();
        (self.given_up, self.is_writing, self.readiness) = (0, false, Readiness::UNKNOWN);
        self.incoming.reset();
    }

    /// Counts what its connection waited for.
    pub(super) fn end(&self, shared: &mut Shared) {
        if let Some(Ok(info)) = self.link.socket().map(TcpSocket::info) {
            shared.stats[self.class].waited(&info, self.base);
        }
    }
}
