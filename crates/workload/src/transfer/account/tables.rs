//! The tables of a transfer: where the bytes are, flow by flow, requests, calls.

use std::net::SocketAddr;

use base::outcome::{Certainty, Table};

use super::super::flow::{Ended, FlowCount, FlowReport};
use super::super::judge::{broke_off, each_held_back};
use super::super::metrics;
use super::super::report::{EndReport, Responses, TransferReport, Waits, WayReport};
use super::super::settings::TransferSettings;
use super::super::theory::{IPV4_BYTES, IPV6_BYTES, UDP_BYTES};
use super::known;
use super::words::{byte_rate_words, micros, rate_words, size, unknown, words};

/// Flows that a table lists one by one; of more, the slowest.
const FLOWS_SHOWN: usize = 16;

/// Broken flows whose reason is told.
const BROKEN_SHOWN: usize = 3;

/// What the columns of waits mean.
const WAITS: &str = "busy: data was under way; window, buffer: share of that time in which the sender waited for the \
                     receiver's window, or for room in its own buffer";

/// Numbers that the course of a transfer is told in.
const INTERVALS_SHOWN: usize = 10;

/// Where the bytes are: asked for, sent, arrived, and how long it took.
pub(super) fn balance(settings: &TransferSettings, report: &TransferReport) -> Table {
    let mut rows = Vec::new();
    let mut notes = vec![format!("by {}, with {} at {}", report.engine, report.peer, report.server)];
    let each = report.asked_bytes.map(|bytes| bytes / report.ways.len().max(1) as u64);
    for way in &report.ways {
        let bytes = |end: &Option<EndReport>| end.as_ref().map(EndReport::bytes);
        let arrived_s = way.receiver.as_ref().or(way.sender.as_ref()).and_then(EndReport::elapsed_s);
        let goodput = way.receiver.as_ref().and_then(EndReport::goodput_bit_per_s);
        rows.push(vec![
            name(way),
            each.map_or_else(unknown, size),
            bytes(&way.sender).map_or_else(unknown, size),
            bytes(&way.receiver).map_or_else(unknown, size),
            arrived_s.map_or_else(unknown, |s| format!("{:.1} ms", s * 1e3)),
            goodput.map_or_else(unknown, byte_rate_words),
            goodput.map_or_else(unknown, rate_words),
            loss(way),
        ]);
        // Requests come one by one: their rate is told by their own table.
        notes.extend(over_time(way).filter(|_| report.responses.is_none()));
        notes.extend(missing(way));
        notes.extend(fragments(settings, report, way));
    }
    let head = words(&["way", "asked", "sent", "arrived", "in", "goodput", "", "datagrams lost"]);
    told(Table { title: "Bytes".to_owned(), head, rows, notes })
}

/// A table without the columns in which no row knows anything.
fn told(table: Table) -> Table {
    let says = |column: &usize| {
        *column == 0
            || table.rows.iter().any(|row| row.get(*column).is_some_and(|cell| cell != "?" && cell != "-"))
    };
    let columns: Vec<usize> = (0..table.head.len()).filter(says).collect();
    let of = |row: &Vec<String>| columns.iter().filter_map(|column| row.get(*column).cloned()).collect();
    Table { head: of(&table.head), rows: table.rows.iter().map(of).collect(), ..table }
}

/// That datagrams do not fit into a packet of the path, where they do not.
fn fragments(settings: &TransferSettings, report: &TransferReport, way: &WayReport) -> Option<String> {
    let flows = [&way.sender, &way.receiver].into_iter().flatten().flat_map(|end| &end.flows);
    let mtu = flows.filter(|flow| flow.count.datagrams > 0).filter_map(|flow| flow.path_mtu_bytes).min()?;
    let bytes = settings.size_bytes();
    let is_ipv6 = report.server.parse::<SocketAddr>().is_ok_and(|server| server.is_ipv6());
    let packet = bytes + UDP_BYTES + if is_ipv6 { IPV6_BYTES } else { IPV4_BYTES };
    (packet > u64::from(mtu)).then(|| {
        format!(
            "datagrams of {bytes} B are cut into packets of up to {mtu} B (MTU) {}: one that is lost loses the whole",
            way.way.word()
        )
    })
}

/// The goodput from one interval to the next, in a few numbers.
pub(super) fn over_time(way: &WayReport) -> Option<String> {
    let intervals = &way.receiver.as_ref().or(way.sender.as_ref())?.intervals;
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
    let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.digits$}")).collect();
    let each = format!("{each_s:.2}");
    let each = each.strip_suffix('0').unwrap_or(&each);
    Some(format!("every {each} s {}, Mbit/s: {}", way.way.word(), rates.join(" ")))
}

/// Why what arrived is not what was sent, where it is not.
fn missing(way: &WayReport) -> Option<String> {
    let (sender, receiver) = (way.sender.as_ref()?, way.receiver.as_ref()?);
    let gap = sender.bytes().checked_sub(receiver.bytes()).filter(|gap| *gap > 0)?;
    let sum =
        |end: &EndReport| end.flows.iter().fold(FlowCount::default(), |sum, flow| sum.with(&flow.count));
    let (sent, came) = (sum(sender), sum(receiver));
    if sent.datagrams == 0 {
        return Some(format!(
            "{} {} of what was sent had not arrived when the transfer ended",
            size(gap),
            way.way.word()
        ));
    }
    let lost = sent.datagrams.saturating_sub(came.datagrams.saturating_sub(came.duplicated));
    let at_socket = came.overflowed.unwrap_or(0).min(lost);
    Some(format!(
        "{} {} ({lost} datagrams) did not arrive: {at_socket} were dropped at the receiver's full socket, {} on the way; \
         the sender's kernel had refused {} and got them again",
        size(gap),
        way.way.word(),
        lost - at_socket,
        sent.refused
    ))
}

fn loss(way: &WayReport) -> String {
    let counts = |end: &Option<EndReport>| -> Option<FlowCount> {
        let end = end.as_ref()?;
        Some(end.flows.iter().fold(FlowCount::default(), |sum, flow| sum.with(&flow.count)))
    };
    match (counts(&way.sender), counts(&way.receiver)) {
        (Some(sent), Some(came)) if sent.datagrams > 0 => {
            let lost = sent.datagrams.saturating_sub(came.datagrams.saturating_sub(came.duplicated));
            format!("{lost} of {}", sent.datagrams)
        }
        (Some(sent), None) if sent.datagrams > 0 => unknown(),
        _ => "-".to_owned(),
    }
}

/// Flow by flow: what arrived, what its connection waited for, and what held it back.
pub(super) fn flows(settings: &TransferSettings, report: &TransferReport) -> Option<Table> {
    let (mut rows, mut broken, is_broken) = (Vec::new(), Vec::new(), broke_off(report).is_some());
    let mut all = 0;
    for way in &report.ways {
        let Some(end) = way.receiver.as_ref().or(way.sender.as_ref()) else { continue };
        let waits = way.sender.as_ref().map(|sender| sender.waits.as_slice()).unwrap_or_default();
        let held = if is_broken { Vec::new() } else { each_held_back(settings, report, way) };
        all += end.flows.len();
        for number in slowest(&end.flows) {
            let (flow, held) = (&end.flows[number], held.get(number).copied().flatten());
            let held = known(report, held);
            let mut row = vec![format!("{} {}", name(way), number + 1)];
            row.extend(flow_cells(flow, waits.get(number)));
            row.push(held.map_or_else(unknown, |(held, certainty)| match certainty {
                Certainty::Confirmed => held.word().to_owned(),
                _ => format!("{}?", held.word()),
            }));
            // Nobody tells a receiver of datagrams that the last has come but this end itself.
            let is_told = flow.count.datagrams > 0 && !report.stopped && flow.ended == Ended::Stopped;
            row.push(ended(if is_told { &Ended::Done } else { &flow.ended }).to_owned());
            if let Ended::Failed(why) = &flow.ended {
                broken.push(format!("{} broke off: {why}", row[0]));
            }
            rows.push(row);
        }
    }
    let mut notes = Vec::new();
    let waits = report.ways.iter().flat_map(|way| &way.sender).flat_map(|end| &end.waits);
    if waits.into_iter().any(|waits| waits.busy_us.is_some()) {
        notes.push(WAITS.to_owned());
    }
    if all > rows.len() {
        notes.push(format!("{} quicker flows are not listed", all - rows.len()));
    }
    broken.truncate(BROKEN_SHOWN);
    notes.extend(broken);
    let is_arrived = report.ways.iter().all(|way| way.receiver.is_some());
    let head = words(&[
        "flow",
        if is_arrived { "arrived" } else { "moved" },
        "goodput",
        "control",
        "resent",
        "min RTT",
        "busy",
        "window",
        "buffer",
        "held by",
        "end",
    ]);
    (!rows.is_empty()).then(|| told(Table { title: "Flows".to_owned(), head, rows, notes }))
}

fn flow_cells(flow: &FlowReport, waits: Option<&Waits>) -> Vec<String> {
    let share = |of: fn(&Waits) -> Option<u64>| {
        let share = waits.and_then(|waits| Some(100.0 * of(waits)? as f64 / waits.busy_us?.max(1) as f64));
        share.map_or_else(unknown, |percent| format!("{percent:.0} %"))
    };
    let us = |of: fn(&Waits) -> Option<u64>| waits.and_then(of).map_or_else(unknown, |us| micros(us as f64));
    vec![
        size(flow.count.bytes),
        metrics::flow_rate(flow).map_or_else(unknown, rate_words),
        flow.congestion.clone().unwrap_or_else(|| "-".to_owned()),
        waits.and_then(|waits| waits.retransmits).map_or_else(unknown, |n| n.to_string()),
        us(|waits| waits.min_rtt_us),
        us(|waits| waits.busy_us),
        share(|waits| waits.rwnd_limited_us),
        share(|waits| waits.sndbuf_limited_us),
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

/// A way, of several clients with the one whose it is.
fn name(way: &WayReport) -> String {
    let host = |end: &Option<EndReport>| end.as_ref().and_then(|end| end.host.clone());
    let host = host(&way.receiver).or(host(&way.sender));
    host.map_or_else(|| way.way.word().to_owned(), |host| format!("{} {host}", way.way.word()))
}

pub(super) fn responses(responses: &Responses) -> Table {
    let times = responses.times();
    let at = |percent: f64| times.percentile_ns(percent).map_or_else(unknown, |ns| micros(ns as f64 / 1e3));
    let row = vec![
        responses.answered.to_string(),
        responses.unanswered.to_string(),
        responses.late.to_string(),
        at(50.0),
        at(90.0),
        at(99.0),
        at(99.9),
        times.max_ns().map_or_else(unknown, |ns| micros(ns as f64 / 1e3)),
    ];
    Table {
        title: "Requests".to_owned(),
        head: words(&["answered", "unanswered", "sent late", "p50", "p90", "p99", "p99.9", "max"]),
        rows: vec![row],
        notes: vec!["from the intended moment of a request to the end of its answer".to_owned()],
    }
}

/// Where the time of an end's threads went.
pub(super) fn calls(side: &str, way: &WayReport, end: Option<&EndReport>) -> Option<Table> {
    let times = end?.calls.as_ref()?;
    Some(crate::calls::table(format!("Calls of the {side} {}", name(way)), times))
}

fn ended(ended: &Ended) -> &'static str {
    match ended {
        Ended::Done | Ended::ByPeer => "in order",
        Ended::Stopped => "stopped",
        Ended::Failed(_) => "broke off",
    }
}
