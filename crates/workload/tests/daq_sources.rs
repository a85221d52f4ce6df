//! Sources of data acquisition do what a builder says, once; over loopback, with a builder played by the test.

mod daq_sources_common;

use daq_sources_common::{Rig, SEED};
use kagiri_workload::daq::settings::Draw;
use kagiri_workload::daq::task::{boot_of_host, configuration_of};
use kagiri_workload::daq::wire::{Kind, Order, OrderFlags, Piece, PieceFlags};
use serde_json::json;
use sys::clock::monotonic_ns;

#[test]
fn each_source_says_who_it_is() {
    let mut rig = Rig::new(&json!({ "sources": 5, "threads": 2, "congestion_control": "reno" }));
    let configuration = configuration_of(&rig.settings);
    let builder = rig.only();
    assert_eq!(builder.hellos.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for (piece, hello) in builder.hellos.values() {
        assert!(piece.vouches_for(&hello.encode()));
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
fn on_a_trigger_all_send_at_once_and_never_twice() {
    let mut rig = Rig::new(&json!({ "sources": 20, "size": "lognormal 1KiB 1", "window": 2 }));
    let draw = Draw::new(&rig.settings.size, SEED, "").unwrap();
    let builder = rig.only();
    let mut bytes = 0;
    for event in 0..30_u64 {
        let before_ns = monotonic_ns();
        let order = builder.order(Kind::Trigger, event);
        builder.say(&order);
        for piece in builder.event(event) {
            assert_eq!(piece.payload_bytes, draw.bytes(event, piece.source));
            assert_eq!((u64::from(piece.sequence), piece.flags), (event, PieceFlags::default()));
            assert!(before_ns <= piece.order_received_ns && piece.order_received_ns <= piece.sent_ns);
            assert!(piece.sent_ns <= monotonic_ns());
            assert!(piece.payload_crc != 0 || piece.payload_bytes == 0);
            bytes += u64::from(piece.payload_bytes);
        }
        // It is said again, to all and to one.
        let again = Order { flags: OrderFlags(OrderFlags::AGAIN), ..order };
        builder.say(&again);
        builder.tell((event % 20) as u32, &again);
        builder.is_quiet((event % 20) as u32);
    }
    builder.all_are_quiet();
    let report = rig.stop();
    assert!(report.sources.iter().all(|source| (source.sent, source.cut) == (30, 0)));
    assert_eq!((report.payload_bytes, report.own_delay.count()), (bytes, 600));
    assert_eq!((report.orders, report.orders_dropped, report.orders_missed), (90, 0, 0));
    assert_eq!((report.caught_up, report.orders_overflowed), (0, Some(0)));
    assert!(report.cpu_s > 0.0 && report.busiest.is_some() && report.memory_bytes.is_some());
}

#[test]
fn a_lost_trigger_is_made_up_for_by_the_next() {
    let mut rig = Rig::new(&json!({ "sources": 3, "window": 8 }));
    let builder = rig.only();
    builder.say(&builder.order(Kind::Trigger, 5));
    builder.event(5);
    // 6 and 7 are lost; 6 is not wanted any more when 8 comes.
    builder.say(&Order { event_oldest: 7, ..builder.order(Kind::Trigger, 8) });
    for source in 0..3 {
        assert_eq!(builder.fragment(source, 7).flags, PieceFlags(PieceFlags::CATCHUP));
        assert_eq!(builder.fragment(source, 8).flags, PieceFlags::default());
    }
    // One source alone is told again of what it has sent, and of what none has.
    builder.tell(1, &Order { event_oldest: 7, ..builder.order(Kind::Trigger, 9) });
    builder.fragment(1, 9);
    builder.all_are_quiet();
    let report = rig.stop();
    assert_eq!((report.orders_missed, report.caught_up), (1, 3));
}

#[test]
fn who_is_granted_sends_and_nobody_else() {
    let mut rig = Rig::new(&json!({ "sources": 8, "pattern": "grant", "credit": 2, "window": 4 }));
    let builder = rig.only();
    builder.say(&Order { sources: 0, ..builder.order(Kind::Trigger, 0) });
    builder.all_are_quiet();
    let any = builder.order(Kind::Grant, 0);
    let grant = |event, first_source, sources| Order { event, first_source, sources, ..any };
    let (first, second, overlap, late) = (grant(0, 0, 3), grant(1, 6, 10), grant(0, 2, 2), grant(0, 7, 1));
    builder.say(&first);
    (0..3).for_each(|source| assert_eq!(builder.fragment(source, 0).sequence, 0));
    builder.say(&second);
    (6..8).for_each(|source| assert_eq!(builder.fragment(source, 1).sequence, 0));
    builder.say(&overlap);
    builder.fragment(3, 0);
    // A grant of an older event is followed as long as it is wanted.
    builder.say(&late);
    builder.fragment(7, 0);
    builder.say(&Order { event_oldest: 1, ..grant(1, 0, 1) });
    builder.fragment(0, 1);
    builder.say(&grant(0, 0, 8));
    builder.all_are_quiet();
    assert_eq!(rig.stop().caught_up, 0);
}

#[test]
fn orders_over_a_connection_are_for_its_source_alone() {
    let mut rig = Rig::new(&json!({ "sources": 4, "orders": "tcp", "pattern": "pull", "credit": 1 }));
    let builder = rig.only();
    // Whatever its range, it is for who is told.
    for source in [2, 0, 3] {
        let kind = if source == 2 { Kind::Pull } else { Kind::Trigger };
        builder.tell(source, &builder.order(kind, 6));
        builder.fragment(source, 6);
    }
    // Many at once, in pieces, and one that is for another.
    let other = Order { first_source: 2, sources: 1, ..builder.order(Kind::Pull, 7) };
    builder.tell(1, &other);
    let orders = (7..40).flat_map(|event| builder.order(Kind::Pull, event).encode()).collect::<Vec<_>>();
    for piece in orders.chunks(100) {
        std::io::Write::write_all(builder.connections.get_mut(&1).unwrap(), piece).unwrap();
    }
    let sent: Vec<Piece> = (7..40).map(|event| builder.fragment(1, event)).collect();
    assert!(sent.is_sorted_by_key(|piece| piece.sequence));
    builder.all_are_quiet();
    for source in 0..4 {
        builder.tell(source, &builder.order(Kind::Stop, 0));
    }
    let report = rig.end();
    assert_eq!(report.sources.iter().map(|source| source.sent).collect::<Vec<_>>(), [1, 33, 1, 1]);
}

#[test]
fn staggered_sources_wait_for_their_turn() {
    let mut rig =
        Rig::new(&json!({ "sources": 10, "threads": 2, "stagger": "2ms", "window": 3, "size": "10B" }));
    let builder = rig.only();
    builder.say(&builder.order(Kind::Trigger, 0));
    builder.say(&Order { event_oldest: 0, ..builder.order(Kind::Trigger, 1) });
    let (zero, one) =
        (0..10).map(|s| (builder.fragment(s, 0), builder.fragment(s, 1))).unzip::<_, _, Vec<_>, Vec<_>>();
    for piece in zero.iter().chain(&one) {
        let waited_ns = piece.sent_ns - piece.order_received_ns;
        assert!(waited_ns >= u64::from(piece.source) * 2_000_000, "{piece:?}");
    }
    builder.all_are_quiet();
    rig.stop();
}

#[test]
fn a_question_is_answered_the_way_it_came() {
    let mut rig = Rig::new(&json!({ "sources": 6, "threads": 3 }));
    let builder = rig.only();
    let mut buffer = [0; 2048];
    let check = |piece: Piece, asked_ns: u64, number: u64| {
        assert_eq!((piece.kind, piece.event, piece.payload_bytes), (Kind::Sync, number, 0));
        assert!(asked_ns <= piece.order_received_ns && piece.order_received_ns <= piece.sent_ns);
        assert!(piece.sent_ns <= monotonic_ns());
        piece.source
    };
    // To all: each group answers to the builder's port.
    let asked = builder.order(Kind::Sync, 77);
    builder.say(&asked);
    let mut sources = Vec::new();
    for _ in 0..3 {
        let (bytes, _) = builder.udp.recv_from(&mut buffer).unwrap();
        sources.push(check(Piece::decode(&buffer[..bytes]).unwrap().0, asked.triggered_ns, 77));
    }
    sources.sort_unstable();
    assert_eq!(sources, [0, 2, 4]);
    // To a group, from the builder's port.
    let port = builder.hellos[&3].1.udp_port;
    let asked = builder.order(Kind::Sync, 78);
    builder.udp.send_to(&asked.encode(), ("127.0.0.1", port)).unwrap();
    let (bytes, from) = builder.udp.recv_from(&mut buffer).unwrap();
    assert_eq!(from.port(), port);
    assert_eq!(check(Piece::decode(&buffer[..bytes]).unwrap().0, asked.triggered_ns, 78), 2);
    // To a source.
    let asked = builder.order(Kind::Sync, 79);
    builder.tell(5, &asked);
    assert_eq!(check(builder.next(5).0, asked.triggered_ns, 79), 5);
    rig.stop();
}

#[test]
fn several_builders_are_served_each_by_itself() {
    let mut rig = Rig::new(&json!({ "sources": 3, "builders": 2, "window": 4 }));
    for event in [0, 2] {
        // Both are wanted, be they heard one by one or together.
        rig.builders[0].say(&Order { event_oldest: 0, ..rig.builders[0].order(Kind::Trigger, event) });
    }
    // 1 was lost; its builder has every second event.
    rig.builders[1].say(&Order { event_oldest: 1, ..rig.builders[1].order(Kind::Trigger, 3) });
    rig.builders[0].event(0);
    rig.builders[0].event(2);
    for source in 0..3 {
        assert!(rig.builders[1].fragment(source, 1).flags.has(PieceFlags::CATCHUP));
        rig.builders[1].fragment(source, 3);
    }
    // The orders of one are nothing to the other.
    let stray = rig.builders[0].order(Kind::Trigger, 4);
    rig.builders[1].say(&stray);
    rig.builders.iter_mut().for_each(daq_sources_common::Builder::all_are_quiet);
    // The run is over when both say so.
    rig.builders[0].say(&rig.builders[0].order(Kind::Stop, 0));
    rig.builders[1].say(&rig.builders[1].order(Kind::Trigger, 5));
    rig.builders[1].event(5);
    let report = rig.stop();
    assert!(report.sources.iter().all(|source| source.sent == 5), "{:?}", report.sources);
}

#[test]
fn orders_are_overheard_on_purpose_and_made_up_for() {
    let mut rig =
        Rig::new(&json!({ "sources": 2, "drop_orders_percent": 50, "pattern": "grant", "credit": 2 }));
    let builder = rig.only();
    for event in 0..40 {
        let order = builder.order(Kind::Grant, event);
        builder.say(&order);
        // Over a connection nothing is overheard.
        builder.tell(0, &Order { flags: OrderFlags(OrderFlags::AGAIN), ..order });
        builder.tell(1, &Order { flags: OrderFlags(OrderFlags::AGAIN), ..order });
        builder.event(event);
    }
    builder.all_are_quiet();
    let report = rig.stop();
    assert!((5..36).contains(&report.orders_dropped), "{}", report.orders_dropped);
    assert_eq!(report.orders, 120);
}

#[test]
fn who_is_told_to_stop_reports_what_was() {
    let mut rig = Rig::new(&json!({ "sources": 2 }));
    let builder = rig.only();
    builder.say(&builder.order(Kind::Trigger, 0));
    builder.event(0);
    let report = rig.report();
    assert_eq!(report.payload_bytes, 2048);
    assert!(rig.part.stop().is_err(), "there is one report");
}
