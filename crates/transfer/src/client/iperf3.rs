//! At a server of iperf3.

use std::sync::Arc;
use std::time::Duration;

use sys::clock::{monotonic_ns, sleep_until_ns};

use super::{ClientError, Passed, Ready, STEP, Task, add_passed, hold_s, report};
use crate::control::{Control, Cookie, StopHandle};
use crate::flow::{Direction, EndReason, FlowCount, FlowReport, GroupSetting, Protocol, Side};
use crate::intervals::Intervals;
use crate::iperf3::{
    self, Carrying, Client, ClientOrder, Deadlines, Length, Parameters, SessionStatus, StreamReport,
    StreamResult, TestReport,
};
use crate::report::{Counted, DirectionReport, EndReport, TransferReport, Waits, moved_ns};
use crate::settings::TransferSettings;
use crate::steal::StealReading;

/// Poll interval of a running test.
const LOOK: Duration = Duration::from_millis(20);

/// Agrees with the server on the parameters; it waits for the data streams from then on.
pub(super) fn prepare(
    task: Task,
    control: Control,
    cookie: Cookie,
    stop_handle: Arc<StopHandle>,
) -> Result<Ready, ClientError> {
    let problem = |problem| ClientError::NotIperf3s { server: task.server, problem };
    let parameters = parameters(&task.settings).map_err(problem)?;
    let settings = &task.settings;
    let group =
        GroupSetting { threads: settings.threads, engine: settings.engine, ..GroupSetting::default() };
    let order = ClientOrder {
        server: task.server,
        parameters,
        carrying: Carrying { mode: settings.mode, group },
        deadlines: Deadlines { step: STEP, ..Deadlines::default() },
    };
    let client = Client::agree(control, cookie, order, stop_handle)?;
    let passed = Passed::default();
    let (peer, shared) = ("iperf3", passed.clone());
    Ok(Ready { peer, passed, run: Box::new(move |at_ns| run(&task, client, &shared, at_ns)) })
}

fn run(task: &Task, client: Client, passed: &Passed, at_ns: u64) -> TransferReport {
    let mut report = report(task, "iperf3", None);
    let status = client.status.clone();
    sleep_until_ns(at_ns);
    let steal = StealReading::begin();
    let mut watched = Watched::new(&task.settings, monotonic_ns());
    // Polled here, so that the intervals are kept whatever happens to the test.
    let test = std::thread::scope(|scope| {
        let run = scope.spawn(|| client.run());
        while !run.is_finished() {
            std::thread::sleep(LOOK);
            watched.look(&status, passed);
        }
        run.join().ok()
    });
    report.hold_s = hold_s(&task.settings, at_ns);
    let Some(test) = test else {
        report.broken = Some("the client of iperf3 panicked; please report this".to_owned());
        return report;
    };
    report.stopped = test.is_stopped;
    report.broken = test.problem.clone().filter(|_| !report.stopped);
    let here = test.engines.iter().map(|engine| format!("client: {engine}"));
    report.engine = here.chain(["server: iperf3".to_owned()]).collect::<Vec<_>>().join("; ");
    report.directions = ways(&test, watched, steal.share());
    report
}

fn parameters(settings: &TransferSettings) -> Result<Parameters, &'static str> {
    let whole_s = |span: base::units::Span| {
        let s = span.duration().as_secs_f64();
        (s.fract() == 0.0).then_some(s as u32)
    };
    if settings.requests.is_some() {
        return Err("does not support requests");
    }
    let protocol = match settings.protocol {
        Protocol::Tcp => iperf3::Protocol::Tcp,
        Protocol::Udp => iperf3::Protocol::Udp,
        Protocol::Quic => return Err("does not support QUIC"),
    };
    let direction = match settings.direction {
        Direction::Up => iperf3::Direction::Forward,
        Direction::Down => iperf3::Direction::Reverse,
        Direction::Both => iperf3::Direction::Bidirectional,
    };
    if settings.calls {
        return Err("does not time its calls");
    }
    let seconds = whole_s(settings.time).filter(|s| *s > 0).ok_or("counts time in whole seconds");
    let length = match settings.bytes {
        Some(bytes) => Length::Bytes(bytes.bytes()),
        None => Length::Seconds(seconds?),
    };
    if settings.send_buffer.is_some() || settings.receive_buffer.is_some() {
        return Err("has one size for all socket buffers (use 'window')");
    }
    let size = u32::try_from(settings.size_bytes()).unwrap_or(u32::MAX);
    if size > 1 << 20 {
        return Err("takes blocks of 1 MiB at most");
    }
    Ok(Parameters {
        protocol,
        direction,
        length,
        omit_s: whole_s(settings.omit).ok_or("omits whole seconds")?,
        streams: u32::try_from(settings.flows).unwrap_or(u32::MAX),
        block_bytes: size,
        rate_bit_per_s: settings.rate.map(|rate| rate.bit_per_s()),
        window_bytes: settings.window.map(|window| window.bytes()),
        congestion: settings.congestion_control.clone(),
        wide_counts: settings.protocol == Protocol::Udp,
        nodelay: settings.no_delay,
        client_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        ..Parameters::default()
    })
}

/// The intervals of both ways, seen from this end.
struct Watched {
    up: Intervals,
    down: Intervals,
    bytes: [u64; 2],
}

impl Watched {
    fn new(settings: &TransferSettings, began_ns: u64) -> Self {
        let intervals = Intervals::new(began_ns, settings.interval_ns());
        Self { up: intervals.clone(), down: intervals, bytes: [0; 2] }
    }

    fn look(&mut self, status: &SessionStatus, passed: &Passed) {
        let counts = status.counts();
        let sum =
            |side| counts.iter().filter(|(of, _)| *of == side).map(|(_, count)| count.bytes).sum::<u64>();
        let now_ns = monotonic_ns();
        for (way, (side, intervals)) in
            [(Side::Sender, &mut self.up), (Side::Receiver, &mut self.down)].into_iter().enumerate()
        {
            self.bytes[way] = self.bytes[way].max(sum(side));
            intervals.look(now_ns, self.bytes[way]);
            add_passed(passed, way, self.bytes[way]);
        }
    }
}

fn ways(test: &TestReport, watched: Watched, steal: Option<f64>) -> Vec<DirectionReport> {
    let direction = test.parameters.as_ref().map(|parameters| parameters.direction);
    let now_ns = monotonic_ns();
    let Watched { up, down, bytes } = watched;
    let moved =
        |side| moved_ns(test.streams.iter().filter(|stream| stream.side == side).map(|stream| &stream.flow));
    let mut intervals = [
        up.finish(now_ns, bytes[0], moved(Side::Sender)),
        down.finish(now_ns, bytes[1], moved(Side::Receiver)),
    ];
    let sides: &[(Direction, Side)] = match direction {
        None | Some(iperf3::Direction::Forward) => &[(Direction::Up, Side::Sender)],
        Some(iperf3::Direction::Reverse) => &[(Direction::Down, Side::Receiver)],
        Some(iperf3::Direction::Bidirectional) => {
            &[(Direction::Up, Side::Sender), (Direction::Down, Side::Receiver)]
        }
    };
    // CPU time includes the omitted beginning, and only this end knows what moved then.
    let is_whole = test.parameters.as_ref().is_none_or(|parameters| parameters.omit_s == 0);
    let cpu_s = is_whole.then(|| test.threads.iter().map(|thread| thread.cpu_ns as f64 / 1e9).sum());
    // Of both ways at once the CPU time of an end is known as a whole: it stands with the first, so that sums
    // are right.
    let whole = |index: usize, cpu_s: Option<f64>| if index == 0 { cpu_s } else { cpu_s.map(|_| 0.0) };
    let one_way = |(index, (direction, side)): (usize, &(Direction, Side))| {
        let streams: Vec<&StreamReport> = test.streams.iter().filter(|stream| stream.side == *side).collect();
        let mut own = own(&streams);
        own.intervals = std::mem::take(&mut intervals[usize::from(*direction == Direction::Down)]);
        own.cpu_s = whole(index, cpu_s);
        own.steal = steal;
        own.threads = if index == 0 { test.threads.clone() } else { Vec::new() };
        let mut remote = remote(&streams);
        if let Some(remote) = &mut remote {
            remote.cpu_s = whole(index, remote_cpu_s(test));
        }
        DirectionReport::of_client(*direction, Some(own), remote)
    };
    sides.iter().enumerate().map(one_way).collect()
}

fn own(streams: &[&StreamReport]) -> EndReport {
    let flow = |stream: &&StreamReport| {
        let counted = counted(&stream.own, stream.side);
        // Values that only the flow knows stay; those that included the omitted time are as iperf3 counts
        // them: no datagram twice.
        let twice = if stream.side == Side::Receiver { stream.flow.count.duplicated } else { 0 };
        let moved_ns = counted_ns(&stream.flow, &stream.own);
        // Bytes before the first moment that counts are not separated.
        let first_bytes = if moved_ns == stream.flow.moved_ns { stream.flow.first_bytes } else { 0 };
        let count = FlowCount {
            datagrams: counted.datagrams.saturating_add(twice),
            bytes: counted.bytes,
            lost: counted.lost,
            ..stream.flow.count
        };
        FlowReport { count, moved_ns, first_bytes, ..stream.flow.clone() }
    };
    let waits = streams.iter().filter_map(|stream| stream.flow.tcp.as_ref()).map(Waits::from);
    EndReport { flows: streams.iter().map(flow).collect(), waits: waits.collect(), ..EndReport::default() }
}

/// The other end of some streams, if it reported all of them.
fn remote(streams: &[&StreamReport]) -> Option<EndReport> {
    let is_udp = streams.iter().any(|stream| stream.flow.tcp.is_none() && stream.flow.count.datagrams > 0);
    // An end that leaves out what it must have counted has reported nothing of use.
    let is_whole = |result: &StreamResult, side| {
        let has_datagrams = || result.packets.is_some() && (side == Side::Sender || result.errors.is_some());
        result.bytes.is_some() && (!is_udp || has_datagrams())
    };
    let result = |stream: &&StreamReport| {
        let (result, side) = (stream.remote.clone()?, stream.side.other());
        is_whole(&result, side).then_some((result, side, stream.dropped_there))
    };
    let reported: Option<Vec<(StreamResult, Side, Option<u64>)>> = streams.iter().map(result).collect();
    let reported = reported.filter(|reported| !reported.is_empty())?;
    let flow = |(result, side, dropped): &(StreamResult, Side, Option<u64>)| {
        let moved_ns = result.seconds.map(|seconds| (0, (seconds.clamp(0.0, 1e6) * 1e9) as u64));
        let count = FlowCount { overflowed: *dropped, ..counted(result, *side) };
        FlowReport { count, moved_ns, ..FlowReport::new(EndReason::Done) }
    };
    let waits = reported.iter().filter(|(_, side, _)| *side == Side::Sender);
    let waits = waits.map(|(result, ..)| Waits { retransmits: result.retransmits, ..Waits::default() });
    let has_jitter = reported.iter().all(|(result, ..)| result.jitter_s.is_some());
    Some(EndReport {
        flows: reported.iter().map(flow).collect(),
        waits: waits.collect(),
        counted: if has_jitter { Counted::LossesAndJitter } else { Counted::Losses },
        ..EndReport::default()
    })
}

/// The results of a stream at an end, the omitted time deducted.
fn counted(result: &StreamResult, side: Side) -> FlowCount {
    let less = |all: Option<u64>, omitted: Option<u64>| all.unwrap_or(0).saturating_sub(omitted.unwrap_or(0));
    let lost = less(result.errors, result.errors_omitted);
    let packets = less(result.packets, result.packets_omitted);
    // A receiver reports the highest count that it saw.
    let datagrams = if side == Side::Sender { packets } else { packets.saturating_sub(lost) };
    FlowCount {
        bytes: result.bytes.unwrap_or(0),
        datagrams,
        lost: if side == Side::Sender { 0 } else { lost },
        jitter_ns: (result.jitter_s.unwrap_or(0.0).clamp(0.0, 1e6) * 1e9) as u64,
        ..FlowCount::default()
    }
}

/// When a flow moved, the omitted time deducted.
fn counted_ns(flow: &FlowReport, own: &StreamResult) -> Option<(u64, u64)> {
    let (first_ns, last_ns) = flow.moved_ns?;
    let seconds_ns = (own.seconds? * 1e9) as u64;
    Some((first_ns.max(last_ns.saturating_sub(seconds_ns)), last_ns))
}

fn remote_cpu_s(test: &TestReport) -> Option<f64> {
    let remote = test.remote.as_ref()?;
    let seconds = remote.streams.iter().filter_map(|stream| stream.seconds).max_by(f64::total_cmp)?;
    Some(remote.cpu_total_percent? / 100.0 * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicated_datagram_is_not_lost() {
        let count =
            FlowCount { datagrams: 103, bytes: 103_000, lost: 7, duplicated: 3, ..FlowCount::default() };
        let (packets, errors, bytes) = (Some(107), Some(7), Some(103_000));
        let own = StreamResult { packets, errors, bytes, ..StreamResult::default() };
        let flow = FlowReport { count, ..FlowReport::new(EndReason::Stopped) };
        let stream =
            StreamReport { id: 1, side: Side::Receiver, own, remote: None, dropped_there: None, flow };
        let reported = super::own(&[&stream]).flows[0].count;
        assert_eq!((reported.datagrams, reported.duplicated, reported.lost), (103, 3, 7));
        let flow = FlowReport::in_a_second(FlowCount { datagrams: 107, ..FlowCount::default() });
        let sent = EndReport { flows: vec![flow], ..EndReport::default() };
        let way = DirectionReport::of_client(Direction::Down, Some(super::own(&[&stream])), Some(sent));
        let report = TransferReport { directions: vec![way], ..TransferReport::default() };
        assert_eq!(crate::metrics::of(&report)["datagrams_lost"], Some(7.0));
    }
}
