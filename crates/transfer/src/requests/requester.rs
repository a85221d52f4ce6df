//! A requester: sends by its schedule and measures how long each answer takes.

use base::pace::OpenLoop;
use sys::net::Moved;

use super::exchange::{Progress, Sizes, ThreadBuffers, receive, send};
use super::in_flight::{InFlight, REQUESTS_MAX};
use super::request_spec::RequestEnd;
use crate::driver::{
    BLOCK_BYTES, EndReason, FlowSocket, LatencyStats, SentRequest, SilenceLimit, Step, block, broken,
};

/// Time to wait for a response after the last request was due (UDP: after each request): longer than any
/// working path takes.
const PATIENCE_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Requester {
    sizes: Sizes,
    end: RequestEnd,
    schedule: Option<OpenLoop>,
    in_flight: InFlight,
    /// Bytes left to send of the current request; connections only.
    unsent: usize,
    /// Received bytes of the current answer; connections only.
    partly: usize,
    pub(super) lacks_room: bool,
    /// Since when nothing has arrived although an answer is awaited.
    silent_since_ns: Option<u64>,
    pub(super) progress: Progress,
}

impl Requester {
    pub(super) fn new(sizes: Sizes, end: RequestEnd, schedule: Option<OpenLoop>, progress: Progress) -> Self {
        let in_flight = InFlight::default();
        let (unsent, partly, lacks_room) = (0, 0, false);
        Self { sizes, end, schedule, in_flight, unsent, partly, lacks_room, silent_since_ns: None, progress }
    }

    fn is_closed_loop(&self) -> bool {
        self.schedule.is_none()
    }

    pub(super) fn send(&mut self, socket: &FlowSocket, buffers: &mut ThreadBuffers) -> Step {
        if self.unsent > 0 {
            return self.send_on(socket, buffers.spins);
        }
        let intended_ns = match self.due(socket, &mut buffers.stats) {
            Ok(intended_ns) => intended_ns,
            Err(step) => return step,
        };
        let whole = self.sizes.request;
        let first = match socket {
            FlowSocket::Tcp(_) => &block()[..whole.min(BLOCK_BYTES)],
            FlowSocket::Udp(_) => {
                self.sizes.write_number(&mut buffers.datagram, self.in_flight.next());
                &buffers.datagram[..whole]
            }
        };
        match send(socket, first, buffers.spins) {
            Ok(Moved::Bytes(bytes)) => {
                let sent = SentRequest { intended_ns, sent_ns: self.progress.now_ns };
                self.in_flight.push(sent);
                buffers.stats.sent(sent, self.schedule.map_or(u64::MAX, |schedule| schedule.late_ns()));
                self.progress.moved();
                self.silent_since_ns.get_or_insert(sent.sent_ns);
                self.unsent = whole - bytes;
                self.lacks_room = false;
                Step::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => {
                self.lacks_room = true;
                if let FlowSocket::Udp(_) = socket {
                    self.progress.refused();
                }
                Step::Blocked
            }
            Err(error) => Step::Over(broken(&error, self.progress.count.bytes)),
        }
    }

    /// Sends more of a request that had no room before.
    fn send_on(&mut self, socket: &FlowSocket, spins: bool) -> Step {
        match send(socket, &block()[..self.unsent.min(BLOCK_BYTES)], spins) {
            Ok(Moved::Bytes(bytes)) => {
                self.unsent -= bytes;
                self.lacks_room = false;
                self.silent_since_ns = Some(self.progress.read_clock());
                Step::Moved
            }
            Ok(Moved::WouldBlock | Moved::End) => {
                self.lacks_room = true;
                Step::Blocked
            }
            Err(error) => Step::Over(broken(&error, self.progress.count.bytes)),
        }
    }

    /// The intended moment of the next request, if it is due; or why none is due.
    fn due(&mut self, socket: &FlowSocket, stats: &mut LatencyStats) -> Result<u64, Step> {
        let number = self.in_flight.next();
        let intended_ns = self.schedule.map_or(self.progress.now_ns, |schedule| schedule.moment_ns(number));
        let is_last_sent = match self.end {
            RequestEnd::AtNs(end_ns) => intended_ns >= end_ns,
            RequestEnd::Requests(requests) => number >= requests,
            RequestEnd::Peer => false,
        };
        if is_last_sent {
            let is_done = self.in_flight.waiting == 0;
            return Err(if is_done { Step::Over(EndReason::Done) } else { Step::Blocked });
        }
        if self.is_closed_loop() {
            return if self.in_flight.waiting == 0 { Ok(intended_ns) } else { Err(Step::Blocked) };
        }
        if intended_ns > self.progress.read_clock() {
            return Err(Step::WaitUntil(intended_ns));
        }
        match socket {
            FlowSocket::Tcp(_) if self.in_flight.waiting >= REQUESTS_MAX => return Err(Step::Blocked),
            FlowSocket::Tcp(_) => {}
            FlowSocket::Udp(_) => self.give_up_old(0, stats),
        }
        Ok(intended_ns)
    }

    pub(super) fn receive(&mut self, socket: &FlowSocket, buffers: &mut ThreadBuffers) -> Step {
        let bytes = match receive(socket, &mut buffers.receive, buffers.spins) {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Step::Blocked,
            Ok(Moved::End) => return Step::Over(self.closed()),
            Err(error) => return Step::Over(broken(&error, self.progress.count.bytes)),
        };
        self.progress.read_clock();
        let answered = match socket {
            FlowSocket::Tcp(_) => self.take(bytes, &mut buffers.stats),
            FlowSocket::Udp(_) => {
                self.take_datagram(&buffers.receive[..bytes], &mut buffers.stats);
                Ok(())
            }
        };
        self.silent_since_ns = (self.in_flight.waiting > 0).then_some(self.progress.now_ns);
        match answered {
            Ok(()) => Step::Moved,
            Err(ended) => Step::Over(ended),
        }
    }

    /// Bytes of answers arrived over a connection.
    fn take(&mut self, bytes: usize, stats: &mut LatencyStats) -> Result<(), EndReason> {
        self.progress.add_bytes(bytes);
        self.partly += bytes;
        while self.partly >= self.sizes.answer {
            self.partly -= self.sizes.answer;
            let Some(sent) = self.in_flight.answered_next() else { return Err(unasked()) };
            stats.answered(sent, self.progress.now_ns);
        }
        if self.partly > 0 && self.in_flight.waiting == 0 { Err(unasked()) } else { Ok(()) }
    }

    /// A datagram arrived. If no request waits for it, it is a duplicate, or its request was given up.
    fn take_datagram(&mut self, datagram: &[u8], stats: &mut LatencyStats) {
        let Some(number) = self.sizes.read_number(datagram) else { return };
        if let Some(sent) = self.in_flight.answered(number, self.sizes.number_bits()) {
            self.progress.add_datagram(datagram.len());
            stats.answered(sent, self.progress.now_ns);
        }
    }

    fn closed(&self) -> EndReason {
        if self.end == RequestEnd::Peer {
            return EndReason::ByPeer;
        }
        let (waiting, bytes) = (self.in_flight.waiting, self.progress.count.bytes);
        EndReason::Failed(format!(
            "the peer closed the connection after {bytes} bytes of responses; unanswered requests: {waiting}"
        ))
    }

    pub(super) fn awaits(&self) -> bool {
        !self.is_closed_loop() || (self.unsent == 0 && self.in_flight.waiting > 0)
    }

    pub(super) fn check(
        &mut self,
        socket: &FlowSocket,
        stats: &mut LatencyStats,
        silence: SilenceLimit,
    ) -> Step {
        let now_ns = self.progress.read_clock();
        if let FlowSocket::Udp(_) = socket {
            self.give_up_old(now_ns.saturating_sub(PATIENCE_NS), stats);
        }
        match self.end {
            RequestEnd::AtNs(end_ns) if now_ns >= end_ns.saturating_add(PATIENCE_NS) => {
                Step::Over(EndReason::Done)
            }
            _ => self.silent_since_ns.map_or(Step::Blocked, |since_ns| silence.check(since_ns, now_ns)),
        }
    }

    /// Gives up the oldest requests that were sent before a moment.
    fn give_up_old(&mut self, before_ns: u64, stats: &mut LatencyStats) {
        while let Some(sent) = self.in_flight.given_up(before_ns) {
            stats.unanswered(sent);
            self.progress.lost();
        }
    }

    /// Counts requests that were due and not answered; after a stop, without those that may be in flight.
    pub(super) fn give_up_all(&mut self, ended: &EndReason, stats: &mut LatencyStats) {
        let now_ns = self.progress.read_clock();
        let due_ns = match (ended, self.end) {
            (EndReason::Stopped, _) => now_ns.saturating_sub(PATIENCE_NS),
            (_, RequestEnd::AtNs(end_ns)) => now_ns.min(end_ns),
            _ => now_ns,
        };
        let last = match self.end {
            RequestEnd::Requests(requests) => requests,
            _ => u64::MAX,
        };
        let before = |ns| self.schedule.map_or(0, |schedule| schedule.number_before(ns));
        let due = before(due_ns).min(last);
        let counted_to = self.in_flight.next().max(before(stats.begin_ns));
        stats.unsent(due.saturating_sub(counted_to));
        while let Some(sent) = self.in_flight.answered_next() {
            if sent.sent_ns < due_ns || *ended != EndReason::Stopped {
                stats.unanswered(sent);
            }
        }
    }
}

fn unasked() -> EndReason {
    let why = "more bytes arrived than requested; do both ends use the same response size?";
    EndReason::Failed(why.into())
}
