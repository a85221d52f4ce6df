//! QUIC between a real client and a real server of kagiri over loopback.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{listener, read_frame};
use crate::native_common::*;
use base::verdict::Verdict;
use iperf3::frame;
use serde_json::{Value, json};
use transfer::flow::{Direction, EndReason};
use transfer::judge::judge;
use transfer::native::NativeSettings;
use transfer::native::message::ServerMessage;
use transfer::report::{EndReport, TransferReport};
use transfer::settings::TransferSettings;

fn quic(mut value: Value) -> (TransferSettings, TransferReport) {
    value["protocol"] = json!("quic");
    transfer(value)
}

#[test]
fn requested_bytes_arrive_in_each_direction() {
    for (direction, ways) in [
        ("up", &[Direction::Up][..]),
        ("down", &[Direction::Down]),
        ("both", &[Direction::Up, Direction::Down]),
    ] {
        let (settings, report) = quic(json!({ "bytes": "5000001B", "direction": direction, "flows": 3 }));
        assert_eq!(report.broken, None, "{direction}");
        assert_eq!(report.directions.len(), ways.len());
        for way in ways {
            let (sender, receiver) = ends(&report, *way);
            assert_eq!((sender.bytes(), receiver.bytes()), (5_000_001, 5_000_001), "{direction} {way:?}");
            let each: Vec<u64> = receiver.flows.iter().map(|flow| flow.count.bytes).collect();
            assert_eq!(each, [1_666_667; 3], "each flow is a stream of its own, in its place");
            let ended = |end: &EndReport| end.flows.iter().map(|flow| flow.ended.clone()).collect::<Vec<_>>();
            assert_eq!(ended(sender), vec![EndReason::Done; 3]);
            assert_eq!(ended(receiver), vec![EndReason::ByPeer; 3]);
            assert!(receiver.goodput_bit_per_s().unwrap() > 0.0);
            assert!(sender.waits[0].rtt_us.is_some_and(|us| us > 0), "{:?}", sender.waits);
        }
        let judgement = judge(&settings, &report);
        assert_eq!(judgement.verdict, Verdict::Pass, "{direction}: {:?}", judgement.reasons);
        assert!(report.engine.contains("client: quic (quinn); server: quic (quinn)"), "{}", report.engine);
    }
}

#[test]
fn shared_thread_is_counted_once() {
    let from = Instant::now();
    let (_, report) = quic(json!({ "time": "300ms", "direction": "both" }));
    let took_s = from.elapsed().as_secs_f64();
    let here = [ends(&report, Direction::Up).0, ends(&report, Direction::Down).1];
    assert!(here.iter().all(|end| end.threads.len() == 1), "{here:?}");
    let cpu_s: f64 = here.iter().map(|end| end.cpu_s.unwrap()).sum();
    assert!(cpu_s > 0.0 && cpu_s <= took_s, "one thread worked {cpu_s} s in {took_s} s");
}

#[test]
fn timed_transfer_balances_without_omitted_time() {
    until_long_enough(|times| {
        let (time, omit) = (format!("{}ms", 400 * times), format!("{}ms", 200 * times));
        let (settings, report) = quic(json!({ "time": time, "omit": omit, "direction": "down" }));
        let (sender, receiver) = ends(&report, Direction::Down);
        assert_eq!(sender.bytes() + sender.omitted.bytes, receiver.bytes() + receiver.omitted.bytes);
        assert_eq!(judge(&settings, &report).verdict, Verdict::Pass);
        receiver.omitted.bytes > 0 && receiver.bytes() > 0 && receiver.intervals.len() >= 3
    });
}

#[test]
fn hundreds_of_streams_are_identified() {
    let (_, report) = quic(json!({ "bytes": "4000300B", "flows": 400, "size": "1000B", "window": "256KiB" }));
    let (sender, receiver) = ends(&report, Direction::Up);
    let of = |end: &EndReport| -> Vec<u64> { end.flows.iter().map(|flow| flow.count.bytes).collect() };
    assert_eq!(of(sender), of(receiver));
    assert_eq!(of(receiver)[299..301], [10_001, 10_000]);
}

#[test]
fn server_with_another_certificate_is_refused() {
    let (server, natives) = server(NativeSettings::default());
    let settings = settings(json!({ "protocol": "quic", "bytes": "1MB" }));
    let from = Instant::now();
    let between = falsify_certificate(server.local_addr());
    let error = prepare(between, &settings).map(drop).unwrap_err().to_string();
    assert!(error.contains("certificate is not the one announced on the control connection"), "{error}");
    assert!(from.elapsed() < Duration::from_secs(3), "{:?}", from.elapsed());
    let ends = session_ends(&natives, 1);
    assert!(ends[0].problem.is_some() && ends[0].directions.is_empty(), "nothing moved: {ends:?}");
}

/// Stands between a client and the server's control connection, and replaces the server's certificate.
fn falsify_certificate(server: SocketAddr) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut upstream = TcpStream::connect(server).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::spawn(move || {
            // It ends when the client has left.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let mut greeting = [0];
        upstream.read_exact(&mut greeting).unwrap();
        client.write_all(&greeting).unwrap();
        while let Some(text) = read_frame(&mut upstream) {
            let mut said: ServerMessage = serde_json::from_slice(&text).unwrap();
            if let ServerMessage::Ready { quic: Some(facts), .. } = &mut said {
                *facts.certificate.last_mut().unwrap() ^= 1;
            }
            let text = serde_json::to_vec(&said).unwrap();
            if client.write_all(&frame(&text)).is_err() {
                break;
            }
        }
    });
    address
}
