//! The listening side: checks who connects, and links it with the coordinator's zenoh.

use std::collections::{HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::carry::{Tunnel, carry, is_refusal, prepare, runtime};
use super::private_dir::PrivateDir;
use super::tls;
use super::welcome::{SECRET_BYTES, Secret, Welcome};
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
/// connect(2) on a UNIX socket with a full backlog does not wait.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// A bound port that accepts nobody yet, and the socket for zenoh behind it.
pub struct Listener {
    sockets: Vec<std::net::TcpListener>,
    acceptor: TlsAcceptor,
    dir: PrivateDir,
    /// Passwords for zenoh, by member; empty in a fleet with passwords of its own.
    secrets: HashMap<String, Secret>,
    uses_passwords: bool,
}

impl Listener {
    /// Errors: The port is in use, or the bundle's files cannot be used.
    pub fn bind(host: &str, port: u16, credentials: &Credentials) -> io::Result<Self> {
        let config: ServerConfig = tls::server(credentials)?;
        let sockets = bind_all(host, port)?;
        let uses_passwords = credentials.uses_passwords();
        let members = credentials.members.iter().filter(|_| !uses_passwords);
        let secrets = members.map(|member| (member.to_string(), secret())).collect();
        let dir = PrivateDir::create()?;
        Ok(Self { sockets, acceptor: TlsAcceptor::from(Arc::new(config)), dir, secrets, uses_passwords })
    }

    /// Where zenoh must listen.
    pub fn bus_endpoint(&self) -> String {
        format!("unixsock-stream/{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("bus.sock")
    }

    /// Writes zenoh's list of users and passwords, which it reads when it starts; `None` in a fleet with
    /// passwords of its own.
    pub fn write_users(&self) -> io::Result<Option<PathBuf>> {
        if self.uses_passwords {
            return Ok(None);
        }
        let path = self.dir.join("users");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        for (member, secret) in &self.secrets {
            writeln!(file, "{member}:{}", secret.map(char::from).iter().collect::<String>())?;
        }
        Ok(Some(path))
    }

    /// Accepts links from now on. zenoh must listen already.
    pub fn start(self) -> io::Result<Tunnel> {
        let runtime = runtime()?;
        let bus = self.socket();
        let shared = Arc::new(Shared {
            acceptor: self.acceptor,
            secrets: self.secrets,
            uses_passwords: self.uses_passwords,
            bus,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            links: Mutex::default(),
            _dir: self.dir,
        });
        let in_runtime = runtime.enter();
        let listeners = self.sockets.into_iter().map(TcpListener::from_std);
        let listeners: Vec<_> = listeners.collect::<io::Result<_>>()?;
        drop(in_runtime);
        let accept = |listener| runtime.spawn(accept_all(listener, Arc::clone(&shared)));
        Ok(Tunnel { tasks: listeners.into_iter().map(accept).collect() })
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

fn secret() -> Secret {
    sys::random::letters::<SECRET_BYTES>(b"0123456789abcdefghijklmnopqrstuv")
}

struct Shared {
    acceptor: TlsAcceptor,
    secrets: HashMap<String, Secret>,
    uses_passwords: bool,
    bus: PathBuf,
    handshakes: Arc<Semaphore>,
    /// Number of links by member.
    links: Mutex<HashMap<String, usize>>,
    _dir: PrivateDir,
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
    let opened = tokio::select! {
        opened = timeout(HANDSHAKE_WITHIN, shared.open(socket)) => opened,
        _ = handshake.evicted => return,
    };
    drop(handshake.slot);
    let ended = match opened {
        Ok(Ok(link)) => carry(link.tls, link.bus, link.valid).await,
        Ok(Err(error)) => Err(error),
        // A connection that sends nothing is no host.
        Err(_) => return,
    };
    match ended {
        Err(error) if is_refusal(&error) => tracing::warn!("{LISTENER_LOG}{peer}: {error}"),
        _ => {}
    }
}

struct Link {
    tls: TlsStream<TcpStream>,
    bus: UnixStream,
    valid: Duration,
    _counted: Option<CountedLink>,
}

impl Shared {
    async fn open(self: &Arc<Self>, socket: TcpStream) -> io::Result<Link> {
        prepare(&socket)?;
        let mut tls = self.acceptor.accept(socket).await?;
        if tls.get_ref().1.alpn_protocol() != Some(tls::PROTOCOL_NAME) {
            return Err(io::Error::other("it speaks TLS, but not this version's protocol"));
        }
        let peer = tls::peer(tls.get_ref().1.peer_certificates());
        let mut counted = None;
        let welcome = match (self.uses_passwords, &peer) {
            (true, _) => Welcome::Admitted([0; SECRET_BYTES]),
            (false, None) => Welcome::NotListed,
            (false, Some(peer)) => match self.secrets.get(&peer.holder) {
                None => Welcome::NotListed,
                Some(secret) => {
                    counted = CountedLink::begin(self, &peer.holder);
                    counted.as_ref().map_or(Welcome::TooManyLinks, |_| Welcome::Admitted(*secret))
                }
            },
        };
        let name = peer.as_ref().map_or("a host", |peer| &peer.holder);
        match welcome {
            Welcome::Admitted(_) => {}
            refused => {
                refused.send(&mut tls).await?;
                return Err(io::Error::other(match refused {
                    Welcome::TooManyLinks => format!("{name} has {LINKS_PER_MEMBER_MAX} links already"),
                    _ => format!("{name} is not in the list of members"),
                }));
            }
        }
        let bus = self.connect().await?;
        welcome.send(&mut tls).await?;
        Ok(Link { tls, bus, valid: tls::left(peer.as_ref()), _counted: counted })
    }

    /// Connects to this process's zenoh.
    async fn connect(&self) -> io::Result<UnixStream> {
        loop {
            match UnixStream::connect(&self.bus).await {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(BACKLOG_PAUSE).await,
                connected => return connected,
            }
        }
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
