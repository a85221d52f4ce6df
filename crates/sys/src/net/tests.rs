//! Over loopback, with real sockets.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::*;

const GUARD: Duration = Duration::from_secs(10);

fn pair() -> (TcpSocket, TcpSocket) {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default()).unwrap();
    let options = SocketOptions { receive_buffer_bytes: Some(256 << 10), ..SocketOptions::default() };
    let client = TcpSocket::connect_start(listener.local_addr(), None, &options).unwrap();
    ready(&client, Interest::WRITE);
    assert_eq!(client.connect_result().unwrap(), ConnectState::Connected);
    ready(&listener, Interest::READ);
    let (server, peer) = listener.accept().unwrap().expect("a connection waits");
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(server.peer_addr().unwrap(), peer);
    assert!(listener.accept().unwrap().is_none());
    (client, server)
}

fn ready(what: &impl AsFd, interest: Interest) -> Event {
    let epoll = Epoll::new().unwrap();
    epoll.add(what, 42, interest).unwrap();
    let mut events = Events::with_capacity(4);
    assert_eq!(epoll.wait(&mut events, Some(GUARD)).unwrap(), 1, "nothing happened within {GUARD:?}");
    events.iter().next().unwrap()
}

#[test]
fn bytes_flow_both_ways_until_the_end() {
    let (client, server) = pair();
    let mut buffer = [0; 64];
    assert_eq!(server.recv(&mut buffer).unwrap(), Moved::WouldBlock);
    assert_eq!(client.send(b"hello", false).unwrap(), Moved::Bytes(5));
    assert_eq!(ready(&server, Interest::READ).token, 42);
    assert_eq!(server.queued_bytes().unwrap(), 5);
    assert_eq!(server.recv(&mut buffer).unwrap(), Moved::Bytes(5));
    assert_eq!(&buffer[..5], b"hello");
    client.shutdown_send().unwrap();
    assert!(ready(&server, Interest::READ).is_peer_done());
    assert_eq!(server.recv(&mut buffer).unwrap(), Moved::End);
}

#[test]
fn file_is_sent_and_discarded_in_the_kernel() {
    let (client, server) = pair();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; 100_000]).unwrap();
    let mut sent = 0;
    let mut dropped = 0;
    let started = Instant::now();
    while dropped < 60_000 {
        assert!(started.elapsed() < GUARD);
        if sent < 60_000
            && let Moved::Bytes(n) =
                server.send_file(file.as_fd(), 40_000 + sent, 60_000 - sent as usize).unwrap()
        {
            sent += n as u64;
        }
        if let Moved::Bytes(n) = client.recv_discard(1 << 20).unwrap() {
            dropped += n;
        }
    }
    assert_eq!((sent, dropped), (60_000, 60_000));
    assert_eq!(server.send_file(file.as_fd(), 100_000, 1).unwrap(), Moved::End);
    let info = server.info().unwrap();
    assert_eq!(info.state, Some(1));
    assert!(info.busy_us.is_some() && info.acked_bytes.is_some(), "{info:?}");
    assert!(client.info().unwrap().received_bytes.unwrap() >= 60_000);
}

#[test]
fn socket_options_round_trip() {
    let (client, server) = pair();
    assert!(client.receive_buffer().unwrap() >= 256 << 10);
    assert!(server.set_send_buffer(128 << 10).unwrap() >= 128 << 10);
    server.set_nodelay(true).unwrap();
    server.set_notsent_lowat(64 << 10).unwrap();
    client.set_receive_lowat(1000).unwrap();
    server.set_congestion("reno").unwrap();
    assert_eq!(server.congestion().unwrap(), "reno");
    let refused = server.set_congestion("no-such-control").unwrap_err().to_string();
    assert!(refused.contains("congestion control to no-such-control"), "{refused}");
}

#[test]
fn refused_connect_is_reported() {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default()).unwrap();
    let addr: SocketAddr = listener.local_addr();
    drop(listener);
    let error = match TcpSocket::connect_start(addr, None, &SocketOptions::default()) {
        Ok(socket) => {
            ready(&socket, Interest::WRITE);
            socket.connect_result().unwrap_err()
        }
        Err(e) => e,
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn address_in_use_is_named() {
    let one = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default()).unwrap();
    let error = Listener::bind(one.local_addr(), &ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains(&one.local_addr().to_string()), "{error}");
    let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    let two = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &shared).unwrap();
    Listener::bind(two.local_addr(), &shared).unwrap();
}

#[test]
fn waker_wakes_another_thread_and_waits_end() {
    let waker = std::sync::Arc::new(Waker::new().unwrap());
    let epoll = Epoll::new().unwrap();
    epoll.add(&*waker, 9, Interest::READ).unwrap();
    let mut events = Events::with_capacity(1);
    assert_eq!(epoll.wait(&mut events, Some(Duration::from_micros(50))).unwrap(), 0);
    assert_eq!(epoll.wait_until(&mut events, 0).unwrap(), 0);
    let other = waker.clone();
    let thread = std::thread::spawn(move || other.wake());
    assert_eq!(epoll.wait(&mut events, Some(GUARD)).unwrap(), 1);
    assert_eq!(events.iter().next().map(|e| e.token), Some(9));
    thread.join().unwrap();
    assert!(waker.clear());
    assert!(!waker.clear());
}

#[test]
fn fields_missing_in_older_kernels_are_none() {
    let full = TcpInfo::parse(&[1; 232]);
    assert!(full.send_window_bytes.is_some() && full.duplicates_reported_segments.is_some());
    assert_eq!((full.timeouts_total, full.timeout_recovery_ms), (None, None));
    let newer = TcpInfo::parse(&[1; 248]);
    assert_eq!((newer.timeouts_total, newer.timeout_recovery_ms), (Some(0x0101), Some(0x0101_0101)));
    let old = TcpInfo::parse(&[1; 104]);
    assert_eq!((old.retransmits_total, old.busy_us, old.min_rtt_us), (Some(0x0101_0101), None, None));
    assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
}

#[test]
fn only_timeouts_are_counted_as_timeouts() {
    let few = ListenOptions { backlog: 0, ..ListenOptions::default() };
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &few).unwrap();
    let connect =
        || TcpSocket::connect_start(listener.local_addr(), None, &SocketOptions::default()).unwrap();
    // The kernel passes over a SYN for which there is no room, and it is sent again after a timeout.
    let sockets: Vec<_> = (0..4).map(|_| connect()).collect();
    let first = sockets[0].info().unwrap();
    let Some(before) = first.timeouts_total else { return };
    assert_eq!(
        (before, first.timeout_recovery_ms, first.duplicates_reported_segments),
        (0, Some(0), Some(0))
    );
    let give_up = Instant::now() + GUARD;
    let last = sockets.last().expect("there are four");
    while last.info().unwrap().timeouts_total == Some(0) {
        assert!(Instant::now() < give_up, "no timeout: {:?}", last.info());
        std::thread::sleep(Duration::from_millis(5));
    }
    let info = last.info().unwrap();
    assert!(info.timeouts_total < Some(10) && info.timeout_recovery_ms < Some(20_000), "{info:?}");
    assert_eq!(
        (info.duplicates_reported_segments, sockets[0].info().unwrap().timeouts_total),
        (Some(0), Some(0))
    );
}
