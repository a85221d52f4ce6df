//! `kagiri exchange --serve`: whom it admits, what strangers do to it, and how it ends.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use exchange::wire::{Hello, MessageHeader, Purpose};
use kagiri_tests::{Live, Namespaces, World, metric, need_programs, need_root, wait_until};
use nix::sys::signal::Signal;

use crate::daq::PATIENCE;

/// A server that shuts down takes no longer.
const SOON: Duration = Duration::from_secs(20);

/// A server that these words describe, and where it listens.
fn serve(mut live: Live) -> (Live, String) {
    live.wait_for("replies to messages at ", PATIENCE);
    let line = live.stdout() + &live.stderr();
    let at = line.split("replies to messages at ").nth(1).expect("a ready line");
    let address = at.split(';').next().expect("an address").to_owned();
    (live, address)
}

fn on_loopback(world: &World, words: &[&str]) -> (Live, String) {
    serve(world.start(&[&["exchange", "--serve", "--listen", "127.0.0.1:0"], words].concat()))
}

/// What the connections of a server have received, in bytes, as ss(8) shows it.
fn received_bytes(address: &str) -> u64 {
    let port = address.rsplit(':').next().expect("a port");
    let output = Command::new("ss").args(["-tinH", &format!("sport = :{port}")]).output().expect("ss");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts = text.split("bytes_received:").skip(1).filter_map(|rest| rest.split_whitespace().next());
    counts.map(|count| count.parse::<u64>().expect("a count")).sum()
}

/// Ctrl-C: the server ends, and prints what it has answered.
fn interrupt(world: &World, live: Live, messages: &str) {
    live.signal(Signal::SIGINT);
    let ended = live.end(SOON).code(0);
    assert!(ended.stdout.contains(messages) || ended.stderr.contains(messages), "{ended:?}");
    world.assert_nothing_left(ended.pid);
}

#[test]
fn clients_are_served_until_ctrl_c_even_while_one_is_connected() {
    let world = World::new();
    let (live, address) = on_loopback(&world, &["--allow", "127.0.0.0/8"]);
    let own = World::new();
    for size in ["24B", "250kB"] {
        let words = ["exchange", &address, "--clients", "2", "--count", "10", "--size", size, "--json", "-q"];
        let document = own.measure(&words, PATIENCE).code(0).json();
        let trial = &document["trials"][0];
        assert_eq!((metric(trial, "answered"), metric(trial, "errors")), (20.0, 0.0), "{trial}");
        assert!(metric(trial, "server_mean_ms") >= 0.0, "{trial}");
    }
    let mut connected = TcpStream::connect(&address).expect("it listens");
    let hello = Hello { purpose: Purpose::Messages, trial: 1, key: 0 };
    connected.write_all(&hello.to_bytes()).expect("it reads");
    interrupt(&world, live, "40 messages of ");
    assert!(!matches!(connected.read(&mut [0; 1]), Ok(1..)), "its connections have ended with it");
    // No server replies there any more.
    let words = ["exchange", &address, "--count", "1", "-q"];
    own.measure(&words, PATIENCE).fails(1, &[&address, "is 'kagiri exchange --serve' running there?"]);
}

#[test]
fn server_that_ends_within_a_trial_is_an_error_of_the_trial() {
    need_programs!("ss");
    let world = World::new();
    let (live, address) = on_loopback(&world, &[]);
    let own = World::new();
    let words = [
        "exchange",
        &address,
        "--size",
        "10kB",
        "--rate",
        "50",
        "--time",
        "5s",
        "--timeout",
        "1s",
        "--json",
        "-q",
    ];
    let client = own.start(&words);
    wait_until("ten messages have come", PATIENCE, || received_bytes(&address) >= 100_000);
    live.signal(Signal::SIGINT);
    let served = live.end(SOON).code(0);
    let printed = served.stdout.clone() + &served.stderr;
    assert!(
        printed.contains(" messages of ") && !printed.contains("\n0 messages"),
        "in the trial: {printed}"
    );
    world.assert_nothing_left(served.pid);
    let ended = client.end(PATIENCE).code(0);
    own.assert_nothing_left(ended.pid);
    let document = ended.json();
    let trial = &document["trials"][0];
    assert_eq!(trial["verdict"], "fail", "{trial}");
    assert!(metric(trial, "errors") > 0.0, "{trial}");
}

#[test]
fn hosts_outside_the_allowed_networks_are_refused() {
    let world = World::new();
    let (live, address) = on_loopback(&world, &["--allow", "10.213.0.0/16"]);
    let own = World::new();
    let words = ["exchange", &address, "--count", "3", "--timeout", "5s", "--require", "errors==0", "-q"];
    let ended = own.measure(&words, PATIENCE).code(3);
    assert!(ended.stdout.contains("3 messages ended in an error"), "{}", ended.stdout);
    interrupt(&world, live, "0 messages");
    let wrong: [(&[&str], &[&str]); 4] = [
        (&["--listen", "0.0.0.0:0"], &["--allow 10.0.0.0/24", "--open"]),
        (&["--listen", "0.0.0.0:0", "--allow", "everybody"], &["--allow", "everybody"]),
        (&["--listen", "nowhere"], &["--listen nowhere", "10.0.0.2:5202"]),
        (&["--size", "10kB"], &["--serve", "--size"]),
    ];
    for (words, parts) in wrong {
        let words = [&["exchange", "--serve"], words].concat();
        world.measure(&words, PATIENCE).fails(2, parts);
    }
    world.measure(&["exchange", "--allow", "10.0.0.0/24"], PATIENCE).fails(2, &["--serve"]);
}

#[test]
fn hostile_bytes_end_their_connection_and_nothing_else() {
    let world = World::new();
    let (live, address) = on_loopback(&world, &[]);
    let hello = Hello { purpose: Purpose::Messages, trial: 1, key: 0 }.to_bytes();
    let message = |bytes, reply_bytes| MessageHeader { bytes, reply_bytes, number: 0 }.to_bytes();
    let wrong_purpose = {
        let mut bytes = hello;
        bytes[8] = 200;
        bytes
    };
    let hostile = [
        b"GET / HTTP/1.1\r\nHost: kagiri.example\r\n\r\n".to_vec(),
        // The beginning of TLS.
        [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 60]].concat(),
        vec![0; 4096],
        vec![255; 100_000],
        wrong_purpose.to_vec(),
        [&hello[..], &message(u64::MAX, 24)].concat(),
        [&hello[..], &message(24, u64::MAX)].concat(),
        [&hello[..], &message(3, 24)].concat(),
    ];
    for bytes in &hostile {
        let mut stranger = TcpStream::connect(&address).expect("it still listens");
        stranger.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // It may close before all is written.
        let _ = stranger.write_all(bytes);
        let said = stranger.read(&mut [0; 1]);
        let is_closed = match &said {
            Ok(bytes) => *bytes == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        assert!(is_closed, "{:?}: {said:?}", &bytes[..bytes.len().min(40)]);
    }
    // Some say half of what they have to, and go, or stay.
    for part in [1, 31, 32, 40] {
        let half = [&hello[..], &message(1000, 24)].concat();
        TcpStream::connect(&address).expect("it listens").write_all(&half[..part]).expect("it reads");
    }
    let mut staying = TcpStream::connect(&address).expect("it listens");
    staying.write_all(&hello[..5]).expect("it reads");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for length in [0, 1, 15, 16, 1400] {
        datagrams.send_to(&vec![9; length], &address).expect("loopback takes it");
    }
    let own = World::new();
    let words = ["exchange", &address, "--count", "10", "--size", "10kB", "--json", "-q"];
    let document = own.measure(&words, PATIENCE).code(0).json();
    assert_eq!(metric(&document["trials"][0], "answered"), 10.0, "{document}");
    interrupt(&world, live, "10 messages of ");
    drop(staying);
}

#[test]
fn only_the_allowed_host_of_a_network_is_served() {
    need_root!();
    need_programs!("ip");
    let world = World::new();
    let net = Namespaces::new(&["server", "robot", "stranger"]);
    let listen = format!("{}:0", net.address("server"));
    let robots = format!("{}/32", net.address("robot"));
    let words = ["exchange", "--serve", "--listen", &listen, "--allow", &robots];
    let (live, address) = serve(Live::start(net.on("server", &world.command(&words))));
    for (host, answered, code) in [("stranger", 0.0, 0), ("robot", 20.0, 0), ("stranger", 0.0, 0)] {
        let own = World::new();
        let words =
            ["exchange", &address, "--count", "20", "--size", "10kB", "--timeout", "2s", "--json", "-q"];
        let ended = Live::start(net.on(host, &own.command(&words))).end(PATIENCE).code(code);
        let document = ended.json();
        assert_eq!(metric(&document["trials"][0], "answered"), answered, "{host}: {document}");
    }
    // `ip netns exec` has become the program.
    interrupt(&world, live, "20 messages of ");
}
