//! The data streams of one test while they run: two groups of flows, senders and receivers, because senders
//! are stopped first and receivers take what is still under way.

use std::path::Path;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::proc::{UdpSocketReading, udp_sockets};

use super::report::Finished;
use super::stream_results::{account, end, in_order, results, sides, stamp};
use super::{Iperf3Error, Parameters, Results, StreamReport, stream_id};
use crate::flow::{self, FlowCount, FlowSocket, FlowSpec, Group, GroupReport, GroupSetting, Mode, Side};

/// How long to wait for stopped threads.
const STOP: Duration = Duration::from_secs(2);
/// Poll interval of running flows.
const LOOK: Duration = Duration::from_millis(5);
/// If nothing arrives for this long after the end, nothing is in flight any more.
const QUIET: Duration = Duration::from_millis(150);

/// Interval of checks whether the peer's host has everything.
const UNACKED_LOOK: Duration = Duration::from_millis(1);
/// Bytes that a peer's host may hold unread: the limit of Linux's automatic receive buffer.
const UNREAD_BYTES: u64 = 6 << 20;
/// Bounds of the time for reading them: a scheduler slice, and a time too short to distort a rate.
const UNREAD_PAUSE_MIN: Duration = Duration::from_millis(5);
const UNREAD_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Time for the other end's program to empty its sockets.
const EMPTY_WITHIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
pub struct Carrying {
    /// Where received bytes end.
    pub mode: Mode,
    pub group: GroupSetting,
}

pub(super) struct Flows {
    sides: Vec<Side>,
    senders: Option<Group>,
    receivers: Option<Group>,
    /// The senders' results, once they have ended.
    sent: Option<GroupReport>,
    /// When data began to flow, monotonic ns.
    pub(super) started_ns: u64,
    /// The counts at the end of the omitted time, and its moment.
    omitted: Option<(Vec<FlowCount>, u64)>,
    ended_ns: Option<u64>,
    /// What the other end's sockets dropped of each sender's datagrams, where it is known.
    dropped_there: Vec<Option<u64>>,
}

impl Flows {
    /// Starts the flows on sockets that were opened in this order; a flow that does not move for `silence`
    /// has failed.
    pub(super) fn start(
        sockets: Vec<FlowSocket>,
        parameters: &Parameters,
        carrying: &Carrying,
        silence: Duration,
        is_client: bool,
    ) -> Result<Self, Iperf3Error> {
        let sides = sides(parameters, is_client);
        let setting = GroupSetting { silence_max: silence, ..carrying.group.clone() };
        let started_ns = monotonic_ns();
        let mut senders = Vec::new();
        let mut receivers = Vec::new();
        for (socket, &side) in sockets.into_iter().zip(&sides) {
            let end = end(parameters, side, is_client, senders.len() as u32, started_ns);
            let order = FlowSpec {
                side,
                mode: carrying.mode,
                size_bytes: parameters.block_bytes,
                end,
                rate_bit_per_s: parameters.rate_bit_per_s,
                stamp: stamp(parameters),
            };
            let flows = if side == Side::Sender { &mut senders } else { &mut receivers };
            flows.push((socket, order));
        }
        let group = |flows: Vec<_>| match flows.is_empty() {
            true => Ok(None),
            false => flow::start(flows, &setting, started_ns).map(Some),
        };
        // Receivers start before senders.
        let receivers = group(receivers)?;
        let senders = group(senders)?;
        let (sent, omitted, ended_ns, dropped_there) = (None, None, None, Vec::new());
        Ok(Self { sides, senders, receivers, sent, started_ns, omitted, ended_ns, dropped_there })
    }

    /// The counts of all streams, in the order in which they were opened.
    pub(super) fn counts(&self) -> Vec<FlowCount> {
        let of = |group: &Option<Group>| group.as_ref().map(Group::counts).unwrap_or_default();
        let sent = self.sent.as_ref().map(|report| report.flows.iter().map(|flow| flow.count).collect());
        in_order(&self.sides, sent.unwrap_or_else(|| of(&self.senders)), of(&self.receivers))
    }

    /// The same with what each stream does.
    pub(super) fn sided_counts(&self) -> Vec<(Side, FlowCount)> {
        self.sides.iter().copied().zip(self.counts()).collect()
    }

    /// Counts from now on.
    pub(super) fn end_omitted(&mut self) {
        self.omitted = Some((self.counts(), monotonic_ns()));
    }

    /// Bytes that this end has sent and received, without those that were omitted so far.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for (index, (count, side)) in self.counts().iter().zip(&self.sides).enumerate() {
            let omitted = self.omitted.as_ref().map_or(0, |(counts, _)| counts[index].bytes);
            let sum = if *side == Side::Sender { &mut sums.0 } else { &mut sums.1 };
            *sum += count.bytes.saturating_sub(omitted);
        }
        sums
    }

    /// Whether all flows have ended.
    pub(super) fn is_finished(&self) -> bool {
        [&self.senders, &self.receivers].into_iter().flatten().all(Group::is_finished)
    }

    /// Ends the senders; receivers go on. With `hang_up` the senders' connections are closed in order, as an
    /// iperf3 client expects it of its server: it may be waiting for the rest of a block.
    pub(super) fn end(&mut self, hang_up: bool) {
        self.ended_ns.get_or_insert_with(monotonic_ns);
        let Some(senders) = self.senders.take() else { return };
        senders.stop();
        let mut report = senders.finish(Deadline::after(STOP));
        if hang_up {
            report.sockets.clear();
        }
        self.sent = Some(report);
    }

    /// Waits until the peer's host has everything that was sent, and a while for its program to read it: an
    /// iperf3 server counts what it has read when the end is announced. `pause` waits, and returns `false` to
    /// give up; the wait also ends if nothing moves for `stall`.
    pub(super) fn settle(&self, stall: Duration, pause: impl Fn(Duration) -> bool) {
        let Some(sent) = &self.sent else { return };
        let unacked = |socket: &FlowSocket| match socket {
            FlowSocket::Tcp(socket) => socket.unacked_bytes().unwrap_or(0),
            FlowSocket::Udp(_) => 0,
        };
        let left = || sent.sockets.iter().flatten().map(unacked).sum::<u64>();
        let mut seen = (left(), Deadline::after(stall));
        while seen.0 > 0 {
            if seen.1.passed() || !pause(UNACKED_LOOK) {
                return;
            }
            let now = left();
            if now != seen.0 {
                seen = (now, Deadline::after(stall));
            }
        }
        let bytes: u64 = sent.flows.iter().map(|flow| flow.count.bytes).sum();
        let took = Duration::from_nanos(monotonic_ns().saturating_sub(self.started_ns));
        // At the rate at which it took the others.
        let share = UNREAD_BYTES.min(bytes) as f64 / bytes.max(1) as f64;
        pause(took.mul_f64(share).clamp(UNREAD_PAUSE_MIN, UNREAD_PAUSE_MAX));
    }

    /// Reads what the other end's sockets dropped of the datagrams that this end sent, if they are on this
    /// machine: once they are empty, so that their program has read the rest. It closes them at the end.
    pub(super) fn read_drops(&mut self) {
        let Some(sent) = &self.sent else { return };
        let ends = |socket: &FlowSocket| match socket {
            FlowSocket::Udp(socket) => Some((socket.peer_addr(), socket.local_addr().ok()?)),
            FlowSocket::Tcp(_) => None,
        };
        let wanted: Option<Vec<_>> = sent.sockets.iter().map(|socket| ends(socket.as_ref()?)).collect();
        let Some(wanted) = wanted else { return };
        let deadline = Deadline::after(EMPTY_WITHIN);
        let read = loop {
            let read = udp_sockets(Path::new("/"), &wanted);
            let is_empty = read.iter().flatten().all(|reading| reading.queued_bytes == 0);
            if is_empty || !deadline.pause(UNACKED_LOOK) {
                break read;
            }
        };
        // What is still queued is lost with the socket, at a place of its own.
        let emptied = |reading: UdpSocketReading| (reading.queued_bytes == 0).then_some(reading.drops);
        self.dropped_there = read.into_iter().map(|reading| reading.and_then(emptied)).collect();
    }

    /// Receives what is still in flight: until every receiver has what its sender reports (`claimed`, by
    /// stream), or nothing arrives any more, at most for `within`.
    pub(super) fn drain(&self, claimed: Option<&Results>, within: Duration) {
        let Some(receivers) = &self.receivers else { return };
        let claimed: Option<u64> = claimed.filter(|_| self.omitted.is_none()).and_then(|results| {
            let receiving = self.sides.iter().enumerate().filter(|(_, side)| **side == Side::Receiver);
            receiving.map(|(index, _)| results.stream(stream_id(index))?.bytes).sum()
        });
        let sum = || receivers.counts().iter().map(|count| count.bytes).sum::<u64>();
        let deadline = Deadline::after(within);
        let mut seen = (sum(), Deadline::after(QUIET));
        while !receivers.is_finished() && claimed.is_none_or(|claimed| seen.0 < claimed) && !seen.1.passed() {
            if !deadline.pause(LOOK) {
                return;
            }
            let now = sum();
            if now != seen.0 {
                seen = (now, Deadline::after(QUIET));
            }
        }
    }

    /// Ends all flows and returns their results. If the test failed, connections are reset: data that the
    /// kernel still has to send would only occupy its memory.
    pub(super) fn finish(mut self, broke: bool) -> Finished {
        let ended_ns = *self.ended_ns.get_or_insert_with(monotonic_ns);
        let is_omitting = self.omitted.is_some();
        let (mut threads, mut engines) = (Vec::new(), Vec::new());
        let mut reports = |report: Option<GroupReport>| {
            let Some(report) = report else { return Vec::new() };
            threads.extend(report.threads);
            engines.push(report.engine.to_string());
            report.sockets.iter().flatten().filter(|_| broke).for_each(FlowSocket::reset_on_close);
            report.flows
        };
        let end = |group: Group| {
            group.stop();
            group.finish(Deadline::after(STOP))
        };
        let sent = self.sent.take().or_else(|| self.senders.take().map(end));
        let flows = in_order(&self.sides, reports(sent), reports(self.receivers.take().map(end)));
        // Those of the omitted time are not known apart.
        let mut dropped_there = self.dropped_there.into_iter().map(|drops| drops.filter(|_| !is_omitting));
        let start_ns = self.omitted.as_ref().map_or(self.started_ns, |(_, at_ns)| *at_ns);
        let streams: Vec<StreamReport> = flows
            .into_iter()
            .zip(&self.sides)
            .enumerate()
            .map(|(index, (mut flow, &side))| {
                let omitted = self.omitted.as_ref().map(|(counts, _)| counts[index]).unwrap_or_default();
                let last_ns = flow.moved_ns.map_or(0, |(_, last_ns)| last_ns);
                let seconds = ended_ns.max(last_ns).saturating_sub(start_ns) as f64 / 1e9;
                let own = account(stream_id(index), side, &flow, &omitted, seconds);
                flow.count.overslept_ns = flow.count.overslept_ns.saturating_sub(omitted.overslept_ns);
                let dropped_there = match side {
                    Side::Sender => dropped_there.next().flatten(),
                    Side::Receiver => None,
                };
                StreamReport { id: own.id, side, own, remote: None, dropped_there, flow }
            })
            .collect();
        let seconds = ended_ns.saturating_sub(self.started_ns) as f64 / 1e9;
        let results = results(&streams, &threads, seconds);
        Finished { streams, threads, engines, results }
    }
}
