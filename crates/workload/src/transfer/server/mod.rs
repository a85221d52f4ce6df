//! The server of transfers: one port for kagiri's own clients and those of iperf3, any number of them at once.

pub mod greet;
pub mod part;
mod porter;
mod registry;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ipnet::IpNet;
use sys::clock::Deadline;
use sys::net::{ListenOptions, Listener, NetError, UdpPort};

use self::greet::{GreetLimits, Greeted, Greeter};
use self::porter::Porter;
use self::registry::Registry;
use super::control::Bell;
use super::iperf3::{SessionSettings, TestReport, Turns};

pub use self::registry::SessionView;

/// How long sessions may take to end when the server stops.
const STOP: Duration = Duration::from_secs(5);
/// Ports that are tried where any will do.
const PORTS_TRIED_MAX: u32 = 16;

/// Datagrams that came to a socket of another peer, with their senders.
pub type Astray = Vec<(Vec<u8>, SocketAddr)>;

/// What speaks kagiri's own protocol on the server's port. Its calls are made by the thread that greets everybody, so
/// they hand over and return.
pub trait Natives: Send + Sync {
    /// A connection that opened with one of kagiri's cookies.
    fn greeted(&self, greeted: Greeted);

    /// A datagram that is not iperf3's. Answers go through `port`, also by a socket of the peer's own
    /// ([`UdpPort::flow_to`]); what that finds of others is given back.
    fn datagram(&self, port: &UdpPort, bytes: &[u8], from: SocketAddr) -> Astray;

    /// How many sessions run.
    fn open(&self) -> usize;

    /// Tells all sessions to end; each tells its client.
    fn stop(&self);
}

/// How a server behaves.
#[derive(Clone)]
pub struct ServerSettings {
    /// Where it listens, over TCP and UDP; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bounds on those who have not said who they are.
    pub greet: GreetLimits,
    /// How sessions of iperf3's clients are conducted.
    pub session: SessionSettings,
    /// How many of them may run at once; further clients are told that it is busy.
    pub sessions_max: usize,
    /// Whom it serves; others' connections and datagrams are dropped. Everybody unless given.
    pub admitted: Option<Vec<IpNet>>,
    /// What speaks kagiri's own protocol; without it such clients are sent away.
    pub natives: Option<Arc<dyn Natives>>,
}

impl ServerSettings {
    /// The usual ones, on `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            greet: GreetLimits::default(),
            session: SessionSettings::default(),
            sessions_max: 256,
            admitted: None,
            natives: None,
        }
    }
}

impl ServerSettings {
    /// Whether it serves `peer`.
    pub(super) fn admits(&self, peer: IpAddr) -> bool {
        // A socket of both families sees IPv4's addresses as IPv6's.
        let peer = peer.to_canonical();
        self.admitted.as_ref().is_none_or(|nets| nets.iter().any(|net| net.contains(&peer)))
    }
}

/// Binds TCP and UDP at the same port. Where any will do, the one that is free for TCP may be taken for UDP.
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

/// A server that runs until it is dropped.
pub struct Server {
    local: SocketAddr,
    registry: Arc<Registry>,
    bell: Arc<Bell>,
    porter: Option<JoinHandle<()>>,
    natives: Option<Arc<dyn Natives>>,
}

impl Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// [`NetError`]: the address is in use or not of this host, no descriptors or threads left.
    pub fn start(settings: ServerSettings) -> Result<Self, NetError> {
        let (listener, port) = bind(settings.listen)?;
        let local = listener.local_addr();
        let bell = Arc::new(Bell::new()?);
        let registry = Arc::new(Registry::default());
        let greeter = Greeter::new(listener, settings.greet)?;
        let natives = settings.natives.clone();
        let porter =
            Porter::new(greeter, port, bell.clone(), registry.clone(), Arc::new(Turns::default()), settings)?;
        let run = move || porter.run();
        let porter = std::thread::Builder::new().name("transfer-porter".to_owned()).spawn(run);
        let thread = |source| NetError {
            action: "start a thread for",
            target: format!("the server on {local}"),
            source,
        };
        Ok(Self { local, registry, bell, porter: Some(porter.map_err(thread)?), natives })
    }

    /// Where it listens, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The sessions of iperf3's clients that run now.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.registry.view()
    }

    /// What sessions came to that ended since the last call; of very many only the latest.
    pub fn take_reports(&self) -> Vec<TestReport> {
        self.registry.take_reports()
    }

    /// Ends all sessions, telling their clients, and stops listening. What they came to can still be taken.
    pub fn stop(&mut self) {
        self.bell.stop();
        if let Some(porter) = self.porter.take() {
            // It panicked if this fails, and has been heard of already.
            let _ = porter.join();
        }
        self.registry.stop_all();
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
