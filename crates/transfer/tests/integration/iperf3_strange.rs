//! Servers of other protocols, servers that stop anywhere or send nonsense, and paths that corrupt what
//! iperf3 and kagiri send: every wait ends, and the error names the cause.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::*;
use iperf3::frame;
use sys::net::{ListenOptions, Listener};
use transfer::control::ControlError;
use transfer::iperf3::{Direction, Iperf3Error, Length, Parameters, Protocol};

/// A server that sends these bytes after the cookie, then closes or stays silent.
fn script(said: Vec<u8>, closes: bool) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut cookie = [0; 37];
        let _ = stream.read_exact(&mut cookie);
        let _ = stream.write_all(&said);
        if closes {
            drop(stream);
            // Data streams are accepted and ignored.
            let _streams: Vec<_> = listener.incoming().collect();
            return;
        }
        // Until the client gives up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn other_protocols_are_named() {
    let error = |said: &[u8], closes| {
        run_hastily(script(said.to_vec(), closes), Parameters::default()).map(|_| ()).unwrap_err()
    };
    at_once(&[&b""[..], &[9]], |said| {
        assert!(matches!(error(said, false), Iperf3Error::Control(ControlError::Silent { .. })));
    });
    assert!(matches!(error(b"", true), Iperf3Error::Control(ControlError::Closed { .. })));
    assert!(matches!(error(&[255], true), Iperf3Error::Busy(_)));
    assert!(matches!(error(&[11], true), Iperf3Error::Terminated(_)));
    let stranger = error(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).to_string();
    assert!(stranger.contains("the byte 72") && stranger.contains("is it really iperf3?"), "{stranger}");
    let failure = error(&[9, 254, 0, 0, 0, 142, 0, 0, 0, 0], true).to_string();
    assert!(failure.contains("it wants other credentials (iperf3 error 142)"), "{failure}");
    let old = error(&[9, 254], true).to_string();
    assert!(old.contains("gave up"), "{old}");
    let refused = run(closed_address(), Parameters::default()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Iperf3Error::Control(ControlError::Net(_))), "{refused}");
}

/// How a stream ends whose peer does not read: the message of the supervisor, the flow or the kernel,
/// whichever notices it first.
const STILL: &str = "no byte moved|nothing moved|timed out";

#[test]
fn server_that_stops_at_any_step_is_given_up() {
    let closed = "closed the control connection while";
    let udp = Parameters { protocol: Protocol::Udp, block_bytes: 1000, ..Parameters::default() };
    let down = Parameters { direction: Direction::Reverse, ..Parameters::default() };
    let tcp = Parameters::default();
    let cases: [(&Parameters, &[u8], bool, &str); 12] = [
        (&tcp, &[9], true, "looking at the parameters"),
        (&tcp, &[9, 10], true, closed),
        (&tcp, &[9, 10], false, "did not answer within 3 s while starting the test"),
        (&tcp, &[9, 10, 1], true, closed),
        (&tcp, &[9, 10, 1], false, "did not answer within 3 s while starting the test"),
        (&tcp, &[9, 10, 1, 2], true, closed),
        (&tcp, &[9, 10, 1, 2], false, STILL),
        (&down, &[9, 10, 1, 2], false, STILL),
        (&tcp, &[9, 10, 1, 2, 99], false, "the byte 99"),
        (&tcp, &[9, 10, 1, 2, 11], false, "was told to stop"),
        (&udp, &[9, 10], false, "does a firewall drop them?"),
        (&udp, &[9, 10], true, closed),
    ];
    at_once(&cases, |&(parameters, said, closes, expected)| {
        let from = Instant::now();
        let end = run_hastily(script(said.to_vec(), closes), parameters.clone());
        let problem = end.map_or_else(|error| error.to_string(), |report| report.problem.unwrap_or_default());
        let is_named = expected.split('|').any(|words| problem.contains(words));
        assert!(is_named, "{said:?}, closes {closes}: {problem}");
        assert!(from.elapsed() < Duration::from_secs(10), "{said:?}: {:?}", from.elapsed());
    });
}

#[test]
fn full_listen_queue_ends_the_connect_in_time() {
    let options = ListenOptions { backlog: 0, ..ListenOptions::default() };
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
    let address = listener.local_addr();
    // The kernel drops a SYN if the accept queue is full, as a firewall does.
    let _queue: Vec<TcpStream> =
        (0..4).map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()).collect();
    let error = run_hastily(address, Parameters::default()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("did not answer within 3 s while being connected to"), "{error}");
}

/// A server that performs a whole test of one TCP stream and then sends these results.
fn server_with_results(results: Vec<u8>) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        control.read_exact(&mut [0; 37]).unwrap();
        control.write_all(&[9]).unwrap();
        read_frame(&mut control).unwrap();
        control.write_all(&[10]).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        control.write_all(&[1, 2]).unwrap();
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        control.read_exact(&mut [0]).unwrap();
        control.write_all(&[13]).unwrap();
        read_frame(&mut control).unwrap();
        // The client may hang up in the middle.
        let _ = control.write_all(&results);
        let _ = control.read_to_end(&mut Vec::new());
    });
    address
}

#[test]
fn invalid_results_do_not_change_own_results() {
    let parameters = Parameters { length: Length::Bytes(1_000_000), ..Parameters::default() };
    let cases = [
        (frame(b"{}"), "list no streams"),
        (frame(b"{\"streams\": 3"), "no usable JSON"),
        (vec![0xff; 4], "a text of 4294967295 bytes"),
        (vec![0, 0, 1, 0, b'{'], "did not answer"),
        (Vec::new(), "did not answer"),
        (vec![254], "did not answer"),
    ];
    at_once(&cases, |(results, problem)| {
        let report = run_hastily(server_with_results(results.clone()), parameters.clone()).unwrap();
        let said = report.problem.as_deref().unwrap_or("nothing");
        assert!(said.contains(problem), "{said}");
        assert_eq!((report.bytes().0, report.remote), (1_000_000, None));
    });
    let strange = r#"{"cpu_util_total": nan, "cpu_util_user": -inf, "cpu_util_system": 1e300,
        "sender_has_retransmits": "x", "streams": [{"id": 1, "bytes": 18446744073709551616, "jitter": -nan,
        "errors": -5, "packets": 1e300, "start_time": 9, "end_time": 1}]}"#;
    let mut results = frame(strange.as_bytes());
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

/// What a relay does to the first connection through it.
#[derive(Debug, Clone, Copy)]
struct Garbling {
    /// Whether it is what the client says.
    is_up: bool,
    /// From which byte on.
    from: usize,
    /// The replacement of every byte from there on.
    byte: u8,
}

/// A relay to `server`, and its address.
fn garbled_line(server: SocketAddr, garbling: Garbling) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for (index, near) in listener.incoming().enumerate() {
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(server)) else { return };
            let from = |is_up| (index == 0 && garbling.is_up == is_up).then_some(garbling.from);
            for (mut source, mut sink, from) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap(), from(true)), (far, near, from(false))]
            {
                std::thread::spawn(move || pass(&mut source, &mut sink, from, garbling.byte));
            }
        }
    });
    address
}

/// Passes bytes on until either end is closed, corrupted from the byte `from` on.
fn pass(source: &mut TcpStream, sink: &mut TcpStream, from: Option<usize>, byte: u8) {
    let mut piece = vec![0; 64 << 10];
    let mut passed = 0;
    while let Ok(len @ 1..) = source.read(&mut piece) {
        if let Some(from) = from {
            piece[from.saturating_sub(passed).min(len)..len].fill(byte);
        }
        passed += len;
        if sink.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    // They may be closed already.
    let _ = (source.shutdown(Shutdown::Read), sink.shutdown(Shutdown::Write));
}

/// Where a client's messages are corrupted: the cookie, the length and the text of its parameters, its
/// results.
const UP: [usize; 5] = [3, 37, 41, 60, 300];
/// Where a server's messages are corrupted: each of its first states, the length and the text of its results.
const DOWN: [usize; 6] = [0, 1, 2, 4, 6, 20];

fn garblings() -> Vec<Garbling> {
    let ways = [(true, &UP[..]), (false, &DOWN[..])];
    let places = ways.into_iter().flat_map(|(is_up, all)| all.iter().map(move |&from| (is_up, from)));
    places.flat_map(|(is_up, from)| [0, b'Z'].map(|byte| Garbling { is_up, from, byte })).collect()
}

#[test]
fn garbled_messages_to_the_server_end_the_test() {
    needs!("iperf3");
    at_once(&garblings(), |&garbling| {
        let server = serve(|settings| {
            settings.session.deadlines = short();
            settings.greet.within = short().step;
        });
        let line = garbled_line(server.local_addr(), garbling);
        let mut iperf3 = start_iperf3(line, &["-n", "1M", "-P", "2"]);
        let mut reports = Vec::new();
        until("a session has ended, or iperf3 has", || {
            reports.extend(server.take_reports());
            !reports.is_empty() || iperf3.has_ended()
        });
        drop(iperf3);
        until("all have ended", || server.sessions().is_empty());
        reports.extend(server.take_reports());
        if garbling.is_up {
            assert!(reports.iter().all(|report| report.problem.is_some()), "{garbling:?}: {reports:?}");
        }
        let parameters = Parameters { length: Length::Bytes(100_000), ..Parameters::default() };
        assert_eq!(run(server.local_addr(), parameters).unwrap().problem, None, "{garbling:?}");
    });
}

#[test]
fn garbled_messages_to_the_client_end_the_test() {
    needs!("iperf3");
    at_once(&garblings(), |&garbling| {
        let (_process, server) = iperf3_server(&[]);
        let from = Instant::now();
        let parameters = Parameters { length: Length::Bytes(1 << 20), streams: 2, ..Parameters::default() };
        let end = run_hastily(garbled_line(server, garbling), parameters);
        assert!(from.elapsed() < Duration::from_secs(15), "{garbling:?}: {:?}", from.elapsed());
        let problem = end.map_or_else(|error| Some(error.to_string()), |report| report.problem);
        assert!(problem.is_some_and(|text| !text.is_empty()), "{garbling:?}");
    });
}
