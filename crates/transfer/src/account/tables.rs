//! The tables of a transfer: where the bytes are, flow by flow, requests, calls.

use std::net::SocketAddr;

use base::format::{fixed, quantity};
use base::outcome::{Cell, Certainty, Table};

use super::super::findings::{broke_off, each_held_back};
use super::super::flow::{EndReason, FlowReport};
use super::super::metrics;
use super::super::path_rate::{IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::super::report::{
    Counted, DatagramLoss, DirectionReport, EndReport, Responses, TransferReport, Waits,
};
use super::super::settings::TransferSettings;
use super::known;

/// Flows that a table lists one by one; of more, the slowest.
const FLOWS_SHOWN: usize = 16;

/// Where the drops at another program's socket come from.
const COUNTED_HERE: &str = " (this host's kernel counts them, /proc/net/udp)";

/// Broken flows to list with their reasons.
const BROKEN_SHOWN: usize = 3;

/// What the columns of waits mean.
const WAITS: &str = "busy: time with data in flight; window, buffer: % of it that the receive window or the \
                     send buffer limited";

/// Intervals to show at most.
const INTERVALS_SHOWN: usize = 10;

/// Where the bytes are: asked for, sent, arrived, and how long it took.
pub(super) fn balance(settings: &TransferSettings, report: &TransferReport) -> Table {
    let mut table = Table::new(
        "Bytes",
        &[
            ("direction", ""),
            ("requested", "B"),
            ("sent", "B"),
            ("arrived", "B"),
            ("in", "s"),
            ("goodput", "B/s"),
            ("", "bit/s"),
            ("datagrams", ""),
            ("lost", ""),
        ],
    );
    let notes = &mut table.notes;
    notes.push(format!("{}; server address: {} ({})", report.engine, report.server, report.peer));
    let each = report.asked_bytes.map(|bytes| bytes / report.directions.len().max(1) as u64);
    for way in &report.directions {
        let bytes = |end: &Option<EndReport>| end.as_ref().map(EndReport::bytes);
        let arrived_s = way.nearest_to_arrival().and_then(EndReport::elapsed_s);
        let goodput = way.receiver.as_ref().and_then(EndReport::goodput_bit_per_s);
        let (datagrams, lost) = way.datagrams().map(|loss| (loss.sent, loss.lost)).unzip();
        table.rows.push(vec![
            name(way).into(),
            each.into(),
            bytes(&way.sender).into(),
            bytes(&way.receiver).into(),
            arrived_s.into(),
            goodput.map(|rate| rate / 8.0).into(),
            goodput.into(),
            datagrams.into(),
            lost.flatten().into(),
        ]);
        // Requests come one by one: their own table shows their rate.
        notes.extend(over_time(way).filter(|_| !settings.is_requests_only()));
        notes.extend(missing(way));
        notes.extend(fragments(settings, report, way));
    }
    table.without_unknown_columns()
}

/// That datagrams do not fit into a packet of the path, where they do not.
fn fragments(settings: &TransferSettings, report: &TransferReport, way: &DirectionReport) -> Option<String> {
    let flows = way.ends().flat_map(|end| &end.flows);
    let mtu = flows.filter(|flow| flow.count.datagrams > 0).filter_map(|flow| flow.path_mtu_bytes).min()?;
    let bytes = settings.size_bytes();
    let is_ipv6 = report.server.parse::<SocketAddr>().is_ok_and(|server| server.is_ipv6());
    let packet = bytes + UDP_BYTES + if is_ipv6 { IPV6_BYTES } else { IPV4_BYTES };
    (packet > u64::from(mtu)).then(|| {
        format!(
            "datagrams of {bytes} B are cut into packets of up to {mtu} B (MTU) {}: one lost packet \
             loses the whole datagram",
            way.direction.word()
        )
    })
}

/// The goodput from one interval to the next, in a few numbers.
pub(super) fn over_time(way: &DirectionReport) -> Option<String> {
    let intervals = &way.nearest_to_arrival()?.intervals;
    let together = intervals.len().div_ceil(INTERVALS_SHOWN).max(1);
    let rate = |group: &[(f64, f64, u64)]| {
        let (from_s, to_s) = (group.first()?.0, group.last()?.1);
        let bytes = group.iter().map(|(_, _, bytes)| *bytes as f64).sum::<f64>();
        (to_s > from_s).then(|| bytes * 8e-6 / (to_s - from_s))
    };
    let groups: Vec<_> = intervals.chunks(together).collect();
    let rates: Vec<f64> = groups.iter().filter_map(|group| rate(group)).collect();
    if rates.len() < 2 {
        return None;
    }
    // The first and the last are as long as bytes moved in them; those between are alike.
    let usual = groups.get(1).filter(|_| groups.len() > 2).unwrap_or(&groups[0]);
    let each_s = usual.last()?.1 - usual.first()?.0;
    let digits = if rates.iter().all(|rate| *rate >= 99.5) { 0 } else { 1 };
    let rates: Vec<String> = rates.iter().map(|rate| fixed(*rate, digits)).collect();
    let each = quantity(Some(each_s), "s");
    Some(format!("{}, mean Mbit/s of each {each}: {}", way.direction.word(), rates.join(" ")))
}

/// Why what arrived is not what was sent, where it is not.
fn missing(way: &DirectionReport) -> Option<String> {
    let (sender, receiver) = (way.sender.as_ref()?, way.receiver.as_ref()?);
    let gap = sender.bytes().checked_sub(receiver.bytes()).filter(|gap| *gap > 0)?;
    let missing = format!("{} {}", quantity(Some(gap as f64), "B"), way.direction.word());
    let Some(DatagramLoss { lost: Some(lost), lost_at_socket, .. }) = way.datagrams() else {
        return Some(format!("{missing} of what was sent had not arrived when the transfer ended"));
    };
    let counter = if receiver.counted == Counted::All { "" } else { COUNTED_HERE };
    let places = match lost_at_socket {
        Some(at_socket) => format!(
            "did not arrive: {at_socket} were dropped at the receiver's full socket{counter}, {} on the path",
            lost - at_socket
        ),
        None => "did not arrive; where is unknown: the receiver reports no drops at its socket".to_owned(),
    };
    let refused = match sender.counted {
        Counted::All => format!(
            "; the sender's kernel refused {} at first, which were sent later",
            sender.count().refused
        ),
        _ => String::new(),
    };
    Some(format!("{missing} ({lost} datagrams) {places}{refused}"))
}

/// Flow by flow: what arrived, what its connection waited for, and what held it back.
pub(super) fn flows(settings: &TransferSettings, report: &TransferReport) -> Option<Table> {
    let (mut rows, mut broken, is_broken) = (Vec::new(), Vec::new(), broke_off(report).is_some());
    let mut all = 0;
    for way in &report.directions {
        let Some(end) = way.nearest_to_arrival() else { continue };
        let waits = way.sender.as_ref().map(|sender| sender.waits.as_slice()).unwrap_or_default();
        let held = if is_broken { Vec::new() } else { each_held_back(settings, report, way) };
        all += end.flows.len();
        for number in slowest(&end.flows) {
            let (flow, held) = (&end.flows[number], held.get(number).copied().flatten());
            let held = known(report, held);
            let flow_name = format!("{} {}", name(way), number + 1);
            let held = held.map(|(held, certainty)| match certainty {
                Certainty::Confirmed => held.word().to_owned(),
                _ => format!("{}?", held.word()),
            });
            // Only this end itself informs a receiver of datagrams that the last has come.
            let ended_by_notice =
                flow.count.datagrams > 0 && !report.stopped && flow.ended == EndReason::Stopped;
            let ended = ended(if ended_by_notice { &EndReason::Done } else { &flow.ended });
            if let EndReason::Failed(why) = &flow.ended {
                broken.push(format!("{flow_name} broke off: {why}"));
            }
            let mut row = vec![flow_name.into()];
            row.extend(flow_cells(flow, waits.get(number)));
            row.extend([held.into(), ended.into()]);
            rows.push(row);
        }
    }
    let mut notes = Vec::new();
    let waits = report.directions.iter().flat_map(|way| &way.sender).flat_map(|end| &end.waits);
    if waits.into_iter().any(|waits| waits.busy_us.is_some()) {
        notes.push(WAITS.to_owned());
    }
    if all > rows.len() {
        notes.push(format!("{} quicker flows are not listed", all - rows.len()));
    }
    broken.truncate(BROKEN_SHOWN);
    notes.extend(broken);
    let is_arrived = report.directions.iter().all(|way| way.receiver.is_some());
    let columns = [
        ("flow", ""),
        (if is_arrived { "arrived" } else { "moved" }, "B"),
        ("goodput", "bit/s"),
        ("congestion control", ""),
        ("retransmitted", ""),
        ("min RTT", "s"),
        ("busy", "s"),
        ("window", "%"),
        ("buffer", "%"),
        ("limited by", ""),
        ("ended", ""),
    ];
    let table = Table { rows, notes, ..Table::new("Flows", &columns) };
    (!table.rows.is_empty()).then(|| table.without_unknown_columns())
}

fn flow_cells(flow: &FlowReport, waits: Option<&Waits>) -> Vec<Cell> {
    let percent = |of: fn(&Waits) -> Option<u64>| {
        waits.and_then(|waits| Some(100.0 * of(waits)? as f64 / waits.busy_us?.max(1) as f64))
    };
    let seconds = |of: fn(&Waits) -> Option<u64>| waits.and_then(of).map(|us| us as f64 / 1e6);
    vec![
        flow.count.bytes.into(),
        metrics::flow_rate(flow).into(),
        flow.congestion.clone().into(),
        waits.and_then(|waits| waits.retransmits).into(),
        seconds(|waits| waits.min_rtt_us).into(),
        seconds(|waits| waits.busy_us).into(),
        percent(|waits| waits.rwnd_limited_us).into(),
        percent(|waits| waits.sndbuf_limited_us).into(),
    ]
}

/// The numbers of the slowest flows, as many as are listed, in their order.
fn slowest(flows: &[FlowReport]) -> Vec<usize> {
    let rate = |number: &usize| metrics::flow_rate(&flows[*number]).unwrap_or(0.0);
    let mut numbers: Vec<usize> = (0..flows.len()).collect();
    numbers.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
    numbers.truncate(FLOWS_SHOWN);
    numbers.sort_unstable();
    numbers
}

/// The direction, with the client's host if there are several.
pub(super) fn name(way: &DirectionReport) -> String {
    let host = |end: &Option<EndReport>| end.as_ref().and_then(|end| end.host.clone());
    let host = host(&way.receiver).or(host(&way.sender));
    host.map_or_else(|| way.direction.word().to_owned(), |host| format!("{} {host}", way.direction.word()))
}

/// The response times; with a load also those of the idle path before it.
pub(super) fn responses(report: &TransferReport) -> Option<Table> {
    let seconds = |ns: Option<u64>| Cell::from(ns.map(|ns| ns as f64 / 1e9));
    let columns = [
        ("path", ""),
        ("responses", ""),
        ("no response", ""),
        ("sent late", ""),
        ("p50", "s"),
        ("p90", "s"),
        ("p99", "s"),
        ("p99.9", "s"),
        ("max", "s"),
        ("round trips per min", ""),
    ];
    let row = |(path, responses): (&str, &Responses)| {
        let times = &responses.times;
        let mut row =
            vec![path.into(), responses.answered.into(), responses.unanswered.into(), responses.late.into()];
        row.extend([50.0, 90.0, 99.0, 99.9].map(|percent| seconds(times.percentile_ns(percent))));
        row.extend([seconds(times.max_ns()), responses.round_trips_per_min().into()]);
        row
    };
    let idle = report.idle_responses.as_ref().map(|idle| ("idle", idle));
    let name = if idle.is_some() { "under load" } else { "no other load" };
    let mut table = Table::new("Requests", &columns);
    table.rows = idle.into_iter().chain(Some((name, report.responses.as_ref()?))).map(row).collect();
    table.notes.push("times: from the intended send time of a request to the end of its response".to_owned());
    table
        .notes
        .push("round trips per min: 60 s divided by the mean of the fastest 95 % of the times".to_owned());
    Some(table)
}

/// Where the time of an end's threads went.
pub(super) fn calls(side: &str, way: &DirectionReport, end: Option<&EndReport>) -> Option<Table> {
    let times = end?.calls.as_ref()?;
    Some(workload::calls::table(format!("Calls of the {side} {}", name(way)), times))
}

/// The network's work of the kernels at both ends; ends that have one clock have one kernel.
pub(super) fn softirqs(report: &TransferReport, way: &DirectionReport) -> Vec<Table> {
    let table = |(side, end): (&str, Option<&EndReport>)| {
        let title = format!("Network softirqs of the {side}'s host {}", name(way));
        workload::calls::softirq_table(title, end?.calls.as_ref()?)
    };
    let ends = [("sender", way.sender.as_ref()), ("receiver", way.receiver.as_ref())];
    let tables = ends.into_iter().filter_map(table);
    if report.has_one_clock() { tables.take(1).collect() } else { tables.collect() }
}

fn ended(ended: &EndReason) -> &'static str {
    match ended {
        EndReason::Done | EndReason::ByPeer => "normally",
        EndReason::Stopped => "stopped",
        EndReason::Failed(_) => "broke off",
    }
}
