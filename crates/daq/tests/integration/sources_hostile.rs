//! Builders that send wrong bytes, never read or disappear: sources neither panic nor grow nor hang.

use crate::permit;
use std::io::Write;
use std::net::UdpSocket;

use crate::scripted_builder::{Builder, Rig, host, until};
use base::part::HostContext;
use daq::wire::{FragmentHeader, Kind, Order, OrderFlags};
use permit::Owner;
use serde_json::json;
use sys::net::TcpSocket;

/// Waits until the worker of source 0 has read all datagrams.
fn settle(builder: &Builder) {
    builder.send_to_worker(0, &builder.order(Kind::Sync, 5));
    assert_eq!(builder.next_datagram().0.event, 5);
}

fn reset(builder: &mut Builder, source: u32) {
    let socket = TcpSocket::try_from(builder.connections.remove(&source).unwrap()).unwrap();
    socket.reset_on_close().unwrap();
}

#[test]
fn invalid_datagrams_are_ignored() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    let port = builder.hellos[&0].1.udp_port;
    let order = builder.order(Kind::Trigger, 3);
    let good = order.encode();
    let mut flipped = good;
    flipped[20] ^= 1;
    let mut version = good;
    version[4] = 2;
    let other_run = Order { run: order.run ^ 1, ..order }.encode();
    let other_builder = Order { builder: 9, ..order }.encode();
    let other_side = FragmentHeader::encode(&builder.hellos[&0].0);
    let long = [&good[..], &[7; 2000]].concat();
    let nonsense: [&[u8]; 9] =
        [b"", b"x", b"KGDQ", &good[..63], &flipped, &version, &other_run, &other_builder, &other_side];
    for bytes in nonsense {
        builder.multicast.send(bytes).unwrap();
        builder.udp.send_to(bytes, ("127.0.0.1", port)).unwrap();
    }
    settle(builder);
    builder.assert_all_quiet();
    // Bytes after the header of a datagram are ignored.
    builder.multicast.send(&long).unwrap();
    builder.event(3);
    builder.assert_all_quiet();
    assert_eq!(rig.stop().orders, 1);
}

#[test]
fn invalid_bytes_end_that_connection_only() {
    let mut rig = Rig::new(&json!({ "sources": 4 }));
    let builder = rig.only();
    let good = builder.order(Kind::Trigger, 0).encode();
    let mut lies = good;
    lies[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
    for (source, bytes) in [(0, &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]), (1, &lies), (2, &[0; 64])] {
        builder.connections.get_mut(&source).unwrap().write_all(bytes).unwrap();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(builder.connections.get_mut(&source).unwrap(), &mut rest);
        assert!(rest.is_empty());
    }
    builder.multicast_order(&builder.order(Kind::Trigger, 1));
    builder.fragment(3, 1);
    // An incomplete order delays nothing else.
    builder.connections.get_mut(&3).unwrap().write_all(&good[..40]).unwrap();
    builder.multicast_order(&builder.order(Kind::Trigger, 2));
    builder.fragment(3, 2);
    let report = rig.stop();
    let why = report.broke_off.expect("three were lost");
    assert!(why.contains("invalid order"), "{why}");
    assert_eq!(report.sources.iter().map(|source| source.sent).collect::<Vec<_>>(), [0, 0, 0, 2]);
}

#[test]
fn impossible_orders_are_ignored() {
    let mut rig = Rig::new(&json!({ "sources": 2, "window": 4 }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 10));
    builder.event(10);
    let any = builder.order(Kind::Trigger, 11);
    for order in [
        // A far event with everything in between wanted.
        Order { event: 1 << 60, event_oldest: 10, ..any },
        Order { event: u64::MAX, event_oldest: 0, ..any },
        // Its own event is obsolete.
        Order { event: 11, event_oldest: 12, ..any },
        Order { event: 0, event_oldest: u64::MAX, ..any },
        // No source is addressed.
        Order { first_source: u32::MAX, sources: u32::MAX, ..any },
        Order { first_source: 2, sources: 1, ..any },
    ] {
        builder.multicast_order(&order);
    }
    settle(builder);
    builder.assert_all_quiet();
    // More sources than there are.
    builder.multicast_order(&Order { sources: u32::MAX, event_oldest: 10, ..any });
    builder.event(11);
    // A large gap that is possible: sources catch up as far as the window allows.
    builder.multicast_order(&Order { event: 5000, event_oldest: 12, ..any });
    for source in 0..2 {
        let caught: Vec<u64> = (0..12).map(|_| builder.next(source).0.event).collect();
        assert_eq!(caught, (4989..=5000).collect::<Vec<_>>());
    }
    builder.assert_all_quiet();
    assert!(rig.stop().broke_off.is_none());
}

#[test]
fn builder_that_never_reads_fills_its_window_only() {
    let events = 1500;
    let mut rig = Rig::new(&json!({ "sources": 2, "size": "64KiB", "window": 2 }));
    let builder = rig.only();
    for event in 0..events {
        builder.multicast_order(&Order {
            event_oldest: event.max(1) - 1,
            ..builder.order(Kind::Trigger, event)
        });
        // Keeps the receive buffer from overflowing.
        if event % 50 == 49 {
            settle(builder);
        }
    }
    // Now read what the kernel holds, then what is still wanted.
    for source in 0..2 {
        let mut came = vec![builder.next(source).0.event];
        while came.last() != Some(&(events - 1)) {
            came.push(builder.next(source).0.event);
        }
        assert!(came.is_sorted_by(|a, b| a < b) && came.len() < events as usize, "{} came", came.len());
    }
    builder.assert_all_quiet();
    let report = rig.stop();
    assert!(report.sources.iter().all(|source| source.cut == 0 && source.sent < events), "{report:?}");
}

#[test]
fn fragment_cut_by_stop_counts_as_cut() {
    let mut rig = Rig::new(&json!({ "sources": 1, "size": "32MiB" }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 0));
    settle(builder);
    let report = rig.stop();
    assert_eq!((report.sources[0].sent, report.sources[0].cut), (0, 1));
}

#[test]
fn builder_that_closes_ends_its_sources() {
    let mut rig = Rig::new(&json!({ "sources": 3 }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 0));
    builder.event(0);
    builder.connections.clear();
    let report = rig.end();
    let why = report.broke_off.expect("it was not over");
    assert!(why.starts_with("3 connections: the builder closed it"), "{why}");
    assert!(report.sources.iter().all(|source| source.sent == 1));
}

#[test]
fn reset_connection_is_reestablished() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    reset(builder, 1);
    // What is ordered meanwhile is sent after the reconnection.
    until("the reset", || {
        let event = u64::from(builder.accept() != 1);
        event == 0
    });
    builder.multicast_order(&builder.order(Kind::Trigger, 4));
    builder.event(4);
    let report = rig.stop();
    assert_eq!((report.reconnected, report.broke_off), (1, None));
}

#[test]
fn order_repeated_after_a_reconnection_is_sent_again_once() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 4));
    builder.event(4);
    let again = Order { flags: OrderFlags(OrderFlags::AGAIN), ..builder.order(Kind::Trigger, 4) };
    builder.send_over_connection(0, &again);
    reset(builder, 1);
    until("the reset", || builder.accept() == 1);
    for _ in 0..2 {
        builder.send_over_connection(1, &again);
    }
    builder.fragment(1, 4);
    // Neither the second copy nor the one over a connection that stood makes a source send again.
    builder.multicast_order(&builder.order(Kind::Trigger, 5));
    builder.event(5);
    assert_eq!(rig.stop().reconnected, 1);
}

#[test]
fn reconnection_gives_up_after_three_tries() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    reset(builder, 0);
    builder.listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    reset(builder, 1);
    let report = rig.end();
    let why = report.broke_off.expect("both are gone");
    assert!(
        why.contains("2 connections") && why.contains("refused") && why.contains("3 reconnections failed"),
        "{why}"
    );
}

#[test]
fn prepare_names_what_failed() {
    // Nothing listens.
    let (mut rig, endpoints) = Rig::unprepared(&json!({ "sources": 3 }));
    rig.only().listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = rig.part.prepare(&endpoints, &host()).unwrap_err().message;
    assert!(error.contains("of 3 connections") && error.contains("no builder listens"), "{error}");
    // No endpoint 'port'.
    let error = rig.part.prepare(&base::part::Endpoints::new(), &host()).unwrap_err().message;
    assert!(error.contains("'port'"), "{error}");
    // An unknown congestion control.
    let (mut rig, endpoints) = Rig::unprepared(&json!({ "sources": 1, "congestion_control": "nosuch" }));
    let error = rig.part.prepare(&endpoints, &host()).unwrap_err().message;
    assert!(error.contains("nosuch"), "{error}");
    // A missing file.
    let (mut rig, endpoints) = Rig::unprepared(&json!({ "sources": 1, "size": "file /nowhere/sizes" }));
    let error = rig.part.prepare(&endpoints, &host()).unwrap_err();
    assert!(error.usage && error.message.contains("/nowhere/sizes"), "{error}");
    // The host's policy refuses.
    for refused in ["peer 127.0.0.1", "rate"] {
        let (mut rig, endpoints) = Rig::unprepared(&json!({ "sources": 1 }));
        let host = HostContext { permit: Owner::refusing(refused), ..host() };
        let error = rig.part.prepare(&endpoints, &host).unwrap_err().message;
        assert!(error.contains("refused"), "{error}");
    }
    assert!(rig.part.start(0).is_err() && rig.part.stop().is_err());
}

#[test]
fn orders_from_other_hosts_are_ignored() {
    let mut rig = Rig::new(&json!({ "sources": 1 }));
    let builder = rig.only();
    // To the multicast port, but by unicast.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let order = Order { flags: OrderFlags(OrderFlags::LAST), ..builder.order(Kind::Stop, 0) };
    stranger.send_to(&order.encode(), ("127.0.0.1", builder.group.port())).unwrap();
    settle_after_stray(builder);
    builder.multicast_order(&builder.order(Kind::Trigger, 1));
    builder.event(1);
    rig.stop();
}

/// The stray order arrived at the builder's own port instead.
fn settle_after_stray(builder: &Builder) {
    let (bytes, _) = builder.udp.recv_from(&mut [0; 2048]).unwrap();
    assert_eq!(bytes, 64);
    settle(builder);
}
