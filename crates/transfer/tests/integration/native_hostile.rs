//! Clients of kagiri's own protocol that ask for more than they should: for this host's memory, or for
//! another's network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::read_frame;
use crate::native_common::{LOOPBACK, server};
use iperf3::frame;
use transfer::flow::{Direction, Mode, Protocol};
use transfer::native::NativeSettings;
use transfer::native::message::{ClientMessage, ServerMessage, SessionOrder, VERSION};
use transfer::native::session_id::{Role, SessionId};
use transfer::settings::RequestSettings;

const GUARD: Duration = Duration::from_secs(10);

/// A control connection with orders that a client of kagiri never sends.
fn ordered_by_hand(server: SocketAddr, change: impl Fn(&mut SessionOrder)) -> (TcpStream, SessionId) {
    let mut order = SessionOrder {
        protocol_version: VERSION,
        program: "hand".to_owned(),
        key: None,
        protocol: Protocol::Udp,
        direction: Direction::Down,
        flows: 1,
        time_ns: 1_000_000_000,
        bytes: None,
        omit_ns: 0,
        mode: Mode::Copy,
        size_bytes: 1000,
        rate_bit_per_s: Some(8_000_000),
        engine: None,
        threads: 0,
        congestion_control: None,
        send_buffer_bytes: None,
        receive_buffer_bytes: None,
        no_delay: false,
        requests: None,
        calls: false,
        beat_ns: 100_000_000,
    };
    change(&mut order);
    let (mut control, name) = (TcpStream::connect(server).unwrap(), SessionId::random());
    control.set_read_timeout(Some(GUARD)).unwrap();
    control.write_all(name.cookie(Role::Control).bytes()).unwrap();
    control.read_exact(&mut [0]).unwrap();
    assert!(matches!(hear(&mut control), ServerMessage::Welcome { .. }));
    let text = serde_json::to_vec(&ClientMessage::Order(Box::new(order))).unwrap();
    control.write_all(&frame(&text)).unwrap();
    (control, name)
}

fn hear(control: &mut TcpStream) -> ServerMessage {
    serde_json::from_slice(&read_frame(control).unwrap()).unwrap()
}

#[test]
fn order_is_bounded_in_threads_and_memory() {
    let (server, _) = server(NativeSettings::default());
    type Change = fn(&mut SessionOrder);
    let changes: [(Change, &str); 6] = [
        (|order| order.threads = 1_000_000, "threads"),
        (|order| order.receive_buffer_bytes = Some(u64::MAX), "buffers"),
        (|order| order.send_buffer_bytes = Some(2 << 30), "buffers"),
        (|order| (order.protocol, order.receive_buffer_bytes) = (Protocol::Quic, Some(1 << 30)), "buffers"),
        (|order| order.beat_ns = 1, "intervals"),
        (
            |order| {
                let size = base::units::ByteSize::from_bytes(1 << 40);
                order.requests =
                    Some(RequestSettings { answer_size: Some(size), ..RequestSettings::default() });
            },
            "requests",
        ),
    ];
    for (change, words) in changes {
        let (mut control, _) = ordered_by_hand(server.local_addr(), change);
        let said = hear(&mut control);
        assert!(matches!(&said, ServerMessage::Refused { why } if why.contains(words)), "{words}: {said:?}");
    }
}

#[test]
fn datagrams_go_only_to_the_ordering_host() {
    let (server, natives) = server(NativeSettings::default());
    let (mut control, name) = ordered_by_hand(server.local_addr(), |_| ());
    assert!(matches!(hear(&mut control), ServerMessage::Ready { .. }));
    let greeting = *name.cookie(Role::Flow(0)).bytes();
    // Another host's address, as an attacker would write it there to have that host flooded.
    let victim = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    victim.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    victim.send_to(&greeting, server.local_addr()).unwrap();
    assert!(victim.recv(&mut [0; 2000]).is_err(), "nothing is sent there");
    let own = UdpSocket::bind(LOOPBACK).unwrap();
    own.send_to(&greeting, server.local_addr()).unwrap();
    assert!(matches!(hear(&mut control), ServerMessage::Connected), "the place is still free");
    assert!(natives.take_ends().is_empty(), "the session goes on");
    drop(control);
}

#[test]
fn clients_beyond_the_refusal_limit_are_closed() {
    let (server, _) = server(NativeSettings { sessions_max: 1, ..NativeSettings::default() });
    let held: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut control = TcpStream::connect(server.local_addr()).unwrap();
            control.set_read_timeout(Some(GUARD)).unwrap();
            control.write_all(SessionId::random().cookie(Role::Control).bytes()).unwrap();
            control
        })
        .collect();
    let greeted =
        held.iter().map(|mut control| control.read(&mut [0])).filter(|read| matches!(read, Ok(1))).count();
    assert_eq!(greeted, 65, "one is served, 64 wait for the message that the server is full");
}

#[test]
fn flood_of_udp_cookies_opens_all_flows() {
    let (server, _) = server(NativeSettings::default());
    let flows = 400;
    let (mut control, name) = ordered_by_hand(server.local_addr(), |order| order.flows = flows);
    assert!(matches!(hear(&mut control), ServerMessage::Ready { .. }));
    let sockets: Vec<UdpSocket> = (0..flows).map(|_| UdpSocket::bind(LOOPBACK).unwrap()).collect();
    control.set_nonblocking(true).unwrap();
    // Greetings are lost in a full socket, as on any path: they are sent until the server has all.
    let until = std::time::Instant::now() + GUARD;
    while control.peek(&mut [0]).is_err() {
        assert!(std::time::Instant::now() < until, "the server did not take all flows");
        for (number, socket) in sockets.iter().enumerate() {
            // "Refused" is the error of an earlier datagram.
            let _ = socket.send_to(name.cookie(Role::Flow(number as u32)).bytes(), server.local_addr());
        }
    }
    control.set_nonblocking(false).unwrap();
    assert!(matches!(hear(&mut control), ServerMessage::Connected));
}
