//! Flows over UDP: every datagram is accounted for.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::flow_common::{GUARD, assert_failed, datagrams, finish, order, run, start, until};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Arrived, Batch, Epoll, Events, Interest, Moved, UdpFlow};
use transfer::flow::{self, End, EndReason, FlowSocket, FlowSpec, Group, GroupSetting, Mode, Side, Stamp};

const SIZE: u32 = 1000;

fn sender(bytes: u64, stamp: Stamp) -> FlowSpec {
    FlowSpec { size_bytes: SIZE, stamp, ..order(Side::Sender, End::Bytes(bytes)) }
}

fn receiver(mode: Mode, stamp: Stamp) -> FlowSpec {
    FlowSpec { size_bytes: SIZE, mode, stamp, ..order(Side::Receiver, End::Peer) }
}

fn start_udp(socket: UdpFlow, spec: FlowSpec) -> Group {
    start(vec![(FlowSocket::Udp(socket), spec)], &GroupSetting::default())
}

fn run_udp(socket: UdpFlow, spec: FlowSpec) -> flow::GroupReport {
    run(vec![(FlowSocket::Udp(socket), spec)], &GroupSetting::default())
}

/// The receiver is stopped once it has `datagrams`, or everything that can arrive.
fn stop_after(group: Group, datagrams: u64) -> flow::GroupReport {
    until("the datagrams", || group.counts()[0].datagrams >= datagrams);
    group.stop();
    finish(group)
}

#[test]
fn every_datagram_arrives_to_the_byte() {
    for stamp in [Stamp::Counted32, Stamp::Counted64] {
        for mode in [Mode::Copy, Mode::Discard] {
            // The last datagrams: whole, with room for a header, and without.
            for bytes in [400_000, 400_500, 400_003] {
                let (one, mut other) = datagrams();
                other.set_receive_buffer(4 << 20).unwrap();
                let receiving = start_udp(other, receiver(mode, stamp));
                let sent = run_udp(one, sender(bytes, stamp));
                let count = sent.flows[0].count;
                assert_eq!((count.bytes, &sent.flows[0].ended), (bytes, &EndReason::Done));
                assert_eq!(sent.engine.segmented, Some(true), "this kernel can");
                let report = stop_after(receiving, count.datagrams);
                let came = report.flows[0].count;
                assert_eq!((came.bytes, came.datagrams), (bytes, count.datagrams));
                assert_eq!((came.lost, came.reordered, came.duplicated), (0, 0, 0));
                assert_eq!((came.overflowed, report.flows[0].overflowed_after), (Some(0), Some(0)));
                assert_eq!(report.flows[0].ended, EndReason::Stopped);
                let transit = report.flows[0].transit.unwrap();
                assert!(-1000 <= transit.min_ns && transit.min_ns <= transit.mean_ns, "{transit:?}");
                assert!(report.flows[0].path_mtu_bytes.is_some_and(|mtu| mtu >= 1500));
            }
        }
    }
}

/// What the relay did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mischief {
    dropped: u64,
    doubled: u64,
    delayed: u64,
    passed: u64,
}

/// Passes datagrams on from `from` to `to`, one by one, until the stop is requested and nothing waits.
fn relay(from: &UdpFlow, to: &UdpFlow, stop: &AtomicBool) -> Mischief {
    let epoll = Epoll::new().unwrap();
    epoll.add(from, 0, Interest::READ).unwrap();
    let mut events = Events::with_capacity(1);
    let mut did = Mischief::default();
    let mut number = 0_u64;
    let mut held: Option<Vec<u8>> = None;
    let pass = |datagram: &[u8], did: &mut Mischief| {
        did.passed += 1;
        assert_eq!(to.send(datagram).unwrap(), Moved::Bytes(datagram.len()));
    };
    let mut buffer = [0; 2000];
    loop {
        let is_last_look = stop.load(Ordering::Acquire);
        match from.receive(&mut buffer).unwrap() {
            Arrived::Batch(Batch { bytes, each_bytes, .. }) => {
                assert_eq!(bytes, each_bytes, "a socket that did not ask gets datagrams singly");
                number += 1;
                let datagram = &buffer[..bytes];
                match number % 20 {
                    3 | 4 => did.dropped += 1,
                    7 => {
                        did.doubled += 1;
                        pass(datagram, &mut did);
                        pass(datagram, &mut did);
                    }
                    // Comes after the next one.
                    11 => held = Some(datagram.to_vec()),
                    12 => {
                        pass(datagram, &mut did);
                        if let Some(late) = held.take() {
                            did.delayed += 1;
                            pass(&late, &mut did);
                        }
                    }
                    _ => pass(datagram, &mut did),
                }
            }
            Arrived::WouldBlock if is_last_look => return did,
            Arrived::WouldBlock => {
                epoll.wait(&mut events, Some(Duration::from_millis(10))).unwrap();
            }
        }
    }
}

#[test]
fn lost_duplicated_and_reordered_datagrams_are_counted_exactly() {
    for (mode, stamp) in
        [(Mode::Copy, Stamp::Counted64), (Mode::Copy, Stamp::Counted32), (Mode::Discard, Stamp::Counted64)]
    {
        let ((one, mut inlet), (outlet, mut other)) = (datagrams(), datagrams());
        inlet.set_receive_buffer(8 << 20).unwrap();
        other.set_receive_buffer(8 << 20).unwrap();
        let receiving = start_udp(other, receiver(mode, stamp));
        let stop = AtomicBool::new(false);
        // The last two are unchanged, so that nothing is missing after the last received one.
        let did = std::thread::scope(|scope| {
            let relay = scope.spawn(|| relay(&inlet, &outlet, &stop));
            let sent = run_udp(one, sender(2_002 * u64::from(SIZE), stamp));
            assert_eq!(sent.flows[0].count.datagrams, 2_002);
            stop.store(true, Ordering::Release);
            relay.join().unwrap()
        });
        assert_eq!(did, Mischief { dropped: 200, doubled: 100, delayed: 100, passed: 2_002 - 200 + 100 });
        let count = stop_after(receiving, did.passed).flows[0].count;
        assert_eq!(count.datagrams, did.passed, "{mode:?}");
        assert_eq!((count.lost, count.duplicated, count.reordered), (200, 100, 100), "{mode:?}");
        assert_eq!(count.overflowed, Some(0), "none of it was the socket's fault");
    }
}

/// A datagram as a sender makes it: seconds and microseconds, then its count.
fn datagram(count: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    bytes[8..16].copy_from_slice(&count.to_be_bytes());
    bytes
}

#[test]
fn socket_drops_are_distinguished_from_path_losses() {
    for mode in [Mode::Copy, Mode::Discard] {
        let (one, mut other) = datagrams();
        other.set_receive_buffer(0).unwrap();
        // Nothing is read yet, and there is room for one or two: the others are the socket's fault. 11 is the
        // wire's.
        for count in 1..=10 {
            one.send(&datagram(count)).unwrap();
        }
        let dropped = u64::from(other.overflows().unwrap());
        assert!((1..10).contains(&dropped), "{dropped}");
        let receiving = start_udp(other, receiver(mode, Stamp::Counted64));
        until("what had room", || receiving.counts()[0].datagrams == 10 - dropped);
        one.send(&datagram(12)).unwrap();
        let report = stop_after(receiving, 11 - dropped);
        let count = report.flows[0].count;
        assert_eq!((count.lost, count.overflowed), (dropped + 1, Some(dropped)), "{mode:?}");
        assert_eq!((count.duplicated, report.flows[0].overflowed_after), (0, Some(0)));
    }
}

#[test]
fn ttcp_ends_its_stream_with_small_datagrams() {
    let (one, mut other) = datagrams();
    other.set_receive_buffer(4 << 20).unwrap();
    for _ in 0..2 {
        one.send(b"ttcp").unwrap();
    }
    let receiving = start_udp(other, receiver(Mode::Copy, Stamp::None));
    let sent = run_udp(one, sender(123_456, Stamp::None));
    let Some(FlowSocket::Udp(one)) = &sent.sockets[0] else { panic!("a UDP socket went in") };
    one.set_segment(0).unwrap();
    one.send(b"ttcp").unwrap();
    assert!(receiving.wait(Deadline::after(GUARD)));
    let flow = &finish(receiving).flows[0];
    assert_eq!((flow.count.bytes, &flow.ended), (123_456, &EndReason::ByPeer));
    assert_eq!(
        (flow.count.lost, flow.count.overflowed, flow.transit),
        (0, None, None),
        "not measured without stamps"
    );
}

#[test]
fn ttcp_end_mark_is_found_in_coalesced_datagrams() {
    for mode in [Mode::Copy, Mode::Discard] {
        let (one, other) = datagrams();
        let receiving = start_udp(other, receiver(mode, Stamp::None));
        // Three marks in one packet, as in five, and then one behind two datagrams.
        for (segment, bytes) in [(4, 12), (1000, 2000), (1000, 2500), (1000, 2004), (1000, 1000)] {
            assert!(one.set_segment(segment).unwrap());
            one.send(&vec![7; bytes]).unwrap();
        }
        assert!(receiving.wait(Deadline::after(GUARD)));
        let flow = &finish(receiving).flows[0];
        assert_eq!((flow.count.bytes, flow.count.datagrams), (6_500, 7));
        assert_eq!(flow.ended, EndReason::ByPeer);
    }
    // All marks, and no data before: the beginning of a stream. Then data, and marks again.
    let (one, other) = datagrams();
    let receiving = start_udp(other, receiver(Mode::Copy, Stamp::None));
    for (segment, bytes) in [(4, 20), (0, 800), (4, 20)] {
        one.set_segment(segment).unwrap();
        one.send(&vec![7; bytes]).unwrap();
    }
    assert!(receiving.wait(Deadline::after(GUARD)));
    let flow = &finish(receiving).flows[0];
    assert_eq!((flow.count.bytes, flow.count.datagrams, &flow.ended), (800, 1, &EndReason::ByPeer));
}

#[test]
fn sender_keeps_its_rate_with_whole_datagrams() {
    const RATE_BIT_PER_S: u64 = 40_000_000;
    for (threads, pairs) in [(0, 1), (1, 8)] {
        let from_ns = monotonic_ns();
        let end_ns = from_ns + 300_000_000;
        let flows = (0..pairs).flat_map(|_| {
            let (one, other) = datagrams();
            let sender = FlowSpec {
                size_bytes: SIZE,
                rate_bit_per_s: Some(RATE_BIT_PER_S),
                ..order(Side::Sender, End::AtNs(end_ns))
            };
            let receiver = order(Side::Receiver, End::AtNs(end_ns + 50_000_000));
            [(FlowSocket::Udp(one), sender), (FlowSocket::Udp(other), receiver)]
        });
        let setting = GroupSetting { threads, ..GroupSetting::default() };
        let report = finish(flow::start(flows.collect(), &setting, from_ns).unwrap());
        for flow in report.flows.iter().step_by(2) {
            let most = RATE_BIT_PER_S / 8 * 3 / 10 + u64::from(SIZE);
            assert!(0 < flow.count.bytes && flow.count.bytes <= most, "{} of {most}", flow.count.bytes);
            assert_eq!(flow.count.bytes, flow.count.datagrams * u64::from(SIZE));
        }
        assert!(report.flows.iter().skip(1).step_by(2).all(|flow| flow.count.datagrams > 0));
    }
}

#[test]
fn closed_port_is_reported() {
    let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let peer = gone.local_addr().unwrap();
    drop(gone);
    for threads in [0, 1] {
        let flows = (0..2).map(|_| {
            let order = FlowSpec { size_bytes: SIZE, ..order(Side::Sender, End::Peer) };
            (FlowSocket::Udp(UdpFlow::connect(peer, None).unwrap()), order)
        });
        let setting = GroupSetting { threads, ..GroupSetting::default() };
        for flow in &run(flows.collect(), &setting).flows {
            assert_failed(flow, "nobody listens at the peer");
        }
    }
}

#[test]
fn dropping_firewall_is_reported() {
    let setting = GroupSetting { silence_max: Duration::from_millis(100), ..GroupSetting::default() };
    let (_one, other) = datagrams();
    let report = run(vec![(FlowSocket::Udp(other), receiver(Mode::Copy, Stamp::Counted64))], &setting);
    assert_failed(&report.flows[0], "firewall");
}

#[test]
fn impossible_specs_are_refused_with_a_reason() {
    for (size_bytes, end, says) in [
        (15, End::Peer, "flow 0: a datagram of 15 bytes; choose 16 to 65507"),
        (65_508, End::Peer, "choose 16 to 65507"),
        (0, End::Peer, "choose 16 to 65507"),
        (1000, End::Bytes(15), "15 bytes in datagrams of 1000"),
        (20, End::Bytes(1001), "choose a multiple, or datagrams of at least 32"),
    ] {
        let (one, _other) = datagrams();
        let order = FlowSpec { size_bytes, ..order(Side::Sender, end) };
        let started = flow::start(vec![(FlowSocket::Udp(one), order)], &GroupSetting::default(), 0);
        let error = started.expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn thousand_receivers_share_two_threads() {
    let (ones, others): (Vec<_>, Vec<_>) = (0..1000).map(|_| datagrams()).unzip();
    let setting = GroupSetting { threads: 2, ..GroupSetting::default() };
    let receivers = others.into_iter().map(|s| (FlowSocket::Udp(s), receiver(Mode::Copy, Stamp::Counted64)));
    let receiving = start(receivers.collect(), &setting);
    let senders = ones.into_iter().map(|s| (FlowSocket::Udp(s), sender(20_000, Stamp::Counted64)));
    let sent = run(senders.collect(), &setting);
    assert!(sent.flows.iter().all(|f| f.count.datagrams == 20 && f.ended == EndReason::Done));
    until("all datagrams", || receiving.counts().iter().all(|count| count.datagrams == 20));
    receiving.stop();
    assert!(finish(receiving).flows.iter().all(|flow| flow.count.lost == 0));
}
