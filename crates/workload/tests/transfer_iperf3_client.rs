//! Our client with the real iperf3 as its server.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as tests do")]

mod transfer_common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kagiri_workload::transfer::flow::{Direction, Protocol};
use kagiri_workload::transfer::iperf3::{
    Bell, Client, ClientOrder, Iperf3Error, Length, Parameters, ServerOutput, TestReport,
};
use serde_json::Value;
use transfer_common::*;

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

#[test]
fn up_over_tcp() {
    if !is_installed("iperf3") {
        return;
    }
    let mib = 1 << 20;
    for parameters in [
        tcp(Direction::Up, Length::Seconds(1)),
        Parameters { streams: 3, ..tcp(Direction::Up, Length::Bytes(64 * mib + 1)) },
        Parameters { block_bytes: 10_000, ..tcp(Direction::Up, Length::Blocks(1000)) },
        Parameters {
            window_bytes: Some(256 << 10),
            congestion: Some("reno".to_owned()),
            nodelay: true,
            segment_bytes: Some(1000),
            service: Some(16),
            ..tcp(Direction::Up, Length::Bytes(16 * mib))
        },
        Parameters { rate_bit_per_s: Some(80_000_000), streams: 2, ..tcp(Direction::Up, Length::Seconds(1)) },
    ] {
        let (report, json) = both(&parameters);
        let (sent, received) = sum(&report);
        assert_eq!(number(&json, "sum_received"), received, "{parameters:?}");
        // iperf3 drops what is still under way when it hears of the end.
        assert!(received > 0 && received <= sent, "{parameters:?}: {received} of {sent}");
        if let Some(bytes) = parameters.bytes_asked() {
            assert_eq!(sent, bytes);
        }
        if parameters.congestion.is_some() {
            assert_eq!(report.own.congestion.as_deref(), Some("reno"));
            assert_eq!(json["end"]["receiver_tcp_congestion"], "reno");
        }
        if let Some(rate) = parameters.rate_bit_per_s {
            let ratio = sent as f64 * 8.0 / (rate as f64 * 2.0);
            assert!((0.5..2.0).contains(&ratio), "{ratio}");
        }
    }
}

#[test]
fn down_over_tcp_is_whole_to_the_byte() {
    if !is_installed("iperf3") {
        return;
    }
    for parameters in [
        tcp(Direction::Down, Length::Seconds(1)),
        Parameters { streams: 3, ..tcp(Direction::Down, Length::Bytes(50_000_000)) },
        Parameters { block_bytes: 64 << 10, ..tcp(Direction::Down, Length::Blocks(300)) },
    ] {
        let (report, json) = both(&parameters);
        let (received, sent) = sum(&report);
        assert_eq!((number(&json, "sum_sent"), received), (sent, sent), "{parameters:?}");
        assert!(report.remote.as_ref().unwrap().counts_retransmits);
        if let Some(bytes) = parameters.bytes_asked() {
            assert!(received >= bytes, "{parameters:?}: {received}");
        }
    }
}

#[test]
fn both_ways_over_tcp() {
    if !is_installed("iperf3") {
        return;
    }
    let (report, json) = both(&Parameters { streams: 2, ..tcp(Direction::Both, Length::Seconds(1)) });
    let (sent, received) = report.bytes();
    assert_eq!(number(&json, "sum_sent_bidir_reverse"), received);
    assert!(number(&json, "sum_received") <= sent);
    assert!(sent > 0 && received > 0);
}

#[test]
fn datagrams() {
    if !is_installed("iperf3") {
        return;
    }
    let udp = |direction, length| Parameters {
        protocol: Protocol::Udp,
        block_bytes: 1200,
        rate_bit_per_s: Some(20_000_000),
        ..tcp(direction, length)
    };
    for parameters in [
        udp(Direction::Up, Length::Seconds(1)),
        Parameters { streams: 3, wide_counts: true, ..udp(Direction::Up, Length::Bytes(1_000_000)) },
        udp(Direction::Up, Length::Blocks(500)),
        Parameters { wide_counts: true, ..udp(Direction::Down, Length::Seconds(1)) },
        Parameters { streams: 2, ..udp(Direction::Both, Length::Seconds(1)) },
    ] {
        let (report, _) = both(&parameters);
        for stream in &report.streams {
            let (own, remote) = (&stream.own, stream.remote.as_ref().unwrap());
            let bytes = |packets: Option<u64>, lost: Option<u64>| (packets.unwrap() - lost.unwrap()) * 1200;
            assert_eq!(own.bytes, Some(bytes(own.packets, own.errors)), "{parameters:?}: {stream:?}");
            assert_eq!(
                remote.bytes,
                Some(bytes(remote.packets, remote.errors)),
                "{parameters:?}: {stream:?}"
            );
            assert!(own.packets.unwrap() > 100, "{parameters:?}: {stream:?}");
        }
    }
}

#[test]
fn what_is_omitted_does_not_count() {
    if !is_installed("iperf3") {
        return;
    }
    for direction in [Direction::Up, Direction::Down] {
        let slow =
            Parameters { omit_s: 1, rate_bit_per_s: Some(40_000_000), ..tcp(direction, Length::Seconds(1)) };
        let (report, json) = both(&slow);
        let (own, remote) = sum(&report);
        assert!((2_500_000..10_000_000).contains(&own), "{direction:?}: {own}");
        assert!((2_500_000..10_000_000).contains(&remote), "{direction:?}: {}", json["end"]);
        assert!(report.streams[0].flow.count.bytes > own + 2_000_000);
    }
    let counted = Parameters {
        omit_s: 1,
        rate_bit_per_s: Some(40_000_000),
        ..tcp(Direction::Up, Length::Bytes(2_000_000))
    };
    let (own, _) = sum(&both(&counted).0);
    assert!((2_000_000..8_000_000).contains(&own), "{own}");
}

#[test]
fn the_servers_output_comes_back() {
    if !is_installed("iperf3") {
        return;
    }
    let asked = Parameters {
        wants_output: true,
        title: Some("beacon".to_owned()),
        ..tcp(Direction::Up, Length::Bytes(1 << 20))
    };
    let (report, json) = both(&asked);
    assert_eq!(json["title"], "beacon");
    match report.remote.unwrap().output {
        Some(ServerOutput::Json(output)) => assert!(output["start"]["cookie"] == report.cookie, "{output}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_busy_server_says_so() {
    if !is_installed("iperf3") {
        return;
    }
    let (process, address) = iperf3_server(&[]);
    let first =
        Client::prepare(order(address, Parameters::default()), Arc::new(Bell::new().unwrap())).unwrap();
    let live = first.live();
    let first = std::thread::spawn(move || first.run());
    until("the first runs", || live.started_ns().is_some());
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
fn a_stop_in_the_middle_keeps_what_both_ends_saw() {
    if !is_installed("iperf3") {
        return;
    }
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let (process, address) = iperf3_server(&["-J", "-1"]);
        let bell = Arc::new(Bell::new().unwrap());
        let client = Client::prepare(order(address, tcp(direction, Length::Endless)), bell.clone()).unwrap();
        let live = client.live();
        let client = std::thread::spawn(move || client.run());
        until("bytes move", || live.counts().iter().any(|(_, count)| count.bytes > 1 << 20));
        let stopped = Instant::now();
        bell.stop();
        let report = client.join().unwrap();
        assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
        assert_eq!(report.problem.as_deref(), Some("stopped before its end"));
        let remote = report.remote.expect("the server's results");
        assert!(remote.streams.iter().all(|stream| stream.bytes > Some(0)), "{remote:?}");
        let json: Value = serde_json::from_str(&process.output()).unwrap();
        assert_eq!(json["error"], Value::Null, "an end like any other for the server");
    }
}

#[test]
fn a_server_that_hangs_or_dies_is_noticed() {
    if !is_installed("iperf3") {
        return;
    }
    for (direction, signal) in [
        (Direction::Up, "STOP"),
        (Direction::Down, "STOP"),
        (Direction::Up, "KILL"),
        (Direction::Down, "KILL"),
    ] {
        let (process, address) = iperf3_server(&[]);
        let bell = Arc::new(Bell::new().unwrap());
        let order = ClientOrder { deadlines: short(), ..order(address, tcp(direction, Length::Seconds(60))) };
        let client = Client::prepare(order, bell).unwrap();
        let live = client.live();
        let client = std::thread::spawn(move || client.run());
        until("bytes move", || live.counts().iter().any(|(_, count)| count.bytes > 1 << 20));
        process.signal(signal);
        let from = Instant::now();
        let report = client.join().unwrap();
        assert!(from.elapsed() < Duration::from_secs(15), "{direction:?} {signal}: {:?}", from.elapsed());
        let problem = report.problem.expect("a problem");
        let expected =
            if signal == "STOP" { ["no byte moved", "did not answer"] } else { ["closed the control"; 2] };
        assert!(expected.iter().any(|what| problem.contains(what)), "{direction:?} {signal}: {problem}");
        assert!(report.streams[0].own.bytes > Some(0), "what was measured before is kept");
        assert_eq!(report.remote, None);
    }
}
