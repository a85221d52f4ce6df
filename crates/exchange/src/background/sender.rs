//! The event loop that sends the background load.

use std::net::TcpStream;

use base::pace::{ByteRate, Due};
use reactor::{Reactor, StateMachine, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, Interest, Moved, NetError, TcpSocket, UdpFlow};

use crate::payload;
use crate::report::BackgroundReport;
use crate::wire::DATAGRAM_HEADER_BYTES;

const FLOW: u8 = 1;
const CONTROL: Token = Token::single(2);
/// Payload that fills an Ethernet frame of 1500 bytes: less 28 of the headers of IPv4 and UDP.
const DATAGRAM_BYTES: usize = 1472;
/// Bytes of one call of a paced flow.
const CALL_BYTES: u64 = 64 << 10;
/// Calls on one flow before others have their turn.
const CALLS_MAX: usize = 16;

enum Kind {
    Tcp(TcpSocket),
    Udp(UdpFlow, Box<[u8; DATAGRAM_BYTES]>),
}

/// One flow of the background.
pub(super) struct Flow {
    kind: Kind,
    rate: Option<ByteRate>,
    sent_bytes: u64,
    is_over: bool,
}

impl Flow {
    pub(super) fn tcp(socket: TcpSocket) -> Self {
        Self { kind: Kind::Tcp(socket), rate: None, sent_bytes: 0, is_over: false }
    }

    pub(super) fn udp(socket: UdpFlow, trial: u64, key: u64) -> Self {
        let mut datagram = Box::new([0; DATAGRAM_BYTES]);
        datagram.copy_from_slice(payload::slice(0, DATAGRAM_BYTES as u64));
        datagram[..8].copy_from_slice(&trial.to_be_bytes());
        datagram[8..DATAGRAM_HEADER_BYTES].copy_from_slice(&key.to_be_bytes());
        Self { kind: Kind::Udp(socket, datagram), rate: None, sent_bytes: 0, is_over: false }
    }

    /// Sends at most so much; `None`: nothing fits now.
    fn send(&mut self, bytes_max: u64) -> Result<Option<u64>, NetError> {
        let moved = match &self.kind {
            Kind::Tcp(socket) => socket.send(payload::slice(self.sent_bytes, bytes_max), false)?,
            Kind::Udp(socket, datagram) => match socket.send(&datagram[..]) {
                // An ICMP report about an earlier datagram.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    Moved::Bytes(DATAGRAM_BYTES)
                }
                other => other?,
            },
        };
        let Moved::Bytes(bytes) = moved else { return Ok(None) };
        self.sent_bytes += bytes as u64;
        Ok(Some(bytes as u64))
    }
}

/// When the background sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pattern {
    pub(super) start_ns: u64,
    /// Rate of each flow; `None`: as fast as the path lets it.
    pub(super) each_bit_per_s: Option<u64>,
    /// Sending time and pause in turn, ns.
    pub(super) pause: Option<(u64, u64)>,
}

impl Pattern {
    /// The end of the pause at `now_ns`; `None`: there is none now.
    fn paused_until_ns(&self, now_ns: u64) -> Option<u64> {
        if now_ns < self.start_ns {
            return Some(self.start_ns);
        }
        let (on_ns, off_ns) = self.pause?;
        let period_ns = on_ns.saturating_add(off_ns).max(1);
        let within_ns = (now_ns - self.start_ns) % period_ns;
        (within_ns >= on_ns).then(|| now_ns - within_ns + period_ns)
    }
}

pub(super) struct Sender {
    flows: Vec<Flow>,
    pattern: Pattern,
    _control: TcpStream,
    last_ns: u64,
    /// Why the first flow ended that failed.
    failure: Option<NetError>,
}

impl Sender {
    pub(super) fn new(
        mut flows: Vec<Flow>,
        pattern: Pattern,
        control: TcpStream,
        reactor: &mut Reactor,
    ) -> Result<Self, NetError> {
        reactor.watch(&control, CONTROL, Interest::READ)?;
        for (index, flow) in (0..).zip(&mut flows) {
            let token = Token::fixed(FLOW, index);
            let interest = Interest::WRITE | Interest::EDGE;
            match &flow.kind {
                Kind::Tcp(socket) => reactor.watch(socket, token, interest)?,
                Kind::Udp(socket, _) => reactor.watch(socket, token, interest)?,
            }
            let unit = if matches!(flow.kind, Kind::Udp(..)) { DATAGRAM_BYTES as u64 } else { 1 };
            let rate = |rate| ByteRate::new(rate, pattern.start_ns, unit, CALL_BYTES);
            flow.rate = pattern.each_bit_per_s.map(rate);
            reactor.set_timer(token, pattern.start_ns);
        }
        Ok(Self { flows, pattern, _control: control, last_ns: pattern.start_ns, failure: None })
    }

    /// What was sent; nothing arrived yet.
    pub(super) fn into_report(self) -> BackgroundReport {
        BackgroundReport {
            sent_bytes: self.flows.iter().map(|flow| flow.sent_bytes).sum(),
            elapsed_s: self.last_ns.saturating_sub(self.pattern.start_ns) as f64 / 1e9,
            delivered: None,
            broke_off: self.failure.map(|failure| format!("a flow ended early: {failure}")),
        }
    }

    fn advance(&mut self, token: Token, reactor: &mut Reactor) {
        let Some(flow) = self.flows.get_mut(token.index()).filter(|flow| !flow.is_over) else { return };
        for _ in 0..CALLS_MAX {
            let now_ns = monotonic_ns();
            if let Some(until_ns) = self.pattern.paused_until_ns(now_ns) {
                return reactor.set_timer(token, until_ns);
            }
            let due = match &mut flow.rate {
                Some(rate) => rate.due(flow.sent_bytes, now_ns),
                None => Due::Bytes(u64::MAX),
            };
            let mut bytes_max = match due {
                Due::Bytes(bytes) => bytes,
                Due::NotBefore(at_ns) => return reactor.set_timer(token, at_ns),
            };
            while bytes_max > 0 {
                match flow.send(bytes_max) {
                    Ok(Some(bytes)) if flow.rate.is_some() => bytes_max = bytes_max.saturating_sub(bytes),
                    Ok(Some(_)) => break,
                    Ok(None) => return,
                    Err(error) => {
                        flow.is_over = true;
                        self.failure.get_or_insert(error);
                        return;
                    }
                }
            }
            self.last_ns = now_ns;
        }
        reactor.resume(token);
    }
}

impl StateMachine for Sender {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        match token {
            // The trial is over: the count has come, or the server is gone.
            CONTROL => reactor.finish(),
            token => self.advance(token, reactor),
        }
    }

    fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
        self.advance(token, reactor);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        self.advance(token, reactor);
    }

    fn on_stop(&mut self, _: &mut Reactor) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_follow_the_sending_times() {
        let pattern = Pattern { start_ns: 100, each_bit_per_s: None, pause: Some((10, 5)) };
        let found = [99, 100, 109, 110, 114, 115, 126].map(|now_ns| pattern.paused_until_ns(now_ns));
        assert_eq!(found, [Some(100), None, None, Some(115), Some(115), None, Some(130)]);
        assert_eq!(Pattern { pause: None, ..pattern }.paused_until_ns(u64::MAX), None);
    }

    #[test]
    fn flow_that_fails_is_reported() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (flow, control) = (connect(), connect());
        // The server closes the flow, and later the control connection.
        drop(listener.accept().unwrap());
        let server = listener.accept().unwrap().0;
        let closer = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            drop(server);
        });
        let stop = std::sync::Arc::new(reactor::StopHandle::new().unwrap());
        let mut events = reactor::EventLoop::new(stop, 16).unwrap();
        let pattern = Pattern { start_ns: monotonic_ns(), each_bit_per_s: None, pause: None };
        let flows = vec![Flow::tcp(TcpSocket::try_from(flow).unwrap())];
        let mut sender = Sender::new(flows, pattern, control, events.reactor()).unwrap();
        events.run(&mut sender).unwrap();
        let report = sender.into_report();
        assert!(report.broke_off.is_some_and(|why| why.contains("a flow ended early")));
        closer.join().unwrap();
    }
}
