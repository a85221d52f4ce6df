//! kagiri's own protocol between a real client and a real server over loopback.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{closed_address, listener, stop_handle};
use crate::native_common::*;
use base::verdict::Verdict;
use iperf3::frame;
use serde_json::{Value, json};
use transfer::client::{Ready, Task};
use transfer::flow::{Direction, EndReason};
use transfer::judge::judge;
use transfer::native::session_id::{Role, SessionId};
use transfer::native::{NativeServer, NativeSettings};
use transfer::report::TransferReport;
use transfer::server::{Server, ServerSettings};

#[test]
fn requested_bytes_arrive_in_both_directions() {
    let asked = json!({ "bytes": "5000001B", "direction": "both", "flows": 3 });
    let (settings, report) = transfer(asked);
    for way in [Direction::Up, Direction::Down] {
        let (sender, receiver) = ends(&report, way);
        assert_eq!((sender.bytes(), receiver.bytes()), (5_000_001, 5_000_001), "{way:?}");
        assert_eq!((sender.flows.len(), receiver.flows.len()), (3, 3));
        assert_eq!(sender.waits.len(), 3, "each connection says what it waited for");
    }
    let judgement = judge(&settings, &report);
    assert_eq!(judgement.verdict, Verdict::Pass, "{:?}", judgement.reasons);
    assert_eq!(judgement.metrics["asked_bytes"], Some(10_000_002.0));
    assert!(judgement.metrics["goodput_up_bit_per_s"].unwrap() > 0.0);
    assert!(judgement.metrics["cpu_s_per_gb"].unwrap() > 0.0, "both ends reported their CPU time");
}

#[test]
fn timed_transfer_balances_and_has_intervals() {
    until_long_enough(|times| {
        let (_, report) = transfer(json!({ "time": format!("{}ms", 500 * times), "direction": "down" }));
        let (sender, receiver) = ends(&report, Direction::Down);
        assert_eq!(sender.bytes(), receiver.bytes(), "what was under way at the end was taken");
        let sum: u64 = receiver.intervals.iter().map(|(_, _, bytes)| bytes).sum();
        assert_eq!(sum, receiver.bytes());
        receiver.elapsed_s().is_some_and(|s| s > 0.3 * times as f64) && receiver.intervals.len() >= 3
    });
}

#[test]
fn omitted_time_does_not_count() {
    until_long_enough(|times| {
        let (server, _) = server(NativeSettings::default());
        let span = Duration::from_millis(300 * times);
        let time = format!("{}ms", span.as_millis());
        let ready = prepare(server.local_addr(), &settings(json!({ "time": time, "omit": time }))).unwrap();
        let from = Instant::now();
        let report = ready.run(0);
        let most_s = from.elapsed().saturating_sub(span).as_secs_f64();
        let (sender, receiver) = ends(&report, Direction::Up);
        assert_eq!(sender.bytes() + sender.omitted.bytes, receiver.bytes() + receiver.omitted.bytes);
        let elapsed_s = receiver.elapsed_s();
        assert!(elapsed_s.is_none_or(|s| s < most_s), "{elapsed_s:?}, but for what is left out {most_s} s");
        sender.omitted.bytes > 0 && receiver.omitted.bytes > 0 && elapsed_s.is_some_and(|s| s > 0.0)
    });
}

#[test]
fn datagrams_are_counted_at_both_ends() {
    let (settings, report) =
        transfer(json!({ "protocol": "udp", "bytes": "1472000B", "rate": "50Mbit/s", "direction": "both" }));
    for way in [Direction::Up, Direction::Down] {
        let (sender, receiver) = ends(&report, way);
        assert_eq!(sender.flows[0].count.datagrams, 1000, "{way:?}");
        let count = receiver.flows[0].count;
        assert_eq!(count.duplicated, 0);
        assert!(count.datagrams <= 1000 && count.datagrams > 0, "{count:?}");
    }
    let metrics = judge(&settings, &report).metrics;
    let (sent, came) = (metrics["datagrams_sent"].unwrap(), metrics["datagrams_received"].unwrap());
    assert_eq!(metrics["datagrams_lost"], Some(sent - came));
}

#[test]
fn requests_are_answered_and_timed() {
    for (protocol, waiting, rate) in
        [("tcp", "block", None), ("tcp", "spin", None), ("udp", "block", None), ("tcp", "block", Some(500.0))]
    {
        let requests = json!({ "size": "14B", "waiting": waiting, "rate_per_s": rate });
        let (settings, report) =
            transfer(json!({ "protocol": protocol, "time": "300ms", "flows": 2, "requests": requests }));
        let judgement = judge(&settings, &report);
        assert_eq!(judgement.verdict, Verdict::Pass, "{protocol} {waiting}: {:?}", judgement.reasons);
        let responses = report.responses.as_ref().unwrap();
        assert!(responses.answered >= 10, "{protocol} {waiting}: {responses:?}");
        if let Some(rate) = rate {
            // Two flows at 500 a second for 0.3 s.
            assert!(responses.answered as f64 <= rate * 2.0 * 0.3 + 2.0, "{}", responses.answered);
        }
        assert_eq!(responses.times.count(), responses.answered);
        assert!(judgement.metrics["response_p99_us"].unwrap() > 0.0);
        assert!(judgement.account.headline.unwrap().contains("requests a second"));
    }
}

#[test]
fn clients_of_one_server_are_reported_separately() {
    let (server, natives) = server(NativeSettings::default());
    let settings = settings(json!({ "bytes": "3MB", "direction": "both" }));
    let ready: Vec<Ready> = (0..5).map(|_| prepare(server.local_addr(), &settings).unwrap()).collect();
    let reports: Vec<TransferReport> = std::thread::scope(|scope| {
        let running: Vec<_> = ready.into_iter().map(|ready| scope.spawn(|| ready.run(0))).collect();
        running.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for report in &reports {
        assert_eq!(ends(report, Direction::Up).1.bytes(), 3_000_000);
        assert_eq!(ends(report, Direction::Down).1.bytes(), 3_000_000);
    }
    let ends = session_ends(&natives, 5);
    assert!(ends.iter().all(|end| end.problem.is_none() && end.order.is_some()), "{ends:?}");
    let mut peers: Vec<_> = ends.iter().map(|end| end.peer).collect();
    peers.sort_unstable();
    peers.dedup();
    assert_eq!(peers.len(), 5);
}

#[test]
fn many_flows_share_few_threads() {
    let (_, report) = transfer(json!({ "bytes": "20MB", "flows": 1000 }));
    let (sender, receiver) = ends(&report, Direction::Up);
    assert_eq!((sender.bytes(), receiver.bytes()), (20_000_000, 20_000_000));
    assert_eq!(receiver.flows.len(), 1000);
    assert!(sender.threads.len() <= 16, "{}", sender.threads.len());
    assert!(receiver.flows.iter().all(|flow| matches!(flow.ended, EndReason::Done | EndReason::ByPeer)));
}

#[test]
fn opening_many_flows_blocks_no_other_client() {
    let natives = Arc::new(NativeServer::new(NativeSettings::default()));
    let mut settings = ServerSettings { natives: Some(natives), ..ServerSettings::new(LOOPBACK.into()) };
    // Fewer than one client opens at once: each connection identifies its session immediately.
    settings.greet.half_open_max = 100;
    let server = Server::start(settings).unwrap();
    let settings = self::settings(json!({ "bytes": "1MB", "flows": 250 }));
    let ready: Vec<Ready> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..3).map(|_| scope.spawn(|| prepare(server.local_addr(), &settings).unwrap())).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for client in ready {
        assert_eq!(ends(&client.run(0), Direction::Up).1.bytes(), 1_000_000);
    }
}

#[test]
fn stop_keeps_what_was_measured() {
    for (protocol, direction, flows) in
        [("tcp", Direction::Up, 1), ("quic", Direction::Up, 2), ("quic", Direction::Down, 2)]
    {
        let (server, _) = server(NativeSettings::default());
        let asked = json!({ "protocol": protocol, "time": "60s", "direction": direction, "flows": flows });
        let (settings, handle) = (settings(asked), stop_handle());
        let ready = prepare_stoppable(server.local_addr(), &settings, handle.clone()).unwrap();
        let (report, took) = interrupted(ready, direction, || handle.stop());
        assert!(report.stopped && report.broken.is_none(), "{protocol}: {:?}", report.broken);
        assert!(ends(&report, direction).1.bytes() > 0, "{protocol} {direction:?}: the server reports");
        assert!(took < Duration::from_secs(5), "{protocol}: {took:?}");
        assert_eq!(judge(&settings, &report).verdict, Verdict::Invalid, "{protocol}");
    }
}

#[test]
fn dead_server_is_named_and_own_counts_are_kept() {
    for protocol in ["tcp", "quic"] {
        let (server, natives) = server(NativeSettings::default());
        let settings = settings(json!({ "protocol": protocol, "time": "60s" }));
        let ready = prepare(server.local_addr(), &settings).unwrap();
        let (report, _) = interrupted(ready, Direction::Up, || drop(server));
        assert!(report.broken.as_deref().is_some_and(|why| why.contains("stopped")), "{:?}", report.broken);
        assert!(report.directions[0].sender.as_ref().unwrap().bytes() > 0, "{protocol}");
        let judgement = judge(&settings, &report);
        assert_eq!((judgement.verdict, judgement.is_definite), (Verdict::Fail, true), "{protocol}");
        assert!(natives.take_ends()[0].problem.is_some(), "{protocol}");
    }
}

#[test]
fn impossible_orders_are_refused_with_a_reason() {
    let (keyed, _) =
        server(NativeSettings { key: Some("secret".into()), flows_max: 10, ..NativeSettings::default() });
    let refused = |settings: Value, key: Option<&str>| {
        let task = Task {
            settings: self::settings(settings),
            server: keyed.local_addr(),
            key: key.map(str::to_owned),
        };
        Ready::prepare(task, stop_handle()).map(drop).unwrap_err().to_string()
    };
    assert!(refused(json!({}), None).contains("key"));
    assert!(refused(json!({}), Some("guess")).contains("key"));
    assert!(refused(json!({ "flows": 11 }), Some("secret")).contains("1 to 10"));
    let unknown = json!({ "congestion_control": "nosuch", "direction": "down" });
    assert!(refused(unknown, Some("secret")).contains("nosuch"));
}

#[test]
fn server_of_another_protocol_is_named() {
    // What it does with a connection, and the expected error of the client.
    type Manner = (&'static str, fn(TcpStream), &'static str);
    let manners: [Manner; 4] = [
        ("closes at once", drop, "closed"),
        ("speaks HTTP", |mut peer| drop(peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")), "sent"),
        ("announces too much", |mut peer| drop(peer.write_all(b"k\xff\xff\xff\xff")), "bytes"),
        ("greets with nonsense", |mut peer| drop(peer.write_all(b"k\0\0\0\x04{}{}")), "kagiri"),
    ];
    for (name, manner, expected) in manners {
        let (listener, address) = listener();
        let served = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            let mut cookie = [0; 37];
            peer.read_exact(&mut cookie).unwrap();
            manner(peer);
        });
        let from = Instant::now();
        let error = prepare(address, &settings(json!({}))).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(from.elapsed() < Duration::from_secs(8), "{name}: {:?}", from.elapsed());
        served.join().unwrap();
    }
    let error = prepare(closed_address(), &settings(json!({}))).map(drop).unwrap_err().to_string();
    assert!(error.contains("refused") && error.contains("kagiri transfer --serve"), "{error}");
}

#[test]
fn garbage_on_the_port_does_not_disturb_sessions() {
    let (server, natives) =
        server(NativeSettings { step: Duration::from_secs(3), ..NativeSettings::default() });
    let open = |bytes: &[u8]| {
        let mut peer = TcpStream::connect(server.local_addr()).unwrap();
        let cookie = SessionId::random().cookie(Role::Control);
        peer.write_all(cookie.bytes()).unwrap();
        peer.write_all(bytes).unwrap();
        peer
    };
    let nan = br#"{"say":"order","protocol_version":1,"flows":NaN}"#;
    let huge = br#"{"say":"order","protocol_version":18446744073709551616}"#;
    let mut held = vec![open(b""), open(&frame(nan)), open(&frame(huge)), open(&[0xff; 100])];
    held.push(open(&frame(br#"{"say":"go"}"#)));
    let (settings, address) = (settings(json!({ "bytes": "1MB" })), server.local_addr());
    let report = prepare(address, &settings).unwrap().run(0);
    assert_eq!(ends(&report, Direction::Up).1.bytes(), 1_000_000);
    // One of the ends is that of the transfer.
    let ends = session_ends(&natives, held.len() + 1);
    let problems: Vec<_> = ends.into_iter().filter_map(|end| end.problem).collect();
    assert_eq!(problems.len(), held.len(), "{problems:?}");
}

#[test]
fn vanished_client_leaves_no_session() {
    let (server, natives) = server(NativeSettings::default());
    let settings = settings(json!({ "time": "60s", "direction": "both" }));
    drop(prepare(server.local_addr(), &settings).unwrap());
    let ends = session_ends(&natives, 1);
    assert!(ends[0].problem.as_deref().is_some_and(|why| why.contains("closed")), "{ends:?}");
}

#[test]
fn one_direction_gives_one_direction_report() {
    for direction in [Direction::Up, Direction::Down] {
        let (_, report) = transfer(json!({ "bytes": "1MB", "direction": direction, "mode": "discard" }));
        assert_eq!(report.directions.len(), 1);
        assert_eq!(ends(&report, direction).1.bytes(), 1_000_000);
    }
}
