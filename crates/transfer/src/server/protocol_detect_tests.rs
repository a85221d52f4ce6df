use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use sys::net::ListenOptions;

use super::*;

const GUARD: Duration = Duration::from_secs(10);

fn detector(limits: HandshakeLimits) -> (ProtocolDetector, SocketAddr) {
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default()).unwrap();
    let address = listener.local_addr();
    (ProtocolDetector::new(listener, limits).unwrap(), address)
}

/// Waits until `holds`; returns who identified meanwhile.
fn until(
    detector: &mut ProtocolDetector,
    holds: impl Fn(&ProtocolDetector, &[Identified]) -> bool,
) -> Vec<Identified> {
    let deadline = Deadline::after(GUARD);
    let mut identified = Vec::new();
    while !holds(detector, &identified) {
        assert!(!deadline.passed(), "{:?} {:?}", detector.counts(), identified);
        identified.extend(detector.wait(Deadline::after(Duration::from_millis(20))).unwrap().identified);
    }
    identified
}

/// Whether the other end has closed.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(GUARD)).unwrap();
    !matches!(stream.read(&mut [0]), Ok(1))
}

#[test]
fn everybody_is_told_apart_however_slowly_he_speaks() {
    let (mut detector, address) = detector(HandshakeLimits::default());
    let (ours, theirs) = (Cookie::random_with("kagiri1-"), Cookie::random());
    let mut streams: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    streams[0].write_all(&theirs.bytes()[..20]).unwrap();
    streams[1].write_all(&[ours.bytes().as_slice(), b"rest"].concat()).unwrap();
    streams[2].write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").unwrap();
    streams[3].shutdown(std::net::Shutdown::Both).unwrap();
    let mut identified = until(&mut detector, |detector, identified| {
        identified.len() == 1
            && detector.counts() == HandshakeCounts { unidentified: 1, silent: 1, evicted: 0 }
    });
    let first = identified.remove(0);
    assert_eq!((first.hello, first.sequence), (PeerProtocol::Kagiri(ours), 1));
    let mut rest = [0; 9];
    assert_eq!(first.socket.recv(&mut rest).unwrap(), Moved::Bytes(4), "what follows is left alone");
    assert_eq!(detector.half_open(), 1);
    streams[0].write_all(&theirs.bytes()[20..]).unwrap();
    let second = until(&mut detector, |_, identified| identified.len() == 1).remove(0);
    assert_eq!((second.hello, second.sequence), (PeerProtocol::Iperf3(theirs), 0));
    assert_eq!(second.peer, streams[0].local_addr().unwrap());
    assert!(is_closed(&mut streams[2]));
}

#[test]
fn the_silent_are_let_go() {
    let (mut detector, address) =
        detector(HandshakeLimits { within: Duration::from_millis(50), half_open_max: 10 });
    let mut silent = TcpStream::connect(address).unwrap();
    until(&mut detector, |detector, _| detector.counts().silent == 1);
    assert_eq!(detector.half_open(), 0);
    assert!(is_closed(&mut silent));
}

#[test]
fn a_crowd_of_the_silent_keeps_nobody_out() {
    let (mut detector, address) =
        detector(HandshakeLimits { half_open_max: 8, ..HandshakeLimits::default() });
    let mut crowd: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    until(&mut detector, |detector, _| detector.counts().evicted == 12);
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(Cookie::random().bytes()).unwrap();
    let identified = until(&mut detector, |_, identified| identified.len() == 1);
    assert_eq!(identified[0].sequence, 20);
    assert!(detector.half_open() <= 8);
    assert!(is_closed(&mut crowd[0]));
}

#[test]
fn others_are_watched_along() {
    let (mut detector, _) = detector(HandshakeLimits::default());
    let waker = sys::net::Waker::new().unwrap();
    detector.watch(&waker, 1 << 63).unwrap();
    assert!(detector.wait(Deadline::after(Duration::from_millis(1))).unwrap().others.is_empty());
    waker.wake();
    assert_eq!(detector.wait(Deadline::after(GUARD)).unwrap().others, [1 << 63]);
}
