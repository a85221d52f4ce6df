//! Clients and servers that mean harm, vanish, hang or talk nonsense: every wait ends, and what they held is freed.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as tests do")]

mod transfer_common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kagiri_workload::transfer::iperf3::{Cookie, Iperf3Error, Length, Parameters, State, json};
use kagiri_workload::transfer::server::Server;
use proptest::prelude::*;
use transfer_common::*;

/// Sockets of this process are counted, so that tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hasty() -> Server {
    serve(|settings| {
        settings.session.deadlines = short();
        settings.session.deadlines.step = Duration::from_millis(500);
        settings.greet.within = Duration::from_millis(500);
    })
}

/// How many sockets this process has open.
fn sockets() -> usize {
    let own = std::fs::read_dir("/proc/self/fd").unwrap();
    own.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Whether a client that means well is served.
fn is_well(server: &Server) -> bool {
    let parameters = Parameters { length: Length::Bytes(100_000), ..Parameters::default() };
    run(server.local_addr(), parameters).is_ok_and(|report| report.problem.is_none())
}

/// A control connection by hand.
struct Hand(TcpStream);

impl Hand {
    fn new(address: SocketAddr, cookie: &Cookie) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(cookie.bytes()).unwrap();
        Self(stream)
    }

    fn hear(&mut self) -> Option<State> {
        let mut byte = [0];
        self.0.read_exact(&mut byte).ok()?;
        State::read(byte[0])
    }

    fn send_json(&mut self, text: &str) {
        let len = u32::try_from(text.len()).unwrap();
        self.0.write_all(&[&len.to_be_bytes(), text.as_bytes()].concat()).unwrap();
    }

    /// The number of the error that the server gives up with.
    fn failure(&mut self) -> Option<i32> {
        while self.hear()? != State::ServerError {}
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).ok()?;
        Some(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

#[test]
fn clients_that_vanish_hang_or_die_free_everything() {
    let _alone = alone();
    if !is_installed("iperf3") {
        return;
    }
    for (arguments, signal) in [
        ("-t 60", "KILL"),
        ("-t 60 -R", "KILL"),
        ("-u -b 10M -t 60", "KILL"),
        ("-u -b 10M -t 60 -R -P 2", "KILL"),
        ("-t 60 --bidir", "KILL"),
        ("-t 60", "STOP"),
        ("-t 60 -R", "STOP"),
        ("-u -b 10M -t 60", "STOP"),
        ("-u -b 10M -t 1 -R", "STOP"),
        ("-t 60", "INT"),
    ] {
        let server = serve(|settings| settings.session.deadlines = short());
        let before = sockets();
        let client = start_iperf3(server.local_addr(), &arguments.split(' ').collect::<Vec<_>>());
        until("bytes move", || {
            let sessions = server.sessions();
            sessions.iter().any(|session| session.streams.iter().any(|(_, count)| count.bytes > 100_000))
        });
        let at = Instant::now();
        client.signal(signal);
        let report = report(&server);
        assert!(at.elapsed() < Duration::from_secs(12), "{arguments} {signal}: {:?}", at.elapsed());
        assert!(report.problem.is_some(), "{arguments} {signal}");
        assert!(report.streams.iter().any(|stream| stream.own.bytes > Some(0)), "{arguments} {signal}");
        until("its sockets are closed", || sockets() <= before);
        drop(client);
        assert!(is_well(&server), "{arguments} {signal}");
    }
}

#[test]
fn a_handshake_that_stops_anywhere_ends() {
    let _alone = alone();
    let parameters = r#"{"tcp":true,"time":1,"parallel":2,"len":131072}"#;
    for step in 0..5 {
        for closes in [false, true] {
            let server = hasty();
            let before = sockets();
            let cookie = Cookie::random();
            let mut hand = Hand::new(server.local_addr(), &cookie);
            let mut streams = Vec::new();
            if step >= 1 {
                assert_eq!(hand.hear(), Some(State::ParamExchange));
            }
            if step >= 2 {
                hand.0.write_all(&[0, 0]).unwrap();
            }
            if step >= 3 {
                hand.0.write_all(&[0, parameters.len() as u8]).unwrap();
                hand.0.write_all(parameters.as_bytes()).unwrap();
                assert_eq!(hand.hear(), Some(State::CreateStreams));
            }
            if step >= 4 {
                streams.push(Hand::new(server.local_addr(), &cookie));
            }
            if closes {
                hand.0.shutdown(Shutdown::Both).unwrap();
            }
            let problem = report(&server).problem.expect("a problem");
            let expected = match (closes, step) {
                (true, _) => "closed the control connection",
                (false, 0..3) => "did not answer within 0.5 s while being asked for parameters",
                (false, 3) => "0 of 2 data streams",
                (false, _) => "1 of 2 data streams",
            };
            assert!(problem.contains(expected), "step {step}, closes {closes}: {problem}");
            drop((hand, streams));
            until("its sockets are closed", || sockets() <= before);
        }
    }
}

#[test]
fn nonsense_is_answered_by_the_right_number() {
    let _alone = alone();
    let server = hasty();
    let own = |text: &str, expected: i32| {
        let mut hand = Hand::new(server.local_addr(), &Cookie::random());
        assert_eq!(hand.hear(), Some(State::ParamExchange));
        hand.send_json(text);
        assert_eq!(hand.failure(), Some(expected), "{text}");
    };
    own("[1, 2]", 114);
    own("{\"time\": nan}", 5);
    own("{\"parallel\": 18446744073709551616}", 6);
    own("{\"authtoken\": \"bWU=\"}", 142);
    own("{\"udp\": true, \"len\": 65536}", 20);
    own(&format!("{{\"title\": {}", "[".repeat(5000)), 114);
    // A length beyond all reason, and a byte that belongs to no protocol.
    for bytes in [&[0xff; 4][..], &[0, 0, 0, 0]] {
        let mut hand = Hand::new(server.local_addr(), &Cookie::random());
        assert_eq!(hand.hear(), Some(State::ParamExchange));
        hand.0.write_all(bytes).unwrap();
        assert_eq!(hand.failure(), Some(114), "{bytes:?}");
    }
    assert!(is_well(&server));
}

#[test]
fn data_connections_that_nobody_expects_are_refused() {
    let _alone = alone();
    let server = hasty();
    let cookie = Cookie::random();
    let mut control = Hand::new(server.local_addr(), &cookie);
    // Too early: the session does not ask for streams yet.
    assert_eq!(control.hear(), Some(State::ParamExchange));
    assert_eq!(Hand::new(server.local_addr(), &cookie).hear(), Some(State::AccessDenied));
    control.send_json(r#"{"tcp":true,"time":1,"parallel":1,"reverse":true}"#);
    assert_eq!(control.hear(), Some(State::CreateStreams));
    let mut stream = Hand::new(server.local_addr(), &cookie);
    assert_eq!((control.hear(), control.hear()), (Some(State::TestStart), Some(State::TestRunning)));
    assert_eq!(Hand::new(server.local_addr(), &cookie).hear(), Some(State::AccessDenied), "one too many");
    let mut some = [0; 1000];
    stream.0.read_exact(&mut some).unwrap();
    control.0.write_all(&[99]).unwrap();
    assert_eq!(control.failure(), Some(110), "a state that there is not");
    assert!(report(&server).problem.unwrap().contains("the byte 99"));
}

#[test]
fn udp_of_strangers_opens_nothing() {
    let _alone = alone();
    let server = hasty();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for bytes in [&b"9876"[..], b"", b"6789", &[0; 1400]] {
        stranger.send_to(bytes, server.local_addr()).unwrap();
        assert!(stranger.recv(&mut [0; 16]).is_err(), "{bytes:?} was answered");
    }
    assert!(is_well(&server));
}

#[test]
fn no_bytes_bring_the_server_down() {
    let _alone = alone();
    let server = hasty();
    let address = server.local_addr();
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    proptest!(ProptestConfig::with_cases(100), |(bytes in bytes, with_cookie in any::<bool>(), cut in 0..200_usize)| {
        let mut stream = TcpStream::connect(address).unwrap();
        if with_cookie {
            stream.write_all(Cookie::random().bytes()).unwrap();
        }
        // The server may have closed already.
        let cut = cut.min(bytes.len());
        let _ = stream.write_all(&bytes[..cut]);
        let _ = stream.write_all(&bytes[cut..]);
        let _ = stream.shutdown(Shutdown::Write);
    });
    until("all sessions have ended", || server.sessions().is_empty());
    assert!(is_well(&server));
}

/// A server that says these bytes after the cookie, then closes or falls silent.
fn script(said: Vec<u8>, closes: bool) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut cookie = [0; 37];
        let _ = stream.read_exact(&mut cookie);
        let _ = stream.write_all(&said);
        if closes {
            return;
        }
        // Until the client gives up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn servers_that_are_none_are_named_as_such() {
    let _alone = alone();
    let error = |said: &[u8], closes| {
        run_hastily(script(said.to_vec(), closes), Parameters::default()).map(|_| ()).unwrap_err()
    };
    assert!(matches!(error(b"", false), Iperf3Error::Silent { .. }));
    assert!(matches!(error(b"", true), Iperf3Error::Closed { .. }));
    assert!(matches!(error(&[9], false), Iperf3Error::Silent { .. }));
    assert!(matches!(error(&[255], true), Iperf3Error::Busy(_)));
    assert!(matches!(error(&[11], true), Iperf3Error::Terminated(_)));
    let stranger = error(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).to_string();
    assert!(stranger.contains("the byte 72") && stranger.contains("is it really iperf3?"), "{stranger}");
    let failure = error(&[9, 254, 0, 0, 0, 142, 0, 0, 0, 0], true).to_string();
    assert!(failure.contains("it wants other credentials (iperf3 error 142)"), "{failure}");
    let old = error(&[9, 254], true).to_string();
    assert!(old.contains("gave up"), "{old}");
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    assert!(matches!(run(nobody, Parameters::default()).map(|_| ()), Err(Iperf3Error::Net(_))));
}

/// A server that goes through a whole test of one TCP stream and then says these results.
fn server_with_results(results: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        let frame = |control: &mut TcpStream| {
            let mut head = [0; 4];
            control.read_exact(&mut head).unwrap();
            let mut text = vec![0; json::length(head, 1 << 20).unwrap()];
            control.read_exact(&mut text).unwrap();
        };
        control.read_exact(&mut [0; 37]).unwrap();
        control.write_all(&[9]).unwrap();
        frame(&mut control);
        control.write_all(&[10]).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        control.write_all(&[1, 2]).unwrap();
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        control.read_exact(&mut [0]).unwrap();
        control.write_all(&[13]).unwrap();
        frame(&mut control);
        // The client may hang up in the middle.
        let _ = control.write_all(&results);
        let _ = control.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn results_that_are_nonsense_do_not_spoil_our_own() {
    let _alone = alone();
    let framed = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let parameters = Parameters { length: Length::Bytes(1_000_000), ..Parameters::default() };
    for (results, problem) in [
        (framed("{}"), "list no streams"),
        (framed("{\"streams\": 3"), "no usable JSON"),
        (vec![0xff; 4], "4294967295 bytes of JSON"),
        (vec![0, 0, 1, 0, b'{'], "did not answer"),
        (Vec::new(), "did not answer"),
        (vec![254], "did not answer"),
    ] {
        let report = run_hastily(server_with_results(results), parameters.clone()).unwrap();
        let said = report.problem.as_deref().unwrap_or("nothing");
        assert!(said.contains(problem), "{said}");
        assert_eq!((report.bytes().0, report.remote), (1_000_000, None));
    }
    let strange = r#"{"cpu_util_total": nan, "cpu_util_user": -inf, "cpu_util_system": 1e300,
        "sender_has_retransmits": "x", "streams": [{"id": 1, "bytes": 18446744073709551616, "jitter": -nan,
        "errors": -5, "packets": 1e300, "start_time": 9, "end_time": 1}]}"#;
    let mut results = framed(strange);
    results.push(14);
    let report = run_hastily(server_with_results(results), parameters).unwrap();
    assert_eq!(report.problem, None);
    let remote = report.streams[0].remote.as_ref().unwrap();
    assert_eq!(
        (remote.bytes, remote.jitter_s, remote.errors, remote.packets, remote.seconds),
        (None, None, None, None, None)
    );
    assert_eq!(report.bytes().0, 1_000_000);
}
