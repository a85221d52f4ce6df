//! One flow of a group, on either side.

use std::sync::Arc;
use std::time::Duration;

use base::pace::OpenLoop;
use sys::clock::monotonic_ns;
use sys::net::{Interest, Moved, NetError};
use sys::span::{SpanName, enter};

use super::request_spec::{RequestSide, RequestSpec};
use super::requester::Requester;
use super::responder::Responder;
use crate::driver::span_names::{RECV, SEND};
use crate::driver::{
    Drive, EndReason, FlowCount, FlowCounters, FlowReport, FlowSocket, LatencyStats, Member, SilenceLimit,
    Step, WAIT_NS, fill,
};
use crate::settings::Waiting;

/// Messages that one flow may send before others have their turn.
const STEPS_PER_ROUND: u32 = 16;
/// The buffer of a receiving call: a datagram, or as much of a large response as stays in a core's cache.
const BUFFER_BYTES: usize = 256 << 10;
/// Linux's default holds some 280 small datagrams, which come within milliseconds: a thread may wait as long
/// for a CPU.
const QUEUE_BYTES: u64 = 4 << 20;
/// A datagram carries its number in so many bytes, or as many as fit both it and its response.
const NUMBER_BYTES: usize = 8;

/// What the flows of a thread share.
#[derive(Debug)]
pub(super) struct ThreadBuffers {
    /// What is received; never read but for numbers.
    pub(super) receive: Vec<u8>,
    /// The datagram to be sent, filled with the payload.
    pub(super) datagram: Vec<u8>,
    pub(super) stats: LatencyStats,
    /// Whether the thread polls.
    pub(super) spins: bool,
    is_requester: bool,
}

impl ThreadBuffers {
    pub(super) fn new(spec: &RequestSpec) -> Self {
        let largest = spec.size_bytes.max(spec.answer_bytes) as usize;
        // Connections send the payload block instead.
        let mut datagram = vec![0; largest.min(BUFFER_BYTES)];
        fill(&mut datagram);
        let stats = LatencyStats::new(spec.omit_until_ns.unwrap_or(0));
        let spins = spec.waiting == Waiting::Spin;
        Self {
            receive: vec![0; BUFFER_BYTES],
            datagram,
            stats,
            spins,
            is_requester: spec.side == RequestSide::Requester,
        }
    }
}

/// Sizes of the messages, bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) request: usize,
    pub(super) answer: usize,
    /// The first bytes of a datagram that hold its number.
    pub(super) number: usize,
}

impl Sizes {
    fn new(spec: &RequestSpec) -> Self {
        let (request, answer) = (spec.size_bytes as usize, spec.answer_bytes as usize);
        Self { request, answer, number: NUMBER_BYTES.min(request).min(answer) }
    }

    pub(super) fn number_bits(&self) -> u32 {
        8 * self.number as u32
    }

    /// Writes the low bits of a number to the start of a datagram, big-endian.
    pub(super) fn write_number(&self, datagram: &mut [u8], number: u64) {
        datagram[..self.number].copy_from_slice(&number.to_be_bytes()[NUMBER_BYTES - self.number..]);
    }

    /// The low bits of a datagram's number; `None` if it is too short for them.
    pub(super) fn read_number(&self, datagram: &[u8]) -> Option<u64> {
        let bytes = datagram.get(..self.number)?;
        Some(bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

/// The counts and the clock of a flow.
#[derive(Debug)]
pub(super) struct Progress {
    counters: Arc<FlowCounters>,
    count: FlowCount,
    moved_ns: Option<(u64, u64)>,
    /// The last reading of the clock: one for each message is enough.
    pub(super) now_ns: u64,
}

impl Progress {
    fn new(counters: Arc<FlowCounters>) -> Self {
        Self { counters, count: FlowCount::default(), moved_ns: None, now_ns: monotonic_ns() }
    }

    pub(super) fn read_clock(&mut self) -> u64 {
        self.now_ns = monotonic_ns();
        self.now_ns
    }

    pub(super) fn moved(&mut self) {
        let first_ns = self.moved_ns.map_or(self.now_ns, |(first_ns, _)| first_ns);
        self.moved_ns = Some((first_ns, self.now_ns));
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.count.bytes += bytes as u64;
        self.counters.set_bytes(self.count.bytes);
        self.moved();
    }

    pub(super) fn add_datagram(&mut self, bytes: usize) {
        self.count.datagrams += 1;
        self.counters.set_datagrams(&self.count);
        self.add_bytes(bytes);
    }

    pub(super) fn lost(&mut self) {
        self.count.lost += 1;
        self.counters.set_datagrams(&self.count);
    }

    pub(super) fn refused(&mut self) {
        self.count.refused += 1;
        self.counters.set_datagrams(&self.count);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count.bytes
    }
}

/// Sends once; waits if the socket may.
pub(super) fn send(socket: &FlowSocket, bytes: &[u8], spins: bool) -> Result<Moved, NetError> {
    timed(&SEND, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.send_waiting(bytes),
        FlowSocket::Udp(socket) => socket.send(bytes),
    })
}

/// Receives once; waits if the socket may.
pub(super) fn receive(socket: &FlowSocket, buffer: &mut [u8], spins: bool) -> Result<Moved, NetError> {
    timed(&RECV, spins, || match socket {
        FlowSocket::Tcp(socket) => socket.recv_waiting(buffer),
        FlowSocket::Udp(socket) => socket.receive_one(buffer),
    })
}

/// Times a call. A poll in vain is discarded: millions of them would crowd out the others, and [`POLLING`] is
/// their sum.
///
/// [`POLLING`]: crate::driver::span_names::POLLING
fn timed(
    name: &SpanName,
    spins: bool,
    call: impl FnOnce() -> Result<Moved, NetError>,
) -> Result<Moved, NetError> {
    let span = enter(name);
    let moved = call();
    if spins && matches!(moved, Ok(Moved::WouldBlock)) {
        span.discard();
    }
    moved
}

#[derive(Debug)]
enum Role {
    Requester(Box<Requester>),
    Responder(Responder),
}

/// A flow that a thread drives.
#[derive(Debug)]
pub(super) struct RequestFlow {
    socket: Arc<FlowSocket>,
    counters: Arc<FlowCounters>,
    role: Role,
}

impl RequestFlow {
    /// The flow `index` of `flows`, which starts at `start_ns`; prepares its socket.
    ///
    /// # Errors
    /// [`NetError`]: an option that it needs.
    pub(super) fn new(
        member: &Member,
        spec: &RequestSpec,
        start_ns: u64,
        (index, flows): (usize, usize),
    ) -> Result<Self, NetError> {
        match &*member.socket {
            // A request must not wait for the acknowledgement of the last (Nagle, RFC 896).
            FlowSocket::Tcp(socket) => socket.set_nodelay(true)?,
            FlowSocket::Udp(socket) => {
                socket.suggest_receive_buffer(QUEUE_BYTES)?;
                // A kernel without the option does not coalesce.
                socket.set_coalesce(false)?;
            }
        }
        let sizes = Sizes::new(spec);
        let progress = Progress::new(member.counters.clone());
        let role = match spec.side {
            RequestSide::Requester => {
                let schedule = spec.rate_per_s.map(|rate| OpenLoop::new(rate, start_ns, index, flows));
                Role::Requester(Box::new(Requester::new(sizes, spec.end, schedule, progress)))
            }
            RequestSide::Responder => Role::Responder(Responder::new(sizes, spec.end, progress)),
        };
        Ok(Self { socket: member.socket.clone(), counters: member.counters.clone(), role })
    }

    /// Sends once, if anything is due. [`Step::Blocked`]: nothing is due, or the socket has no room.
    fn send(&mut self, buffers: &mut ThreadBuffers) -> Step {
        match &mut self.role {
            Role::Requester(requester) => requester.send(&self.socket, buffers),
            Role::Responder(responder) => responder.send(&self.socket, buffers),
        }
    }

    fn receive(&mut self, buffers: &mut ThreadBuffers) -> Step {
        match &mut self.role {
            Role::Requester(requester) => requester.receive(&self.socket, buffers),
            Role::Responder(responder) => responder.receive(&self.socket, buffers),
        }
    }

    /// Whether it can use what may come now.
    fn awaits(&self) -> bool {
        match &self.role {
            Role::Requester(requester) => requester.awaits(),
            Role::Responder(responder) => responder.awaits(),
        }
    }

    fn progress(&mut self) -> &mut Progress {
        match &mut self.role {
            Role::Requester(requester) => &mut requester.progress,
            Role::Responder(responder) => &mut responder.progress,
        }
    }
}

impl Drive for RequestFlow {
    type Buffers = ThreadBuffers;

    const CHECK_EVERY_NS: u64 = WAIT_NS;

    fn socket(&self) -> &FlowSocket {
        &self.socket
    }

    fn waits_for_start(&self) -> bool {
        matches!(self.role, Role::Requester(_))
    }

    fn end_ns(&self) -> Option<u64> {
        // It still waits for responses then: `check` ends it.
        None
    }

    fn set_wait(&mut self, wait: Option<Duration>) -> Result<(), NetError> {
        self.socket.set_wait(wait)
    }

    fn read_clock(&mut self) -> u64 {
        self.progress().read_clock()
    }

    fn step_blocking(&mut self, buffers: &mut ThreadBuffers) -> Step {
        let sent = self.send(buffers);
        if matches!(sent, Step::Over(_)) || !self.awaits() {
            return sent;
        }
        match (sent, self.receive(buffers)) {
            (_, Step::Over(reason)) => Step::Over(reason),
            (Step::Moved, _) | (_, Step::Moved) => Step::Moved,
            (sent, _) => sent,
        }
    }

    fn step_ready(&mut self, is_ready: bool, buffers: &mut ThreadBuffers) -> Step {
        if !is_ready || !self.awaits() {
            self.read_clock();
        } else if let Step::Over(reason) = self.receive(buffers) {
            return Step::Over(reason);
        }
        for _ in 1..STEPS_PER_ROUND {
            match self.send(buffers) {
                Step::Moved => {}
                step => return step,
            }
        }
        self.send(buffers)
    }

    fn interest(&self, _after: &Step) -> Option<Interest> {
        let lacks_room = match &self.role {
            Role::Requester(requester) => requester.lacks_room(),
            Role::Responder(responder) => !responder.awaits(),
        };
        Some(match (self.awaits(), lacks_room) {
            (true, true) => Interest::READ | Interest::WRITE,
            (true, false) => Interest::READ,
            (false, _) => Interest::WRITE,
        })
    }

    fn check(&mut self, buffers: &mut ThreadBuffers, silence: SilenceLimit) -> Step {
        let step = match &mut self.role {
            Role::Requester(requester) => requester.check(&self.socket, &mut buffers.stats, silence),
            Role::Responder(responder) => responder.check(silence),
        };
        // A request that was given up may have been the last, or the next one is due.
        if matches!(step, Step::Over(_)) { step } else { Step::Moved }
    }

    fn drain(&mut self, _buffers: &mut ThreadBuffers, _until_ns: u64) {}

    fn report(&mut self, reason: EndReason, buffers: &mut ThreadBuffers) -> FlowReport {
        if let Role::Requester(requester) = &mut self.role {
            requester.give_up_all(&reason, &mut buffers.stats);
        }
        let moved_ns = self.progress().moved_ns;
        FlowReport { moved_ns, ..self.socket.report(&self.counters, reason) }
    }

    fn latency_stats(buffers: ThreadBuffers) -> Option<LatencyStats> {
        buffers.is_requester.then_some(buffers.stats)
    }
}
