//! Front ends that are not kagiri's: nothing is claimed of them that nothing shows.

use crate::scripted_source::{ScriptedSource, header};
use crate::trial::{Trial, merged, settings};
use daq::judge::judge;
use daq::report::{BuilderReport, BuildersReport, Cause};
use daq::settings::DaqSettings;
use daq::trial_reports::TrialReports;
use daq::wire::{DatagramHeader, FragmentHeader, HEADER_BYTES, Kind, PAYLOAD_BYTES_MAX};
use serde_json::{Value, json};

pub const PAYLOAD: [u8; 100] = [7; 100];

/// Two front ends, with orders over their connections.
pub fn two(more: Value) -> DaqSettings {
    let all = json!({ "sources": 2, "front_ends": 2, "size": "100B", "orders": "tcp", "timeout": "300ms" });
    settings(merged(all, more))
}

/// What the program prints and stores of a trial, as text.
fn account(settings: &DaqSettings, report: &BuilderReport) -> String {
    let hosts = vec![BuildersReport { builders: vec![report.clone()] }];
    let judgement = judge(settings, &TrialReports { hosts, sources: Vec::new() });
    format!("{:?} {:?} {:?}", judgement.account, judgement.doubts, judgement.metrics)
}

/// A front end's thread that sends each ordered fragment, changed or not at all, until the stop order.
pub fn serve(
    mut source: ScriptedSource,
    change: impl Fn(&mut FragmentHeader) -> bool + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(order) = source.order() {
            let mut fragment = header(Kind::Fragment, source.run, source.source, order.event, &PAYLOAD);
            if change(&mut fragment) {
                source.write(&[&fragment.encode()[..], &PAYLOAD].concat());
            }
        }
    })
}

#[test]
fn silent_front_end_is_told_as_silent_not_as_loss() {
    let settings = two(json!({ "events": 5 }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let [silent, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let report = trial.finish([serve(silent, |_| false), serve(honest, |_| true)]);
    assert_eq!((report.events.complete, report.events.incomplete), (0, 5));
    assert_eq!(report.causes, [(Cause::Silent, 5)].into());
    assert!(report.slow.iter().all(|slow| slow.source == 0), "{:?}", report.slow);
    let said = account(&settings, &report);
    assert!(said.contains("waited for a connected source that sent nothing"), "{said}");
    for invented in ["retransmission timeout", "tail-loss", "overflowed the port", "events waited for lost"] {
        assert!(!said.contains(invented), "{invented}: {said}");
    }
}

#[test]
fn slow_front_end_has_an_unknown_cause_without_its_counters() {
    let settings = two(json!({ "events": 40, "timeout": "10s" }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    let [slow, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    // It reads its clock and then sleeps: nothing was lost, and the kernel retransmits nothing.
    let slow = serve(slow, |fragment| {
        if fragment.event % 20 == 19 {
            std::thread::sleep(std::time::Duration::from_millis(210));
        }
        true
    });
    let report = trial.finish([slow, serve(honest, |_| true)]);
    assert_eq!((report.events.complete, report.events.incomplete), (40, 0));
    assert!(report.causes[&Cause::Unknown] >= 2, "{:?}", report.causes);
    let said = account(&settings, &report);
    for invented in ["retransmission timeout", "tail-loss", "waited in a queue", "events waited for lost"] {
        assert!(!said.contains(invented), "{invented}: {said}");
    }
}

#[test]
fn absurd_send_times_are_unknown_and_named() {
    let absurd: [fn(u64) -> u64; 4] =
        [|_| 0, |_| u64::MAX, |ns| ns + 3_000_000_000_000, |ns| ns.saturating_sub(20_000_000)];
    for absurd in absurd {
        let settings = two(json!({ "events": 20, "timeout": "10s" }));
        let mut trial = Trial::new(&settings);
        let facts = trial.facts.clone();
        let [liar, honest] = [0, 1].map(|source| {
            let mut source = ScriptedSource::silent(&facts, source);
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
            let boot = u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap().to_be_bytes();
            source.send_hello(|_, hello| hello.boot = boot);
            source
        });
        trial.start();
        let liar = serve(liar, move |fragment| {
            fragment.sent_ns = absurd(fragment.sent_ns);
            true
        });
        let report = trial.finish([liar, serve(honest, |_| true)]);
        assert_eq!((report.events.complete, report.ledger.built), (20, 40));
        let counts: Vec<_> = report.sources_seen.iter().map(|seen| seen.implausible_times).collect();
        assert_eq!(counts, [20, 0]);
        // The honest source alone has no skew, and a known clock.
        assert_eq!(report.skew.max_ns().unwrap_or(0), 0, "{:?}", report.skew);
        let said = account(&settings, &report);
        assert!(said.contains("SendTimesImplausible") || said.contains("send times of source 0"), "{said}");
    }
}

#[test]
fn front_end_that_reconnects_is_asked_again_in_every_pattern() {
    for pattern in ["push", "grant", "pull"] {
        let more = json!({ "events": 30, "timeout": "10s", "pattern": pattern, "window": 2 });
        let more = if pattern == "push" { more } else { merged(more, json!({ "credit": 1 })) };
        let settings = two(more);
        let mut trial = Trial::new(&settings);
        let facts = trial.facts.clone();
        let [mut lame, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
        trial.start();
        let honest = honest.send_until_stop(PAYLOAD.to_vec());
        let lame = std::thread::spawn(move || {
            let (mut sent, mut lost) = (std::collections::BTreeSet::new(), Vec::new());
            while let Some(order) = lame.order() {
                // The connection breaks before the fragment is sent.
                if order.event % 5 == 1 && !lost.contains(&order.event) {
                    lost.push(order.event);
                    drop(lame);
                    lame = ScriptedSource::connect(&facts, 0);
                } else if sent.insert(order.event) {
                    lame.send(order.event, &PAYLOAD);
                }
            }
        });
        let report = trial.finish([lame, honest]);
        let events = (report.events.complete, report.events.incomplete);
        assert_eq!(events, (30, 0), "{pattern}: {:?}", report.ledger);
        let ledger = &report.ledger;
        assert_eq!((ledger.built, ledger.duplicate, ledger.reconnected), (60, 0, 6), "{pattern}");
    }
}

#[test]
fn connections_without_a_whole_hello_are_counted_and_named() {
    let settings = two(json!({ "events": 3 }));
    let mut trial = Trial::new(&settings);
    let facts = trial.facts.clone();
    assert!(ScriptedSource::silent(&facts, 0).is_closed(), "after the hello's deadline");
    let mut half = ScriptedSource::silent(&facts, 0);
    half.write(&header(Kind::Hello, facts.run, 0, 0, &[0; 64]).encode()[..40]);
    drop(half);
    drop(ScriptedSource::silent(&facts, 1));
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let report = trial.finish(sources.map(|source| source.send_until_stop(PAYLOAD.to_vec())));
    assert_eq!(report.events.complete, 3);
    let counts = [("incomplete_hello".to_owned(), 1), ("no_hello".to_owned(), 2)];
    assert_eq!(report.ledger.turned_away, counts.into());
    let said = account(&settings, &report);
    for named in
        ["turned away: no hello", "turned away: incomplete hello", "no hello: 2, incomplete hello: 1"]
    {
        assert!(said.contains(named), "{named}: {said}");
    }
}

/// A front end that claims so many bytes for its first fragment, and sends none of them.
fn claim_all(mut liar: ScriptedSource, payload_bytes: u32) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let event = liar.event(None);
        let claim = header(Kind::Fragment, liar.run, liar.source, event, &[]);
        liar.write(&FragmentHeader { payload_bytes, ..claim }.encode());
        liar.is_busy = true;
        while liar.order().is_some() {}
    })
}

#[test]
fn claim_beyond_a_front_ends_share_is_refused_and_leaves_room_for_others() {
    let all = json!({ "sources": 12, "front_ends": 12, "events": 3, "memory": "1MiB", "window": 4 });
    let mut trial = Trial::new(&two(all));
    let facts = trial.facts.clone();
    let mut sources: Vec<_> = (0..12).map(|source| ScriptedSource::connect(&facts, source)).collect();
    let honest = sources.split_off(10);
    trial.start();
    let honest: Vec<_> = honest.into_iter().map(|one| one.send_until_stop(vec![7; 10_000])).collect();
    let liars: Vec<_> = sources.into_iter().map(|liar| claim_all(liar, PAYLOAD_BYTES_MAX)).collect();
    let report = trial.finish(honest.into_iter().chain(liars));
    assert_eq!((report.events.complete, report.events.incomplete), (0, 3));
    assert_eq!(report.ledger.refused, [("too_large".to_owned(), 10)].into());
    assert_eq!(report.ledger.in_incomplete, 6, "both honest ones found room for every event");
    assert!(report.memory_bytes_max < 200_000, "{}", report.memory_bytes_max);
}

/// Four times `--size` is more than a source's share of this memory.
#[test]
fn claims_leave_room_for_others_where_the_memory_holds_one_event_only() {
    let all = json!({
        "sources": 12, "front_ends": 12, "events": 3, "size": "64KiB", "memory": "1MiB", "window": 4,
    });
    for (claim, refused) in [(256 << 10, 10), ((1 << 20) / 12, 0)] {
        let mut trial = Trial::new(&two(all.clone()));
        let facts = trial.facts.clone();
        let mut sources: Vec<_> = (0..12).map(|source| ScriptedSource::connect(&facts, source)).collect();
        let honest = sources.split_off(10);
        trial.start();
        let honest: Vec<_> = honest.into_iter().map(|one| one.send_until_stop(vec![7; 64 << 10])).collect();
        let liars: Vec<_> = sources.into_iter().map(|liar| claim_all(liar, claim)).collect();
        let report = trial.finish(liars.into_iter().chain(honest));
        let ledger = &report.ledger;
        assert_eq!(ledger.refused.get("too_large").copied().unwrap_or(0), refused, "{ledger:?}");
        assert_eq!(ledger.in_incomplete, 6, "both honest ones found room for every event: {ledger:?}");
        assert!(report.memory_bytes_max <= 1 << 20, "{}", report.memory_bytes_max);
    }
}

#[test]
fn front_end_without_a_udp_port_of_its_own_sends_datagrams_from_any() {
    let mut trial = Trial::new(&two(json!({ "events": 5, "protocol": "udp", "timeout": "10s" })));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let sources = sources.map(|mut source| {
        let builder = facts.addresses[0];
        std::thread::spawn(move || {
            while let Some(order) = source.order() {
                let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                let bytes = source.fragment(order.event, &PAYLOAD);
                assert_eq!(socket.send_to(&bytes, builder).unwrap(), HEADER_BYTES + PAYLOAD.len());
            }
        })
    });
    let report = trial.finish(sources);
    assert_eq!((report.events.complete, report.ledger.built), (5, 10), "{:?}", report.ledger);
    assert!(report.ledger.turned_away.is_empty(), "{:?}", report.ledger);
}

#[test]
fn front_end_without_a_udp_port_gets_requests_for_lost_bytes_over_its_connection() {
    let more = json!({ "sources": 1, "front_ends": 1, "events": 3, "size": "3000B", "protocol": "udp" });
    let mut trial = Trial::new(&two(merged(more, json!({ "timeout": "10s" }))));
    let facts = trial.facts.clone();
    let mut source = ScriptedSource::connect(&facts, 0);
    trial.start();
    let source = std::thread::spawn(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let payload = [7; 3000];
        let part = |event: u64, from: usize| {
            let bytes = &payload[from..(from + 1400).min(payload.len())];
            let fragment = header(Kind::Fragment, facts.run, 0, event, bytes);
            let part = DatagramHeader { fragment, offset: from as u32, whole_bytes: 3000 };
            socket.send_to(&[&part.encode()[..], bytes].concat(), facts.addresses[0]).unwrap();
        };
        while let Some(order) = source.order() {
            match order.kind {
                Kind::Nack => {
                    let lost = (order.first_source, order.credit_bytes, order.fragment_bytes);
                    assert_eq!(lost, (0, 0, 1400), "the first datagram is missing");
                    part(order.event, 0);
                }
                _ => [1400, 2800].into_iter().for_each(|from| part(order.event, from)),
            }
        }
    });
    let report = trial.finish([source]);
    assert_eq!((report.events.complete, report.ledger.built), (3, 3), "{:?}", report.ledger);
    assert!(report.orders.nacks >= 3 && report.ledger.turned_away.is_empty(), "{:?}", report.ledger);
}

#[test]
fn front_ends_without_multicast_get_every_order_over_their_connections() {
    for pattern in ["push", "grant", "pull"] {
        let more = json!({ "events": 20, "orders": "multicast", "timeout": "10s", "pattern": pattern });
        let more = if pattern == "push" { more } else { merged(more, json!({ "credit": 1 })) };
        let mut trial = Trial::new(&two(more));
        let facts = trial.facts.clone();
        let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
        trial.start();
        let report = trial.finish(sources.map(|source| source.send_until_stop(PAYLOAD.to_vec())));
        let note = report.orders_note.expect("nobody joined the group");
        assert!(note.contains("did not reach 1 of 1 groups"), "{note}");
        assert_eq!((report.events.complete, report.ledger.built), (20, 40), "{pattern}");
        // Nothing waited for a repetition.
        assert!(report.completion.max_ns().is_some_and(|ns| ns < 1_000_000_000), "{pattern}");
    }
}
