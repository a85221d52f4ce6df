//! One request after the other: each gets its answer with every way of waiting, and nothing hangs.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::flow_common::{GUARD, assert_failed, datagrams, promptly, streams, tcp, until};
use crate::requests_common::{WAITINGS, answers, asks, finish, pairs, responses, start};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Moved, TcpSocket, UdpFlow};
use sys::span::Recorder;
use transfer::flow::{EndReason, FlowSocket, room_for};
use transfer::requests::{self, RequestEnd, RequestSpec};
use transfer::settings::Waiting;

const EACH: u64 = 200;

#[test]
fn each_request_has_an_answer() {
    for is_udp in [false, true] {
        for waiting in WAITINGS {
            for (size_bytes, answer_bytes, flows, threads) in
                [(1, 1, 1, 0), (14, 3000, 3, 1), (9000, 1, 3, 0), (8, 8, 20, 2)]
            {
                let end = RequestEnd::Requests(EACH);
                let order = RequestSpec { size_bytes, answer_bytes, waiting, threads, ..asks(end) };
                let (near, far) = pairs(is_udp, flows);
                let answering = start(far, &answers(&order));
                let asked = finish(start(near, &order));
                let case = format!("{is_udp} {order:?}");
                let responded = responses(&asked);
                let all = EACH * flows as u64;
                assert_eq!((responded.answered, responded.unanswered, responded.late), (all, 0, 0), "{case}");
                let times = &responded.times;
                assert_eq!(times.count(), all);
                let sum_s = times.mean_ns().unwrap() * all as f64 / 1e9;
                assert!(
                    0.0 < sum_s && sum_s < responded.elapsed_s * flows as f64 * 1.01,
                    "{case}: {responded:?}"
                );
                let bytes = EACH * u64::from(answer_bytes);
                for flow in &asked.flows {
                    assert_eq!((&flow.ended, flow.count.bytes), (&EndReason::Done, bytes));
                    assert_eq!(flow.count.datagrams, if is_udp { EACH } else { 0 });
                    assert_eq!(flow.tcp.is_some(), !is_udp);
                    let (first, last) = flow.moved_ns.unwrap();
                    assert!(first < last && last <= monotonic_ns());
                }
                assert!(asked.threads.iter().all(|thread| thread.cpu_ns > 0));
                // A connection shows its end; a datagram socket gets an error.
                if is_udp {
                    until("all requests counted", || {
                        answering.counts().iter().all(|count| count.datagrams == EACH)
                    });
                    answering.stop();
                }
                drop(asked.sockets);
                let answered = finish(answering);
                assert!(answered.responses.is_none());
                let ended = if is_udp { &EndReason::Stopped } else { &EndReason::ByPeer };
                let bytes = EACH * u64::from(size_bytes);
                for flow in &answered.flows {
                    assert_eq!((&flow.ended, flow.count.bytes), (ended, bytes), "{case}");
                }
            }
        }
    }
}

#[test]
fn messages_may_exceed_all_buffers() {
    for (waiting, threads, flows) in [(Waiting::Block, 0, 1), (Waiting::Spin, 0, 1), (Waiting::Block, 1, 2)] {
        let order = RequestSpec {
            size_bytes: 12 << 20,
            answer_bytes: (10 << 20) + 1,
            waiting,
            threads,
            ..asks(RequestEnd::Requests(3))
        };
        let (near, far) = pairs(false, flows);
        let answering = start(far, &RequestSpec { end: RequestEnd::Requests(3), ..answers(&order) });
        let asked = finish(start(near, &order));
        assert_eq!(responses(&asked).answered, 3 * flows as u64);
        let answered = finish(answering);
        assert!(answered.flows.iter().all(|f| f.ended == EndReason::Done && f.count.bytes == 36 << 20));
    }
}

#[test]
fn end_time_ends_both_sides_without_the_omitted_time() {
    for is_udp in [false, true] {
        for waiting in WAITINGS {
            let deadline = Deadline::after(GUARD);
            let mut half_ns = 60_000_000;
            while !both_halves_have_answers(is_udp, waiting, half_ns) {
                assert!(!deadline.passed(), "{is_udp} {waiting:?}: one of two times {half_ns} ns is empty");
                half_ns *= 2;
            }
        }
    }
}

/// Requests for twice `half_ns`, of which the first half is omitted. A half has no answers if a thread lost
/// its CPU for that long.
fn both_halves_have_answers(is_udp: bool, waiting: Waiting, half_ns: u64) -> bool {
    let (near, far) = pairs(is_udp, 1);
    let now_ns = monotonic_ns();
    let (omit_ns, end_ns) = (now_ns + half_ns, now_ns + 2 * half_ns);
    let order = RequestSpec { waiting, omit_until_ns: Some(omit_ns), ..asks(RequestEnd::AtNs(end_ns)) };
    let answering = start(far, &RequestSpec { end: RequestEnd::AtNs(end_ns), ..answers(&order) });
    let asked = finish(start(near, &order));
    let responded = responses(&asked);
    assert_eq!(asked.flows[0].ended, EndReason::Done);
    assert!(responded.elapsed_s <= (monotonic_ns() - omit_ns) as f64 / 1e9);
    // The peer may be gone at the last request.
    assert!(responded.unanswered <= 1);
    assert_eq!(finish(answering).flows[0].ended, EndReason::Done);
    responded.answered > 0 && responded.answered < asked.flows[0].count.bytes
}

#[test]
fn stop_is_prompt_on_both_sides() {
    for is_udp in [false, true] {
        for (waiting, threads, flows) in
            [(Waiting::Block, 0, 1), (Waiting::Spin, 0, 1), (Waiting::Block, 1, 3)]
        {
            let order = RequestSpec { waiting, threads, ..asks(RequestEnd::Peer) };
            promptly(|| {
                let (near, far) = pairs(is_udp, flows);
                let (answering, asking) = (start(far, &answers(&order)), start(near, &order));
                until("answers", || asking.counts().iter().all(|count| count.bytes > 10));
                let (mut held, mut longest) = (Vec::new(), Duration::ZERO);
                for group in [asking, answering] {
                    assert!(!group.is_finished());
                    let asked = Instant::now();
                    group.stop();
                    assert!(group.wait(Deadline::after(GUARD)));
                    longest = longest.max(asked.elapsed());
                    let report = finish(group);
                    let flows = &report.flows;
                    assert!(flows.iter().all(|flow| flow.ended == EndReason::Stopped), "{flows:?}");
                    let unanswered = report.responses.as_ref().map_or(0, |responded| responded.unanswered);
                    assert_eq!(unanswered, 0, "it may be under way");
                    // A requester's connection that closes ends the answerer.
                    held.push(report.sockets);
                }
                longest
            });
        }
    }
}

#[test]
fn closed_peer_is_reported() {
    for (waiting, threads, flows) in [(Waiting::Block, 0, 1), (Waiting::Spin, 0, 1), (Waiting::Block, 1, 2)] {
        let order = RequestSpec { waiting, threads, ..asks(RequestEnd::Requests(1 << 40)) };
        // In order, and by a reset.
        for resets in [false, true] {
            let (near, far): (Vec<_>, Vec<_>) = (0..flows).map(|_| streams()).unzip();
            let asking = start(near.into_iter().map(tcp).collect(), &order);
            for mut peer in far {
                peer.read_exact(&mut [0]).unwrap();
                peer.write_all(&[1]).unwrap();
                peer.read_exact(&mut [0]).unwrap();
                let peer = TcpSocket::try_from(peer).unwrap();
                if resets {
                    peer.reset_on_close().unwrap();
                }
            }
            let report = finish(asking);
            for flow in &report.flows {
                assert_failed(flow, "the peer closed the connection after 1 bytes");
            }
            let responded = responses(&report);
            assert_eq!((responded.answered, responded.unanswered), (flows as u64, flows as u64));
        }
        // Of answerers: in the middle of a request.
        let order = answers(&RequestSpec { size_bytes: 10, ..order });
        let (near, far): (Vec<_>, Vec<_>) = (0..flows).map(|_| streams()).unzip();
        let answering = start(far.into_iter().map(tcp).collect(), &order);
        for mut peer in near {
            peer.write_all(&[0; 14]).unwrap();
            peer.read_exact(&mut [0]).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        }
        for flow in &finish(answering).flows {
            assert_failed(flow, "the peer closed the connection 4 bytes into a request");
        }
    }
}

#[test]
fn closed_datagram_peer_is_reported() {
    for waiting in WAITINGS {
        let order = RequestSpec { waiting, ..asks(RequestEnd::Requests(1 << 40)) };
        let (near, far) = pairs(true, 1);
        let (answering, asking) = (start(far, &answers(&order)), start(near, &order));
        until("answers", || asking.counts()[0].bytes > 10);
        answering.stop();
        drop(finish(answering));
        let report = finish(asking);
        assert_failed(&report.flows[0], "nobody listens at the peer any more");
        // One may have arrived at the socket before it closed.
        assert!((1..=2).contains(&responses(&report).unanswered));
    }
}

#[test]
fn silent_peer_is_reported() {
    for is_udp in [false, true] {
        for (waiting, threads, flows) in
            [(Waiting::Block, 0, 1), (Waiting::Spin, 0, 1), (Waiting::Block, 1, 2)]
        {
            let silence_max = Duration::from_millis(100);
            let order = RequestSpec { waiting, threads, silence_max, ..asks(RequestEnd::Peer) };
            let (near, far) = pairs(is_udp, flows);
            let asked = finish(start(near, &order));
            let answered = finish(start(far, &RequestSpec { size_bytes: 100, ..answers(&order) }));
            for flow in asked.flows.iter().chain(&answered.flows) {
                assert_failed(flow, "nothing moved for 0.1 s");
            }
            assert_eq!(responses(&asked).unanswered, flows as u64);
        }
    }
}

#[test]
fn unrequested_answers_are_reported() {
    let (near, mut peer) = streams();
    peer.write_all(b"hello").unwrap();
    let report = finish(start(vec![tcp(near)], &asks(RequestEnd::Peer)));
    assert_failed(&report.flows[0], "more bytes arrived than requested");
}

#[test]
fn spinning_wait_is_one_span() {
    for flows in [1, 3] {
        let recorder = Recorder::start(0);
        let order = RequestSpec {
            waiting: Waiting::Spin,
            threads: 1,
            recorder: Some(recorder.handle()),
            ..asks(RequestEnd::Requests(EACH))
        };
        let (near, far) = pairs(false, flows);
        let answering = start(far, &RequestSpec { recorder: None, ..answers(&order) });
        drop(finish(start(near, &order)));
        finish(answering);
        let times = recorder.finish("requesters").times;
        let count = |name: &str| -> u64 {
            times.calls.iter().filter(|row| row.name == name).map(|row| row.count).sum()
        };
        let all = EACH * flows as u64;
        assert_eq!((count("send"), count("recv")), (all, all), "{times:#?}");
        assert!((1..=all + 1).contains(&count("polling")), "{times:#?}");
        assert_eq!(times.events_lost, 0);
    }
}

/// Takes the next datagram.
fn next(socket: &UdpFlow) -> Vec<u8> {
    let mut room = [0; 100];
    socket.set_wait(Some(GUARD)).unwrap();
    match socket.receive_one(&mut room).unwrap() {
        Moved::Bytes(bytes) => room[..bytes].to_vec(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lost_datagram_is_given_up_and_late_one_is_ignored() {
    for size_bytes in [1, 20] {
        let (near, far) = datagrams();
        let order = RequestSpec { size_bytes, answer_bytes: size_bytes, ..asks(RequestEnd::Requests(3)) };
        let asking = start(vec![FlowSocket::Udp(near)], &order);
        let first = next(&far);
        assert_eq!(first.len(), size_bytes as usize);
        far.send(&first).unwrap();
        // Lost on its way; after a second the next one comes.
        let lost = next(&far);
        let third = next(&far);
        assert_ne!(lost, third, "their numbers differ");
        far.send(&lost).unwrap();
        far.send(&first).unwrap();
        far.send(b"").unwrap();
        assert!(!asking.is_finished());
        far.send(&third).unwrap();
        let report = finish(asking);
        let responded = responses(&report);
        assert_eq!((responded.answered, responded.unanswered), (2, 1));
        assert_eq!((report.flows[0].count.datagrams, report.flows[0].count.lost), (2, 1));
        assert_eq!(report.flows[0].ended, EndReason::Done);
    }
}

#[test]
fn requesters_wait_for_the_common_start() {
    for (waiting, threads) in [(Waiting::Block, 0), (Waiting::Spin, 0), (Waiting::Block, 1)] {
        let start_ns = monotonic_ns() + 100_000_000;
        let order = RequestSpec { waiting, threads, ..asks(RequestEnd::Requests(1)) };
        let (near, far) = pairs(false, 2);
        let answering = start(far, &answers(&order));
        let asking = requests::start(near, &order, start_ns).unwrap();
        let asked = finish(asking);
        assert!(asked.flows.iter().all(|flow| flow.moved_ns.unwrap().0 >= start_ns));
        drop(asked.sockets);
        finish(answering);
    }
}

#[test]
fn five_hundred_flows_share_a_thread() {
    const FLOWS: usize = 500;
    room_for(2 * FLOWS).unwrap();
    for is_udp in [false, true] {
        let order = RequestSpec { threads: 1, ..asks(RequestEnd::Requests(5)) };
        let (near, far) = pairs(is_udp, FLOWS);
        let answering = start(far, &RequestSpec { end: RequestEnd::Requests(5), ..answers(&order) });
        let asked = finish(start(near, &order));
        let responded = responses(&asked);
        assert_eq!((responded.answered, responded.unanswered), (5 * FLOWS as u64, 0));
        assert_eq!(asked.threads.len(), 1);
        assert!(finish(answering).flows.iter().all(|flow| flow.ended == EndReason::Done));
    }
}

#[test]
fn impossible_orders_are_refused_with_a_reason() {
    for (order, part) in [
        (RequestSpec { size_bytes: 0, ..asks(RequestEnd::Peer) }, "a request of 0 bytes; choose 1 to 65507"),
        (RequestSpec { answer_bytes: 65_508, ..asks(RequestEnd::Peer) }, "a response of 65508 bytes"),
        (RequestSpec { rate_per_s: Some(f64::NAN), ..asks(RequestEnd::Peer) }, "NaN requests a second"),
        (RequestSpec { rate_per_s: Some(0.0), ..asks(RequestEnd::Peer) }, "0 requests a second"),
    ] {
        let (near, _far) = pairs(true, 1);
        let refused = requests::start(near, &order, 0);
        let words = refused.err().unwrap().to_string();
        assert!(words.contains(part), "{words}");
    }
    assert!(start(Vec::new(), &asks(RequestEnd::Peer)).is_finished(), "no flows, no work");
}
