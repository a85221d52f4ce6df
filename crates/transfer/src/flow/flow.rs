//! One flow: its socket, its state, and the engine that moves its bytes.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::net::{Interest, NetError, UdpFlow};
use sys::span::Handle;

use super::engines::Engines;
use super::flow_spec::{End, FlowSpec, Side};
use super::flow_state::FlowState;
use super::tcp::{TcpReceiver, TcpSender};
use super::udp_receive::UdpReceiver;
use super::udp_send::{UdpSender, datagrams_a_call};
use crate::driver::{
    Drive, DriveSetting, EndReason, Engine, FlowError, FlowReport, FlowSocket, Group, LatencyStats, Member,
    SilenceLimit, Step, WAIT_NS, fill, threads_for,
};

/// A slow sender waits until an Ethernet frame's worth is due (RFC 894: 1500 bytes less headers): less at a
/// time would be mostly headers on the wire and mostly wake-ups here.
const SEGMENT_BYTES: usize = 1448;

#[derive(Debug)]
pub(super) struct Buffers {
    /// What is received; never read but for headers.
    receive: Vec<u8>,
    /// What a UDP sender passes to a call, filled with the payload.
    send: Vec<u8>,
}

/// What moves a flow's bytes.
#[derive(Debug)]
enum Mover {
    TcpSend(TcpSender),
    TcpReceive(TcpReceiver),
    UdpSend(UdpSender),
    UdpReceive(Box<UdpReceiver>),
}

#[derive(Debug)]
pub(super) struct Flow {
    socket: Arc<FlowSocket>,
    state: FlowState,
    mover: Mover,
    /// When it last moved or waited for its schedule.
    active_ns: u64,
    /// Whether calls wait no longer than until the flow's end.
    waits_until_end: bool,
}

impl Flow {
    /// Prepares a flow that starts at `start_ns`.
    pub(super) fn new(
        member: &Member,
        spec: &FlowSpec,
        engines: &mut Engines,
        start_ns: u64,
    ) -> Result<Self, NetError> {
        let socket = member.socket.clone();
        let size = spec.size_bytes as usize;
        let (mover, unit, call) = match (&*socket, spec.side) {
            (FlowSocket::Tcp(_), Side::Sender) => {
                let message = if size == 0 { engines.call_bytes() } else { size };
                let sender = TcpSender::new(message, engines.pipes());
                (Mover::TcpSend(sender), SEGMENT_BYTES.min(message), message)
            }
            (FlowSocket::Tcp(_), Side::Receiver) => {
                (Mover::TcpReceive(TcpReceiver::new(spec.mode, size, engines.are_few())), 1, 1)
            }
            (FlowSocket::Udp(udp), Side::Sender) => {
                let sender = UdpSender::new(udp, spec.stamp, size)?;
                engines.note_segments(sender.is_segmented());
                (Mover::UdpSend(sender), size, size * datagrams_a_call(size))
            }
            (FlowSocket::Udp(udp), Side::Receiver) => {
                let receiver = UdpReceiver::new(udp, spec.stamp, spec.mode, engines.flows)?;
                (Mover::UdpReceive(Box::new(receiver)), 1, 1)
            }
        };
        let state = FlowState::new(member.counters.clone(), spec, start_ns, unit, call);
        let active_ns = state.now_ns;
        Ok(Self { socket, state, mover, active_ns, waits_until_end: false })
    }

    fn step(&mut self, buffers: &mut Buffers) -> Step {
        let state = &mut self.state;
        let step = match (&mut self.mover, &*self.socket) {
            (Mover::TcpSend(sender), FlowSocket::Tcp(socket)) => sender.step(socket, state),
            (Mover::TcpReceive(receiver), FlowSocket::Tcp(socket)) => {
                receiver.step(socket, state, &mut buffers.receive)
            }
            (Mover::UdpSend(sender), FlowSocket::Udp(socket)) => {
                sender.step(socket, state, &mut buffers.send)
            }
            (Mover::UdpReceive(receiver), FlowSocket::Udp(socket)) => {
                receiver.step(socket, state, &mut buffers.receive)
            }
            // `new` pairs them.
            _ => {
                Step::Over(EndReason::Failed("the engine does not fit the socket; please report this".into()))
            }
        };
        if matches!(step, Step::Moved | Step::WaitUntil(_)) {
            self.active_ns = self.state.now_ns;
        }
        step
    }

    fn is_sender(&self) -> bool {
        matches!(self.mover, Mover::TcpSend(_) | Mover::UdpSend(_))
    }

    /// Steps before other flows have their turn. One large call fills or empties a connection, so that a
    /// second would only find out that there is no more.
    fn steps_per_round(&self) -> u32 {
        match self.mover {
            Mover::TcpReceive(_) => 1,
            Mover::TcpSend(_) if self.state.pacer.is_none() => 1,
            _ => 16,
        }
    }
}

impl Drive for Flow {
    type Buffers = Buffers;

    const CHECK_EVERY_NS: u64 = 1_000_000_000;

    fn socket(&self) -> &FlowSocket {
        &self.socket
    }

    fn waits_for_start(&self) -> bool {
        self.is_sender()
    }

    fn end_ns(&self) -> Option<u64> {
        self.state.end_ns()
    }

    fn set_wait(&mut self, wait: Option<Duration>) -> Result<(), NetError> {
        match &mut self.mover {
            Mover::TcpReceive(receiver) => receiver.wait_span.set_blocking(wait.is_some()),
            Mover::UdpReceive(receiver) => receiver.wait_span.set_blocking(wait.is_some()),
            Mover::TcpSend(_) | Mover::UdpSend(_) => {}
        }
        self.socket.set_wait(wait)
    }

    fn read_clock(&mut self) -> u64 {
        self.state.read_clock()
    }

    fn step_blocking(&mut self, buffers: &mut Buffers) -> Step {
        if let Some(end_ns) = self.state.end_ns() {
            let left_ns = end_ns.saturating_sub(self.state.now_ns);
            if left_ns < WAIT_NS && !self.waits_until_end {
                self.waits_until_end = self.set_wait(Some(Duration::from_nanos(left_ns))).is_ok();
            }
        }
        self.step(buffers)
    }

    fn step_ready(&mut self, _is_ready: bool, buffers: &mut Buffers) -> Step {
        self.state.read_clock();
        for _ in 0..self.steps_per_round() {
            match self.step(buffers) {
                Step::Moved => {}
                step => return step,
            }
        }
        // Its socket is still ready, so that epoll reports it again after the others.
        Step::Blocked
    }

    fn interest(&self, after: &Step) -> Option<Interest> {
        let interest = if self.is_sender() { Interest::WRITE } else { Interest::READ };
        (!matches!(after, Step::WaitUntil(_))).then_some(interest)
    }

    fn check(&mut self, _buffers: &mut Buffers, silence: SilenceLimit) -> Step {
        silence.check(self.active_ns, self.state.read_clock())
    }

    fn drain(&mut self, buffers: &mut Buffers, until_ns: u64) {
        if self.is_sender() || self.socket.set_wait(None).is_err() {
            return;
        }
        let queued = match &*self.socket {
            FlowSocket::Tcp(socket) => socket.queued_bytes().unwrap_or(0),
            FlowSocket::Udp(_) => u64::MAX,
        };
        let goal = self.state.bytes.saturating_add(queued);
        while self.state.bytes < goal && self.state.now_ns < until_ns {
            if !matches!(self.step(buffers), Step::Moved) {
                return;
            }
        }
    }

    fn report(&mut self, reason: EndReason, _buffers: &mut Buffers) -> FlowReport {
        let mut report = self.socket.report(&self.state.counters, reason);
        report.moved_ns = self.state.moved_ns;
        report.first_bytes = self.state.first_bytes;
        if let (Mover::UdpReceive(receiver), FlowSocket::Udp(socket)) = (&self.mover, &*self.socket) {
            report.transit = receiver.stats.transit();
            report.overflowed_after = receiver.overflowed_after(socket);
        }
        report
    }

    fn latency_stats(_buffers: Buffers) -> Option<LatencyStats> {
        None
    }
}

impl Buffers {
    pub(super) fn for_flows(flows: &[Flow]) -> Self {
        let receive = flows.iter().map(|flow| match &flow.mover {
            Mover::TcpReceive(receiver) => receiver.buffer_bytes(),
            Mover::UdpReceive(_) => UdpFlow::CALL_BYTES_MAX,
            Mover::TcpSend(_) | Mover::UdpSend(_) => 0,
        });
        let sends_datagrams = flows.iter().any(|flow| matches!(flow.mover, Mover::UdpSend(_)));
        let mut send = vec![0; if sends_datagrams { UdpFlow::CALL_BYTES_MAX } else { 0 }];
        fill(&mut send);
        Self { receive: vec![0; receive.max().unwrap_or(0)], send }
    }
}

/// Why `spec` is impossible for such a socket.
fn problem(socket: &FlowSocket, spec: &FlowSpec) -> Option<String> {
    let FlowSocket::Udp(_) = socket else { return None };
    if spec.side == Side::Receiver {
        return None;
    }
    let (size, header) = (spec.size_bytes as usize, spec.stamp.bytes());
    if size < header.max(1) || size > UdpFlow::CALL_BYTES_MAX {
        let most = UdpFlow::CALL_BYTES_MAX;
        return Some(format!("a datagram of {size} bytes; choose {} to {most}", header.max(1)));
    }
    match spec.end {
        End::Bytes(total) if total % size as u64 != 0 && (size < 2 * header || total < header as u64) => {
            Some(format!(
                "{total} bytes in datagrams of {size}; choose a multiple, or datagrams of at least {}",
                2 * header
            ))
        }
        _ => None,
    }
}

#[derive(Debug, Clone)]
pub struct GroupSetting {
    /// Threads at most; 0: one for each flow if there are few, else one for each CPU.
    pub threads: u32,
    /// How TCP senders work; `None`: as [`super::probe`] found if it has run, else `splice`.
    pub engine: Option<Engine>,
    /// A flow fails after waiting for its peer for this time.
    pub silence_max: Duration,
    pub recorder: Option<Handle>,
}

impl Default for GroupSetting {
    fn default() -> Self {
        Self { threads: 0, engine: None, silence_max: Duration::from_secs(30), recorder: None }
    }
}

/// Starts `flows`: receivers at once, senders at this moment of the monotonic clock, or at once if it has
/// passed.
pub fn start(
    flows: Vec<(FlowSocket, FlowSpec)>,
    setting: &GroupSetting,
    at_monotonic_ns: u64,
) -> Result<Group, FlowError> {
    // A schedule begins when it can be kept.
    let start_ns = at_monotonic_ns.max(monotonic_ns());
    for (index, (socket, spec)) in flows.iter().enumerate() {
        if let Some(problem) = problem(socket, spec) {
            return Err(FlowError::Spec { flow: index, problem });
        }
    }
    let (threads, uses_epoll) = threads_for(flows.len(), setting.threads as usize);
    let sends_tcp =
        flows.iter().any(|(s, spec)| matches!(s, FlowSocket::Tcp(_)) && spec.side == Side::Sender);
    let mode = flows.iter().find(|(_, spec)| spec.side == Side::Receiver).map(|(_, spec)| spec.mode);
    let mut engines = Engines::choose(setting.engine, flows.len());
    let flow = |(socket, spec): (FlowSocket, FlowSpec)| {
        let member = Member::from(socket);
        let flow = Flow::new(&member, &spec, &mut engines, start_ns)?;
        Ok((member, flow))
    };
    let flows = flows.into_iter().map(flow).collect::<Result<Vec<_>, FlowError>>()?;
    let setting = DriveSetting {
        threads,
        uses_epoll,
        spins: false,
        start_ns,
        silence_max: setting.silence_max,
        recorder: setting.recorder.clone(),
    };
    Group::drive(flows, &setting, engines.choice(sends_tcp, mode, threads, uses_epoll), Buffers::for_flows)
}
