//! The thread at the door: it greets whoever comes and leads them to their session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{NetError, TcpSocket, UdpPort};

use super::greet::{Greeted, Greeter, Hello};
use super::registry::{Admission, Entry, Registry};
use super::{Astray, ServerSettings};
use crate::transfer::control::{Bell, Control, Cookie};
use crate::transfer::iperf3::{Arrival, Live, Session, State, TestReport, Turns, hello};

const BELL: u64 = 1 << 63;
const PORT: u64 = BELL + 1;
/// Datagrams taken before connections are looked at again.
const DATAGRAMS_MAX: usize = 256;
/// How long the door stays shut after the kernel failed in a way that nobody expects.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Porter {
    greeter: Greeter,
    port: Arc<UdpPort>,
    bell: Arc<Bell>,
    registry: Arc<Registry>,
    turns: Arc<Turns>,
    settings: ServerSettings,
}

impl Porter {
    pub(super) fn new(
        greeter: Greeter,
        port: UdpPort,
        bell: Arc<Bell>,
        registry: Arc<Registry>,
        turns: Arc<Turns>,
        settings: ServerSettings,
    ) -> Result<Self, NetError> {
        greeter.watch(&*bell, BELL)?;
        greeter.watch(&port, PORT)?;
        Ok(Self { greeter, port: Arc::new(port), bell, registry, turns, settings })
    }

    pub(super) fn run(mut self) {
        while !self.bell.is_stopped() {
            let Ok(greetings) = self.greeter.wait(Deadline::after(Duration::from_secs(60))) else {
                // Not this connection or that, but the waiting itself: do not spin on it.
                std::thread::sleep(PAUSE);
                continue;
            };
            for greeted in greetings.greeted {
                self.lead(greeted);
            }
            if greetings.others.contains(&PORT) {
                self.take_datagrams();
            }
        }
    }

    fn lead(&self, greeted: Greeted) {
        if !self.settings.admits(greeted.peer.ip()) {
            return;
        }
        match greeted.hello {
            Hello::Kagiri(_) => {
                if let Some(natives) = &self.settings.natives {
                    natives.greeted(greeted);
                }
            }
            Hello::Iperf3(cookie) => match self.registry.admit(cookie, greeted.socket, greeted.sequence) {
                Admission::Done => {}
                Admission::Refused(socket) => deny(&socket),
                Admission::New(socket) if self.registry.len() >= self.settings.sessions_max => deny(&socket),
                // Without descriptors or threads the client sees its connection end.
                Admission::New(socket) => drop(self.open(socket, greeted.peer, cookie)),
            },
        }
    }

    /// Opens a session.
    fn open(&self, socket: TcpSocket, peer: SocketAddr, cookie: Cookie) -> std::io::Result<()> {
        let failed = |error: NetError| error.source;
        let bell = Arc::new(Bell::new().map_err(failed)?);
        let live = Arc::new(Live::default());
        let local = socket.local_addr().map_err(failed)?;
        let deadlines = &self.settings.session.deadlines;
        socket.set_silence_limit(deadlines.stall).map_err(failed)?;
        let control = Control::new(socket, peer, bell.clone(), deadlines.step).map_err(failed)?;
        let (arrivals, inbox) = mpsc::channel();
        self.registry.enter(cookie, Entry { peer, local, bell: bell.clone(), live: live.clone(), arrivals });
        let session = Session {
            control,
            cookie,
            bell,
            arrivals: inbox,
            live,
            turns: self.turns.clone(),
            settings: self.settings.session.clone(),
        };
        let registry = self.registry.clone();
        let conduct = move || {
            let mut presence = Presence { registry, cookie, report: None };
            presence.report = Some(session.run());
        };
        let started = std::thread::Builder::new().name("transfer-session".to_owned()).spawn(conduct);
        if started.is_err() {
            self.registry.leave(cookie, None);
        }
        started.map(drop)
    }

    fn take_datagrams(&self) {
        let mut buffer = [0; 2048];
        for _ in 0..DATAGRAMS_MAX {
            // An error of the port itself shows again at the next wait.
            let Ok(Some((len, from))) = self.port.receive(&mut buffer) else { return };
            let mut astray = self.datagram(&buffer[..len], from);
            // One after the other and not each within the one before: how many come is not for this host to say.
            while let Some((bytes, from)) = astray.pop() {
                astray.extend(self.datagram(&bytes, from));
            }
        }
    }

    /// Leads a datagram to its session; what came meanwhile and belongs elsewhere is given back.
    fn datagram(&self, bytes: &[u8], from: SocketAddr) -> Astray {
        match &self.settings.natives {
            _ if !self.settings.admits(from.ip()) => Astray::new(),
            _ if hello::is_hello(bytes) => self.open_udp(from).unwrap_or_default(),
            Some(natives) => natives.datagram(&self.port, bytes, from),
            None => Astray::new(),
        }
    }

    /// Opens a stream for the session whose turn it is among those of the sender's address; the session answers.
    fn open_udp(&self, from: SocketAddr) -> Option<Astray> {
        let cookie = self.turns.holder(from.ip())?;
        let place = self.registry.with(cookie, |entry| entry.live.take_place().then_some(entry.local.ip()));
        let local = place.flatten()?;
        let mut astray = Astray::new();
        let flow = self.port.flow_to(from, Some(local), |bytes, from| astray.push((bytes.to_owned(), from)));
        if let Ok(flow) = flow {
            self.registry.with(cookie, |entry| {
                // If the session has just ended, the socket ends with the channel.
                let _ = entry.arrivals.send(Arrival::Udp(flow));
                entry.bell.ring();
            });
        }
        Some(astray)
    }
}

/// Tells a client that it is not wanted now. What does not go out at once need not.
fn deny(socket: &TcpSocket) {
    let _ = socket.send(&[State::AccessDenied.byte()], false);
}

/// Takes a session out of the registry however its thread ends, and leaves its report there.
struct Presence {
    registry: Arc<Registry>,
    cookie: Cookie,
    report: Option<TestReport>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.registry.leave(self.cookie, self.report.take());
    }
}
