//! Classic ttcp at the other end: nuttcp's classic mode over TCP, and an imitation of `ttcp.c` over UDP.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::*;
use transfer::flow::{End, EndReason, Protocol};
use transfer::ttcp::{Manner, Patience, Receiver, SendOrder, TtcpError, TtcpReport, send};

fn manner(protocol: Protocol) -> Manner {
    let patience = Patience { first: Duration::from_secs(10), silence: Duration::from_secs(2) };
    Manner { patience, ..Manner::new(protocol) }
}

fn bind(protocol: Protocol) -> Receiver {
    Receiver::bind((Ipv4Addr::LOCALHOST, 0).into(), manner(protocol)).unwrap()
}

fn take(receiver: &mut Receiver) -> TtcpReport {
    receiver.take(&stop_handle(), |_| ()).unwrap()
}

fn order(protocol: Protocol, bytes: u64) -> SendOrder {
    SendOrder { manner: manner(protocol), end: End::Bytes(bytes), rate_bit_per_s: None }
}

fn send_to(peer: SocketAddr, order: &SendOrder) -> Result<TtcpReport, TtcpError> {
    send(peer, order, &stop_handle(), |_| ())
}

#[test]
fn nuttcp_stream_is_received() {
    needs!("nuttcp");
    let mut receiver = bind(Protocol::Tcp);
    let port = receiver.local_addr().port().to_string();
    // One after the other: the receiver goes on.
    for _ in 0..2 {
        let sender = Process::start("nuttcp", &["-t", "-p", &port, "-l", "8192", "-n", "2048", "127.0.0.1"]);
        let report = take(&mut receiver);
        let printed = sender.output();
        let flow = &report.flow;
        assert_eq!((flow.count.bytes, &flow.ended), (16 << 20, &EndReason::ByPeer), "{printed}");
        assert!(printed.contains("16.0000 MB"), "{printed}");
        assert!(report.seconds().unwrap() > 0.0);
    }
}

/// nuttcp receives in its own protocol only: `nuttcp -r` becomes a server of that.
#[test]
fn stream_is_sent_to_ttcp_receiver() {
    let (address, receiver) = byte_sink();
    let sent = send_to(address, &order(Protocol::Tcp, 16 << 20)).unwrap();
    assert_eq!((sent.flow.count.bytes, sent.flow.ended), (16 << 20, EndReason::Done));
    assert_eq!(receiver.join().unwrap(), 16 << 20);
}

#[test]
fn datagrams_of_ttcp_sender_are_counted() {
    let mut receiver = bind(Protocol::Udp);
    let address = receiver.local_addr();
    for first_mark in [true, false] {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.connect(address).unwrap();
        if first_mark {
            socket.send(&[0; 4]).unwrap();
        }
        for _ in 0..20 {
            socket.send(&[7; 1000]).unwrap();
        }
        // The fifth as ttcp sends it, should the others be lost.
        for _ in 0..5 {
            socket.send(&[0; 4]).unwrap();
        }
        let report = take(&mut receiver);
        assert_eq!(report.flow.ended, EndReason::ByPeer);
        assert_eq!((report.flow.count.bytes, report.flow.count.datagrams), (20_000, 20), "mark {first_mark}");
        assert_eq!(report.peer, socket.local_addr().unwrap());
    }
}

#[test]
fn datagrams_are_marked_for_ttcp_receiver() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(GUARD)).unwrap();
    let address = socket.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut bytes, mut going) = (0, false);
        let mut buffer = [0; 65536];
        loop {
            match socket.recv(&mut buffer).unwrap() {
                0..=4 if going => return bytes,
                0..=4 => going = true,
                len => {
                    assert!(going, "data before the mark");
                    bytes += len;
                }
            }
        }
    });
    let slow = SendOrder { rate_bit_per_s: Some(50_000_000), ..order(Protocol::Udp, 99_999) };
    let sent = send_to(address, &slow).unwrap();
    // Whole datagrams.
    assert_eq!(sent.flow.count.bytes, 13 * 8192);
    assert_eq!(receiver.join().unwrap(), 13 * 8192);
}

#[test]
fn own_sender_and_receiver_agree() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let mut receiver = bind(protocol);
        let address = receiver.local_addr();
        let receiver = std::thread::spawn(move || take(&mut receiver));
        let order = SendOrder { rate_bit_per_s: Some(100_000_000), ..order(protocol, 1_000_000) };
        let sent = send_to(address, &order).unwrap();
        let came = receiver.join().unwrap();
        assert!(sent.flow.count.bytes >= 1_000_000);
        assert_eq!(came.flow.count.bytes, sent.flow.count.bytes, "{protocol:?}");
    }
}

#[test]
fn each_wait_ends_by_deadline_silence_or_stop() {
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let patience = Patience { first: Duration::from_millis(100), silence: Duration::from_millis(300) };
        let manner = Manner { patience, ..manner(protocol) };
        let mut receiver = Receiver::bind((Ipv4Addr::LOCALHOST, 0).into(), manner).unwrap();
        let stop_handle = stop_handle();
        let error = receiver.take(&stop_handle, |_| ()).unwrap_err();
        assert!(error.to_string().contains("no sender came"), "{error}");
        stop_handle.stop();
        assert!(matches!(receiver.take(&stop_handle, |_| ()), Err(TtcpError::Stopped)));
    }
    // A sender that says something and then nothing.
    let patience = Patience { first: GUARD, silence: Duration::from_millis(300) };
    let manner = Manner { patience, ..manner(Protocol::Udp) };
    let mut receiver = Receiver::bind((Ipv4Addr::LOCALHOST, 0).into(), manner).unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.send_to(&[1; 100], receiver.local_addr()).unwrap();
    let report = take(&mut receiver);
    assert!(matches!(report.flow.ended, EndReason::Failed(_)), "{report:?}");
    assert_eq!(report.flow.count.bytes, 100);
    assert!(matches!(send_to(closed_address(), &order(Protocol::Tcp, 1)), Err(TtcpError::Net(_))));
}

#[test]
fn stop_ends_stream_in_order() {
    let (address, reader) = byte_sink();
    let stop_handle = stop_handle();
    let (rung, from) = (stop_handle.clone(), Instant::now());
    let endless =
        SendOrder { end: End::Peer, rate_bit_per_s: Some(1_000_000_000), ..order(Protocol::Tcp, 0) };
    let report = send(address, &endless, &stop_handle, |count| {
        if count.bytes > 100_000 {
            rung.stop();
        }
    });
    assert!(from.elapsed() < GUARD);
    let report = report.unwrap();
    assert_eq!(report.flow.ended, EndReason::Stopped);
    assert_eq!(reader.join().unwrap(), report.flow.count.bytes, "the stream ends behind its last byte");
}
