use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

use reactor::{EventLoop, StateMachine, StopHandle};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Event, ListenOptions};

use super::*;

const GUARD: Duration = Duration::from_secs(10);

struct Machine {
    detector: ProtocolDetector,
    identified: Vec<Identified>,
    wakes: u32,
}

impl StateMachine for Machine {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        self.detector.on_ready(reactor, token);
    }
    fn on_timer(&mut self, reactor: &mut Reactor, _: Token) {
        self.detector.on_timer(reactor);
    }
    fn on_wake(&mut self, _: &mut Reactor) {
        self.wakes += 1;
    }
    fn on_stop(&mut self, _: &mut Reactor) {}
    fn after_events(&mut self, reactor: &mut Reactor) {
        self.detector.close_silent(reactor.now_ns());
        self.identified.extend(std::iter::from_fn(|| self.detector.next_identified()));
    }
    fn next_deadline_ns(&self) -> Option<u64> {
        self.detector.next_deadline_ns()
    }
}

fn detector(limits: HandshakeLimits) -> (EventLoop, Machine, Arc<StopHandle>, SocketAddr) {
    let stop_handle = Arc::new(StopHandle::new().unwrap());
    let mut events = EventLoop::new(stop_handle.clone(), 64).unwrap();
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), &ListenOptions::default()).unwrap();
    let address = listener.local_addr();
    let detector = ProtocolDetector::new(listener, limits, events.reactor()).unwrap();
    (events, Machine { detector, identified: Vec::new(), wakes: 0 }, stop_handle, address)
}

/// Polls until `holds`; returns who identified meanwhile.
fn until(
    events: &mut EventLoop,
    machine: &mut Machine,
    holds: impl Fn(&ProtocolDetector, &[Identified]) -> bool,
) -> Vec<Identified> {
    let deadline = Deadline::after(GUARD);
    while !holds(&machine.detector, &machine.identified) {
        assert!(!deadline.passed(), "{:?} {:?}", machine.detector.counts(), machine.identified);
        events.poll_once(machine, monotonic_ns() + 20_000_000).unwrap();
    }
    std::mem::take(&mut machine.identified)
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(GUARD)).unwrap();
    !matches!(stream.read(&mut [0]), Ok(1))
}

#[test]
fn detector_identifies_each_protocol_from_a_split_cookie() {
    let (mut events, mut machine, _, address) = detector(HandshakeLimits::default());
    let (ours, theirs) = (Cookie::random_with("kagiri1-"), Cookie::random());
    let mut streams: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
    streams[0].write_all(&theirs.bytes()[..20]).unwrap();
    streams[1].write_all(&[ours.bytes().as_slice(), b"rest"].concat()).unwrap();
    streams[2].write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").unwrap();
    streams[3].shutdown(std::net::Shutdown::Both).unwrap();
    let mut identified = until(&mut events, &mut machine, |detector, identified| {
        identified.len() == 1
            && detector.counts() == HandshakeCounts { unidentified: 1, silent: 1, evicted: 0 }
    });
    let first = identified.remove(0);
    assert_eq!((first.hello, first.sequence), (PeerProtocol::Kagiri(ours), 1));
    let mut rest = [0; 9];
    assert_eq!(first.socket.recv(&mut rest).unwrap(), Moved::Bytes(4), "what follows is left alone");
    assert_eq!(machine.detector.half_open(), 1);
    streams[0].write_all(&theirs.bytes()[20..]).unwrap();
    let second = until(&mut events, &mut machine, |_, identified| identified.len() == 1).remove(0);
    assert_eq!((second.hello, second.sequence), (PeerProtocol::Iperf3(theirs), 0));
    assert_eq!(second.peer, streams[0].local_addr().unwrap());
    assert!(is_closed(&mut streams[2]));
}

#[test]
fn silent_connection_is_closed_after_the_limit() {
    let (mut events, mut machine, _, address) =
        detector(HandshakeLimits { within: Duration::from_millis(50), half_open_max: 10 });
    let mut silent = TcpStream::connect(address).unwrap();
    until(&mut events, &mut machine, |detector, _| detector.counts().silent == 1);
    assert_eq!(machine.detector.half_open(), 0);
    assert!(is_closed(&mut silent));
}

#[test]
fn silent_connections_are_evicted_for_a_new_client() {
    let (mut events, mut machine, _, address) =
        detector(HandshakeLimits { half_open_max: 8, ..HandshakeLimits::default() });
    let mut crowd: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    until(&mut events, &mut machine, |detector, _| detector.counts().evicted == 12);
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(Cookie::random().bytes()).unwrap();
    let identified = until(&mut events, &mut machine, |_, identified| identified.len() == 1);
    assert_eq!(identified[0].sequence, 20);
    assert!(machine.detector.half_open() <= 8);
    assert!(is_closed(&mut crowd[0]));
}

#[test]
fn wake_reaches_the_loop_of_the_detector() {
    let (mut events, mut machine, stop_handle, _) = detector(HandshakeLimits::default());
    events.poll_once(&mut machine, monotonic_ns() + 1_000_000).unwrap();
    assert_eq!(machine.wakes, 0);
    stop_handle.wake();
    events.poll_once(&mut machine, monotonic_ns() + GUARD.as_nanos() as u64).unwrap();
    assert_eq!(machine.wakes, 1);
}
