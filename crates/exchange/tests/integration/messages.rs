//! Messages to kagiri's own server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use base::verdict::Verdict;
use exchange::server::{LogEntry, Server, ServerSettings};
use exchange::wire::{Hello, MessageHeader, Purpose, ReplyHeader};
use serde_json::json;

use super::common::{limit, measure, metric};

const PARTS: [&str; 5] =
    ["wait_mean_ms", "connect_mean_ms", "write_mean_ms", "network_mean_ms", "server_mean_ms"];

#[test]
fn every_message_is_answered_and_its_time_is_split_without_a_rest() {
    for connections in ["persistent", "fresh"] {
        let found = measure(json!({
            "clients": 3, "count": 20, "size": "uniform 24B..300kB", "reply_size": "100kB",
            "connections": connections, "target": "10s"
        }));
        assert_eq!(found.verdict, Verdict::Pass, "{:?}", found.reasons);
        assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (60.0, 0.0));
        assert_eq!(metric(&found, "in_time_ratio"), 1.0);
        let sum: f64 = PARTS.iter().map(|name| metric(&found, name)).sum();
        let mean = metric(&found, "response_mean_ms");
        assert!((sum / mean - 1.0).abs() < 1e-9, "{sum} and {mean}");
        let has_handshakes = metric(&found, "connect_mean_ms") > 0.0;
        assert_eq!(has_handshakes, connections == "fresh");
    }
}

#[test]
fn planted_server_delay_is_attributed_to_the_server() {
    let found = measure(json!({ "clients": 2, "count": 10, "size": "10kB", "service": "50ms" }));
    let (server, response) = (metric(&found, "server_mean_ms"), metric(&found, "response_mean_ms"));
    assert!(server >= 50.0 && response >= server, "{server} of {response}");
    assert_eq!(limit(&found), "server_time", "{:?}", found.account.limit);
    assert!(metric(&found, "write_mean_ms") < 0.5 * response, "{found:?}");
}

#[test]
fn planted_small_send_buffer_is_attributed_to_write() {
    let mut writes = Vec::new();
    for buffer in ["16KiB", "64MiB"] {
        let found = measure(json!({
            "clients": 1, "count": 10, "size": "8MiB", "send_buffer": buffer, "receive_buffer": "64KiB"
        }));
        writes.push(metric(&found, "write_mean_ms") / metric(&found, "response_mean_ms"));
    }
    // Nearly all of a message has been acknowledged when the last 16 KiB are accepted.
    assert!(writes[0] > 0.5, "{writes:?}");
}

#[test]
fn open_loop_counts_from_the_intended_moment() {
    // The server takes each message 100 ms after it came: messages of one client overlap.
    let found = measure(json!({
        "clients": 2, "rate_per_s": 50.0, "time": "1s", "size": "1kB", "service": "100ms"
    }));
    assert_eq!(metric(&found, "answered") + metric(&found, "errors"), 100.0, "{found:?}");
    assert!(metric(&found, "response_p50_ms") >= 100.0, "{found:?}");
    let random = measure(json!({
        "clients": 2, "rate_per_s": 50.0, "time": "1s", "size": "1kB", "arrivals": "poisson"
    }));
    assert!((50.0..160.0).contains(&metric(&random, "answered")), "{random:?}");
}

#[test]
fn each_class_has_its_own_numbers_and_the_most_urgent_one_the_main_ones() {
    let found = measure(json!({
        "time": "1s", "service": "30ms",
        "class": [
            {"name": "bulk", "clients": 2, "size": "100kB", "priority": 5},
            {
                "name": "alarm", "clients": 1, "size": "1kB", "rate_per_s": 20.0, "priority": 1,
                "target": "1ms"
            },
        ]
    }));
    assert_eq!(metric(&found, "answered"), 20.0);
    assert_eq!(metric(&found, "response_p50_ms"), metric(&found, "alarm_response_p50_ms"));
    assert!(metric(&found, "bulk_response_p50_ms") >= 30.0);
    assert_eq!((metric(&found, "in_time_ratio"), found.verdict), (0.0, Verdict::Fail));
    assert!(found.reasons[0].starts_with("alarm: "), "{:?}", found.reasons);
    let names: Vec<_> = found.series.iter().map(|series| series.name.as_str()).collect();
    assert!(names.contains(&"alarm_response_mean_ms") && names.contains(&"bulk_1_socket_memory_bytes"));
}

#[test]
fn server_that_never_replies_gives_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = std::thread::spawn(move || {
        let mut connection = listener.accept().unwrap().0;
        // Reads until the clients leave.
        let _ = connection.read_to_end(&mut Vec::new());
    });
    let found = measure(json!({ "host": address, "count": 3, "size": "1kB", "timeout": "100ms" }));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (0.0, 3.0));
    assert_eq!(found.verdict, Verdict::Fail);
    assert!(found.reasons[0].contains("no reply in time: 3"), "{:?}", found.reasons);
    silent.join().unwrap();
}

#[test]
fn reply_with_a_wrong_number_is_an_error_of_its_message() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut connection, _)) = listener.accept() {
            let mut message = [0; 32 + 24];
            let reply = ReplyHeader { bytes: 24, number: 99, server_ns: 0 }.to_bytes();
            let _ = connection.read_exact(&mut message).and_then(|()| connection.write_all(&reply));
            let _ = connection.read_to_end(&mut Vec::new());
        }
    });
    let begun = Instant::now();
    let found = measure(json!({ "host": address, "count": 3, "size": "24B", "timeout": "10s" }));
    assert_eq!((metric(&found, "answered"), metric(&found, "errors")), (0.0, 3.0));
    assert!(found.reasons[0].contains("malformed reply: 3"), "{:?}", found.reasons);
    assert!(begun.elapsed() >= Duration::from_millis(200), "a closed loop pauses after an error");
}

#[test]
fn response_times_agree_with_the_servers_own_log() {
    let settings = ServerSettings {
        service_ns: 20_000_000,
        keeps_log: true,
        ..ServerSettings::new("127.0.0.1:0".parse().unwrap())
    };
    let server = Server::start(&settings).unwrap();
    let host = server.local_addr().to_string();
    let found = measure(json!({ "host": host, "clients": 4, "count": 50, "size": "100kB" }));
    let log = server.take_log();
    assert_eq!((log.len(), metric(&found, "answered")), (200, 200.0));
    let mut times_ms: Vec<f64> =
        log.iter().map(|entry| (entry.replied_ns - entry.first_byte_ns) as f64 / 1e6).collect();
    times_ms.sort_by(f64::total_cmp);
    for (name, at) in [("response_p50_ms", 99), ("response_p99_ms", 197)] {
        // A client's time includes the server's; the histogram rounds to a thousandth.
        let (own, servers) = (metric(&found, name), times_ms[at]);
        assert!(own >= 0.998 * servers && own < servers + 20.0, "{name}: {own}, the server's log: {servers}");
    }
    let mean_ms = |of: fn(&LogEntry) -> u64| log.iter().map(of).sum::<u64>() as f64 / 200e6;
    let waited = mean_ms(|entry| entry.replied_ns - entry.last_byte_ns);
    assert!(metric(&found, "server_mean_ms") <= waited, "{waited}");
    server.stop().unwrap();
}

#[test]
fn server_refuses_strangers_and_goes_on() {
    let settings = ServerSettings { key: 7, ..ServerSettings::new("127.0.0.1:0".parse().unwrap()) };
    let server = Server::start(&settings).unwrap();
    let connect = || TcpStream::connect(server.local_addr()).unwrap();
    let hello = |key| Hello { purpose: Purpose::Messages, trial: 1, key }.to_bytes();
    for bytes in [&b"GET / HTTP/1.1\r\nHost: kagiri.example\r\n\r\n"[..], &hello(8)] {
        let mut stranger = connect();
        stranger.write_all(bytes).unwrap();
        // Closed, or reset because of what was not read.
        assert!(!matches!(stranger.read(&mut [0; 1]), Ok(1)));
    }
    let mut client = connect();
    client.write_all(&hello(7)).unwrap();
    let message = MessageHeader { bytes: 100, reply_bytes: 24, number: 3 }.to_bytes();
    client.write_all(&[&message[..], &[0; 76]].concat()).unwrap();
    client.read_exact(&mut [0; 24]).unwrap();
    assert_eq!(server.stop().unwrap().refused, 2);
}

/// A thread of its own serves the only connection with messages after a while, until there is another one.
#[test]
fn every_message_is_answered_when_connections_come_and_go() {
    let server = Server::start(&ServerSettings::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let connect = || {
        let mut client = TcpStream::connect(server.local_addr()).unwrap();
        client.write_all(&Hello { purpose: Purpose::Messages, trial: 1, key: 0 }.to_bytes()).unwrap();
        client
    };
    let exchange = |client: &mut TcpStream, number: u64| {
        let message = MessageHeader { bytes: 1000, reply_bytes: 500, number }.to_bytes();
        client.write_all(&[&message[..], &[0; 976]].concat()).unwrap();
        let mut reply = [0; 500];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(ReplyHeader::from_bytes(reply.first_chunk().unwrap()).unwrap().number, number);
    };
    let mut first = connect();
    for round in 0..2 {
        (0..100).for_each(|number| exchange(&mut first, number));
        let mut second = connect();
        for number in 0..100 {
            exchange(&mut first, number);
            exchange(&mut second, number + round);
        }
    }
    (0..100).for_each(|number| exchange(&mut first, number));
    let report = server.stop().unwrap();
    assert_eq!((report.messages, report.received_bytes), (700, 700_000));
}
