//! Bulk transfers over loopback, with real sockets.

use std::io::{IoSlice, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::*;

fn pair() -> (TcpSocket, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (client.try_into().unwrap(), server)
}

fn datagrams() -> (UdpFlow, UdpFlow) {
    let here = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (one, other) = (here(), here());
    other.connect(one.local_addr().unwrap()).unwrap();
    let one = UdpFlow::connect(other.local_addr().unwrap(), Some(one.local_addr().unwrap()));
    // The port is taken while `here` holds it.
    assert!(one.unwrap_err().to_string().contains("bind to 127.0.0.1"));
    let one = UdpFlow::connect(other.local_addr().unwrap(), None).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    assert_eq!(one.peer_addr(), other.local_addr().unwrap());
    (one, other.try_into().unwrap())
}

#[test]
fn tee_resends_the_pages_of_a_pipe() {
    let expected: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let (full, work) = (Pipe::new(512 << 10).unwrap(), Pipe::new(512 << 10).unwrap());
    assert!(full.capacity_bytes() >= 512 << 10);
    assert_eq!(full.append(&expected).unwrap(), 200_000);
    let (socket, mut peer) = pair();
    socket.set_wait(Some(Duration::from_secs(10))).unwrap();
    let reader = std::thread::spawn(move || {
        let mut came = Vec::new();
        peer.read_to_end(&mut came).unwrap();
        came
    });
    for parts in [&[70_000, 200_000][..], &[150_001]] {
        for &bytes in parts {
            assert_eq!(full.tee(&work, bytes).unwrap(), bytes);
        }
        let mut left: usize = parts.iter().sum();
        while left > 0 {
            match work.splice_to(&socket, left).unwrap() {
                Moved::Bytes(moved) => left -= moved,
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(work.tee(&full, 1).unwrap(), 0, "nothing is left");
    drop(socket);
    assert!(reader.join().unwrap() == [&expected[..70_000], &expected, &expected[..150_001]].concat());
}

#[test]
fn pipe_accepts_up_to_its_capacity() {
    let pipe = Pipe::new(64 << 10).unwrap();
    let took = pipe.append(&[7; 1 << 20]).unwrap();
    assert!((64 << 10..1 << 20).contains(&took), "{took}");
    assert_eq!(pipe.append(b"more").unwrap(), 0);
}

#[test]
fn calls_wait_up_to_their_timeout() {
    let (socket, peer) = pair();
    let mut buffer = [0; 16];
    assert_eq!(socket.recv_waiting(&mut buffer).unwrap(), Moved::WouldBlock);
    socket.set_wait(Some(Duration::from_millis(60))).unwrap();
    let from = Instant::now();
    assert_eq!(socket.recv_waiting(&mut buffer).unwrap(), Moved::WouldBlock);
    assert_eq!(socket.discard_waiting(16).unwrap(), Moved::WouldBlock);
    // A timer tick may be 10 ms.
    assert!(from.elapsed() >= Duration::from_millis(100), "{:?}", from.elapsed());
    let slices = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
    assert_eq!(socket.send_all_of(&slices).unwrap(), Moved::Bytes(7));
    let mut came = [0; 7];
    (&peer).read_exact(&mut came).unwrap();
    assert_eq!(&came, b"one two");
    assert!(socket.path_mtu().unwrap() >= 1500);
    socket.check().unwrap();
    assert_eq!(socket.send_waiting(b"three").unwrap(), Moved::Bytes(5));
    (&peer).read_exact(&mut came[..5]).unwrap();
    assert_eq!(&came[..5], b"three");
    drop(peer);
    assert_eq!(socket.recv_waiting(&mut buffer).unwrap(), Moved::End);
}

#[test]
fn segmented_datagrams_arrive_coalesced_only_if_enabled() {
    for together in [true, false] {
        let (one, other) = datagrams();
        assert!(one.set_segment(100).unwrap() && other.set_coalesce(together).unwrap());
        assert!(other.count_overflows().unwrap());
        other.set_wait(Some(Duration::from_secs(10))).unwrap();
        let bytes: Vec<u8> = (0..250).collect();
        assert_eq!(one.send(&bytes).unwrap(), Moved::Bytes(250));
        let mut buffer = [0; 1000];
        let mut came = Vec::new();
        while came.len() < 250 {
            let Arrived::Batch(batch) = other.receive(&mut buffer).unwrap() else { panic!("it waits") };
            assert_eq!(batch.each_bytes, if came.len() < 200 { 100 } else { 50 });
            assert_eq!(batch.bytes, if together { 250 } else { batch.each_bytes });
            assert_eq!(batch.overflows, None, "nothing was dropped");
            came.extend_from_slice(&buffer[..batch.bytes]);
        }
        assert!(came == bytes);
        assert_eq!(other.receive_now(&mut buffer).unwrap(), Arrived::WouldBlock);
        other.set_wait(None).unwrap();
        assert_eq!(other.receive(&mut buffer).unwrap(), Arrived::WouldBlock);
    }
}

#[test]
fn datagrams_without_room_are_counted() {
    let (one, mut other) = datagrams();
    assert!(other.count_overflows().unwrap());
    other.set_receive_buffer(0).unwrap();
    other.suggest_receive_buffer(1 << 20).unwrap();
    for _ in 0..10 {
        one.send(&[7; 4000]).unwrap();
    }
    let dropped = other.overflows().unwrap();
    assert!((1..10).contains(&dropped), "the size that was chosen stays: {dropped}");
    let mut first = [0; 8];
    let mut waiting = 0;
    while let Arrived::Batch(batch) = other.receive(&mut first).unwrap() {
        assert_eq!((batch.bytes, batch.each_bytes, first), (4000, 4000, [7; 8]), "the rest is counted too");
        waiting += 1;
    }
    assert_eq!(waiting + dropped, 10);
    one.send(b"after").unwrap();
    let Arrived::Batch(batch) = other.receive(&mut first).unwrap() else { panic!("it is there at once") };
    assert_eq!(batch.overflows, Some(dropped));
}

#[test]
fn single_datagrams_and_a_closed_peer_are_reported() {
    let (one, other) = datagrams();
    other.set_wait(Some(Duration::from_secs(10))).unwrap();
    for sent in [&b"first"[..], b"", b"second and last"] {
        assert_eq!(one.send(sent).unwrap(), Moved::Bytes(sent.len()));
    }
    let mut buffer = [0; 6];
    for came in [&b"first"[..], b"", b"second"] {
        assert_eq!(other.receive_one(&mut buffer).unwrap(), Moved::Bytes(came.len()));
        assert_eq!(&buffer[..came.len()], came);
    }
    other.set_wait(None).unwrap();
    assert_eq!(other.receive_one(&mut buffer).unwrap(), Moved::WouldBlock);
    drop(other);
    one.send(b"anybody there?").unwrap();
    assert_eq!(one.receive_one(&mut buffer).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
}
