//! Requests on the streams of a connection of HTTP/2: their responses come in any order.

use sys::clock::monotonic_ns;

use super::super::connection::{Channel, Ending, Link, StreamEvent};
use super::super::protocol::of_status;
use super::super::shared::Shared;
use super::super::stats::Fault;
use super::{AFTER_ERROR_NS, Client};

/// A request is sent again so often if the server refuses it without processing it.
const RESENDS_MAX: u32 = 3;

impl Client {
    /// Sends the messages that wait, the oldest first, as far as streams are free.
    pub(super) fn put_on_streams(&mut self, shared: &mut Shared) {
        while let Some(message) = self.messages.oldest_unsent() {
            let Link::Open { channel: Channel::Http2(http2), .. } = &mut self.link else { return };
            if !http2.has_room() {
                return;
            }
            let request = shared.spec.protocol.http2(message.bytes);
            match request.and_then(|(request, body)| http2.send(message.number, request, body)) {
                Ok(true) => self.messages.sent(message.number),
                Ok(false) => return,
                Err(why) => {
                    self.messages.take(message.number);
                    self.fail(message.at.intended, Fault::Broken, &why, shared);
                }
            }
        }
    }

    /// Writes and reads as much as can be now; whether anything moved.
    pub(super) fn drive(&mut self, shared: &mut Shared) -> bool {
        let was_free = self.is_free(shared);
        let Link::Open { channel: Channel::Http2(http2), .. } = &mut self.link else { return false };
        let mut events = std::mem::take(&mut shared.events);
        let driven = http2.drive(&mut events);
        let is_retired = http2.is_retired();
        let has_moved = driven.has_moved || !events.is_empty();
        let mut has_ended = false;
        for event in events.drain(..) {
            match event {
                StreamEvent::Written { number, at_ns } => {
                    if let Some(message) = self.messages.get_mut(number) {
                        message.at.written = at_ns;
                    }
                }
                StreamEvent::Ended { number, at_ns, ending } => {
                    has_ended = true;
                    self.ended(number, at_ns, ending, shared);
                }
            }
        }
        shared.events = events;
        if !was_free && has_moved {
            self.free_since_ns = monotonic_ns();
        }
        if let Some(why) = driven.closed {
            self.lose(Fault::Broken, &why, shared);
        } else if is_retired || (has_ended && shared.spec.is_fresh) {
            self.close(shared);
        }
        has_moved
    }

    /// A stream has ended.
    fn ended(&mut self, number: u64, at_ns: u64, ending: Ending, shared: &mut Shared) {
        if matches!(ending, Ending::Refused(_)) && self.messages.refused(number, RESENDS_MAX) {
            return;
        }
        let Some(message) = self.messages.take(number) else { return };
        match ending {
            Ending::Status(status) => {
                let reply = of_status(status, true);
                self.count(&message, reply, at_ns, shared);
                self.schedule.not_before(at_ns);
                if reply.bad_status.is_some() {
                    self.pause_stream(at_ns);
                }
            }
            Ending::Refused(why) | Ending::Reset(why) => {
                self.fail(message.at.intended, Fault::Reset, &why, shared);
            }
            Ending::Broken(why) => self.fail(message.at.intended, Fault::Broken, &why, shared),
        }
    }

    /// Ends the oldest message, whose time is over; the connection goes on with the others.
    pub(super) fn cancel_oldest(&mut self) {
        let Link::Open { channel: Channel::Http2(http2), .. } = &mut self.link else { return };
        let Some(message) = self.messages.oldest().copied() else { return };
        self.messages.take(message.number);
        if !message.is_unsent {
            http2.cancel(message.number);
            if !http2.has_received_since(message.at.started) {
                // The server was silent all the time: the next messages get another connection.
                http2.retire();
            }
        }
    }

    fn fail(&mut self, intended_ns: u64, fault: Fault, why: &str, shared: &mut Shared) {
        let now_ns = monotonic_ns();
        shared.stats[self.class].failed(intended_ns, fault, now_ns, || why.to_owned());
        self.schedule.not_before(now_ns);
        self.pause_stream(now_ns);
    }

    /// A closed loop leaves the stream of an error alone for a while, and not the others.
    fn pause_stream(&mut self, now_ns: u64) {
        if !self.schedule.is_open() {
            self.paused.push_back(now_ns + AFTER_ERROR_NS);
        }
    }

    /// Streams whose pause is over can be used again.
    pub(super) fn end_pauses(&mut self) {
        if self.paused.is_empty() {
            return;
        }
        let now_ns = monotonic_ns();
        while self.paused.front().is_some_and(|end_ns| *end_ns <= now_ns) {
            self.paused.pop_front();
        }
    }
}
