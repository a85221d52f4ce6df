//! Requests at moments of a schedule: they are sent independently of the answers, and latency counts from the
//! scheduled moment.

use std::io::{Read, Write};
use std::time::Duration;

use crate::flow_common::{GUARD, assert_failed, datagrams, streams, tcp, until};
use crate::requests_common::{WAITINGS, answers, asks, finish, pairs, responses, start};
use sys::clock::monotonic_ns;
use sys::net::Moved;
use transfer::flow::{EndReason, FlowSocket};
use transfer::requests::{self, RequestEnd, RequestSpec};
use transfer::settings::Waiting;

/// How far ahead the tests start a schedule.
const LEAD_NS: u64 = 50_000_000;

fn at(rate_per_s: f64, end: RequestEnd) -> RequestSpec {
    RequestSpec { rate_per_s: Some(rate_per_s), ..asks(end) }
}

#[test]
fn schedule_sends_each_request() {
    for is_udp in [false, true] {
        for waiting in WAITINGS {
            for (flows, threads) in [(1, 0), (5, 1)] {
                let from_ns = monotonic_ns();
                let order = RequestSpec {
                    waiting,
                    threads,
                    size_bytes: 20,
                    answer_bytes: 300,
                    ..at(1000.0, RequestEnd::Requests(100))
                };
                let (near, far) = pairs(is_udp, flows);
                let answering = start(far, &answers(&order));
                let asked = finish(start(near, &order));
                // The hundredth is due 99 ms after the first.
                assert!(monotonic_ns() - from_ns >= 99_000_000);
                let responded = responses(&asked);
                assert_eq!(
                    (responded.answered, responded.unanswered),
                    (100 * flows as u64, 0),
                    "{is_udp} {order:?}"
                );
                assert!(responded.elapsed_s >= 0.099, "{responded:?}");
                assert!(asked.flows.iter().all(|flow| flow.ended == EndReason::Done));
                answering.stop();
                finish(answering);
            }
        }
    }
}

#[test]
fn requests_follow_the_schedule_without_responses() {
    for waiting in WAITINGS {
        let (near, mut peer) = streams();
        let asking = start(vec![tcp(near)], &RequestSpec { waiting, ..at(1000.0, RequestEnd::Requests(50)) });
        // All of them come, though the first is not answered.
        let mut came = [0; 50];
        peer.read_exact(&mut came).unwrap();
        peer.write_all(&came).unwrap();
        let report = finish(asking);
        let responded = responses(&report);
        assert_eq!((responded.answered, responded.unanswered), (50, 0));
        let times = &responded.times;
        let max_ms = times.max_ns().unwrap() as f64 / 1e6;
        assert!(max_ms >= 49.0, "the first was due 49 ms before the last: {max_ms} ms");
        // They are due 1 ms after each other and all answered at once.
        let mean_ms = times.mean_ns().unwrap() / 1e6;
        assert!(mean_ms >= 24.0 && mean_ms < max_ms, "{mean_ms} ms");
    }
}

#[test]
fn unanswered_requests_are_counted() {
    for (is_udp, waiting) in [(false, Waiting::Block), (true, Waiting::Spin)] {
        let start_ns = monotonic_ns() + LEAD_NS;
        let order = RequestSpec {
            waiting,
            omit_until_ns: Some(start_ns + 50_000_000),
            ..at(1000.0, RequestEnd::AtNs(start_ns + 100_000_000))
        };
        let (near, far) = pairs(is_udp, 1);
        let asking = requests::start(near, &order, start_ns).unwrap();
        let report = finish(asking);
        let responded = responses(&report);
        assert_eq!(
            (responded.answered, responded.unanswered),
            (0, 50),
            "half of them are left out: {responded:?}"
        );
        assert_eq!((report.flows[0].ended.clone(), responded.times.count()), (EndReason::Done, 0));
        drop(far);
    }
}

#[test]
fn lost_datagrams_do_not_delay_others() {
    let (near, mut far) = datagrams();
    // Room for all requests: the test does not count drops of the kernel.
    far.set_receive_buffer(4 << 20).unwrap();
    let order = RequestSpec { size_bytes: 2, answer_bytes: 2, ..at(2000.0, RequestEnd::Requests(1000)) };
    let asking = start(vec![FlowSocket::Udp(near)], &order);
    let mut room = [0; 100];
    far.set_wait(Some(GUARD)).unwrap();
    // Every tenth is dropped, and every seventh answered twice.
    for n in 0..1000 {
        let Moved::Bytes(2) = far.receive_one(&mut room).unwrap() else {
            panic!("a request of another size")
        };
        let number = u16::from_be_bytes([room[0], room[1]]);
        assert_eq!(number, n);
        if n % 10 != 0 {
            far.send(&room[..2]).unwrap();
        }
        if n % 7 == 0 && n % 10 != 0 {
            far.send(&room[..2]).unwrap();
        }
    }
    let report = finish(asking);
    let responded = responses(&report);
    assert_eq!((responded.answered, responded.unanswered), (900, 100));
    assert_eq!((report.flows[0].count.datagrams, report.flows[0].count.lost), (900, 100));
}

#[test]
fn slow_path_is_reported_as_late_requests() {
    // 100 requests of 1 MiB a second, and a peer that takes 16 MiB/s at most.
    let (near, mut peer) = streams();
    let start_ns = monotonic_ns() + LEAD_NS;
    let order = RequestSpec { size_bytes: 1 << 20, ..at(100.0, RequestEnd::AtNs(start_ns + 300_000_000)) };
    let asking = requests::start(vec![tcp(near)], &order, start_ns).unwrap();
    let reader = std::thread::spawn(move || {
        let mut room = vec![0; 1 << 20];
        let mut taken = 0_u64;
        while let Ok(()) = peer.read_exact(&mut room) {
            taken += 1;
            if peer.write_all(&[1]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(62));
        }
        taken
    });
    let report = finish(asking);
    let responded = responses(&report);
    assert_eq!(responded.answered + responded.unanswered, 30, "{responded:?}");
    assert!(responded.unanswered > 0 && responded.late > 0, "{responded:?}");
    assert!(responded.late_ms_max > 10.0 && responded.times.max_ns().unwrap() > 50_000_000, "{responded:?}");
    drop(report);
    assert!(reader.join().unwrap() >= responded.answered);
}

#[test]
fn messages_may_exceed_all_buffers() {
    for waiting in WAITINGS {
        let order = RequestSpec {
            waiting,
            size_bytes: 8 << 20,
            answer_bytes: 8 << 20,
            ..at(1000.0, RequestEnd::Requests(4))
        };
        let (near, far) = pairs(false, 1);
        let answering = start(far, &answers(&order));
        let asked = finish(start(near, &order));
        assert_eq!(responses(&asked).answered, 4);
        drop(asked.sockets);
        assert_eq!(finish(answering).flows[0].ended, EndReason::ByPeer);
    }
}

#[test]
fn closed_peer_ends_a_schedule_with_an_error() {
    let (near, mut peer) = streams();
    let asking = start(vec![tcp(near)], &at(1000.0, RequestEnd::Requests(1 << 30)));
    let mut came = [0; 10];
    peer.read_exact(&mut came).unwrap();
    peer.write_all(&came).unwrap();
    until("ten answers", || asking.counts()[0].bytes == 10);
    drop(peer);
    let report = finish(asking);
    assert_failed(&report.flows[0], "the peer closed the connection after 10 bytes");
    assert_eq!(responses(&report).answered, 10);
}
