//! The flows of one direction at one end, from start to report.

use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::TcpInfo;
use workload::calls::Moments;

use super::call_timing::CallTiming;
use super::message::Sent;
use crate::flow::{Direction, EndReason, FlowCount, FlowReport, FlowSocket, Group, Protocol, ThreadReport};
use crate::intervals::Intervals;
use crate::quic::{self, QuicGroup};
use crate::report::{EndReport, Responses, Waits, moved_ns};
use crate::steal::StealReading;

/// Datagrams are under way no longer than this after the last that came.
const QUIET: Duration = Duration::from_millis(300);

/// How the flows of one direction are measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    pub(super) start_ns: u64,
    pub(super) omit_ns: u64,
    pub(super) interval_ns: u64,
}

/// Connections to sample while they send.
const LOOKED_AT: usize = 16;

/// Samples of a connection, and those in which its buffer had nothing unsent.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    all: u32,
    drained: u32,
}

/// What counts from a moment on.
#[derive(Debug)]
enum Omitted {
    Nothing,
    /// What comes before that moment will be.
    Until(u64),
    /// What had come by that moment is.
    Was(u64, Vec<FlowCount>),
}

/// The flows of one direction at one end.
pub(super) struct DirectionRun {
    direction: Direction,
    start_ns: u64,
    transport: Transport,
    protocol: Protocol,
    omitted: Omitted,
    intervals: Intervals,
    /// Of the first connections, how often they were sampled while they sent, and how often everything in
    /// the send buffer was in flight.
    looks: Vec<Looks>,
    calls: Option<CallTiming>,
    /// Since the first look after the start.
    steal: Option<StealReading>,
    /// What had arrived at the last poll, and until when more must arrive; of receivers after the end of the
    /// senders.
    quiet: Option<(u64, Deadline)>,
}

pub(super) struct DirectionResult {
    pub(super) direction: Direction,
    pub(super) end: EndReport,
    pub(super) engine: String,
    /// Of requests, what their answers took.
    pub(super) responses: Option<Responses>,
}

impl DirectionResult {
    /// Marks receivers that were stopped because nothing arrived for `within`.
    pub(super) fn cut_off(&mut self, within: Duration) {
        for flow in self.end.flows.iter_mut().filter(|flow| flow.ended == EndReason::Stopped) {
            let s = within.as_secs_f64();
            let why = format!("its sender had ended, but data in flight did not arrive within {s} s");
            flow.ended = EndReason::Failed(why);
        }
    }
}

impl DirectionRun {
    /// What has been started by `measure`.
    pub(super) fn new(
        direction: Direction,
        protocol: Protocol,
        transport: Transport,
        measure: Measure,
        calls: Option<CallTiming>,
    ) -> Self {
        let omitted = match measure.omit_ns {
            0 => Omitted::Nothing,
            omit_ns => Omitted::Until(measure.start_ns.saturating_add(omit_ns)),
        };
        let intervals = Intervals::new(measure.start_ns, measure.interval_ns);
        let (start_ns, looks) = (measure.start_ns, Vec::new());
        let (steal, quiet) = (None, None);
        Self { direction, start_ns, transport, protocol, omitted, intervals, looks, calls, steal, quiet }
    }

    /// Payload that passed so far, the omitted beginning included.
    pub(super) fn bytes(&self) -> u64 {
        self.transport.counts().iter().map(|count| count.bytes).fold(0, u64::saturating_add)
    }

    /// Ends what is due by now: intervals, the omitted beginning. Returns when to look again, monotonic ns.
    pub(super) fn look(&mut self, now_ns: u64) -> u64 {
        self.steal.get_or_insert_with(StealReading::begin);
        if let Omitted::Until(until_ns) = self.omitted
            && now_ns >= until_ns
        {
            self.omitted = Omitted::Was(now_ns, self.transport.counts());
        }
        if self.intervals.look(now_ns, self.bytes()) {
            self.look_at_buffers();
        }
        let omit_ns = if let Omitted::Until(until_ns) = self.omitted { until_ns } else { u64::MAX };
        self.intervals.next_ns.min(omit_ns)
    }

    /// A sender that has always more to give leaves something unsent in its buffer, unless that holds less
    /// than the path.
    fn look_at_buffers(&mut self) {
        let infos = self.transport.tcp_infos(LOOKED_AT);
        self.looks.resize(infos.len(), Looks::default());
        for (looks, info) in self.looks.iter_mut().zip(infos) {
            let Some((unsent, unacked)) = info.and_then(|info| info.notsent_bytes.zip(info.unacked_segments))
            else {
                continue;
            };
            looks.all += 1;
            looks.drained += u32::from(unsent == 0 && unacked > 0);
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.transport.is_finished()
    }

    /// Of receivers whose senders have sent so much: whether all has come that will.
    pub(super) fn is_complete(&mut self, sent: &Sent) -> bool {
        if self.transport.is_finished() {
            return true;
        }
        if self.protocol != Protocol::Udp {
            // The end of the stream comes after its last byte.
            return false;
        }
        let datagrams: u64 = self
            .transport
            .counts()
            .iter()
            .map(|count| count.datagrams - count.duplicated.min(count.datagrams))
            .sum();
        let quiet = self.quiet.get_or_insert_with(|| (datagrams, Deadline::after(QUIET)));
        if quiet.0 != datagrams {
            *quiet = (datagrams, Deadline::after(QUIET));
        }
        datagrams >= sent.datagrams || quiet.1.passed()
    }

    pub(super) fn stop(&self) {
        self.transport.stop();
    }

    /// Ends them, and what they came to. Their sockets are closed: the ends of the streams follow their last
    /// bytes; with `reset`, what is still queued is dropped instead.
    pub(super) fn finish(self, reset: bool) -> DirectionResult {
        let TransportResult { flows, threads, cpu_ns, waits, engine, responses, sockets } =
            self.transport.finish();
        let now_ns = monotonic_ns();
        sockets.iter().flatten().filter(|_| reset).for_each(FlowSocket::reset_on_close);
        let bytes = flows.iter().map(|flow| flow.count.bytes).fold(0, u64::saturating_add);
        let looks = self.looks.iter().copied().chain(std::iter::repeat(Looks::default()));
        let waits = waits
            .into_iter()
            .zip(looks)
            .map(|(waits, Looks { all, drained })| Waits { looks: all, drained, ..waits })
            .collect();
        let moved = moved_ns(&flows);
        let began_ns = flows.iter().map(|flow| Some(flow.moved_ns?.0.saturating_sub(self.start_ns)));
        let began_ns: Option<Vec<u64>> = began_ns.collect();
        let began_ns = began_ns.and_then(|began| Some((*began.iter().min()?, *began.iter().max()?)));
        let last_ns = moved.map_or(now_ns, |(_, last_ns)| last_ns);
        let (word, start_ns) = (self.direction.word(), self.start_ns);
        let judged_from_ns = if let Omitted::Was(at_ns, _) = self.omitted { at_ns } else { start_ns };
        // They have been timed since the flows were made ready.
        let moments = Moments { start_ns, judged_from_ns, end_ns: last_ns };
        let (calls, timeline) = self.calls.map(|calls| calls.finish(word, moments)).unzip();
        let (flows, omitted) = counted(flows, &self.omitted);
        let end = EndReport {
            steal: self.steal.and_then(StealReading::share),
            began_ns,
            flows,
            waits,
            omitted,
            cpu_s: Some(cpu_ns as f64 / 1e9),
            threads,
            calls,
            timeline: timeline.flatten(),
            intervals: self.intervals.finish(now_ns, bytes, moved),
            ..EndReport::default()
        };
        DirectionResult { direction: self.direction, end, engine, responses }
    }
}

/// What senders came to, for the other end.
pub(super) fn sent(end: &EndReport) -> Sent {
    let datagrams: u64 = end.flows.iter().map(|flow| flow.count.datagrams).sum();
    Sent { bytes: end.bytes() + end.omitted.bytes, datagrams: datagrams + end.omitted.datagrams }
}

/// The flows without what came before the omitted beginning was over, and what that was.
fn counted(flows: Vec<FlowReport>, omitted: &Omitted) -> (Vec<FlowReport>, FlowCount) {
    let (at_ns, before) = match omitted {
        Omitted::Nothing => return (flows, FlowCount::default()),
        Omitted::Was(at_ns, before) => (*at_ns, before.clone()),
        // It ended within the beginning: nothing of it counts.
        Omitted::Until(until_ns) => (*until_ns, flows.iter().map(|flow| flow.count).collect()),
    };
    let sum = before.iter().fold(FlowCount::default(), |sum, count| sum.with(count));
    let flows = flows.into_iter().zip(&before).map(|(flow, before)| since(flow, before, at_ns)).collect();
    (flows, sum)
}

/// What of a flow came after `at_ns`, at which it had come to `before`.
fn since(flow: FlowReport, before: &FlowCount, at_ns: u64) -> FlowReport {
    let moved_ns = flow.moved_ns.map(|(first_ns, last_ns)| (first_ns.max(at_ns), last_ns.max(at_ns)));
    let first_bytes = if moved_ns == flow.moved_ns { flow.first_bytes } else { 0 };
    FlowReport { count: flow.count.without(before), moved_ns, first_bytes, ..flow }
}

/// Stopped flows have ended by then.
const STOP: Duration = Duration::from_secs(1);

/// What moves the flows of one direction.
pub(super) enum Transport {
    /// Streams of bytes, or requests and responses, a socket each.
    Sockets(Group),
    Quic(QuicGroup),
}

struct TransportResult {
    flows: Vec<FlowReport>,
    threads: Vec<ThreadReport>,
    /// CPU time of these threads that counts for these flows, ns.
    cpu_ns: u64,
    waits: Vec<Waits>,
    engine: String,
    responses: Option<Responses>,
    sockets: Vec<Option<FlowSocket>>,
}

impl Transport {
    fn counts(&self) -> Vec<FlowCount> {
        match self {
            Self::Sockets(group) => group.counts(),
            Self::Quic(group) => group.counts(),
        }
    }

    /// `TCP_INFO` of the first connections, at most `flows_max`.
    fn tcp_infos(&self, flows_max: usize) -> Vec<Option<TcpInfo>> {
        match self {
            Self::Sockets(group) if !group.engine.is_requests() => group.tcp_infos(flows_max),
            // QUIC has no send buffer in the kernel, and the others have nothing to send most of the time.
            Self::Sockets(_) | Self::Quic(_) => Vec::new(),
        }
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::Sockets(group) => group.is_finished(),
            Self::Quic(group) => group.is_finished(),
        }
    }

    fn stop(&self) {
        match self {
            Self::Sockets(group) => group.stop(),
            Self::Quic(group) => group.stop(),
        }
    }

    /// Stops the flows and reports.
    fn finish(self) -> TransportResult {
        self.stop();
        let deadline = Deadline::after(STOP);
        match self {
            Self::Sockets(group) => {
                let report = group.finish(deadline);
                TransportResult {
                    cpu_ns: report.threads.iter().map(|thread| thread.cpu_ns).sum(),
                    waits: report
                        .flows
                        .iter()
                        .filter_map(|flow| flow.tcp.as_ref())
                        .map(Waits::from)
                        .collect(),
                    flows: report.flows,
                    threads: report.threads,
                    engine: report.engine.to_string(),
                    responses: report.responses,
                    sockets: report.sockets,
                }
            }
            Self::Quic(group) => {
                let report = group.finish(deadline);
                TransportResult {
                    flows: report.flows,
                    threads: report.threads,
                    cpu_ns: report.cpu_ns,
                    waits: report.waits,
                    engine: quic::ENGINE.to_owned(),
                    responses: None,
                    sockets: Vec::new(),
                }
            }
        }
    }
}
