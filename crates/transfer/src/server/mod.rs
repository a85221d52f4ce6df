//! The server: one port for any number of kagiri's and iperf3's clients.

mod acceptor;
pub mod part;
pub mod protocol_detect;
mod registry;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::IpNet;
use reactor::EventLoop;
use sys::clock::Deadline;
use sys::net::{Interest, ListenOptions, Listener, NetError, UdpPort};

use self::acceptor::Acceptor;
use self::protocol_detect::{HandshakeLimits, ProtocolDetector};
use self::registry::Registry;
use super::control::StopHandle;
use super::iperf3::{SessionSettings, TestReport};
use super::native::NativeServer;

pub use self::registry::SessionView;

const EVENTS_MAX: usize = 256;
/// How long sessions may take to end when the server stops.
const STOP: Duration = Duration::from_secs(5);
/// Attempts to find a port that is free for both TCP and UDP.
const PORTS_TRIED_MAX: u32 = 16;

#[derive(Clone)]
pub struct ServerSettings {
    /// TCP and UDP address; port 0: a free one.
    pub listen: SocketAddr,
    /// Bounds on connections before their cookie.
    pub greet: HandshakeLimits,
    pub session: SessionSettings,
    /// Concurrent sessions of them; further clients are answered "busy".
    pub sessions_max: usize,
    /// Clients that are served; `None`: all. Connections and datagrams of others are dropped.
    pub admitted: Option<Vec<IpNet>>,
    /// Sessions of kagiri's own clients; `None`: they are refused.
    pub natives: Option<Arc<NativeServer>>,
}

impl ServerSettings {
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            greet: HandshakeLimits::default(),
            session: SessionSettings::default(),
            sessions_max: 256,
            admitted: None,
            natives: None,
        }
    }

    pub(super) fn admits(&self, peer: IpAddr) -> bool {
        // A dual-stack socket shows IPv4 addresses as IPv6.
        let peer = peer.to_canonical();
        self.admitted.as_ref().is_none_or(|nets| nets.iter().any(|net| net.contains(&peer)))
    }
}

/// Binds TCP and UDP at the same port. A port that is free for TCP may be in use for UDP.
fn bind(address: SocketAddr) -> Result<(Listener, UdpPort), NetError> {
    let mut tries_left = if address.port() == 0 { PORTS_TRIED_MAX } else { 1 };
    loop {
        let listener = Listener::bind(address, &ListenOptions::default())?;
        tries_left -= 1;
        match UdpPort::bind(listener.local_addr()) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries_left > 0 => {}
            port => return Ok((listener, port?)),
        }
    }
}

pub struct Server {
    local: SocketAddr,
    registry: Arc<Registry>,
    stop_handle: Arc<StopHandle>,
    acceptor: Option<JoinHandle<()>>,
    natives: Option<Arc<NativeServer>>,
}

impl Server {
    /// Listens and serves.
    pub fn start(settings: ServerSettings) -> Result<Self, NetError> {
        let (listener, port) = bind(settings.listen)?;
        let local = listener.local_addr();
        let stop_handle = Arc::new(StopHandle::new()?);
        let registry = Arc::new(Registry::default());
        let mut events = EventLoop::new(stop_handle.clone(), EVENTS_MAX)?;
        let detector = ProtocolDetector::new(listener, settings.greet, events.reactor())?;
        let natives = settings.natives.clone();
        events.reactor().watch(&port, acceptor::PORT, Interest::READ)?;
        let acceptor =
            Acceptor { detector, port, registry: registry.clone(), udp_queue: Arc::default(), settings };
        let run = move || acceptor.run(events);
        let acceptor = std::thread::Builder::new().name("transfer-acceptor".to_owned()).spawn(run);
        let thread = |source| NetError {
            action: "start a thread for",
            target: format!("the server on {local}"),
            source,
        };
        Ok(Self { local, registry, stop_handle, acceptor: Some(acceptor.map_err(thread)?), natives })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The running sessions of iperf3's clients.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.registry.view()
    }

    /// Reports of the sessions that have ended since the last call; the latest, if there are very many.
    pub fn take_reports(&self) -> Vec<TestReport> {
        self.registry.take_reports()
    }

    /// Ends all sessions, informs their clients, and stops listening. Reports can still be taken.
    pub fn stop(&mut self) {
        self.stop_handle.stop();
        if let Some(acceptor) = self.acceptor.take() {
            // An error is a panic of the thread, which was printed.
            let _ = acceptor.join();
        }
        self.registry.entries().values().for_each(|entry| entry.stop_handle.stop());
        self.natives.iter().for_each(|natives| natives.stop());
        let deadline = Deadline::after(STOP);
        let open = || self.registry.len() + self.natives.as_ref().map_or(0, |natives| natives.open());
        while open() > 0 && deadline.pause(Duration::from_millis(2)) {}
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
