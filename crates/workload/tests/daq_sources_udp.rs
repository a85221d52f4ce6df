//! Sources that send their fragments in datagrams; over loopback, with a builder played by the test.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of tests fails as tests do")]

mod daq_sources_common;

use std::collections::BTreeMap;

use daq_sources_common::{Builder, Rig};
use kagiri_workload::daq::report::SourceSent;
use kagiri_workload::daq::wire::{Kind, Order, PART_HEADER_BYTES, Part, Piece};
use serde_json::json;

/// The next datagram that came to the builder's port.
fn part(builder: &Builder) -> (Part, Vec<u8>) {
    let mut buffer = [0; 2048];
    let (bytes, _) = builder.udp.recv_from(&mut buffer).unwrap();
    assert!(bytes <= PART_HEADER_BYTES + 1400);
    let (part, payload) = Part::decode(&buffer[..bytes]).unwrap();
    (part, payload.to_vec())
}

/// Fragments of one event of all sources, put together from their datagrams.
fn event(builder: &Builder, event: u64, bytes: u32) -> BTreeMap<u32, Vec<u8>> {
    let mut fragments = BTreeMap::<u32, Vec<u8>>::new();
    let datagrams = builder.sources * bytes.div_ceil(1400).max(1);
    for _ in 0..datagrams {
        let (part, payload) = part(builder);
        assert_eq!((part.piece.kind, part.piece.event, part.whole_bytes), (Kind::Fragment, event, bytes));
        let fragment = fragments.entry(part.piece.source).or_default();
        assert_eq!(part.offset as usize, fragment.len(), "they come in order over loopback");
        fragment.extend_from_slice(&payload);
    }
    assert_eq!(fragments.len(), builder.sources as usize);
    assert!(fragments.values().all(|fragment| fragment.len() == bytes as usize));
    fragments
}

/// Says something to the group alone.
fn say(builder: &Builder, order: &Order) {
    let port = builder.hellos[&0].1.udp_port;
    builder.udp.send_to(&order.encode(), ("127.0.0.1", port)).unwrap();
}

/// Makes sure that nothing more comes: the answer to a question is next.
fn is_quiet(builder: &Builder) {
    say(builder, &builder.order(Kind::Sync, 99));
    let mut buffer = [0; 2048];
    let (bytes, _) = builder.udp.recv_from(&mut buffer).unwrap();
    assert_eq!(Piece::decode(&buffer[..bytes]).unwrap().0.kind, Kind::Sync);
}

#[test]
fn fragments_come_in_datagrams() {
    for bytes in [0, 10, 1400, 5000, 30_000_u32] {
        let mut rig = Rig::new(&json!({ "sources": 2, "protocol": "udp", "size": format!("{bytes}B") }));
        let builder = rig.only();
        for number in 0..3 {
            builder.say(&builder.order(Kind::Trigger, number));
            event(builder, number, bytes);
        }
        is_quiet(builder);
        builder.all_are_quiet();
        let report = rig.stop();
        assert_eq!(report.payload_bytes, 6 * u64::from(bytes));
        assert!(report.sources.iter().all(|source| source.sent == 3));
        // TCP, which carries no fragments here, has nothing to say of them.
        let of_tcp =
            |source: &SourceSent| (source.retransmits, source.timeouts, source.timeout_ms, source.dsacks);
        assert!(report.sources.iter().all(|source| of_tcp(source) == (None, None, None, None)));
    }
}

#[test]
fn what_did_not_arrive_is_sent_again() {
    let mut rig = Rig::new(&json!({ "sources": 3, "protocol": "udp", "size": "5000B" }));
    let builder = rig.only();
    builder.say(&builder.order(Kind::Trigger, 7));
    let whole = event(builder, 7, 5000);
    let any = builder.order(Kind::Nack, 7);
    let nack = |source, from, bytes| Order {
        first_source: source,
        sources: 1,
        credit_bytes: from,
        fragment_bytes: bytes,
        ..any
    };
    // A part, all, and more than there is; to the group and over a connection.
    for (source, from, bytes, is_to_group) in
        [(0, 100, 2000, true), (2, 0, 5000, false), (1, 4990, u32::MAX, true), (1, u32::MAX, 10, true)]
    {
        let order = nack(source, from, bytes);
        if is_to_group {
            say(builder, &order)
        } else {
            builder.tell(source, &order)
        };
        let (from, wanted) = (from.min(5000) as usize, (bytes as usize).min(5000 - from.min(5000) as usize));
        let mut got = Vec::new();
        for _ in 0..wanted.div_ceil(1400).max(1) {
            let (part, payload) = part(builder);
            assert_eq!((part.piece.source, part.offset as usize), (source, from + got.len()));
            got.extend(payload);
        }
        assert_eq!(got, whole[&source][from..from + wanted]);
    }
    // Nobody has these.
    say(builder, &nack(3, 0, 10));
    say(builder, &nack(u32::MAX, 0, 10));
    say(builder, &Order { event: 8, ..nack(0, 0, 10) });
    say(builder, &Order { event: 6, ..nack(0, 0, 10) });
    is_quiet(builder);
    // What is not wanted any more is forgotten.
    builder.say(&builder.order(Kind::Trigger, 8));
    event(builder, 8, 5000);
    say(builder, &nack(0, 0, 10));
    is_quiet(builder);
    assert_eq!(rig.stop().nacks, 4);
}

#[test]
fn another_host_cannot_ask() {
    let mut rig = Rig::new(&json!({ "sources": 1, "protocol": "udp" }));
    let builder = rig.only();
    let port = builder.hellos[&0].1.udp_port;
    let stranger = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    stranger.send_to(&builder.order(Kind::Trigger, 0).encode(), ("127.0.0.1", port)).unwrap();
    stranger.send_to(&builder.order(Kind::Stop, 0).encode(), ("127.0.0.1", port)).unwrap();
    is_quiet(builder);
    let report = rig.stop();
    assert_eq!((report.orders, report.payload_bytes), (0, 0));
}
