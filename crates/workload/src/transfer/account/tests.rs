use base::doubt::Doubt;
use serde_json::json;

use super::super::flow::{Ended, FlowCount, FlowReport, ThreadReport};
use super::super::judge::judge;
use super::super::report::{ClockOffset, EndReport, Responses, Waits, Way, WayReport};
use super::tables::over_time;
use super::*;

fn report(sent: FlowCount, came: FlowCount) -> TransferReport {
    let end = |count| EndReport {
        flows: vec![FlowReport { count, moved_ns: Some((0, 1_000_000_000)), ..FlowReport::new(Ended::Done) }],
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
    let came =
        FlowCount { bytes: 132_480, datagrams: 90, lost: 10, overflowed: Some(4), ..FlowCount::default() };
    let account = of(&TransferSettings::default(), &report(sent, came));
    let table = &account.tables[0];
    assert!(table.rows[0].contains(&"10 of 100".to_owned()), "{table:?}");
    let note = table.notes.last().unwrap();
    assert!(note.contains("4 were dropped at the receiver's full socket, 6 on the way"), "{note}");
    let short = of(&TransferSettings::default(), &report(bytes(2_000_000), bytes(1_500_000)));
    assert!(short.tables[0].notes.iter().any(|note| note.contains("500.0 kB up")), "{:?}", short.tables[0]);
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
    let account = of(&settings, &report);
    let limit = account.limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    assert_eq!(account.tables[1].rows[0][9], "?", "of its one flow neither");
}

#[test]
fn of_many_flows_the_slowest_are_listed_with_whose_they_are() {
    let mut report = report(bytes(1), bytes(1));
    for (host, way) in [("pc-1", Way::Up), ("pc-2", Way::Up)] {
        let flow = |n: u64| FlowReport {
            count: bytes(1_000_000 - n * 1000),
            moved_ns: Some((0, 1_000_000_000)),
            ..FlowReport::new(Ended::Done)
        };
        let end = EndReport {
            host: Some(host.to_owned()),
            flows: (0..20).map(flow).collect(),
            ..EndReport::default()
        };
        report.ways.push(WayReport { way, sender: None, receiver: Some(end) });
    }
    report.ways.remove(0);
    let account = of(&TransferSettings::default(), &report);
    let table = account.tables.iter().find(|table| table.title == "Flows").unwrap();
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{table:?}");
    let names: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!((names.len(), names[0], names[15], names[16]), (32, "up pc-1 5", "up pc-1 20", "up pc-2 5"));
    assert_eq!(table.notes, ["8 quicker flows are not listed"]);
}

#[test]
fn threads_that_ask_again_and_again_are_no_limit() {
    let mut report = report(bytes(1_000), bytes(1_000));
    report.theoretical_bit_per_s = None;
    let busy = ThreadReport { cpu_ns: 1_000_000_000, ready_ns: None, wall_ns: 1_000_000_000 };
    report.ways[0].receiver.as_mut().unwrap().threads = vec![busy];
    let waiting = |how: &str| TransferSettings::read(json!({ "requests": { "waiting": how } })).unwrap();
    let limit = |how| of(&waiting(how), &report).limit.map(|limit| limit.resource);
    assert_eq!((limit("block"), limit("spin")), (Some(Resource::Cpu), None));
}

#[test]
fn requests_that_left_late_are_a_doubt() {
    let responses =
        Responses { answered: 90, unanswered: 10, late: 5, late_ms_max: 2.5, ..Responses::default() };
    let report = TransferReport { responses: Some(responses), ..TransferReport::default() };
    let doubts = judge(&TransferSettings::default(), &report).doubts;
    assert_eq!(doubts, [Doubt::RequestsLate { late_percent: 5.0, late_ms_max: 2.5 }]);
    assert_eq!(doubts[0].to_string(), "5.0 % of the requests were sent late, the latest by 2.5 ms");
}
