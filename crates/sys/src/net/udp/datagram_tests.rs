//! Over loopback and socket files, with the kernel's stamps.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use super::*;
use crate::clock::{Deadline, monotonic_ns};

fn loopback() -> DatagramAddress {
    DatagramAddress::Udp("127.0.0.1:0".parse().unwrap())
}

fn next(socket: &mut DatagramSocket, buffer: &mut [u8]) -> Datagram {
    let deadline = Deadline::after(Duration::from_secs(10));
    loop {
        if let Some(datagram) = socket.receive(buffer).unwrap() {
            return datagram;
        }
        assert!(deadline.pause(Duration::from_micros(100)), "nothing came");
    }
}

/// Sends from one to the other and back; each datagram's time lies between the calls, and soon it is the
/// kernel's.
fn there_and_back(mut left: DatagramSocket, mut right: DatagramSocket) {
    let (to_left, to_right) = (left.local_address().unwrap(), right.local_address().unwrap());
    assert_eq!(left.receive(&mut [0; 8]).unwrap(), None);
    right.enable_stamps().unwrap();
    let mut buffer = [0; 4];
    let deadline = Deadline::after(Duration::from_secs(10));
    loop {
        let before = monotonic_ns();
        left.send_to(b"there", &to_right).unwrap();
        let sent = monotonic_ns();
        let datagram = next(&mut right, &mut buffer);
        let after = monotonic_ns();
        assert_eq!((datagram.len, &buffer, datagram.from.as_ref()), (4, b"ther", Some(&to_left)));
        assert!((before..=after).contains(&datagram.at_monotonic_ns), "{before} {datagram:?} {after}");
        // Delivery on one host is part of the sender's call.
        if datagram.stamped && datagram.at_monotonic_ns <= sent + 1000 {
            break;
        }
        // The kernel begins to stamp a moment after it is asked to.
        assert!(!deadline.passed(), "never stamped while it was sent");
    }
    right.send_to(b"", &to_left).unwrap();
    let datagram = next(&mut left, &mut buffer);
    assert_eq!((datagram.len, datagram.from, datagram.stamped), (0, Some(to_right), false));
}

#[test]
fn udp() {
    let bind = || DatagramSocket::bind(&loopback()).unwrap();
    there_and_back(bind(), bind());
    let v6 = DatagramAddress::Udp("[::1]:0".parse().unwrap());
    // A host may have no IPv6.
    if let (Ok(left), Ok(right)) = (DatagramSocket::bind(&v6), DatagramSocket::bind(&v6)) {
        there_and_back(left, right);
    }
}

#[test]
fn unix_socket_files_exchange_datagrams() {
    let folder = tempfile::tempdir().unwrap();
    let bind = |name: &str| DatagramSocket::bind(&DatagramAddress::Unix(folder.path().join(name)));
    there_and_back(bind("left").unwrap(), bind("right").unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file was left behind");
    let mut here = bind("here").unwrap();
    assert_eq!(bind("here").unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(folder.path().join("here").exists(), "the refused one took the file away");
    UnixDatagram::unbound().unwrap().send_to(b"?", folder.path().join("here")).unwrap();
    assert_eq!(next(&mut here, &mut [0; 8]).from, None);
    assert_eq!(here.send_to(b"", &loopback()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(bind(&"x".repeat(200)).is_err());
}

#[test]
fn receive_ignores_port_unreachable() {
    let mut socket = DatagramSocket::bind(&loopback()).unwrap();
    let gone = DatagramSocket::bind(&loopback()).unwrap().local_address().unwrap();
    for _ in 0..3 {
        socket.send_to(b"?", &gone).unwrap();
        assert_eq!(socket.receive(&mut [0; 8]).unwrap(), None);
    }
}

#[test]
fn only_a_stale_socket_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bind = |name: &str| DatagramSocket::bind(&DatagramAddress::Unix(path(name)));
    // The file stays when the socket alone is closed, as the kernel closes it for a killed process.
    drop(UnixDatagram::bind(path("clock")).unwrap());
    let mut anew = bind("clock").unwrap();
    bind("other").unwrap().send_to(b"?", &anew.local_address().unwrap()).unwrap();
    assert_eq!(next(&mut anew, &mut [0; 8]).len, 1);
    std::fs::write(path("file"), "kept").unwrap();
    let _stream = std::os::unix::net::UnixListener::bind(path("stream")).unwrap();
    for name in ["clock", "file", "stream"] {
        assert_eq!(bind(name).unwrap_err().kind(), io::ErrorKind::AddrInUse, "{name}");
    }
    assert_eq!(std::fs::read_to_string(path("file")).unwrap(), "kept");
}
