//! Sources that send wrong or random bytes, stay silent, die or reconnect: each is counted by reason, and
//! none stops the builder or exhausts its memory.

use std::collections::BTreeMap;
use std::net::UdpSocket;

use crate::scripted_source::{ScriptedSource, header};
use crate::trial::{Trial, merged, settings};
use daq::settings::DaqSettings;
use daq::wire::{ANY_BUILDER, FragmentHeader, HEADER_BYTES, Kind, Order, PAYLOAD_BYTES_MAX};
use serde_json::{Value, json};

const PAYLOAD: [u8; 100] = [7; 100];

/// Two sources, with orders over their connections.
fn two(more: Value) -> DaqSettings {
    settings(merged(json!({ "sources": 2, "events": 3, "size": "100B", "orders": "tcp" }), more))
}

fn refused(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
    names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// Alters an encoded header and corrects its checksum.
fn altered(mut bytes: [u8; HEADER_BYTES], alter: impl Fn(&mut [u8])) -> Vec<u8> {
    alter(&mut bytes);
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_be_bytes());
    bytes.to_vec()
}

#[test]
fn invalid_connections_are_closed_and_counted() {
    let mut trial = Trial::new(&two(json!({})));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    let honest = header(Kind::Fragment, facts.run, 0, 0, &PAYLOAD);
    let order = Order::new(Kind::Trigger, facts.run, 0, 2);
    let mut broken = honest.encode();
    broken[20] ^= 1;
    let too_long = FragmentHeader { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..honest };
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        altered(honest.encode(), |bytes| bytes[4] = 2),
        altered(honest.encode(), |bytes| bytes[5] = 99),
        order.encode().to_vec(),
        broken.to_vec(),
        too_long.encode().to_vec(),
    ] {
        let mut stranger = ScriptedSource::silent(&facts, 0);
        stranger.write(&bytes);
        assert!(stranger.is_closed(), "{bytes:?}");
    }
    let mut stranger = ScriptedSource::silent(&facts, 2);
    stranger.send_hello(|_, _| {});
    assert!(stranger.is_closed(), "there is no such source");
    let lies: [fn(&mut FragmentHeader, &mut daq::wire::Hello); 3] =
        [|header, _| header.run ^= 1, |header, _| header.builder = 1, |_, hello| hello.configuration = 1];
    for lie in lies {
        let mut stranger = ScriptedSource::silent(&facts, 1);
        stranger.send_hello(lie);
        assert!(stranger.is_closed());
    }
    assert!(ScriptedSource::connect(&facts, 1).is_closed(), "another connection is that source");
    assert!(ScriptedSource::silent(&facts, 0).is_closed(), "a silent connection is closed");
    let mut forward = ScriptedSource::silent(&facts, 0);
    forward.send(0, &PAYLOAD);

    trial.start();
    let report = trial.finish(sources.map(|source| source.send_until_stop(PAYLOAD.to_vec())));
    assert_eq!((report.events.complete, report.events.incomplete), (3, 0));
    let names = [
        ("bad_header", 1),
        ("wrong_version", 1),
        ("wrong_kind", 2),
        ("header_checksum", 1),
        ("payload_length", 1),
        ("unknown_source", 2),
        ("wrong_run", 1),
        ("wrong_builder", 1),
        ("configuration", 1),
        ("duplicate_source", 1),
        ("no_hello", 1),
    ];
    assert_eq!((report.ledger.turned_away, report.ledger.refused), (refused(&names), BTreeMap::new()));
    assert_eq!((report.ledger.built, report.ledger.broken_connections), (6, 0));
}

#[test]
fn wrong_fragment_is_refused_and_correct_one_accepted() {
    let mut trial = Trial::new(&two(json!({})));
    let facts = trial.facts.clone();
    let [mut liar, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let honest = honest.send_until_stop(PAYLOAD.to_vec());
    let event = liar.event(None);
    let right = header(Kind::Fragment, facts.run, 0, event, &PAYLOAD);
    for lie in [
        FragmentHeader { run: facts.run ^ 1, ..right },
        FragmentHeader { builder: 1, ..right },
        FragmentHeader { source: 1, ..right },
        FragmentHeader { event: event + 1_000_000, ..right },
        FragmentHeader { event: u64::MAX, ..right },
        FragmentHeader { payload_crc: 1, ..right },
    ] {
        liar.write(&[&lie.encode()[..], &PAYLOAD].concat());
    }
    liar.send(event, &PAYLOAD[1..]);
    // The correct fragment in pieces, then a duplicate.
    let bytes = liar.fragment(event, &PAYLOAD);
    for byte in bytes.chunks(30) {
        liar.write(byte);
    }
    let next = liar.event(Some(event));
    liar.write(&bytes);
    liar.send(next, &PAYLOAD);
    let liar = {
        liar.event(Some(next));
        liar.send(next + 1, &PAYLOAD);
        liar.send_until_stop(PAYLOAD.to_vec())
    };
    let report = trial.finish([liar, honest]);
    assert_eq!((report.events.complete, report.events.incomplete), (3, 0), "{:?}", report.ledger);
    let names = [
        ("wrong_run", 1),
        ("wrong_builder", 1),
        ("unknown_source", 1),
        ("never_triggered", 2),
        ("payload_checksum", 1),
        ("payload_length", 1),
    ];
    assert_eq!(report.ledger.refused, refused(&names));
    assert_eq!((report.ledger.built, report.ledger.duplicate), (6, 1));
}

#[test]
fn failed_source_costs_only_its_events() {
    let mut trial = Trial::new(&two(json!({ "events": 4, "timeout": "3s" })));
    let facts = trial.facts.clone();
    let [mut lame, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let honest = honest.send_until_stop(PAYLOAD.to_vec());
    let first = lame.event(None);
    let bytes = lame.fragment(first, &PAYLOAD);
    lame.write(&bytes[..100]);
    lame.is_busy = true;
    let second = lame.event(Some(first));
    // The event was given up: the rest is late, and the next copy a duplicate.
    lame.write(&bytes[100..]);
    lame.write(&bytes);
    let bytes = lame.fragment(second, &PAYLOAD);
    lame.write(&bytes[..HEADER_BYTES + 1]);
    drop(lame);
    // The restarted source is a new group, which has not answered a multicast probe.
    let mut again = ScriptedSource::silent(&facts, 0);
    again.send_hello(|header, hello| (header.builder, hello.group) = (ANY_BUILDER, 6));
    // It leaves the repeated order of the second event unanswered; the next one arrives.
    let third = again.event(Some(second));
    again.send(third, &PAYLOAD);
    let again = again.send_until_stop(PAYLOAD.to_vec());
    let report = trial.finish([again, honest]);
    assert_eq!((report.events.complete, report.events.incomplete), (2, 2), "{:?}", report.ledger);
    let ledger = &report.ledger;
    assert_eq!(
        (ledger.built, ledger.in_incomplete, ledger.late, ledger.duplicate),
        (4, 2, 1, 1),
        "{ledger:?}"
    );
    assert_eq!((ledger.broken_connections, ledger.reconnected, ledger.refused_all()), (1, 1, 0));
    let missing: Vec<_> = report.incomplete.iter().map(|one| (one.event, one.sources.clone())).collect();
    assert_eq!(missing, [(first, vec![0]), (second, vec![0])]);
}

/// The builder remembers the last 256 events that it gave up.
#[test]
fn fragment_of_a_forgotten_event_is_from_the_past() {
    let mut trial = Trial::new(&two(json!({ "events": 700, "window": 300, "timeout": "200ms" })));
    let facts = trial.facts.clone();
    let [mut late, honest] = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let honest = honest.send_until_stop(PAYLOAD.to_vec());
    let first = late.event(None);
    // It began when 300 others had ended, all without this source.
    let later = late.event(Some(first + 599));
    late.send(first, &PAYLOAD);
    // Still remembered.
    late.send(later - 301, &PAYLOAD);
    let report = trial.finish([late.send_until_stop(PAYLOAD.to_vec()), honest]);
    assert_eq!(report.ledger.refused, refused(&[("from_the_past", 1)]));
    assert_eq!((report.ledger.late, report.ledger.duplicate), (1, 0), "{:?}", report.ledger);
}

#[test]
fn memory_limit_holds_and_refusals_are_counted() {
    let size = 40 << 10;
    let more = json!({ "events": 2, "size": "40KiB", "memory": "64KiB", "timeout": "2s" });
    let mut trial = Trial::new(&two(more));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let sources = sources.map(|source| source.send_until_stop(vec![1; size]));
    let report = trial.finish(sources);
    assert_eq!((report.events.complete, report.events.incomplete), (0, 2));
    assert!(report.memory_bytes_max <= 64 << 10);
    assert_eq!(report.ledger.refused, refused(&[("no_memory", 2)]));
    assert_eq!(report.ledger.in_incomplete, 2);
}

#[test]
fn random_bytes_at_every_port_are_harmless() {
    let mut trial = Trial::new(&two(json!({ "events": 50 })));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| ScriptedSource::connect(&facts, source));
    trial.start();
    let sources = sources.map(|source| source.send_until_stop(PAYLOAD.to_vec()));
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..200_u64 {
        let mut bytes: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
        if round % 2 == 0 {
            let header = header(Kind::Fragment, facts.run, random.u32(0..4), round % 4, &bytes).encode();
            bytes.splice(0..0, header);
        }
        noise.send_to(&bytes, facts.addresses[0]).unwrap();
        let mut stranger = ScriptedSource::silent(&facts, 0);
        // The builder may close the connection before all is written.
        let _ = std::io::Write::write_all(&mut stranger.stream, &bytes);
    }
    let report = trial.finish(sources);
    assert_eq!((report.events.complete, report.ledger.built), (50, 100));
    assert_eq!((report.ledger.duplicate, report.ledger.late), (0, 0));
    let turned_away: u64 = report.ledger.turned_away.values().sum();
    assert!(turned_away > 100 && report.ledger.refused_all() == 0, "{:?}", report.ledger);
}
