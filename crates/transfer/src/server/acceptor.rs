//! The thread that accepts connections and datagrams and passes them to their sessions.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use reactor::{EventLoop, Reactor, StateMachine, Token};
use sys::net::{Event, NetError, TcpSocket, UdpPort};

use super::ServerSettings;
use super::protocol_detect::{Identified, PeerProtocol, ProtocolDetector};
use super::registry::{Admission, Entry, Registry};
use crate::control::{Control, Cookie, StopHandle};
use crate::iperf3::{Arrival, Session, SessionStatus, State, UdpAcceptQueue, udp_connect};
use crate::native::UnmatchedDatagrams;

pub(super) const PORT: Token = Token::single(3);
/// Datagrams to receive before connections are accepted again.
const DATAGRAMS_MAX: usize = 256;
/// Pause after an unexpected error of the kernel.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Acceptor {
    pub(super) detector: ProtocolDetector,
    /// Watched as [`PORT`].
    pub(super) port: UdpPort,
    pub(super) registry: Arc<Registry>,
    pub(super) udp_queue: Arc<UdpAcceptQueue>,
    pub(super) settings: ServerSettings,
}

impl Acceptor {
    /// Runs until the loop is stopped.
    pub(super) fn run(mut self, mut events: EventLoop) {
        while events.run(&mut self).is_err() {
            // The wait itself failed: do not spin.
            std::thread::sleep(PAUSE);
        }
    }

    fn lead(&self, identified: Identified) {
        if !self.settings.admits(identified.peer.ip()) {
            return;
        }
        match identified.hello {
            PeerProtocol::Kagiri(cookie) => {
                if let Some(natives) = &self.settings.natives {
                    natives.accept(&cookie, identified.socket, identified.peer);
                }
            }
            PeerProtocol::Iperf3(cookie) => {
                match self.registry.admit(cookie, identified.socket, identified.sequence) {
                    Admission::Done => {}
                    Admission::Refused(socket) => deny(&socket),
                    Admission::New(socket) if self.registry.len() >= self.settings.sessions_max => {
                        deny(&socket)
                    }
                    // Without descriptors or threads the connection is closed.
                    Admission::New(socket) => drop(self.open(socket, identified.peer, cookie)),
                }
            }
        }
    }

    fn open(&self, socket: TcpSocket, peer: SocketAddr, cookie: Cookie) -> std::io::Result<()> {
        let failed = |error: NetError| error.source;
        let stop_handle = Arc::new(StopHandle::new().map_err(failed)?);
        let status = Arc::new(SessionStatus::default());
        let local = socket.local_addr().map_err(failed)?;
        let deadlines = &self.settings.session.deadlines;
        socket.set_silence_limit(deadlines.stall).map_err(failed)?;
        let control = Control::new(socket, peer, stop_handle.clone(), deadlines.step).map_err(failed)?;
        let (arrivals, inbox) = mpsc::channel();
        let entry = Entry { peer, local, stop_handle: stop_handle.clone(), status: status.clone(), arrivals };
        self.registry.entries().insert(cookie, entry);
        let session = Session {
            control,
            cookie,
            stop_handle,
            arrivals: inbox,
            status,
            udp_queue: self.udp_queue.clone(),
            settings: self.settings.session.clone(),
        };
        self.registry.spawn(cookie, move || session.run())
    }

    fn take_datagrams(&self) {
        let mut buffer = [0; 2048];
        for _ in 0..DATAGRAMS_MAX {
            // An error of the port shows again at the next wait.
            let Ok(Some((len, from))) = self.port.receive(&mut buffer) else { return };
            let mut unmatched = self.datagram(&buffer[..len], from);
            // Iterative: the peers decide how many datagrams come, so recursion could exhaust the stack.
            while let Some((bytes, from)) = unmatched.pop() {
                unmatched.extend(self.datagram(&bytes, from));
            }
        }
    }

    /// Passes a datagram to its session; returns those of other peers that arrived meanwhile.
    fn datagram(&self, bytes: &[u8], from: SocketAddr) -> UnmatchedDatagrams {
        match &self.settings.natives {
            _ if !self.settings.admits(from.ip()) => UnmatchedDatagrams::new(),
            _ if udp_connect::is_hello(bytes) => self.open_udp(from).unwrap_or_default(),
            Some(natives) => natives.datagram(&self.port, bytes, from),
            None => UnmatchedDatagrams::new(),
        }
    }

    /// Opens a stream for the first queued session of the sender's address; the session answers.
    fn open_udp(&self, from: SocketAddr) -> Option<UnmatchedDatagrams> {
        let cookie = self.udp_queue.holder(from.ip())?;
        let place = self.registry.with(cookie, |entry| entry.status.take_place().then_some(entry.local.ip()));
        let local = place.flatten()?;
        let mut unmatched = UnmatchedDatagrams::new();
        let flow =
            self.port.flow_to(from, Some(local), |bytes, from| unmatched.push((bytes.to_owned(), from)));
        if let Ok(flow) = flow {
            self.registry.with(cookie, |entry| {
                // If the session has just ended, the socket is closed with the channel.
                let _ = entry.arrivals.send(Arrival::Udp(flow));
                entry.stop_handle.wake();
            });
        }
        Some(unmatched)
    }
}

impl StateMachine for Acceptor {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
        match token {
            PORT => self.take_datagrams(),
            token => self.detector.on_ready(reactor, token),
        }
    }
    fn on_timer(&mut self, reactor: &mut Reactor, _: Token) {
        self.detector.on_timer(reactor);
    }
    fn on_stop(&mut self, _: &mut Reactor) {}
    fn after_events(&mut self, reactor: &mut Reactor) {
        self.detector.close_silent(reactor.now_ns());
        while let Some(identified) = self.detector.next_identified() {
            self.lead(identified);
        }
    }
    fn next_deadline_ns(&self) -> Option<u64> {
        self.detector.next_deadline_ns()
    }
}

/// Refuses a client. Best effort: it does not wait.
fn deny(socket: &TcpSocket) {
    let _ = socket.send(&[State::AccessDenied.byte()], false);
}
