//! One client: its schedule, its connection, its messages under way.

mod ordered;
mod streams;

use std::collections::VecDeque;

use sys::clock::monotonic_ns;
use sys::net::TcpSocket;

use self::ordered::Ordered;
use super::connection::{Channel, Link};
use super::message::{Began, Broken, Messages, UnderWay};
use super::protocol::{Protocol, Reply};
use super::schedule::{Place, Schedule};
use super::shared::Shared;
use super::stats::{Fault, Moments};
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
    /// What it writes and reads on a connection without streams.
    ordered: Ordered,
    messages: Messages,
    /// When streams that had an error may be used again, the earliest first; of a closed loop only.
    paused: VecDeque<u64>,
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
            ordered: Ordered::new(protocol),
            messages: Messages::default(),
            paused: VecDeque::new(),
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

    /// Its connection stands: messages that waited for it can be written.
    pub(super) fn connected(&mut self, channel: Channel, shared: &mut Shared) {
        self.link = Link::Open { channel, is_first: true };
        self.base = Waits::default();
        self.free_since_ns = monotonic_ns();
        self.messages.connected(self.free_since_ns);
        self.put(shared);
    }

    /// Puts the messages that wait on the connection, as far as it takes them.
    fn put(&mut self, shared: &mut Shared) {
        let is_first = match &mut self.link {
            Link::Open { channel: Channel::Stream(_), is_first } => is_first,
            Link::Open { channel: Channel::Http2(_), .. } => return self.put_on_streams(shared),
            Link::None | Link::Connecting | Link::Handshake(_) => return,
        };
        let Some(UnderWay { number, bytes, .. }) = self.messages.oldest_unsent() else { return };
        let is_first = std::mem::take(is_first);
        let header = MessageHeader { bytes, reply_bytes: self.reply_bytes, number };
        self.ordered.set(&shared.spec.protocol, header, is_first);
        self.messages.sent(number);
    }

    /// Whether messages follow each other without waiting for replies.
    fn is_pipelined(&self, shared: &Shared) -> bool {
        let is_native = matches!(*shared.spec.protocol, Protocol::Native { .. });
        is_native && !shared.spec.is_fresh && self.schedule.is_open()
    }

    /// Whether its next message need not wait for others of it.
    fn is_free(&self, shared: &Shared) -> bool {
        if self.messages.len() >= UNDER_WAY_MAX || self.messages.unsent() > 0 {
            return false;
        }
        match &self.link {
            Link::Connecting | Link::Handshake(_) => false,
            Link::Open { channel: Channel::Http2(http2), .. } => http2.has_room_beside(self.paused.len()),
            Link::None | Link::Open { channel: Channel::Stream(_), .. } => {
                !self.ordered.is_writing && (self.messages.waiting() == 0 || self.is_pipelined(shared))
            }
        }
    }

    /// Whether all messages that it was meant to send have begun.
    fn has_sent_all(&self, shared: &Shared) -> bool {
        let is_counted = self.count.is_some_and(|count| self.schedule.number() >= count);
        is_counted || self.schedule.due_ns() >= shared.end_ns
    }

    /// When the oldest message that waits for its reply times out.
    fn deadline_ns(&self, shared: &Shared) -> Option<u64> {
        let oldest = self.messages.oldest()?;
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
        let pause_ns = self.paused.front().copied().filter(|_| !has_sent_all);
        Some(deadline_ns.into_iter().chain(due_ns).chain(pause_ns).fold(shared.last_ns(), u64::min))
    }

    /// Begins the next message if it is due; those that wait for a connection or a stream come first.
    pub(super) fn begin_next(&mut self, shared: &mut Shared) -> Began {
        self.end_pauses();
        let unsent = self.messages.unsent();
        if unsent > 0 {
            if matches!(self.link, Link::None) {
                return Began::NeedsLink;
            }
            self.put(shared);
            if self.messages.unsent() < unsent {
                return Began::Message;
            }
        }
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
        let bytes = match (shared.spec.protocol.file_bytes(), &self.sizes) {
            (Some(bytes), _) => bytes,
            (None, Some(sizes)) => sizes.bytes(number, self.number, &mut self.random),
            (None, None) => 0,
        };
        let at = Moments { intended, started: now_ns, connected: now_ns, written: u64::MAX };
        self.messages.push(number, at, bytes);
        if !matches!(self.link, Link::Open { .. }) {
            return Began::NeedsLink;
        }
        self.put(shared);
        Began::Message
    }

    /// Writes what can be written now, and by HTTP/2 reads, too; whether anything moved.
    pub(super) fn write(&mut self, shared: &mut Shared) -> Result<bool, Broken> {
        match &self.link {
            Link::Open { channel: Channel::Stream(_), .. } => self.write_ordered(shared),
            Link::Open { channel: Channel::Http2(_), .. } => Ok(self.drive(shared)),
            Link::None | Link::Connecting | Link::Handshake(_) => Ok(false),
        }
    }

    /// Counts a message whose reply has come.
    fn count(&self, message: &UnderWay, reply: Reply, now_ns: u64, shared: &mut Shared) {
        let stats = &mut shared.stats[self.class];
        match reply.bad_status {
            Some(status) => {
                stats.failed(message.at.intended, Fault::Status, now_ns, || format!("status {status}"));
            }
            None => stats.answered(message.at, reply.server_ns, message.bytes, now_ns),
        }
    }

    /// A closed loop continues after a reply, and after a bad one later.
    fn pause_after(&mut self, reply: &Reply, now_ns: u64) {
        self.schedule.not_before(now_ns + if reply.bad_status.is_some() { AFTER_ERROR_NS } else { 0 });
    }

    /// Gives up messages whose time is over.
    pub(super) fn give_up(&mut self, shared: &mut Shared) {
        let (now_ns, was_free) = (monotonic_ns(), self.is_free(shared));
        while self.deadline_ns(shared).is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            let Some(intended_ns) = self.messages.oldest().map(|message| message.at.intended) else { return };
            shared.stats[self.class].failed(intended_ns, Fault::Timeout, now_ns, String::new);
            self.schedule.not_before(now_ns);
            if !was_free {
                self.free_since_ns = now_ns;
            }
            let is_http = matches!(*shared.spec.protocol, Protocol::Http { .. });
            match &self.link {
                Link::Open { channel: Channel::Http2(_), .. } if !shared.spec.is_fresh => {
                    self.cancel_oldest()
                }
                _ if is_http || shared.spec.is_fresh => {
                    // Its late reply would be taken for that of the next request.
                    self.messages.take_front();
                    self.close(shared);
                }
                _ => self.messages.give_up_oldest(),
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

    /// The connection broke, with the messages on it; or there is none for those that wait for it.
    pub(super) fn lose(&mut self, fault: Fault, why: &str, shared: &mut Shared) {
        let now_ns = monotonic_ns();
        let is_open = matches!(self.link, Link::Open { .. });
        for message in self.messages.take_lost(is_open) {
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
        self.messages.keep_unsent();
        self.paused.clear();
        self.ordered.reset();
    }

    /// Counts what its connection waited for.
    pub(super) fn end(&self, shared: &mut Shared) {
        let stats = &mut shared.stats[self.class];
        if let Some(Ok(info)) = self.link.socket().map(TcpSocket::info) {
            stats.waited(&info, self.base);
        }
        if let Link::Open { channel: Channel::Http2(http2), .. } = &self.link {
            let (in_use_max, allowed) = http2.streams();
            stats.streams(in_use_max, allowed);
        }
    }
}
