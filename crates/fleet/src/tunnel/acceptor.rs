//! The listening side: checks who connects, and hands its link to the coordinator's zenoh.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use zenoh_link_tls::{SecuredStream, Socket as LinkSocket};

use super::runtime::{Report, Task, end_after, prepare, report_refusal, runtime};
use super::tls;
use super::welcome::Welcome;
use crate::identity::{Credentials, LISTENER_LOG};

const BACKLOG: i32 = 4096;
/// Others wait in the backlog. An unfinished handshake holds less than 100 KiB.
const HANDSHAKES_MAX: usize = 512;
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// With [`HANDSHAKES_MAX`] unfinished handshakes, the oldest one is ended for the next once it is this old.
const HANDSHAKE_PROTECTED: Duration = Duration::from_secs(1);
const EVICTION_PAUSE: Duration = Duration::from_millis(5);
const EVICTED_AT_ONCE: usize = 16;
/// An agent has one; two agents of one name, and agents that were cut off, have more for a moment.
pub const LINKS_PER_MEMBER_MAX: usize = 8;
/// Without descriptors or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound port that accepts no connection yet.
pub struct Listener {
    sockets: Vec<std::net::TcpListener>,
    shared: Shared,
}

impl Listener {
    /// Errors: The port is in use, or the bundle's files cannot be used.
    pub fn bind(host: &str, port: u16, credentials: &Credentials) -> io::Result<Self> {
        let config: ServerConfig = tls::server(credentials, tls::PROTOCOL_NAME)?;
        let sockets = bind_all(host, port)?;
        let members = credentials.members.iter().filter(|_| !credentials.uses_passwords());
        let shared = Shared {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            members: members.map(ToString::to_string).collect(),
            uses_passwords: credentials.uses_passwords(),
            bus: zenoh_link_tls::Listener::default(),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            links: Mutex::default(),
        };
        Ok(Self { sockets, shared })
    }

    /// Where zenoh must listen.
    pub fn bus_endpoint(&self) -> String {
        self.shared.bus.endpoint()
    }

    /// Accepts links from now on. zenoh must listen already.
    pub fn start(self) -> io::Result<Acceptor> {
        let shared = Arc::new(self.shared);
        let in_runtime = runtime()?.enter();
        let listeners = self.sockets.into_iter().map(TcpListener::from_std);
        let listeners: Vec<_> = listeners.collect::<io::Result<_>>()?;
        drop(in_runtime);
        let accept = |listener| Task::spawn(accept_all(listener, Arc::clone(&shared)));
        Ok(Acceptor { tasks: listeners.into_iter().map(accept).collect::<io::Result<_>>()? })
    }
}

/// Accepts links until it is dropped. zenoh's session owns those that were accepted.
#[derive(Debug)]
pub struct Acceptor {
    tasks: Vec<Task>,
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // The port is free afterwards.
        self.tasks.iter_mut().for_each(Task::end);
    }
}

/// Listens on all addresses of a host name that this machine has.
fn bind_all(host: &str, port: u16) -> io::Result<Vec<std::net::TcpListener>> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let mut sockets = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        match bind(address) {
            Ok(socket) => sockets.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            Err(error) => last = error,
        }
    }
    if sockets.is_empty() { Err(last) } else { Ok(sockets) }
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

struct Shared {
    acceptor: TlsAcceptor,
    /// Who may join; empty in a fleet with passwords, which zenoh checks.
    members: HashSet<String>,
    uses_passwords: bool,
    bus: zenoh_link_tls::Listener,
    handshakes: Arc<Semaphore>,
    /// Number of links by member.
    links: Mutex<HashMap<String, usize>>,
}

async fn accept_all(listener: TcpListener, shared: Arc<Shared>) {
    // Ends its tasks when dropped.
    let mut links = JoinSet::new();
    let mut handshakes = Handshakes::default();
    loop {
        let slot = handshakes.slot(&shared.handshakes).await;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = links.join_next() => continue,
        };
        match accepted {
            Ok((socket, peer)) => {
                let handshake = Handshake { slot, evicted: handshakes.begin() };
                links.spawn(serve(Arc::clone(&shared), socket, peer.ip(), handshake));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

struct Handshake {
    slot: OwnedSemaphorePermit,
    evicted: oneshot::Receiver<()>,
}

/// The unfinished handshakes of one listener, oldest first, with finished ones between them. Dropping a
/// sender ends its handshake.
#[derive(Default)]
struct Handshakes(VecDeque<(Instant, oneshot::Sender<()>)>);

impl Handshakes {
    fn begin(&mut self) -> oneshot::Receiver<()> {
        let (sender, evicted) = oneshot::channel();
        if self.0.len() > 2 * HANDSHAKES_MAX {
            self.0.retain(|(_, sender)| !sender.is_closed());
        }
        self.0.push_back((Instant::now(), sender));
        evicted
    }

    async fn slot(&mut self, slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        loop {
            if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
                return slot;
            }
            self.0.retain(|(_, sender)| !sender.is_closed());
            let is_old = |(began, _): &(Instant, _)| began.elapsed() >= HANDSHAKE_PROTECTED;
            let old = self.0.iter().take(EVICTED_AT_ONCE).take_while(|handshake| is_old(handshake)).count();
            self.0.drain(..old);
            sleep(EVICTION_PAUSE).await;
        }
    }
}

async fn serve(shared: Arc<Shared>, socket: TcpStream, peer: IpAddr, handshake: Handshake) {
    let peer = peer.to_canonical();
    let report: Report = Arc::new(move |why| tracing::warn!("{LISTENER_LOG}{peer}: {why}"));
    let opened = tokio::select! {
        opened = timeout(HANDSHAKE_WITHIN, shared.open(socket, &report)) => opened,
        _ = handshake.evicted => return,
    };
    drop(handshake.slot);
    match opened {
        // Fails while the session closes.
        Ok(Ok(stream)) => drop(zenoh_link_tls::deliver(&shared.bus, stream).await),
        Ok(Err(error)) => report_refusal(&report, &error),
        // A connection that sends nothing is no host.
        Err(_) => {}
    }
}

impl Shared {
    async fn open(self: &Arc<Self>, socket: TcpStream, report: &Report) -> io::Result<SecuredStream> {
        prepare(&socket)?;
        let watched = SockRef::from(&socket).try_clone()?;
        let mut tls = self.acceptor.accept(LinkSocket::new(socket)).await?;
        if tls.get_ref().1.alpn_protocol() != Some(tls::PROTOCOL_NAME) {
            return Err(io::Error::other("it speaks TLS, but not this version's protocol"));
        }
        let peer = tls::peer(tls.get_ref().1.peer_certificates());
        let valid = tls::left(peer.as_ref());
        let holder = peer.map(|peer| peer.holder);
        let mut counted = None;
        let welcome = match &holder {
            _ if self.uses_passwords => Welcome::Admitted,
            Some(holder) if self.members.contains(holder) => {
                counted = CountedLink::begin(self, holder);
                if counted.is_some() { Welcome::Admitted } else { Welcome::TooManyLinks }
            }
            _ => Welcome::NotListed,
        };
        welcome.send(&mut tls).await?;
        let name = holder.as_deref().unwrap_or("a host");
        match welcome {
            Welcome::Admitted => {}
            Welcome::TooManyLinks => {
                return Err(io::Error::other(format!("{name} has {LINKS_PER_MEMBER_MAX} links already")));
            }
            Welcome::NotListed => {
                return Err(io::Error::other(format!("{name} is not in the list of members")));
            }
        }
        let expiry = valid.map(|valid| end_after(valid, watched, Arc::clone(report))).transpose()?;
        let report = Arc::clone(report);
        Ok(SecuredStream {
            stream: tls.into(),
            peer: holder,
            guard: Box::new((counted, expiry)),
            on_error: Box::new(move |error| report_refusal(&report, error)),
        })
    }

    fn links(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CountedLink {
    shared: Arc<Shared>,
    member: String,
}

impl CountedLink {
    /// `None` at the limit.
    fn begin(shared: &Arc<Shared>, member: &str) -> Option<Self> {
        let mut links = shared.links();
        let count = links.entry(member.to_owned()).or_default();
        if *count == LINKS_PER_MEMBER_MAX {
            return None;
        }
        *count += 1;
        Some(Self { shared: Arc::clone(shared), member: member.to_owned() })
    }
}

impl Drop for CountedLink {
    fn drop(&mut self) {
        if let Some(count) = self.shared.links().get_mut(&self.member) {
            *count -= 1;
        }
    }
}
