//! Sources that lie, say nonsense, say nothing, die or come again: each counted under its own name, none able to stop the
//! builder or to make it grow.

mod daq_common;
mod daq_played;

use std::collections::BTreeMap;
use std::net::UdpSocket;

use daq_common::{Trial, settings};
use daq_played::{Played, piece};
use kagiri_workload::daq::report::BuilderReport;
use kagiri_workload::daq::settings::DaqSettings;
use kagiri_workload::daq::wire::{
    HEADER_BYTES, Kind, Order, OrderFlags, PAYLOAD_BYTES_MAX, Piece, WHOEVER_LISTENS,
};
use serde_json::{Value, json};

const PAYLOAD: [u8; 100] = [7; 100];

/// Two sources, which are told over their connections.
fn two(more: Value) -> DaqSettings {
    let mut all = json!({ "sources": 2, "events": 3, "size": "100B", "orders": "tcp" });
    all.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    settings(all)
}

fn end(mut trial: Trial) -> BuilderReport {
    trial.wait();
    trial.end().0.remove(0)
}

fn refused(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
    names.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A header whose bytes are altered, with the checksum that belongs to it.
fn altered(mut bytes: [u8; HEADER_BYTES], alter: impl Fn(&mut [u8])) -> Vec<u8> {
    alter(&mut bytes);
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_be_bytes());
    bytes.to_vec()
}

#[test]
fn strangers_are_shown_out_and_everybody_else_goes_on() {
    let mut trial = Trial::new(&two(json!({})));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| Played::connect(&facts, source));
    let honest = piece(Kind::Fragment, facts.run, 0, 0, &PAYLOAD);
    let order = Order {
        kind: Kind::Trigger,
        flags: OrderFlags::default(),
        run: facts.run,
        builder: 0,
        event: 0,
        triggered_ns: 0,
        first_source: 0,
        sources: 2,
        fragment_bytes: 0,
        credit_bytes: 0,
        event_oldest: 0,
        seed: 0,
    };
    let mut broken = honest.encode();
    broken[20] ^= 1;
    let too_long = Piece { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..honest };
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        altered(honest.encode(), |bytes| bytes[4] = 2),
        altered(honest.encode(), |bytes| bytes[5] = 99),
        order.encode().to_vec(),
        broken.to_vec(),
        too_long.encode().to_vec(),
    ] {
        let mut stranger = Played::silent(&facts, 0);
        stranger.write(&bytes);
        assert!(stranger.is_shown_out(), "{bytes:?}");
    }
    let mut stranger = Played::silent(&facts, 2);
    stranger.say_hello(|_, _| {});
    assert!(stranger.is_shown_out(), "there is no such source");
    let lies: [fn(&mut Piece, &mut kagiri_workload::daq::wire::Hello); 3] =
        [|piece, _| piece.run ^= 1, |piece, _| piece.builder = 1, |_, hello| hello.configuration = 1];
    for lie in lies {
        let mut stranger = Played::silent(&facts, 1);
        stranger.say_hello(lie);
        assert!(stranger.is_shown_out());
    }
    assert!(Played::connect(&facts, 1).is_shown_out(), "somebody else is that source");
    assert!(Played::silent(&facts, 0).is_shown_out(), "who says nothing has to go");
    let mut forward = Played::silent(&facts, 0);
    forward.send(0, &PAYLOAD);

    trial.start();
    let sources = sources.map(|source| source.go_on(PAYLOAD.to_vec()));
    let report = end(trial);
    sources.into_iter().for_each(|source| source.join().unwrap());
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
    ];
    assert_eq!((report.ledger.turned_away, report.ledger.refused), (refused(&names), BTreeMap::new()));
    assert_eq!((report.ledger.built, report.ledger.broken_connections), (6, 0));
}

#[test]
fn a_wrong_fragment_is_refused_and_the_right_one_taken() {
    let mut trial = Trial::new(&two(json!({})));
    let facts = trial.facts.clone();
    let [mut liar, honest] = [0, 1].map(|source| Played::connect(&facts, source));
    trial.start();
    let honest = honest.go_on(PAYLOAD.to_vec());
    let event = liar.event(None);
    let right = piece(Kind::Fragment, facts.run, 0, event, &PAYLOAD);
    for lie in [
        Piece { run: facts.run ^ 1, ..right },
        Piece { builder: 1, ..right },
        Piece { source: 1, ..right },
        Piece { event: event + 1_000_000, ..right },
        Piece { event: u64::MAX, ..right },
        Piece { payload_crc: 1, ..right },
    ] {
        liar.write(&[&lie.encode()[..], &PAYLOAD].concat());
    }
    liar.send(event, &PAYLOAD[1..]);
    // The right one, in pieces; and once more.
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
        liar.go_on(PAYLOAD.to_vec())
    };
    let report = end(trial);
    [liar, honest].into_iter().for_each(|source| source.join().unwrap());
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
fn a_source_that_stalls_dies_or_comes_again_costs_no_more_than_its_events() {
    let mut trial = Trial::new(&two(json!({ "events": 4, "timeout": "3s" })));
    let facts = trial.facts.clone();
    let [mut lame, honest] = [0, 1].map(|source| Played::connect(&facts, source));
    trial.start();
    let honest = honest.go_on(PAYLOAD.to_vec());
    let first = lame.event(None);
    let bytes = lame.fragment(first, &PAYLOAD);
    lame.write(&bytes[..100]);
    lame.is_busy = true;
    let second = lame.event(Some(first));
    // It was given up: the rest is late, and once more it is there twice.
    lame.write(&bytes[100..]);
    lame.write(&bytes);
    let bytes = lame.fragment(second, &PAYLOAD);
    lame.write(&bytes[..HEADER_BYTES + 1]);
    drop(lame);
    // Started again it is a group of its own, which has not shown that it hears multicast.
    let mut again = Played::silent(&facts, 0);
    again.say_hello(|header, hello| (header.builder, hello.group) = (WHOEVER_LISTENS, 6));
    // What it was asked for before is not said again to it; the next is.
    let third = again.event(Some(second));
    again.send(third, &PAYLOAD);
    let again = again.go_on(PAYLOAD.to_vec());
    let report = end(trial);
    [again, honest].into_iter().for_each(|source| source.join().unwrap());
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

#[test]
fn memory_is_never_exceeded_and_what_has_no_room_is_told_of() {
    let size = 40 << 10;
    let more = json!({ "events": 2, "size": "40KiB", "memory": "64KiB", "timeout": "2s" });
    let mut trial = Trial::new(&two(more));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| Played::connect(&facts, source));
    trial.start();
    let sources = sources.map(|source| source.go_on(vec![1; size]));
    let report = end(trial);
    sources.into_iter().for_each(|source| source.join().unwrap());
    assert_eq!((report.events.complete, report.events.incomplete), (0, 2));
    assert!(report.memory_bytes_max <= 64 << 10);
    assert_eq!(report.ledger.refused, refused(&[("no_memory", 2)]));
    assert_eq!(report.ledger.in_incomplete, 2);
}

#[test]
fn noise_at_every_port_disturbs_nobody() {
    let mut trial = Trial::new(&two(json!({ "events": 50 })));
    let facts = trial.facts.clone();
    let sources = [0, 1].map(|source| Played::connect(&facts, source));
    trial.start();
    let sources = sources.map(|source| source.go_on(PAYLOAD.to_vec()));
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..200_u64 {
        let mut bytes: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
        if round % 2 == 0 {
            let header = piece(Kind::Fragment, facts.run, random.u32(0..4), round % 4, &bytes).encode();
            bytes.splice(0..0, header);
        }
        noise.send_to(&bytes, facts.addresses[0]).unwrap();
        let mut stranger = Played::silent(&facts, 0);
        // It may be shown out before it has said all.
        let _ = std::io::Write::write_all(&mut stranger.stream, &bytes);
    }
    let report = end(trial);
    sources.into_iter().for_each(|source| source.join().unwrap());
    assert_eq!((report.events.complete, report.ledger.built), (50, 100));
    assert_eq!((report.ledger.duplicate, report.ledger.late), (0, 0));
    let turned_away: u64 = report.ledger.turned_away.values().sum();
    assert!(turned_away > 100 && report.ledger.refused_all() == 0, "{:?}", report.ledger);
}
