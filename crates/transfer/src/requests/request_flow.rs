//! One flow of a group, on either side.

use std::sync::Arc;
use std::time::Duration;

use base::pace::OpenLoop;
use sys::net::{Interest, NetError};

use super::exchange::{Progress, Sizes, ThreadBuffers};
use super::request_spec::{RequestSide, RequestSpec};
use super::requester::Requester;
use super::responder::Responder;
use crate::driver::{
    Drive, EndReason, FlowCounters, FlowReport, FlowSocket, LatencyStats, Member, SilenceLimit, Step, WAIT_NS,
};

/// Messages that one flow may send before the next flow is served.
const STEPS_PER_ROUND: u32 = 16;
/// Linux's default holds about 280 small datagrams, which arrive within milliseconds: a thread may wait that
/// long for a CPU.
const QUEUE_BYTES: u64 = 4 << 20;

#[derive(Debug)]
enum Role {
    Requester(Box<Requester>),
    Responder(Responder),
}

#[derive(Debug)]
pub(super) struct RequestFlow {
    socket: Arc<FlowSocket>,
    counters: Arc<FlowCounters>,
    role: Role,
}

impl RequestFlow {
    /// The flow `index` of `flows`, which starts at `start_ns`; prepares its socket.
    pub(super) fn new(
        member: &Member,
        spec: &RequestSpec,
        start_ns: u64,
        (index, flows): (usize, usize),
    ) -> Result<Self, NetError> {
        match &*member.socket {
            // A request must not wait for the acknowledgement of the one before (Nagle, RFC 896).
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

    /// Whether it expects data now.
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
            Role::Requester(requester) => requester.lacks_room,
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
