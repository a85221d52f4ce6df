//! A transfer in words and tables: what came of it, what held it back, where the bytes are.

use std::net::SocketAddr;

use base::outcome::{Account, Certainty, Evidence, Limit, Resource, Table};
use base::timeline::CallRow;

use super::flow::{Ended, FlowCount};
use super::judge::held_back;
use super::limit::Held;
use super::metrics;
use super::report::{EndReport, Responses, TransferReport, Waits, Way, WayReport};
use super::settings::TransferSettings;

/// Flows that a table lists one by one; of more, the slowest.
const FLOWS_SHOWN: usize = 16;

/// Numbers that the course of a transfer is told in.
const INTERVALS_SHOWN: usize = 10;

/// What is said of a transfer.
pub(super) fn of(settings: &TransferSettings, report: &TransferReport) -> Account {
    let mut tables = vec![balance(report)];
    tables.extend(flows(report));
    tables.extend(report.responses.as_ref().map(responses));
    for way in &report.ways {
        tables.extend(calls("sender", way.way, way.sender.as_ref()));
        tables.extend(calls("receiver", way.way, way.receiver.as_ref()));
    }
    Account { headline: headline(settings, report), limit: limit(settings, report), tables }
}

/// `118.2 MB/s (945 Mbit/s) up`, and how that compares with what the path could carry.
fn headline(settings: &TransferSettings, report: &TransferReport) -> Option<String> {
    let metrics = metrics::of(report);
    let known = |name: &str| metrics.get(name).copied().flatten();
    if let Some(responses) = &report.responses {
        let rate = known("transactions_per_s")?;
        let times = responses.times();
        let us = |ns: Option<u64>| ns.map_or("unknown".to_owned(), |ns| micros(ns as f64 / 1e3));
        return Some(format!(
            "Answered {} requests a second, half of them within {} and 99 % within {}",
            count(rate),
            us(times.percentile_ns(50.0)),
            us(times.percentile_ns(99.0))
        ));
    }
    let ways = [("up", "goodput_up_bit_per_s"), ("down", "goodput_down_bit_per_s")];
    let said: Vec<String> = ways
        .into_iter()
        .filter_map(|(word, name)| Some(format!("{} {word}", rate_words(known(name)?))))
        .collect();
    if said.is_empty() {
        return None;
    }
    let share = match (known("theoretical_bit_per_s"), report.ways.len()) {
        (Some(most), 1) if most > 0.0 => {
            let percent = 100.0 * known("goodput_bit_per_s")? / most;
            format!(", {percent:.1} % of the {} that the link can carry", rate_words(most))
        }
        _ => String::new(),
    };
    let lost = known("loss_ratio").map(|ratio| format!("; {} of the datagrams were lost", percent(ratio)));
    let mode = if settings.mode == super::flow::Mode::Discard { ", discarded unread" } else { "" };
    Some(format!("Moved {}{mode}{share}{}", said.join(" and "), lost.unwrap_or_default()))
}

/// What held the transfer back: of two ways the one that was held back by something.
fn limit(settings: &TransferSettings, report: &TransferReport) -> Option<Limit> {
    let mut held = held_back(settings, report);
    held.sort_by_key(|(_, held, _)| *held == Held::Offered);
    let several = held.len() > 1;
    let (way, cause, evidence) = held.first()?;
    let resource = match cause {
        Held::SenderCpu | Held::ReceiverCpu => Resource::Cpu,
        Held::Window => Resource::Window,
        Held::SendBuffer => Resource::SendBuffer,
        Held::Path => Resource::Network,
        Held::Offered => Resource::None,
    };
    let direction = if several { format!(" {}", way.word()) } else { String::new() };
    let first = match cause {
        Held::SenderCpu => format!("the sender's CPU{direction} has no time to spare"),
        Held::ReceiverCpu => format!("the receiver's CPU{direction} has no time to spare"),
        Held::Window => format!("the receiver's window{direction} is full most of the time"),
        Held::SendBuffer => format!("the sender's buffer{direction} holds less than the path"),
        Held::Path => format!("the path{direction} takes no more"),
        Held::Offered => format!("no more was asked for{direction}"),
    };
    let statements = std::iter::once(first).chain(evidence.iter().cloned());
    let is_loopback = report.server.parse::<SocketAddr>().is_ok_and(|server| server.ip().is_loopback());
    let (resource, certainty) = match cause {
        // There is no link, and the kernel's own work between the ends is in neither end's account.
        Held::Path if is_loopback => (Resource::None, Certainty::Unknown),
        _ => (resource, Certainty::Confirmed),
    };
    let evidence = statements.map(|statement| Evidence { resource, statement, inferred: false }).collect();
    Some(Limit { resource, certainty, evidence })
}

/// Where the bytes are: asked for, sent, arrived, and how long it took.
fn balance(report: &TransferReport) -> Table {
    let mut rows = Vec::new();
    let mut notes = vec![format!("by {}, with {} at {}", report.engine, report.peer, report.server)];
    let each = report.asked_bytes.map(|bytes| bytes / report.ways.len().max(1) as u64);
    for way in &report.ways {
        let bytes = |end: &Option<EndReport>| end.as_ref().map(EndReport::bytes);
        let arrived_s = way.receiver.as_ref().or(way.sender.as_ref()).and_then(EndReport::elapsed_s);
        let goodput = way.receiver.as_ref().and_then(EndReport::goodput_bit_per_s);
        let host = |end: &Option<EndReport>| end.as_ref().and_then(|end| end.host.clone());
        let name = host(&way.receiver).or(host(&way.sender)).map_or(String::new(), |host| format!(" {host}"));
        rows.push(vec![
            format!("{}{name}", way.way.word()),
            each.map_or_else(unknown, size),
            bytes(&way.sender).map_or_else(unknown, size),
            bytes(&way.receiver).map_or_else(unknown, size),
            arrived_s.map_or_else(unknown, |s| format!("{:.1} ms", s * 1e3)),
            goodput.map_or_else(unknown, |rate| format!("{:.2} MB/s", rate / 8e6)),
            goodput.map_or_else(unknown, |rate| format!("{:.1} Mbit/s", rate / 1e6)),
            loss(way),
        ]);
        notes.extend(over_time(way));
        notes.extend(missing(way));
    }
    Table {
        title: "Bytes".to_owned(),
        head: words(&["way", "asked", "sent", "arrived", "in", "goodput", "", "datagrams lost"]),
        rows,
        notes,
    }
}

/// The goodput from one interval to the next, in a few numbers.
fn over_time(way: &WayReport) -> Option<String> {
    let intervals = &way.receiver.as_ref().or(way.sender.as_ref())?.intervals;
    let together = intervals.len().div_ceil(INTERVALS_SHOWN).max(1);
    let rate = |group: &[(f64, f64, u64)]| {
        let (from_s, to_s) = (group.first()?.0, group.last()?.1);
        let bytes = group.iter().map(|(_, _, bytes)| *bytes as f64).sum::<f64>();
        (to_s > from_s).then(|| bytes * 8e-6 / (to_s - from_s))
    };
    let rates: Vec<f64> = intervals.chunks(together).filter_map(rate).collect();
    let each_s = intervals.get(together - 1)?.1 - intervals.first()?.0;
    if rates.len() < 2 {
        return None;
    }
    let digits = if rates.iter().all(|rate| *rate >= 99.5) { 0 } else { 1 };
    let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.digits$}")).collect();
    Some(format!("every {each_s:.1} s {}, Mbit/s: {}", way.way.word(), rates.join(" ")))
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

/// Flow by flow, where there are several.
fn flows(report: &TransferReport) -> Option<Table> {
    let mut rows = Vec::new();
    let mut all = 0;
    for way in &report.ways {
        let Some(end) = way.receiver.as_ref().or(way.sender.as_ref()) else { continue };
        let waits = way.sender.as_ref().map(|sender| sender.waits.as_slice()).unwrap_or_default();
        all += end.flows.len();
        for (number, flow) in end.flows.iter().enumerate().take(FLOWS_SHOWN) {
            let rate = metrics::flow_rate(flow);
            let waits = waits.get(number);
            let us = |of: fn(&Waits) -> Option<u64>| {
                waits.and_then(of).map_or_else(unknown, |us| micros(us as f64))
            };
            rows.push(vec![
                format!("{} {}", way.way.word(), number + 1),
                size(flow.count.bytes),
                rate.map_or_else(unknown, |rate| format!("{:.1} Mbit/s", rate / 1e6)),
                flow.congestion.clone().unwrap_or_else(|| "-".to_owned()),
                waits.and_then(|waits| waits.retransmits).map_or_else(unknown, |n| n.to_string()),
                us(|waits| waits.min_rtt_us),
                us(|waits| waits.busy_us),
                us(|waits| waits.rwnd_limited_us),
                us(|waits| waits.sndbuf_limited_us),
                ended(&flow.ended),
            ]);
        }
    }
    let notes = if all > rows.len() {
        vec![format!("{} more flows are not listed", all - rows.len())]
    } else {
        Vec::new()
    };
    (!rows.is_empty()).then(|| Table {
        title: "Flows".to_owned(),
        head: words(&[
            "flow",
            "arrived",
            "goodput",
            "congestion",
            "resent",
            "least RTT",
            "busy",
            "window full",
            "buffer full",
            "end",
        ]),
        rows,
        notes,
    })
}

fn responses(responses: &Responses) -> Table {
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
fn calls(side: &str, way: Way, end: Option<&EndReport>) -> Option<Table> {
    let times = end?.calls.as_ref()?;
    let us = |us: f64| format!("{us:.2}");
    let row = |row: &CallRow| {
        let wall = format!("{:.1} %", 100.0 * row.wall_share);
        let cells = [us(row.p50_us), us(row.mean_us), us(row.p99_us), us(row.max_us), wall];
        [vec![row.name.clone(), row.state.name().to_owned(), row.count.to_string()], cells.to_vec()].concat()
    };
    let lost = (times.events_lost > 0)
        .then(|| format!("{} of {} spans were lost", times.events_lost, times.events_counted));
    Some(Table {
        title: format!("Calls of the {side} {}", way.word()),
        head: words(&["call", "state", "calls", "p50 us", "mean us", "p99 us", "max us", "of wall"]),
        rows: times.calls.iter().map(row).collect(),
        notes: lost.into_iter().chain(times.doubts.iter().cloned()).collect(),
    })
}

fn ended(ended: &Ended) -> String {
    match ended {
        Ended::Done | Ended::ByPeer => "in order".to_owned(),
        Ended::Stopped => "stopped".to_owned(),
        Ended::Failed(why) => why.clone(),
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

fn unknown() -> String {
    "?".to_owned()
}

fn size(bytes: u64) -> String {
    let value = bytes as f64;
    match value {
        v if v >= 1e12 => format!("{:.3} TB", v / 1e12),
        v if v >= 1e9 => format!("{:.3} GB", v / 1e9),
        v if v >= 1e6 => format!("{:.3} MB", v / 1e6),
        v if v >= 1e3 => format!("{:.1} kB", v / 1e3),
        v => format!("{v} B"),
    }
}

fn micros(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.1} us"),
    }
}

fn rate_words(bit_per_s: f64) -> String {
    match bit_per_s {
        rate if rate >= 1e10 => format!("{:.1} Gbit/s", rate / 1e9),
        rate if rate >= 1e9 => format!("{:.2} Gbit/s", rate / 1e9),
        rate => format!("{:.1} Mbit/s", rate / 1e6),
    }
}

fn count(value: f64) -> String {
    if value >= 1000.0 { format!("{:.1} thousand", value / 1000.0) } else { format!("{value:.0}") }
}

fn percent(ratio: f64) -> String {
    match ratio {
        0.0 => "none".to_owned(),
        ratio if ratio < 0.0001 => format!("{:.1e} %", 100.0 * ratio),
        ratio => format!("{:.3} %", 100.0 * ratio),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::flow::FlowReport;
    use super::super::report::ClockOffset;
    use super::*;

    fn report(sent: FlowCount, came: FlowCount) -> TransferReport {
        let end = |count| EndReport {
            flows: vec![FlowReport {
                count,
                moved_ns: Some((0, 1_000_000_000)),
                ..FlowReport::new(Ended::Done)
            }],
            ..EndReport::default()
        };
        TransferReport {
            server: "10.0.0.2:5201".to_owned(),
            peer: "kagiri".to_owned(),
            theoretical_bit_per_s: Some(956.4e6),
            ways: vec![WayReport { way: Way::Up, sender: Some(end(sent)), receiver: Some(end(came)) }],
            clock: Some(ClockOffset::default()),
            ..TransferReport::default()
        }
    }

    fn bytes(bytes: u64) -> FlowCount {
        FlowCount { bytes, ..FlowCount::default() }
    }

    #[test]
    fn a_sentence_says_what_came_of_it_and_what_the_link_could() {
        let settings = TransferSettings::default();
        let account = of(&settings, &report(bytes(118_000_000), bytes(118_000_000)));
        assert_eq!(
            account.headline.as_deref(),
            Some("Moved 944.0 Mbit/s up, 98.7 % of the 956.4 Mbit/s that the link can carry")
        );
        let discarded = TransferSettings::read(json!({ "mode": "discard" })).unwrap();
        let account = of(&discarded, &report(bytes(1_000_000), bytes(1_000_000)));
        assert!(account.headline.is_some_and(|text| text.contains("discarded unread")));
        assert_eq!(account.limit, None, "nobody told of CPU or connections");
    }

    #[test]
    fn bytes_that_do_not_add_up_are_placed() {
        let sent = FlowCount { bytes: 147_200, datagrams: 100, refused: 3, ..FlowCount::default() };
        let came = FlowCount {
            bytes: 132_480,
            datagrams: 90,
            lost: 10,
            overflowed: Some(4),
            ..FlowCount::default()
        };
        let account = of(&TransferSettings::default(), &report(sent, came));
        let table = &account.tables[0];
        assert!(table.rows[0].contains(&"10 of 100".to_owned()), "{table:?}");
        let note = table.notes.last().unwrap();
        assert!(note.contains("4 were dropped at the receiver's full socket, 6 on the way"), "{note}");
        let short = of(&TransferSettings::default(), &report(bytes(2_000_000), bytes(1_500_000)));
        assert!(
            short.tables[0].notes.iter().any(|note| note.contains("500.0 kB up")),
            "{:?}",
            short.tables[0]
        );
    }

    #[test]
    fn the_course_of_a_transfer_is_told_in_ten_numbers_at_most() {
        let mut report = report(bytes(1), bytes(1));
        let end = report.ways[0].receiver.as_mut().unwrap();
        end.intervals = (0..20).map(|n| (f64::from(n) / 10.0, f64::from(n + 1) / 10.0, 1_250_000)).collect();
        let said = over_time(&report.ways[0]).unwrap();
        assert_eq!(said, format!("every 0.2 s up, Mbit/s: {}", ["100"; 10].join(" ")));
        report.ways[0].receiver.as_mut().unwrap().intervals.truncate(1);
        assert_eq!(over_time(&report.ways[0]), None);
    }

    #[test]
    fn over_loopback_a_path_is_no_limit_that_is_known() {
        let mut report = report(bytes(1_000_000_000), bytes(1_000_000_000));
        report.theoretical_bit_per_s = None;
        let sender = report.ways[0].sender.as_mut().unwrap();
        sender.waits = vec![Waits { busy_us: Some(1_000_000), ..Waits::default() }];
        let settings = TransferSettings::default();
        assert_eq!(of(&settings, &report).limit.map(|limit| limit.resource), Some(Resource::Network));
        report.server = "127.0.0.1:5201".to_owned();
        let limit = of(&settings, &report).limit.unwrap();
        assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    }
}
