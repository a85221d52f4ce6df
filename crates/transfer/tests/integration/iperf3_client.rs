//! Our client with the real iperf3 as its server.

use std::net::{Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use serde_json::Value;
use transfer::control::StopHandle;
use transfer::flow::Side;
use transfer::iperf3::{
    Client, ClientOrder, Direction, Iperf3Error, Length, Parameters, Protocol, ServerOutput, SessionStatus,
    TestReport,
};

/// Runs a test against iperf3; returns our report and iperf3's JSON.
fn both(parameters: &Parameters) -> (TestReport, Value) {
    let (process, address) = iperf3_server(&["-J", "-1"]);
    let report = run(address, parameters.clone()).unwrap();
    assert_eq!(report.problem, None, "{parameters:?}");
    let printed = process.output();
    let json: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error} in {printed}"));
    assert_eq!(json["error"], Value::Null, "{parameters:?}");
    assert_eq!(report.streams.len(), parameters.streams_total() as usize);
    assert!(report.streams.iter().all(|stream| stream.remote.is_some()), "{report:?}");
    (report, json)
}

/// Starts a client on a thread of its own; its status shows how far it is.
fn started(
    order: ClientOrder,
    stop_handle: Arc<StopHandle>,
) -> (Arc<SessionStatus>, std::thread::JoinHandle<TestReport>) {
    let client = Client::prepare(order, stop_handle).unwrap();
    (client.status.clone(), std::thread::spawn(move || client.run()))
}

fn sum(report: &TestReport) -> (u64, u64) {
    let remote = report.streams.iter().map(|stream| stream.remote.as_ref().unwrap().bytes.unwrap());
    let own = report.streams.iter().map(|stream| stream.own.bytes.unwrap());
    (own.sum(), remote.sum())
}

fn number(json: &Value, sum: &str) -> u64 {
    json["end"][sum]["bytes"].as_u64().unwrap_or_else(|| panic!("end.{sum}.bytes in {}", json["end"]))
}

fn tcp(direction: Direction, length: Length) -> Parameters {
    Parameters { direction, length, ..Parameters::default() }
}

fn udp(rate_mbit_per_s: u64, direction: Direction, length: Length) -> Parameters {
    let rate_bit_per_s = Some(rate_mbit_per_s * 1_000_000);
    Parameters { protocol: Protocol::Udp, block_bytes: 1200, rate_bit_per_s, ..tcp(direction, length) }
}

#[test]
fn tcp_upload_is_complete() {
    needs!("iperf3");
    let mib = 1 << 20;
    let cases = [
        tcp(Direction::Forward, Length::Seconds(1)),
        Parameters { streams: 3, ..tcp(Direction::Forward, Length::Bytes(64 * mib + 1)) },
        Parameters { block_bytes: 10_000, ..tcp(Direction::Forward, Length::Blocks(1000)) },
        Parameters {
            window_bytes: Some(256 << 10),
            congestion: Some("reno".to_owned()),
            nodelay: true,
            segment_bytes: Some(1000),
            service: Some(16),
            ..tcp(Direction::Forward, Length::Bytes(16 * mib))
        },
    ];
    at_once(&cases, |parameters| {
        let (report, json) = both(parameters);
        let (sent, received) = sum(&report);
        assert_eq!(number(&json, "sum_received"), received, "{parameters:?}");
        // iperf3 drops what is still in flight when the end is announced.
        assert!(received > 0 && received <= sent, "{parameters:?}: {received} of {sent}");
        if let Some(bytes) = parameters.bytes_asked() {
            assert_eq!((sent, received), (bytes, bytes), "the end waits until iperf3 has everything");
        }
        if parameters.congestion.is_some() {
            assert_eq!(report.own.congestion.as_deref(), Some("reno"));
            assert_eq!(json["end"]["receiver_tcp_congestion"], "reno");
        }
    });
}

#[test]
fn tcp_upload_keeps_its_rate() {
    needs!("iperf3");
    until_enough_moves("two streams of 80 Mbit/s", |s| {
        let up = tcp(Direction::Forward, Length::Seconds(s));
        let (report, json) = both(&Parameters { rate_bit_per_s: Some(80_000_000), streams: 2, ..up });
        let (sent, received) = sum(&report);
        assert_eq!(number(&json, "sum_received"), received);
        assert!(received > 0 && received <= sent, "{received} of {sent}");
        let ratio = sent as f64 * 8.0 / (80e6 * 2.0 * f64::from(s));
        assert!(ratio < 2.0, "{ratio}");
        ratio >= 0.5
    });
}

#[test]
fn tcp_download_is_complete() {
    needs!("iperf3");
    let cases = [
        tcp(Direction::Reverse, Length::Seconds(1)),
        Parameters { streams: 3, ..tcp(Direction::Reverse, Length::Bytes(50_000_000)) },
        Parameters { block_bytes: 64 << 10, ..tcp(Direction::Reverse, Length::Blocks(300)) },
        Parameters {
            window_bytes: Some(256 << 10),
            congestion: Some("reno".to_owned()),
            rate_bit_per_s: Some(400_000_000),
            ..tcp(Direction::Reverse, Length::Bytes(10_000_000))
        },
    ];
    at_once(&cases, |parameters| {
        let (report, json) = both(parameters);
        let (received, sent) = sum(&report);
        assert_eq!((number(&json, "sum_sent"), received), (sent, sent), "{parameters:?}");
        assert!(report.remote.as_ref().unwrap().counts_retransmits);
        if let Some(bytes) = parameters.bytes_asked() {
            assert!(received >= bytes, "{parameters:?}: {received}");
        }
    });
}

#[test]
fn tcp_runs_in_both_directions() {
    needs!("iperf3");
    for length in [Length::Seconds(1), Length::Bytes(50_000_000)] {
        let (report, json) = both(&Parameters { streams: 2, ..tcp(Direction::Bidirectional, length) });
        let (sent, received) = report.bytes();
        assert_eq!(number(&json, "sum_sent_bidir_reverse"), received);
        assert!(number(&json, "sum_received") <= sent);
        assert!(sent > 0 && received > 0);
    }
}

#[test]
fn ipv6_is_supported() {
    needs!("iperf3");
    let ip = Ipv6Addr::LOCALHOST.into();
    if TcpListener::bind((ip, 0)).is_err() {
        return features::skip("needs IPv6");
    }
    let cases = [
        (Protocol::Tcp, Direction::Forward),
        (Protocol::Tcp, Direction::Bidirectional),
        (Protocol::Udp, Direction::Reverse),
    ];
    at_once(&cases, |&(protocol, direction)| {
        let (process, address) = iperf3_server_at(ip, &["-1"]);
        let parameters = Parameters {
            protocol,
            block_bytes: 1400,
            rate_bit_per_s: Some(100_000_000),
            service: Some(16),
            ..tcp(direction, Length::Bytes(1_000_000))
        };
        let report = run(address, parameters).unwrap();
        assert_eq!(report.problem, None, "{protocol:?} {direction:?}");
        let (sent, received) = report.bytes();
        assert!(sent + received >= 1_000_000, "{protocol:?} {direction:?}: {sent}, {received}");
        process.output();
    });
}

#[test]
fn udp_counts_match_bytes() {
    needs!("iperf3");
    let cases = [
        udp(20, Direction::Forward, Length::Seconds(1)),
        Parameters { streams: 3, wide_counts: true, ..udp(20, Direction::Forward, Length::Bytes(1_000_000)) },
        udp(20, Direction::Forward, Length::Blocks(500)),
        Parameters { wide_counts: true, ..udp(20, Direction::Reverse, Length::Seconds(1)) },
        udp(20, Direction::Reverse, Length::Bytes(1_000_000)),
        Parameters { streams: 2, ..udp(20, Direction::Reverse, Length::Blocks(500)) },
        Parameters { streams: 2, ..udp(20, Direction::Bidirectional, Length::Seconds(1)) },
    ];
    at_once(&cases, |parameters| {
        let (report, _) = both(parameters);
        for stream in &report.streams {
            let (own, remote) = (&stream.own, stream.remote.as_ref().unwrap());
            for (end, side) in [(own, stream.side), (remote, stream.side.other())] {
                // iperf3's sender reports the losses of its receiver; what it sent includes them.
                let lost = if side == Side::Receiver { end.errors.unwrap() } else { 0 };
                let bytes = (end.packets.unwrap() - lost) * 1200;
                assert_eq!(end.bytes, Some(bytes), "{parameters:?}: {stream:?}");
            }
            assert!(own.packets.unwrap() > 100, "{parameters:?}: {stream:?}");
        }
    });
}

#[test]
fn omitted_time_does_not_count() {
    needs!("iperf3");
    let slow = |omit_s, direction, length| Parameters {
        omit_s,
        rate_bit_per_s: Some(40_000_000),
        ..tcp(direction, length)
    };
    let cases: [fn(u32) -> (Direction, Length); 3] = [
        |s| (Direction::Forward, Length::Seconds(s)),
        |s| (Direction::Reverse, Length::Seconds(s)),
        |s| (Direction::Forward, Length::Bytes(2_500_000 * u64::from(s))),
    ];
    at_once(&cases, |case| {
        until_enough_moves(&format!("{:?}", case(1)), |s| {
            let (direction, length) = case(s);
            let (report, json) = both(&slow(s, direction, length));
            let (own, remote) = sum(&report);
            eprintln!("{direction:?} {length:?}: {own}, there {remote} of {}", json["end"]);
            let s = u64::from(s);
            let due = 2_500_000 * s..10_000_000 * s;
            let is_remote_due = matches!(length, Length::Bytes(_)) || due.contains(&remote);
            let omitted = report.streams[0].flow.count.bytes - own;
            due.contains(&own) && is_remote_due && omitted > 2_000_000 * s
        });
    });
}

#[test]
fn server_output_is_received() {
    needs!("iperf3");
    let asked = Parameters {
        wants_output: true,
        title: Some("beacon".to_owned()),
        ..tcp(Direction::Forward, Length::Bytes(1 << 20))
    };
    let (report, json) = both(&asked);
    assert_eq!(json["title"], "beacon");
    match report.remote.unwrap().output {
        Some(ServerOutput::Json(output)) => assert!(output["start"]["cookie"] == report.cookie, "{output}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn busy_server_is_reported() {
    needs!("iperf3");
    let (process, address) = iperf3_server(&[]);
    let (status, first) = started(order(address, Parameters::default()), stop_handle());
    until("the first moves bytes", || status.counts().iter().any(|(_, count)| count.bytes > 0));
    let error = run(address, Parameters::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Iperf3Error::Busy(_)), "{error}");
    assert!(error.to_string().contains("try again later"), "{error}");
    drop(process);
    let report = first.join().unwrap();
    let problem = report.problem.unwrap();
    assert!(problem.contains("closed the control connection"), "{problem}");
    assert!(report.streams[0].own.bytes > Some(0), "what was measured before is kept");
}

#[test]
fn stop_keeps_the_counts_of_both_ends() {
    needs!("iperf3");
    at_once(&[Direction::Forward, Direction::Reverse, Direction::Bidirectional], |&direction| {
        let (process, address) = iperf3_server(&["-J", "-1"]);
        let stop_handle = stop_handle();
        let (status, client) = started(order(address, tcp(direction, Length::Endless)), stop_handle.clone());
        until("all streams move", || {
            let counts = status.counts();
            !counts.is_empty() && counts.iter().all(|(_, count)| count.bytes > 1 << 20)
        });
        let stopped = Instant::now();
        stop_handle.stop();
        let report = client.join().unwrap();
        assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
        assert_eq!(report.problem.as_deref(), Some("stopped before its end"));
        let remote = report.remote.expect("the server's results");
        assert!(remote.streams.iter().all(|stream| stream.bytes > Some(0)), "{remote:?}");
        let json: Value = serde_json::from_str(&process.output()).unwrap();
        assert_eq!(json["error"], Value::Null, "an end like any other for the server");
    });
}

#[test]
fn hanging_or_dead_server_is_detected() {
    needs!("iperf3");
    let cases = [
        (tcp(Direction::Forward, Length::Seconds(60)), "STOP"),
        (tcp(Direction::Reverse, Length::Seconds(60)), "STOP"),
        (tcp(Direction::Bidirectional, Length::Endless), "STOP"),
        (udp(50, Direction::Reverse, Length::Endless), "STOP"),
        (udp(50, Direction::Forward, Length::Seconds(2)), "STOP"),
        (tcp(Direction::Forward, Length::Seconds(60)), "KILL"),
        (tcp(Direction::Reverse, Length::Bytes(1 << 40)), "KILL"),
        (tcp(Direction::Bidirectional, Length::Endless), "KILL"),
        (udp(50, Direction::Forward, Length::Endless), "KILL"),
        (udp(50, Direction::Reverse, Length::Seconds(60)), "KILL"),
    ];
    at_once(&cases, |(parameters, signal)| {
        let (process, address) = iperf3_server(&[]);
        let order = ClientOrder { deadlines: short(), ..order(address, parameters.clone()) };
        let (status, client) = started(order, stop_handle());
        until("bytes move", || status.counts().iter().any(|(_, count)| count.bytes > 1 << 20));
        process.signal(signal);
        let from = Instant::now();
        let report = client.join().unwrap();
        assert!(from.elapsed() < Duration::from_secs(15), "{parameters:?} {signal}: {:?}", from.elapsed());
        let problem = report.problem.expect("a problem");
        let expected =
            if *signal == "STOP" { ["no byte moved", "did not answer"] } else { ["closed the control"; 2] };
        assert!(expected.iter().any(|what| problem.contains(what)), "{parameters:?} {signal}: {problem}");
        assert!(report.streams[0].own.bytes > Some(0), "what was measured before is kept");
        assert_eq!(report.remote, None);
    });
}
