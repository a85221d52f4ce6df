//! Sources that send datagrams to a scripted builder, over loopback.

use std::collections::BTreeMap;

use crate::scripted_builder::{Builder, Rig};
use daq::report::SourceSent;
use daq::wire::{DATAGRAM_HEADER_BYTES, DatagramHeader, Kind, Order};
use serde_json::json;

/// The next datagram at the builder's port.
fn datagram_header(builder: &Builder) -> (DatagramHeader, Vec<u8>) {
    let mut buffer = [0; 2048];
    let (bytes, _) = builder.udp.recv_from(&mut buffer).unwrap();
    assert!(bytes <= DATAGRAM_HEADER_BYTES + 1400);
    let (datagram_header, payload) = DatagramHeader::decode(&buffer[..bytes]).unwrap();
    (datagram_header, payload.to_vec())
}

/// One event's fragments of all sources, reassembled.
fn event(builder: &Builder, event: u64, bytes: u32) -> BTreeMap<u32, Vec<u8>> {
    let mut fragments = BTreeMap::<u32, Vec<u8>>::new();
    let datagrams = builder.sources * bytes.div_ceil(1400).max(1);
    for _ in 0..datagrams {
        let (datagram_header, payload) = datagram_header(builder);
        assert_eq!(
            (datagram_header.fragment.kind, datagram_header.fragment.event, datagram_header.whole_bytes),
            (Kind::Fragment, event, bytes)
        );
        let fragment = fragments.entry(datagram_header.fragment.source).or_default();
        assert_eq!(datagram_header.offset as usize, fragment.len(), "they come in order over loopback");
        fragment.extend_from_slice(&payload);
    }
    assert_eq!(fragments.len(), builder.sources as usize);
    assert!(fragments.values().all(|fragment| fragment.len() == bytes as usize));
    fragments
}

/// Asserts that nothing else arrives: the next datagram answers a clock probe.
fn assert_quiet(builder: &Builder) {
    builder.send_to_worker(0, &builder.order(Kind::Sync, 99));
    assert_eq!(builder.next_datagram().0.kind, Kind::Sync);
}

#[test]
fn udp_sources_send_datagrams() {
    for bytes in [0, 10, 1400, 5000, 30_000_u32] {
        let mut rig = Rig::new(&json!({ "sources": 2, "protocol": "udp", "size": format!("{bytes}B") }));
        let builder = rig.only();
        for number in 0..3 {
            builder.multicast_order(&builder.order(Kind::Trigger, number));
            event(builder, number, bytes);
        }
        assert_quiet(builder);
        builder.assert_all_quiet();
        let report = rig.stop();
        assert_eq!(report.payload_bytes, 6 * u64::from(bytes));
        assert!(report.sources.iter().all(|source| source.sent == 3));
        // TCP carries no fragments here: its counters are not reported.
        let of_tcp =
            |source: &SourceSent| (source.retransmits, source.timeouts, source.timeout_ms, source.dsacks);
        assert!(report.sources.iter().all(|source| of_tcp(source) == (None, None, None, None)));
    }
}

#[test]
fn nack_makes_source_resend_bytes() {
    let mut rig = Rig::new(&json!({ "sources": 3, "protocol": "udp", "size": "5000B" }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 7));
    let whole = event(builder, 7, 5000);
    let any = builder.order(Kind::Nack, 7);
    let nack = |source, from, bytes| Order {
        first_source: source,
        sources: 1,
        credit_bytes: from,
        fragment_bytes: bytes,
        ..any
    };
    // A part, all, and more than exists; by datagram and over a connection.
    for (source, from, bytes, is_to_group) in
        [(0, 100, 2000, true), (2, 0, 5000, false), (1, 4990, u32::MAX, true), (1, u32::MAX, 10, true)]
    {
        let order = nack(source, from, bytes);
        if is_to_group {
            builder.send_to_worker(0, &order)
        } else {
            builder.send_over_connection(source, &order)
        };
        let (from, wanted) = (from.min(5000) as usize, (bytes as usize).min(5000 - from.min(5000) as usize));
        let mut got = Vec::new();
        for _ in 0..wanted.div_ceil(1400).max(1) {
            let (datagram_header, payload) = datagram_header(builder);
            assert_eq!(
                (datagram_header.fragment.source, datagram_header.offset as usize),
                (source, from + got.len())
            );
            got.extend(payload);
        }
        assert_eq!(got, whole[&source][from..from + wanted]);
    }
    // Bytes that do not exist.
    builder.send_to_worker(0, &nack(3, 0, 10));
    builder.send_to_worker(0, &nack(u32::MAX, 0, 10));
    builder.send_to_worker(0, &Order { event: 8, ..nack(0, 0, 10) });
    builder.send_to_worker(0, &Order { event: 6, ..nack(0, 0, 10) });
    assert_quiet(builder);
    // Obsolete events are forgotten.
    builder.multicast_order(&builder.order(Kind::Trigger, 8));
    event(builder, 8, 5000);
    builder.send_to_worker(0, &nack(0, 0, 10));
    assert_quiet(builder);
    assert_eq!(rig.stop().nacks, 4);
}

#[test]
fn nack_from_another_host_is_ignored() {
    let mut rig = Rig::new(&json!({ "sources": 1, "protocol": "udp" }));
    let builder = rig.only();
    let port = builder.hellos[&0].1.udp_port;
    let stranger = std::net::UdpSocket::bind("127.0.0.2:0").unwrap();
    stranger.send_to(&builder.order(Kind::Trigger, 0).encode(), ("127.0.0.1", port)).unwrap();
    stranger.send_to(&builder.order(Kind::Stop, 0).encode(), ("127.0.0.1", port)).unwrap();
    assert_quiet(builder);
    let report = rig.stop();
    assert_eq!((report.orders, report.payload_bytes), (0, 0));
}
