use base::doubt::Doubt;
use base::verdict::Verdict;
use serde_json::json;

use super::super::flow::{Direction, EndReason, FlowCount, FlowReport, ThreadReport};
use super::super::judge::judge;
use super::super::presentation::TransferDoubt;
use super::super::report::{ClockOffset, Counted, DirectionReport, EndReport, Responses, Waits};
use super::tables::over_time;
use super::*;

fn report(sent: FlowCount, came: FlowCount) -> TransferReport {
    let end = |count| EndReport { flows: vec![FlowReport::in_a_second(count)], ..EndReport::default() };
    TransferReport {
        server: "10.0.0.2:5201".to_owned(),
        peer: "kagiri".to_owned(),
        theoretical_bit_per_s: Some(956.4e6),
        directions: vec![DirectionReport::of_client(Direction::Up, Some(end(sent)), Some(end(came)))],
        clock: Some(ClockOffset::default()),
        ..TransferReport::default()
    }
}

fn bytes(bytes: u64) -> FlowCount {
    FlowCount { bytes, ..FlowCount::default() }
}

#[test]
fn headline_states_goodput_and_share_of_the_link() {
    let settings = TransferSettings::default();
    let account = of(&settings, &report(bytes(118_000_000), bytes(118_000_000)));
    let headline = "Moved 944 Mbit/s up, 98.7 % of the 956.4 Mbit/s that the link can carry";
    assert_eq!(account.headline.as_deref(), Some(headline));
    let discarded = TransferSettings::read(json!({ "mode": "discard" })).unwrap();
    let account = of(&discarded, &report(bytes(1_000_000), bytes(1_000_000)));
    assert!(account.headline.is_some_and(|text| text.contains("discarded unread")));
    let limit = account.limit.unwrap();
    assert_eq!(
        (limit.resource, limit.certainty),
        (Resource::None, Certainty::Unknown),
        "no end reported its CPU"
    );
}

#[test]
fn balance_states_where_datagrams_were_lost() {
    let sent = FlowCount { bytes: 147_200, datagrams: 100, refused: 3, ..FlowCount::default() };
    let came =
        FlowCount { bytes: 132_480, datagrams: 90, lost: 10, overflowed: Some(4), ..FlowCount::default() };
    let account = of(&TransferSettings::default(), &report(sent, came));
    let table = &account.tables[0];
    let cell = |title: &str| table.column(title).map(|at| table.rows[0][at].clone());
    assert_eq!((cell("datagrams"), cell("lost")), (Some(100_u64.into()), Some(10_u64.into())), "{table:?}");
    let note = table.notes.last().unwrap();
    assert!(note.contains("4 were dropped at the receiver's full socket, 6 on the path"), "{note}");
    let short = of(&TransferSettings::default(), &report(bytes(2_000_000), bytes(1_500_000)));
    assert!(short.tables[0].notes.iter().any(|note| note.contains("500 kB up")), "{:?}", short.tables[0]);
}

#[test]
fn unknown_counts_are_not_told_as_none() {
    let sent = FlowCount { bytes: 147_200, datagrams: 100, refused: 0, ..FlowCount::default() };
    let came = FlowCount { bytes: 132_480, datagrams: 90, lost: 10, ..FlowCount::default() };
    let mut report = report(sent, came);
    report.directions[0].receiver.as_mut().unwrap().counted = Counted::LossesAndJitter;
    let note = |report: &TransferReport| of(&TransferSettings::default(), report).tables[0].notes.join("\n");
    let unknown =
        "(10 datagrams) did not arrive; where is unknown: the receiver reports no drops at its socket";
    assert!(note(&report).contains(unknown), "{}", note(&report));
    let metrics = metrics::of(&report);
    let unknown = ["lost_at_receiver", "lost_on_path", "reordered", "duplicated"];
    for name in unknown.map(|name| format!("datagrams_{name}")) {
        assert_eq!(metrics[&name], None, "{name}");
    }
    assert_eq!((metrics["datagrams_lost"], metrics["sends_refused"]), (Some(10.0), Some(0.0)));
    // The kernel of this host counts the drops of the other program's socket.
    report.directions[0].receiver.as_mut().unwrap().flows[0].count.overflowed = Some(9);
    let known =
        "9 were dropped at the receiver's full socket (this host's kernel counts them, /proc/net/udp), 1 on";
    assert!(note(&report).contains(known), "{}", note(&report));
    // A sender that does not count refusals has not had none.
    report.directions[0].sender.as_mut().unwrap().counted = Counted::LossesAndJitter;
    assert!(!note(&report).contains("refused"), "{}", note(&report));
    assert_eq!(metrics::of(&report)["sends_refused"], None);
}

#[test]
fn datagrams_without_numbers_have_no_known_loss() {
    let came = FlowCount { bytes: 132_480, datagrams: 90, ..FlowCount::default() };
    let mut report = report(came, came);
    report.directions[0].sender = None;
    report.directions[0].receiver.as_mut().unwrap().counted = Counted::Datagrams;
    let metrics = metrics::of(&report);
    assert_eq!((metrics["datagrams_received"], metrics["loss_ratio"]), (Some(90.0), None));
    assert_eq!((metrics["datagrams_lost"], metrics["jitter_us"]), (None, None));
    let headline = of(&TransferSettings::default(), &report).headline.unwrap();
    assert!(!headline.contains("lost"), "{headline}");
}

#[test]
fn goodput_of_a_burst_or_of_the_sender_alone_is_doubted() {
    let doubts = |report: &TransferReport| judge(&TransferSettings::default(), report).doubts;
    // 991 of 972 Mbit/s.
    let mut above = report(bytes(123_875_000), bytes(123_875_000));
    above.theoretical_bit_per_s = Some(972e6);
    let [doubt] = &doubts(&above)[..] else { panic!("{:?}", doubts(&above)) };
    let said = "102 % of the link's maximum arrived: the time was too short beside a burst";
    assert!(doubt.to_string().starts_with(said) && doubt.advice().contains("--omit 1s"), "{doubt}");
    let limit = of(&TransferSettings::default(), &above).limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::Network, Certainty::Predicted));
    assert_eq!(limit.evidence[0].statement, "more arrived than the link carries for long");
    let mut silent = report(bytes(100_000_000), bytes(100_000_000));
    assert_eq!(doubts(&silent), []);
    silent.directions[0].receiver = None;
    silent.peer = "ttcp".to_owned();
    assert_eq!(doubts(&silent), [TransferDoubt::ArrivalNotReported { peer: "ttcp".to_owned() }.into()]);
}

#[test]
fn stolen_cpu_is_told_instead_of_a_limit() {
    let mut report = report(bytes(90_000_000), bytes(90_000_000));
    let sender = report.directions[0].sender.as_mut().unwrap();
    sender.waits = vec![Waits { busy_us: Some(1_000_000), ..Waits::default() }];
    sender.steal = Some(0.51);
    let limit = of(&TransferSettings::default(), &report).limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    let said = "the hypervisor took 51 % of a core, so that no other limit can be derived";
    assert_eq!(limit.evidence[0].statement, said);
}

#[test]
fn intervals_are_merged_to_at_most_ten() {
    let mut report = report(bytes(1), bytes(1));
    let end = report.directions[0].receiver.as_mut().unwrap();
    end.intervals = (0..20).map(|n| (f64::from(n) / 10.0, f64::from(n + 1) / 10.0, 1_250_000)).collect();
    let said = over_time(&report.directions[0]).unwrap();
    assert_eq!(said, format!("up, mean Mbit/s of each 0.2 s: {}", ["100"; 10].join(" ")));
    report.directions[0].receiver.as_mut().unwrap().intervals.truncate(1);
    assert_eq!(over_time(&report.directions[0]), None);
}

#[test]
fn loopback_names_no_path_limit() {
    let mut report = report(bytes(1_000_000_000), bytes(1_000_000_000));
    report.theoretical_bit_per_s = None;
    let sender = report.directions[0].sender.as_mut().unwrap();
    sender.waits = vec![Waits { busy_us: Some(1_000_000), ..Waits::default() }];
    let settings = TransferSettings::default();
    assert_eq!(of(&settings, &report).limit.map(|limit| limit.resource), Some(Resource::Network));
    report.server = "127.0.0.1:5201".to_owned();
    let account = of(&settings, &report);
    let limit = account.limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    assert!(account.tables[1].column("limited by").is_none(), "of its one flow neither");
}

#[test]
fn table_lists_the_slowest_flows_with_their_host() {
    let mut report = report(bytes(1), bytes(1));
    for (host, direction) in [("pc-1", Direction::Up), ("pc-2", Direction::Up)] {
        let flow = |n: u64| FlowReport::in_a_second(bytes(1_000_000 - n * 1000));
        let (host, flows) = (Some(host.to_owned()), (0..20).map(flow).collect());
        let end = EndReport { host, flows, ..EndReport::default() };
        report.directions.push(DirectionReport { direction, sender: None, receiver: Some(end) });
    }
    report.directions.remove(0);
    let account = of(&TransferSettings::default(), &report);
    let table = account.tables.iter().find(|table| table.title == "Flows").unwrap();
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    let names: Vec<String> = table.rows.iter().map(|row| row[0].text("")).collect();
    assert_eq!(names.len(), 32);
    assert_eq!([&names[0], &names[15], &names[16]], ["up pc-1 5", "up pc-1 20", "up pc-2 5"]);
    assert_eq!(table.notes, ["8 quicker flows are not listed"]);
}

#[test]
fn spinning_threads_are_no_limit() {
    let mut report = report(bytes(1_000), bytes(1_000));
    report.theoretical_bit_per_s = None;
    let busy = ThreadReport { cpu_ns: 1_000_000_000, ready_ns: None, wall_ns: 1_000_000_000 };
    report.directions[0].receiver.as_mut().unwrap().threads = vec![busy];
    let waiting = |how: &str| TransferSettings::read(json!({ "requests": { "waiting": how } })).unwrap();
    let limit = |how| of(&waiting(how), &report).limit.map(|limit| limit.resource);
    assert_eq!((limit("block"), limit("spin")), (Some(Resource::Cpu), Some(Resource::None)));
    report.directions[0].receiver.as_mut().unwrap().threads[0].cpu_ns = 100_000_000;
    let account = of(&waiting("block"), &report);
    let limit = account.limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Confirmed));
    assert!(limit.evidence[0].statement.contains("sequential (closed loop)"), "{limit:?}");
}

#[test]
fn unmet_rate_fails_because_of_the_path() {
    let sent = FlowCount { bytes: 25_000_000, datagrams: 17_000, ..FlowCount::default() };
    let overflowed = Some(0);
    let came =
        FlowCount { bytes: 12_000_000, datagrams: 8_160, lost: 8_840, overflowed, ..FlowCount::default() };
    let settings = TransferSettings::read(json!({ "protocol": "udp", "rate": "200Mbit/s" })).unwrap();
    let judged = judge(&settings, &report(sent, came));
    assert_eq!((judged.verdict, judged.is_definite), (Verdict::Fail, true), "no neighbour's doing");
    assert_eq!(judged.reasons, ["96 Mbit/s of the requested 200 Mbit/s up arrived"]);
    let limit = judged.account.limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::Network, Certainty::Confirmed));
    let met = judge(&settings, &report(sent, sent));
    assert_eq!(met.verdict, Verdict::Pass);
    let limit = met.account.limit.unwrap();
    let said = limit.evidence[0].statement.as_str();
    assert_eq!((limit.resource, said), (Resource::None, "the requested rate was reached"));
}

#[test]
fn late_wakeups_of_the_sender_make_the_trial_invalid() {
    let count = |bytes: u64| FlowCount { bytes, datagrams: bytes / 1472, ..FlowCount::default() };
    let asleep = |sent: u64, came: u64, overslept_ns: u64| {
        let mut report = report(count(sent), count(came));
        report.directions[0].sender.as_mut().unwrap().flows[0].count.overslept_ns = overslept_ns;
        report
    };
    let read = |settings| TransferSettings::read(settings).unwrap();
    let rate = read(json!({ "protocol": "udp", "rate": "200Mbit/s" }));
    let search = read(json!({ "protocol": "udp", "search": {} })).at_load(200);
    for (settings, sent, came, overslept_ns, verdict) in [
        (&rate, 23_000_000, 23_000_000, 70_000_000, Verdict::Invalid),
        (&rate, 23_000_000, 23_000_000, 10_000_000, Verdict::Fail),
        (&rate, 25_000_000, 23_000_000, 0, Verdict::Fail),
        (&rate, 23_000_000, 10_000_000, 70_000_000, Verdict::Fail),
        (&rate, 24_500_000, 24_500_000, 20_000_000, Verdict::Pass),
        (&search, 24_500_000, 24_500_000, 20_000_000, Verdict::Invalid),
        (&search, 24_500_000, 24_500_000, 0, Verdict::Fail),
        (&search, 23_750_000, 23_750_000, 25_000_000, Verdict::Fail),
        (&search, 24_500_000, 20_000_000, 20_000_000, Verdict::Fail),
    ] {
        let judged = judge(settings, &asleep(sent, came, overslept_ns));
        assert_eq!(judged.verdict, verdict, "{sent} {came} {overslept_ns}: {:?}", judged.reasons);
        let says = judged.reasons.iter().any(|why| why.contains("woken too late"));
        assert!(says || verdict != Verdict::Invalid, "{:?}", judged.reasons);
        let limit = judged.account.limit;
        let late = "the sender was woken too late to offer the requested rate";
        let is_said = limit.as_ref().is_some_and(|limit| limit.evidence[0].statement == late);
        assert_eq!(is_said, verdict == Verdict::Invalid, "{limit:?}");
        let resource = limit.map(|limit| limit.resource);
        let is_cpu = resource == Some(Resource::Cpu);
        assert_eq!(verdict == Verdict::Invalid, is_cpu, "{sent} {came}: {resource:?}");
    }
}

#[test]
fn transfer_that_the_hypervisor_slowed_is_invalid() {
    let judged = |moved: u64, steal: f64| {
        let mut report = report(bytes(moved), bytes(moved));
        report.directions[0].receiver.as_mut().unwrap().steal = Some(steal);
        judge(&TransferSettings::default(), &report)
    };
    // 721 of 956 Mbit/s: a quarter is missing.
    let spoilt = judged(90_125_000, 0.51);
    let said = "the hypervisor took 51 % of a core: only 721 Mbit/s of 956.4 Mbit/s arrived";
    assert_eq!((spoilt.verdict, spoilt.reasons[0].as_str()), (Verdict::Invalid, said));
    assert_eq!(spoilt.doubts, [Doubt::CpuStolen { steal_percent: 51.0 }]);
    for (moved, steal, is_short) in
        [(90_125_000, 0.2, true), (90_125_000, 0.0, true), (118_000_000, 0.51, false)]
    {
        let judged = judged(moved, steal);
        assert_eq!((judged.verdict, judged.is_short), (Verdict::Pass, is_short), "{moved} {steal}");
    }
    let unmet = |steal| {
        let mut report = report(bytes(90_125_000), bytes(90_125_000));
        report.directions[0].sender.as_mut().unwrap().steal = Some(steal);
        judge(&TransferSettings::read(json!({ "rate": "900Mbit/s" })).unwrap(), &report).verdict
    };
    assert_eq!((unmet(0.51), unmet(0.0)), (Verdict::Invalid, Verdict::Fail));
}

#[test]
fn search_names_the_link_as_limit() {
    let count = |datagrams: u64| FlowCount { datagrams, bytes: datagrams * 1472, ..FlowCount::default() };
    let mut report = report(count(84_918), count(82_600));
    report.theoretical_bit_per_s = Some(972.3e6);
    let settings = TransferSettings::read(json!({ "protocol": "udp", "search": {} })).unwrap().at_load(1000);
    let judged = judge(&settings, &report);
    let limit = judged.account.limit.unwrap();
    assert_eq!((judged.verdict, limit.resource), (Verdict::Fail, Resource::Network), "97.3 % came");
}

#[test]
fn broken_transfer_names_no_limit_and_states_the_reason() {
    let mut report = report(bytes(2_000_000), bytes(1_500_000));
    report.broken = Some("the server 10.0.0.2:5201 gave up: stopped before its end".to_owned());
    report.directions[0].receiver = None;
    let flow = &mut report.directions[0].sender.as_mut().unwrap().flows[0];
    flow.ended = EndReason::Failed("the connection was reset".to_owned());
    let judged = judge(&TransferSettings::default(), &report);
    let Account { limit, broke_off, tables, .. } = judged.account;
    assert_eq!((judged.verdict, limit, broke_off), (Verdict::Fail, None, report.broken.clone()));
    let flows = &tables[1];
    assert_eq!(flows.columns[1].title, "moved", "what arrived is unknown");
    assert_eq!(flows.rows[0].last(), Some(&"broke off".into()));
    assert_eq!(flows.notes, ["up 1 broke off: the connection was reset"]);
}

#[test]
fn too_short_transfer_names_no_limit() {
    let mut report = report(bytes(16 << 20), bytes(16 << 20));
    report.theoretical_bit_per_s = None;
    let way = &mut report.directions[0];
    for end in [&mut way.sender, &mut way.receiver].into_iter().flatten() {
        end.flows[0].moved_ns = Some((0, 3_100_000));
        end.threads = vec![ThreadReport { cpu_ns: 3_000_000, ready_ns: None, wall_ns: 3_100_000 }];
    }
    let settings = TransferSettings::read(json!({ "bytes": "16MiB" })).unwrap();
    let judged = judge(&settings, &report);
    assert_eq!(judged.doubts, [TransferDoubt::TransferTooShort { moved_ms: 3.1 }.into()]);
    let limit = judged.account.limit.unwrap();
    assert_eq!((limit.resource, limit.certainty), (Resource::None, Certainty::Unknown));
    assert!(limit.evidence[0].statement.contains("within 3.1 ms, too short"), "{limit:?}");
}

#[test]
fn each_direction_has_its_losses_and_limit() {
    let sent = FlowCount { bytes: 1_472_000, datagrams: 1000, ..FlowCount::default() };
    let came = FlowCount { bytes: 1_324_800, datagrams: 900, lost: 100, ..FlowCount::default() };
    let mut both = report(sent, sent);
    let mut down = report(sent, came).directions.remove(0);
    down.direction = Direction::Down;
    let busy = ThreadReport { cpu_ns: 1_000_000_000, ready_ns: None, wall_ns: 1_000_000_000 };
    down.sender.as_mut().unwrap().threads = vec![busy];
    both.directions.push(down);
    both.theoretical_bit_per_s = None;
    let account = of(&TransferSettings::default(), &both);
    let headline = account.headline.unwrap();
    assert!(headline.ends_with("; lost datagrams: none up, 10 % down"), "{headline}");
    let limit = account.limit.unwrap();
    assert_eq!(limit.resource, Resource::Cpu);
    let first = &limit.evidence[0].statement;
    let down = "down: the sender's threads ran or waited for a CPU 100 % of the time; ";
    assert!(first.contains(down), "{first}");
    assert!(first.contains("; up: "), "{first}");
}

#[test]
fn goodput_above_the_link_rate_is_no_full_link() {
    let account = of(&TransferSettings::default(), &report(bytes(170_000_000), bytes(170_000_000)));
    let headline = account.headline.unwrap();
    let said = "more than the 956.4 Mbit/s that is the nominal maximum of the link";
    assert!(headline.contains(said), "{headline}");
    assert_ne!(account.limit.unwrap().resource, Resource::Network);
}

#[test]
fn report_states_that_large_datagrams_are_fragmented() {
    let sent = FlowCount { bytes: 9_000_000, datagrams: 1000, ..FlowCount::default() };
    let mut report = report(sent, sent);
    report.directions[0].sender.as_mut().unwrap().flows[0].path_mtu_bytes = Some(1500);
    let notes = |size: &str| {
        let settings = TransferSettings::read(json!({ "protocol": "udp", "size": size })).unwrap();
        of(&settings, &report).tables[0].notes.join("\n")
    };
    assert!(notes("9000B").contains("datagrams of 9000 B are cut into packets of up to 1500 B"));
    assert!(!notes("1472B").contains("cut"));
}

#[test]
fn late_requests_are_a_doubt() {
    let responses =
        Responses { answered: 90, unanswered: 10, late: 5, late_ms_max: 2.5, ..Responses::default() };
    let report = TransferReport { responses: Some(responses), ..TransferReport::default() };
    let doubts = judge(&TransferSettings::default(), &report).doubts;
    assert_eq!(doubts, [TransferDoubt::RequestsLate { late_percent: 5.0, late_ms_max: 2.5 }.into()]);
    assert_eq!(doubts[0].to_string(), "5 % of the requests were sent late, the latest by 2.5 ms");
}
