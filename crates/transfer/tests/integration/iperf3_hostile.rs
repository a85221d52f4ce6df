//! Clients that attack, vanish, hang or send nonsense: every wait of our server ends, and their resources are
//! freed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::*;
use proptest::prelude::*;
use transfer::control::Cookie;
use transfer::iperf3::{Length, Parameters, State};
use transfer::server::Server;

/// Sockets of this process are counted, so that tests run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hasty() -> Server {
    serve(|settings| {
        settings.session.deadlines = short();
        settings.greet.within = short().step;
    })
}

/// How many sockets this process has open.
fn sockets() -> usize {
    let own = std::fs::read_dir("/proc/self/fd").unwrap();
    own.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Whether a well-behaved client is served.
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

    /// The number of the error with which the server ends the session.
    fn failure(&mut self) -> Option<i32> {
        while self.hear()? != State::ServerError {}
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).ok()?;
        Some(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

#[test]
fn vanished_clients_release_their_sockets() {
    let _alone = alone();
    needs!("iperf3");
    let cases = [
        ("-t 60", "KILL"),
        ("-t 60 -R", "KILL"),
        ("-u -b 10M -t 60", "KILL"),
        ("-u -b 10M -t 60 -R -P 2", "KILL"),
        ("-t 60 --bidir", "KILL"),
        ("-t 60", "STOP"),
        ("-t 60 -R", "STOP"),
        ("-u -b 10M -t 60", "STOP"),
        ("-u -b 10M -t 3 -R", "STOP"),
        ("-u -b 10M -t 0 -R", "STOP"),
        ("-u -b 10M -t 0 --bidir", "STOP"),
        ("-n 1T -P 3", "STOP"),
        ("-t 60", "INT"),
    ];
    let cases = cases.map(|case| (serve(|settings| settings.session.deadlines = short()), case));
    let before = sockets();
    at_once(&cases, |(server, (arguments, signal))| {
        let client = start_iperf3(server.local_addr(), &arguments.split(' ').collect::<Vec<_>>());
        until("bytes move", || {
            let sessions = server.sessions();
            sessions.iter().any(|session| session.streams.iter().any(|(_, count)| count.bytes > 100_000))
        });
        let at = Instant::now();
        client.signal(signal);
        let report = report(server);
        assert!(at.elapsed() < Duration::from_secs(20), "{arguments} {signal}: {:?}", at.elapsed());
        assert!(report.problem.is_some(), "{arguments} {signal}");
        assert!(report.streams.iter().any(|stream| stream.own.bytes > Some(0)), "{arguments} {signal}");
        drop(client);
        assert!(is_well(server), "{arguments} {signal}");
    });
    until("their sockets are closed", || sockets() <= before);
}

#[test]
fn incomplete_handshake_ends_at_any_step() {
    let _alone = alone();
    let parameters = r#"{"tcp":true,"time":1,"parallel":2,"len":131072}"#;
    let cases: Vec<(Server, i32, bool)> = (0..10).map(|case| (hasty(), case / 2, case % 2 == 1)).collect();
    let before = sockets();
    at_once(&cases, |&(ref server, step, closes)| {
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
        // A data connection that comes when its session has ended opens another.
        let mut reports = Vec::new();
        until("the end of the session", || {
            reports.extend(server.take_reports());
            !reports.is_empty() && server.sessions().is_empty()
        });
        let problem = reports.remove(0).problem.expect("a problem");
        let expected = match (closes, step) {
            (true, _) => "closed the control connection",
            (false, 0..3) => "did not answer within 3 s while being asked for parameters",
            (false, 3) => "0 of 2 data streams",
            (false, _) => "1 of 2 data streams",
        };
        assert!(problem.contains(expected), "step {step}, closes {closes}: {problem}");
    });
    until("their sockets are closed", || sockets() <= before);
}

#[test]
fn invalid_parameters_get_their_error_number() {
    let _alone = alone();
    let server = hasty();
    let own = |text: &str, expected: i32| {
        let mut hand = Hand::new(server.local_addr(), &Cookie::random());
        assert_eq!(hand.hear(), Some(State::ParamExchange));
        hand.send_json(text);
        assert_eq!(hand.failure(), Some(expected), "{text}");
    };
    own("[1, 2]", 114);
    own("{\"num\": 18446744073709551616}", 114);
    own("{\"time\": nan}", 5);
    own("{\"parallel\": 18446744073709551616}", 6);
    own("{\"authtoken\": \"bWU=\"}", 142);
    own("{\"udp\": true, \"len\": 65536}", 20);
    own(&format!("{{\"title\": {}", "[".repeat(5000)), 114);
    // An excessive length, and a byte of no protocol.
    for bytes in [&[0xff; 4][..], &[0, 0, 0, 0]] {
        let mut hand = Hand::new(server.local_addr(), &Cookie::random());
        assert_eq!(hand.hear(), Some(State::ParamExchange));
        hand.0.write_all(bytes).unwrap();
        assert_eq!(hand.failure(), Some(114), "{bytes:?}");
    }
    assert!(is_well(&server));
}

#[test]
fn unexpected_data_connections_are_refused() {
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
fn client_that_receives_no_datagrams_is_given_up() {
    let _alone = alone();
    let server = hasty();
    let mut hand = Hand::new(server.local_addr(), &Cookie::random());
    assert_eq!(hand.hear(), Some(State::ParamExchange));
    hand.send_json(r#"{"udp":true,"num":10000,"len":1000,"parallel":1,"reverse":true,"bandwidth":8000000}"#);
    assert_eq!(hand.hear(), Some(State::CreateStreams));
    let stream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    stream.send_to(b"9876", server.local_addr()).unwrap();
    assert_eq!((hand.hear(), hand.hear()), (Some(State::TestStart), Some(State::TestRunning)));
    assert_eq!(hand.failure(), Some(160));
    let report = report(&server);
    let problem = report.problem.unwrap();
    assert!(problem.contains("of when all that it asked for had passed"), "{problem}");
    assert!(report.streams[0].own.bytes >= Some(10_000), "{:?}", report.streams);
}

#[test]
fn unknown_udp_senders_open_no_stream() {
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
fn server_survives_random_bytes() {
    let _alone = alone();
    let server = hasty();
    let address = server.local_addr();
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    proptest!(ProptestConfig::with_cases(100), |(
        bytes in bytes, with_cookie in any::<bool>(), cut in 0..200_usize
    )| {
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
