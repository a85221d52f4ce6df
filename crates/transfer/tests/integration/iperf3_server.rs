//! Our server with the real iperf3 as its client: what iperf3 prints is what our server reports.

use std::net::SocketAddr;

use crate::common::*;
use serde_json::Value;
use transfer::flow::Side;
use transfer::iperf3::{Length, Protocol, TestReport};
use transfer::server::{Server, ServerSettings};

/// A number in what iperf3 prints at the end.
fn number(json: &Value, sum: &str, key: &str) -> u64 {
    json["end"][sum][key].as_f64().unwrap_or_else(|| panic!("end.{sum}.{key} in {}", json["end"])) as u64
}

/// Runs iperf3 with these arguments; returns its JSON and our report.
fn both(arguments: &str) -> (Value, TestReport) {
    let server = serve(|_| ());
    let json = iperf3(server.local_addr(), &arguments.split(' ').collect::<Vec<_>>());
    let report = report(&server);
    assert_eq!((&json["error"], &report.problem), (&Value::Null, &None), "{arguments}");
    for (index, stream) in report.streams.iter().enumerate() {
        assert_eq!(stream.id as usize, if index == 0 { 1 } else { index + 2 }, "{arguments}");
        assert!(stream.own.bytes > Some(0), "{arguments}: {stream:?}");
    }
    (json, report)
}

/// The arguments with `s` seconds in place of each second.
fn lasting(arguments: &str, s: u32) -> String {
    arguments.replace("-t 1", &format!("-t {s}")).replace("-O 1", &format!("-O {s}"))
}

#[test]
fn upload_over_tcp_arrives_to_the_byte() {
    needs!("iperf3");
    at_once(
        &[
            "-t 1",
            "-n 20M",
            "-n 1000003 -P 3",
            "-n 16M -P 128",
            "-k 50 -l 10000",
            "-t 1 -P 4 -b 20M",
            "-n 20M -w 256K",
            "-n 20M -C reno -N -M 1000 -S 16",
            "-n 20M -Z --repeating-payload --dont-fragment --fq-rate 5G",
        ],
        |arguments| {
            let (json, report) = both(arguments);
            let received = report.bytes().1;
            assert_eq!(number(&json, "sum_sent", "bytes"), received, "{arguments}");
            assert_eq!(number(&json, "sum_received", "bytes"), received, "{arguments}");
            assert_eq!(report.bytes().0, 0, "{arguments}");
            let asked = report.parameters.unwrap();
            assert_eq!((asked.protocol, report.streams.len()), (Protocol::Tcp, asked.streams as usize));
            if let Some(bytes) = asked.bytes_asked() {
                assert!(received >= bytes, "{arguments}: {received}");
            }
            if arguments.contains("reno") {
                assert_eq!(json["end"]["receiver_tcp_congestion"], "reno");
                assert_eq!(report.own.congestion.as_deref(), Some("reno"));
            }
        },
    );
}

#[test]
fn download_over_tcp_matches_what_was_sent() {
    needs!("iperf3");
    at_once(
        &["-R -t 1", "-R -n 20M -P 3", "-R -k 100 -l 64K", "-R -t 1 -b 50M", "-R -n 20M -C reno -w 512K"],
        |arguments| {
            until_enough_moves(arguments, |s| {
                let arguments = lasting(arguments, s);
                let (json, report) = both(&arguments);
                let sent = report.bytes().0;
                assert_eq!(number(&json, "sum_sent", "bytes"), sent, "{arguments}");
                let received = number(&json, "sum_received", "bytes");
                assert!(received > 0 && received <= sent, "{arguments}: {received} of {sent}");
                assert!(json["end"]["sum_sent"]["retransmits"].is_u64(), "{arguments}: {}", json["end"]);
                let bit_per_s = sent as f64 * 8.0 / f64::from(s);
                assert!(!arguments.contains("-b") || bit_per_s < 100e6, "{arguments}: {bit_per_s}");
                !arguments.contains("-b") || bit_per_s >= 25e6
            });
        },
    );
}

#[test]
fn bidirectional_counts_match() {
    needs!("iperf3");
    at_once(&["--bidir -t 1", "--bidir -t 1 -P 2 -b 50M", "--bidir -n 20M"], |arguments| {
        let (json, report) = both(arguments);
        let (sent, received) = report.bytes();
        assert_eq!(number(&json, "sum_sent", "bytes"), received, "{arguments}");
        assert_eq!(number(&json, "sum_received", "bytes"), received, "{arguments}");
        assert_eq!(number(&json, "sum_sent_bidir_reverse", "bytes"), sent, "{arguments}");
        assert!(number(&json, "sum_received_bidir_reverse", "bytes") <= sent, "{arguments}");
        let sides: Vec<Side> = report.streams.iter().map(|stream| stream.side).collect();
        let (up, down) = sides.split_at(sides.len() / 2);
        assert!(
            up.iter().all(|&side| side == Side::Receiver) && down.iter().all(|&side| side == Side::Sender)
        );
    });
}

#[test]
fn udp_upload_counts_match() {
    needs!("iperf3");
    at_once(
        &[
            "-u -b 20M -t 1 -l 1200",
            "-u -b 20M -t 1 -P 3 --udp-counters-64bit",
            "-u -b 0 -n 2M -l 1400",
            "-u -b 50M -k 200 -l 1000 -w 1M",
            "-u -b 0 -t 1 -l 32000",
        ],
        |arguments| {
            let (json, report) = both(arguments);
            let own = &report.own.streams;
            let (packets, lost): (u64, u64) = own
                .iter()
                .map(|s| (s.packets.unwrap(), s.errors.unwrap()))
                .fold((0, 0), |sum, stream| (sum.0 + stream.0, sum.1 + stream.1));
            let asked = report.parameters.as_ref().unwrap();
            assert_eq!(number(&json, "sum", "packets"), packets, "{arguments}");
            assert_eq!(number(&json, "sum", "lost_packets"), lost, "{arguments}");
            assert_eq!(report.bytes().1, (packets - lost) * u64::from(asked.block_bytes), "{arguments}");
            assert_eq!(asked.wide_counts, arguments.contains("64bit"));
            assert!(own.iter().all(|stream| stream.jitter_s.unwrap() < 1.0), "{arguments}: {own:?}");
        },
    );
}

#[test]
fn udp_download_and_bidirectional_counts_match() {
    needs!("iperf3");
    at_once(
        &[
            "-u -R -b 20M -t 1 -l 1200",
            "-u -R -b 20M -t 1 -P 2 --udp-counters-64bit",
            "-u -R -b 20M -n 2M -l 1000",
            "-u -R -b 20M -k 2000 -l 1000",
            "-u --bidir -b 10M -t 1 -P 2",
        ],
        |arguments| {
            until_enough_moves(arguments, |s| {
                let arguments = lasting(arguments, s);
                let (json, report) = both(&arguments);
                let sent = report.bytes().0;
                let sum = if arguments.contains("bidir") { "sum_sent_bidir_reverse" } else { "sum_sent" };
                assert_eq!(number(&json, sum, "bytes"), sent, "{arguments}");
                let streams = report.parameters.unwrap().streams;
                let expected = f64::from(streams) * if arguments.contains("bidir") { 10e6 } else { 20e6 };
                let s = if arguments.contains("-t") { f64::from(s) } else { 1.0 };
                let rate = sent as f64 * 8.0 / s / expected;
                assert!(rate < 2.0, "{arguments}: {sent} bytes");
                for stream in report.streams.iter().filter(|stream| stream.side == Side::Sender) {
                    let remote = stream.remote.as_ref().unwrap();
                    assert!(
                        remote.packets.unwrap() <= stream.own.packets.unwrap(),
                        "{arguments}: {stream:?}"
                    );
                }
                rate >= 0.5
            });
        },
    );
}

#[test]
fn omitted_time_does_not_count() {
    needs!("iperf3");
    at_once(&["-O 1 -t 1 -b 40M", "-O 1 -t 1 -b 40M -R", "-O 1 -t 1 -b 40M -u -l 1000"], |arguments| {
        until_enough_moves(arguments, |s| {
            let arguments = lasting(arguments, s);
            let (json, report) = both(&arguments);
            let (sent, received) = report.bytes();
            let own = if arguments.contains("-R") { sent } else { received };
            let sum = if arguments.contains("-R") { "sum_sent" } else { "sum_received" };
            assert_eq!(number(&json, sum, "bytes"), own, "{arguments}");
            let all: u64 = report.streams.iter().map(|stream| stream.flow.count.bytes).sum();
            let took_s = report.streams[0].own.seconds.unwrap();
            eprintln!("{arguments}: {own} of {all} in {took_s} s");
            let times = u64::from(s);
            (2_500_000 * times..10_000_000 * times).contains(&own)
                && all > own + 2_000_000 * times
                && (0.5..3.0).contains(&(took_s / f64::from(s)))
        });
    });
}

#[test]
fn server_output_is_sent_on_request() {
    needs!("iperf3");
    let (json, report) = both("-n 1M --get-server-output -T beacon --extra-data some");
    let text = json["server_output_text"].as_str().unwrap();
    let line = format!("received {} bytes", report.bytes().1);
    assert!(text.contains(&line) && text.contains(&report.cookie), "{text}");
    let asked = report.parameters.unwrap();
    assert_eq!((asked.title.as_deref(), asked.extra_data.as_deref()), (Some("beacon"), Some("some")));
    assert_eq!(asked.length, Length::Bytes(1 << 20));
}

#[test]
fn concurrent_clients_are_separate_sessions() {
    needs!("iperf3");
    let server = serve(|_| ());
    let address = server.local_addr();
    let kinds = ["-u -b 5M", "-b 50M", "-u -R -b 5M", "-R -b 50M", "-u --bidir -b 5M -P 2", "-P 4 -b 20M"];
    let clients: Vec<Process> = (0..kinds.len())
        .map(|index| {
            let title = format!("client{index}");
            let arguments = kinds[index].split(' ').chain(["-t", "3", "-J", "-T", &title]);
            start_iperf3(address, &arguments.collect::<Vec<_>>())
        })
        .collect();
    until("all run at once", || running(&server) == kinds.len());
    let mut sessions = server.sessions();
    sessions.sort_by_key(|session| session.title.clone());
    for (index, session) in sessions.iter().enumerate() {
        assert_eq!(session.title, Some(format!("client{index}")));
        assert!(session.peer.ip().is_loopback() && session.peer != address);
    }
    let mut errors = Vec::new();
    for (client, kind) in clients.into_iter().zip(kinds) {
        let json: Value = serde_json::from_str(&client.output()).unwrap();
        if let Some(error) = json["error"].as_str() {
            errors.push(format!("{kind}: {error}"));
        }
    }
    assert!(errors.is_empty(), "{errors:?}");
    until("all sessions have ended", || server.sessions().is_empty());
    let reports = server.take_reports();
    assert_eq!(reports.len(), kinds.len());
    assert!(reports.iter().all(|report| report.problem.is_none()), "{reports:?}");
    let mut cookies: Vec<&str> = reports.iter().map(|report| report.cookie.as_str()).collect();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), kinds.len());
}

#[test]
fn one_port_serves_ipv4_and_ipv6() {
    needs!("iperf3");
    let mut settings = ServerSettings::new("[::]:0".parse().unwrap());
    settings.sessions_max = 8;
    let Ok(server) = Server::start(settings) else {
        return features::skip("needs IPv6");
    };
    for host in ["127.0.0.1", "::1"] {
        let address = SocketAddr::new(host.parse().unwrap(), server.local_addr().port());
        for arguments in ["-n 1M -S 16", "-n 1M -R", "-u -b 10M -n 100K -S 16", "-u -b 10M -n 100K -R -P 2"] {
            let json = iperf3(address, &arguments.split(' ').collect::<Vec<_>>());
            let report = report(&server);
            assert_eq!((&json["error"], &report.problem), (&Value::Null, &None), "{host} {arguments}");
            assert_eq!(report.peer.ip().to_canonical(), address.ip());
        }
    }
}

#[test]
fn client_beyond_the_limit_learns_that_the_server_is_busy() {
    needs!("iperf3");
    let server = serve(|settings| settings.sessions_max = 1);
    let first = start_iperf3(server.local_addr(), &["-t", "2", "-b", "10M", "-J"]);
    until("the first runs", || running(&server) > 0);
    let second = iperf3(server.local_addr(), &["-t", "1"]);
    assert!(second["error"].as_str().unwrap().contains("busy"), "{second}");
    let first: Value = serde_json::from_str(&first.output()).unwrap();
    assert_eq!(first["error"], Value::Null);
}

#[test]
fn impossible_parameters_are_refused_with_a_reason() {
    needs!("iperf3");
    let server = serve(|settings| settings.session.streams_max = 3);
    let json = iperf3(server.local_addr(), &["-n", "1M", "-P", "4"]);
    assert!(json["error"].as_str().unwrap().contains("number of parallel streams"), "{json}");
    let problem = report(&server).problem.unwrap();
    assert!(problem.contains("asks for 4 streams; 3 are taken"), "{problem}");
}

#[test]
fn stopping_server_informs_its_clients() {
    needs!("iperf3");
    let mut server = serve(|_| ());
    let client = start_iperf3(server.local_addr(), &["-t", "30", "-b", "10M", "-J"]);
    until("it runs", || running(&server) > 0);
    server.stop();
    let json: Value = serde_json::from_str(&client.output()).unwrap();
    assert!(json["error"].as_str().unwrap().contains("server has terminated"), "{json}");
    let report = report(&server);
    assert_eq!(report.problem.as_deref(), Some("stopped before its end"));
    assert!(report.streams.len() == 1, "what was measured is kept");
}
