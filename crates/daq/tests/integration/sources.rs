//! Sources execute the orders of a scripted builder, over loopback.

use crate::scripted_builder::{Builder, Rig, SEED};
use daq::part_settings::{boot_of_host, configuration_of};
use daq::settings::FragmentSizes;
use daq::wire::{FragmentFlags, FragmentHeader, Kind, Order, OrderFlags};
use serde_json::json;
use sys::clock::monotonic_ns;

#[test]
fn each_source_sends_a_hello() {
    let mut rig = Rig::new(&json!({ "sources": 5, "threads": 2, "congestion_control": "reno" }));
    let configuration = configuration_of(&rig.settings);
    let builder = rig.only();
    assert_eq!(builder.hellos.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for (header, hello) in builder.hellos.values() {
        assert!(header.payload_matches(&hello.encode()));
        assert_eq!((hello.boot, hello.configuration), (boot_of_host(), configuration));
        assert_eq!(hello.congestion_control, "reno");
        assert!(hello.group != 0 && hello.udp_port != 0);
        let of_group = builder.hellos.values().filter(|(_, other)| other.group == hello.group).count();
        assert_eq!(hello.sources as usize, of_group);
    }
    let report = rig.stop();
    assert_eq!(report.sources.iter().map(|source| source.source).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(report.connect_s > 0.0 && report.broke_off.is_none(), "{report:?}");
}

#[test]
fn trigger_makes_each_source_send_once() {
    let mut rig = Rig::new(&json!({ "sources": 20, "size": "lognormal 1KiB 1", "window": 2 }));
    let draw = FragmentSizes::new(&rig.settings.size, SEED, "").unwrap();
    let builder = rig.only();
    let mut bytes = 0;
    for event in 0..30_u64 {
        let before_ns = monotonic_ns();
        let order = builder.order(Kind::Trigger, event);
        builder.multicast_order(&order);
        for header in builder.event(event) {
            assert_eq!(header.payload_bytes, draw.bytes(event, header.source));
            assert_eq!((u64::from(header.sequence), header.flags), (event, FragmentFlags::default()));
            assert!(before_ns <= header.order_received_ns && header.order_received_ns <= header.sent_ns);
            assert!(header.sent_ns <= monotonic_ns());
            assert!(header.payload_crc != 0 || header.payload_bytes == 0);
            bytes += u64::from(header.payload_bytes);
        }
        // Repeated by multicast and to one source.
        let again = Order { flags: OrderFlags(OrderFlags::AGAIN), ..order };
        builder.multicast_order(&again);
        builder.send_over_connection((event % 20) as u32, &again);
        builder.assert_quiet((event % 20) as u32);
    }
    builder.assert_all_quiet();
    let report = rig.stop();
    assert!(report.sources.iter().all(|source| (source.sent, source.cut) == (30, 0)));
    assert_eq!((report.payload_bytes, report.own_delay.count()), (bytes, 600));
    assert_eq!((report.orders, report.orders_dropped, report.orders_missed), (90, 0, 0));
    assert_eq!((report.caught_up, report.orders_overflowed), (0, Some(0)));
    assert!(report.cpu_s > 0.0 && report.busiest.is_some() && report.memory_bytes.is_some());
}

#[test]
fn lost_trigger_is_caught_up_with_the_next() {
    let mut rig = Rig::new(&json!({ "sources": 3, "window": 8 }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 5));
    builder.event(5);
    // The orders of 6 and 7 are lost; 6 is obsolete when 8 arrives.
    builder.multicast_order(&Order { event_oldest: 7, ..builder.order(Kind::Trigger, 8) });
    for source in 0..3 {
        assert_eq!(builder.fragment(source, 7).flags, FragmentFlags(FragmentFlags::CATCHUP));
        assert_eq!(builder.fragment(source, 8).flags, FragmentFlags::default());
    }
    // A repeated order to one source.
    builder.send_over_connection(1, &Order { event_oldest: 7, ..builder.order(Kind::Trigger, 9) });
    builder.fragment(1, 9);
    builder.assert_all_quiet();
    let report = rig.stop();
    assert_eq!((report.orders_missed, report.caught_up), (1, 3));
}

#[test]
fn only_granted_sources_send() {
    let mut rig = Rig::new(&json!({ "sources": 8, "pattern": "grant", "credit": 2, "window": 4 }));
    let builder = rig.only();
    builder.multicast_order(&Order { sources: 0, ..builder.order(Kind::Trigger, 0) });
    builder.assert_all_quiet();
    let any = builder.order(Kind::Grant, 0);
    let grant = |event, first_source, sources| Order { event, first_source, sources, ..any };
    let (first, second, overlap, late) = (grant(0, 0, 3), grant(1, 6, 10), grant(0, 2, 2), grant(0, 7, 1));
    builder.multicast_order(&first);
    (0..3).for_each(|source| assert_eq!(builder.fragment(source, 0).sequence, 0));
    builder.multicast_order(&second);
    (6..8).for_each(|source| assert_eq!(builder.fragment(source, 1).sequence, 0));
    builder.multicast_order(&overlap);
    builder.fragment(3, 0);
    // A grant of an older event that is still wanted.
    builder.multicast_order(&late);
    builder.fragment(7, 0);
    builder.multicast_order(&Order { event_oldest: 1, ..grant(1, 0, 1) });
    builder.fragment(0, 1);
    builder.multicast_order(&grant(0, 0, 8));
    builder.assert_all_quiet();
    assert_eq!(rig.stop().caught_up, 0);
}

#[test]
fn order_over_a_connection_reaches_its_source_only() {
    let mut rig = Rig::new(&json!({ "sources": 4, "orders": "tcp", "pattern": "pull", "credit": 1 }));
    let builder = rig.only();
    // Over a connection only its source sends, whatever the range.
    for source in [2, 0, 3] {
        let kind = if source == 2 { Kind::Pull } else { Kind::Trigger };
        builder.send_over_connection(source, &builder.order(kind, 6));
        builder.fragment(source, 6);
    }
    // Several orders in pieces, and one for another source.
    let other = Order { first_source: 2, sources: 1, ..builder.order(Kind::Pull, 7) };
    builder.send_over_connection(1, &other);
    let orders = (7..40).flat_map(|event| builder.order(Kind::Pull, event).encode()).collect::<Vec<_>>();
    for header in orders.chunks(100) {
        std::io::Write::write_all(builder.connections.get_mut(&1).unwrap(), header).unwrap();
    }
    let sent: Vec<FragmentHeader> = (7..40).map(|event| builder.fragment(1, event)).collect();
    assert!(sent.is_sorted_by_key(|header| header.sequence));
    builder.assert_all_quiet();
    for source in 0..4 {
        builder.send_over_connection(source, &builder.order(Kind::Stop, 0));
    }
    let report = rig.end();
    assert_eq!(report.sources.iter().map(|source| source.sent).collect::<Vec<_>>(), [1, 33, 1, 1]);
}

#[test]
fn staggered_sources_wait() {
    let mut rig =
        Rig::new(&json!({ "sources": 10, "threads": 2, "stagger": "2ms", "window": 3, "size": "10B" }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 0));
    builder.multicast_order(&Order { event_oldest: 0, ..builder.order(Kind::Trigger, 1) });
    let (zero, one) =
        (0..10).map(|s| (builder.fragment(s, 0), builder.fragment(s, 1))).unzip::<_, _, Vec<_>, Vec<_>>();
    for header in zero.iter().chain(&one) {
        let waited_ns = header.sent_ns - header.order_received_ns;
        assert!(waited_ns >= u64::from(header.source) * 2_000_000, "{header:?}");
    }
    builder.assert_all_quiet();
    rig.stop();
}

#[test]
fn clock_probe_is_answered_over_its_path() {
    let mut rig = Rig::new(&json!({ "sources": 6, "threads": 3 }));
    let builder = rig.only();
    let check = |header: FragmentHeader, asked_ns: u64, number: u64| {
        assert_eq!((header.kind, header.event, header.payload_bytes), (Kind::Sync, number, 0));
        assert!(asked_ns <= header.order_received_ns && header.order_received_ns <= header.sent_ns);
        assert!(header.sent_ns <= monotonic_ns());
        header.source
    };
    // By multicast: the answer goes to the builder's UDP port.
    let asked = builder.order(Kind::Sync, 77);
    builder.multicast_order(&asked);
    let mut sources = Vec::new();
    for _ in 0..3 {
        sources.push(check(builder.next_datagram().0, asked.triggered_ns, 77));
    }
    sources.sort_unstable();
    assert_eq!(sources, [0, 2, 4]);
    // By unicast datagram from the builder's port.
    let asked = builder.order(Kind::Sync, 78);
    builder.send_to_worker(3, &asked);
    let (answer, port) = builder.next_datagram();
    assert_eq!(port, builder.hellos[&3].1.udp_port);
    assert_eq!(check(answer, asked.triggered_ns, 78), 2);
    // Over a connection.
    let asked = builder.order(Kind::Sync, 79);
    builder.send_over_connection(5, &asked);
    assert_eq!(check(builder.next(5).0, asked.triggered_ns, 79), 5);
    rig.stop();
}

#[test]
fn builders_are_served_independently() {
    let mut rig = Rig::new(&json!({ "sources": 3, "builders": 2, "window": 4 }));
    for event in [0, 2] {
        // Both events are wanted, however they are batched.
        rig.builders[0]
            .multicast_order(&Order { event_oldest: 0, ..rig.builders[0].order(Kind::Trigger, event) });
    }
    // The order of 1 is lost; this builder has every second event.
    rig.builders[1].multicast_order(&Order { event_oldest: 1, ..rig.builders[1].order(Kind::Trigger, 3) });
    rig.builders[0].event(0);
    rig.builders[0].event(2);
    for source in 0..3 {
        assert!(rig.builders[1].fragment(source, 1).flags.has(FragmentFlags::CATCHUP));
        rig.builders[1].fragment(source, 3);
    }
    // An order of one builder does not affect the other.
    let stray = rig.builders[0].order(Kind::Trigger, 4);
    rig.builders[1].multicast_order(&stray);
    rig.builders.iter_mut().for_each(Builder::assert_all_quiet);
    // The run ends when both builders have sent stop.
    rig.builders[0].multicast_order(&rig.builders[0].order(Kind::Stop, 0));
    rig.builders[1].multicast_order(&rig.builders[1].order(Kind::Trigger, 5));
    rig.builders[1].event(5);
    let report = rig.stop();
    assert!(report.sources.iter().all(|source| source.sent == 5), "{:?}", report.sources);
}

#[test]
fn injected_order_drops_are_caught_up() {
    let mut rig =
        Rig::new(&json!({ "sources": 2, "drop_orders_percent": 50, "pattern": "grant", "credit": 2 }));
    let builder = rig.only();
    for event in 0..40 {
        let order = builder.order(Kind::Grant, event);
        builder.multicast_order(&order);
        // Orders over connections are never dropped.
        builder.send_over_connection(0, &Order { flags: OrderFlags(OrderFlags::AGAIN), ..order });
        builder.send_over_connection(1, &Order { flags: OrderFlags(OrderFlags::AGAIN), ..order });
        builder.event(event);
    }
    builder.assert_all_quiet();
    let report = rig.stop();
    assert!((5..36).contains(&report.orders_dropped), "{}", report.orders_dropped);
    assert_eq!(report.orders, 120);
}

#[test]
fn stopped_sources_report() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    builder.multicast_order(&builder.order(Kind::Trigger, 0));
    builder.event(0);
    let report = rig.report();
    assert_eq!(report.payload_bytes, 2048);
    assert!(rig.part.stop().is_err(), "there is one report");
}
