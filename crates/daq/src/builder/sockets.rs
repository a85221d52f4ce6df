//! The sockets of one builder: listeners, connections and the UDP port.

use std::net::SocketAddr;

use reactor::{ACCEPTS_MAX, Accepted, Acceptor, Reactor, Registry, Slab, Timeouts, Token};
use sys::net::{Interest, ListenOptions, Listener, NetError, SocketOptions, TcpSocket, UdpPort};

use super::config::BuilderConfig;
use super::connection::{Connection, Identity};
use crate::settings::Carrier;
use crate::theory::packets;

const CONNECTION_CLASS: u8 = 0;
pub(super) const LISTENER_CLASS: u8 = 1;
/// Urgent, because delays of clock answers widen the clocks' error bounds.
pub(super) const UDP: Token = Token::single(Token::URGENT);
/// Kernel memory of a queued datagram: a page with its bookkeeping.
const DATAGRAM_BYTES: u64 = 4096;
const RECEIVE_BYTES_MAX: u64 = 256 << 20;
/// Limit of connections without a hello.
const HANDSHAKES_MAX: usize = 4096;
/// Connections without a hello are closed after so long: TCP repeats a lost hello at least twice within it.
const HELLO_TIMEOUT_NS: u64 = 5_000_000_000;
/// Sources per listener: the kernel distributes their connections unevenly over the listen queues, of 4096
/// each (`net.core.somaxconn`). A full queue delays a connection by a second.
const SOURCES_PER_LISTENER: u32 = 2500;
const LISTENERS_MAX: u32 = 16;

pub(super) struct Sockets {
    registry: Registry,
    acceptors: Vec<Acceptor>,
    udp: UdpPort,
    connections: Slab<Connection>,
    /// Connections without a hello.
    handshakes: Timeouts<(), 1>,
    handshake_count: usize,
}

/// The receive buffer that holds all datagrams of the events under way.
fn receive_buffer_bytes(config: &BuilderConfig) -> u64 {
    let datagrams = packets(config.mean_fragment_bytes(), Carrier::Udp) * u64::from(config.sources());
    (datagrams * u64::from(config.window()) * DATAGRAM_BYTES).clamp(1 << 20, RECEIVE_BYTES_MAX)
}

fn listen(config: &BuilderConfig, reactor: &Reactor) -> Result<Vec<Acceptor>, NetError> {
    let options = ListenOptions {
        reuse_port: true,
        backlog: 4096,
        socket: SocketOptions { nodelay: Some(true), ..SocketOptions::default() },
    };
    let number = config.sources().div_ceil(SOURCES_PER_LISTENER).clamp(1, LISTENERS_MAX);
    let listeners = (0..number).map(|_| Listener::bind(config.address, &options));
    // Connections may go to any bound listener, so that all are bound before the first accepts.
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    let tokens = (0..).map(|index| Token::fixed(LISTENER_CLASS, index));
    listeners.into_iter().zip(tokens).map(|(one, token)| Acceptor::new(one, token, reactor)).collect()
}

impl Sockets {
    /// # Errors
    /// The port is taken; too few file descriptors.
    pub(super) fn new(config: &BuilderConfig, reactor: &Reactor) -> Result<Self, NetError> {
        let udp = UdpPort::bind(config.address)?;
        if config.settings.protocol == Carrier::Udp {
            // With a smaller buffer datagrams are dropped, and the report counts them.
            let _ = udp.set_receive_buffer(receive_buffer_bytes(config));
        }
        reactor.watch(&udp, UDP, Interest::READ)?;
        Ok(Self {
            registry: reactor.registry(),
            acceptors: listen(config, reactor)?,
            udp,
            connections: Slab::new(CONNECTION_CLASS),
            handshakes: Timeouts::new([HELLO_TIMEOUT_NS]),
            handshake_count: 0,
        })
    }

    /// Accepts the connections that wait at a listener.
    pub(super) fn accept(&mut self, reactor: &mut Reactor, listener: Token) {
        for _ in 0..ACCEPTS_MAX {
            let acceptor = &mut self.acceptors[listener.index()];
            if self.handshake_count >= HANDSHAKES_MAX {
                return acceptor.pause(reactor);
            }
            match acceptor.accept(reactor) {
                Accepted::Connection(socket, peer) => self.insert(socket, peer, reactor.now_ns()),
                Accepted::OutOfDescriptors => return acceptor.pause(reactor),
                Accepted::None => return,
            }
        }
    }

    /// The pause of a listener is over.
    pub(super) fn resume_accepting(&mut self, reactor: &mut Reactor, listener: Token) {
        self.acceptors[listener.index()].on_timer(reactor);
    }

    fn insert(&mut self, socket: TcpSocket, peer: SocketAddr, now_ns: u64) {
        let at = self.connections.insert(Connection::new(socket, peer));
        // Edge-triggered: level-triggered events of bytes that were read already would cost a sixth of all
        // CPU time.
        let interest = Interest::READ | Interest::EDGE;
        if self.registry.watch(self.connections[at].socket(), at, interest).is_err() {
            self.connections.remove(at);
            return;
        }
        self.handshakes.set(at, (), now_ns);
        self.handshake_count += 1;
    }

    pub(super) fn connection(&self, at: Token) -> Option<&Connection> {
        self.connections.get(at)
    }

    pub(super) fn connection_mut(&mut self, at: Token) -> Option<&mut Connection> {
        self.connections.get_mut(at)
    }

    /// Closes a connection.
    pub(super) fn remove(&mut self, at: Token) -> Option<Connection> {
        let connection = self.connections.remove(at)?;
        self.end_handshake(at);
        Some(connection)
    }

    /// The connection's hello was accepted.
    pub(super) fn identify(&mut self, at: Token, identity: Identity) {
        self.end_handshake(at);
        if let Some(connection) = self.connections.get_mut(at) {
            connection.set_identity(identity);
        }
    }

    fn end_handshake(&mut self, at: Token) {
        self.handshake_count -= usize::from(self.handshakes.kind(at).is_some());
        self.handshakes.clear(at);
    }

    pub(super) fn next_handshake_timeout_ns(&self) -> Option<u64> {
        self.handshakes.next_ns()
    }

    /// A connection that has sent no hello in time.
    pub(super) fn expired_handshake(&self, now_ns: u64) -> Option<Token> {
        self.handshakes.expired(now_ns).map(|(at, ())| at)
    }

    /// Sends over a connection; what finds no room is queued.
    pub(super) fn send(&mut self, at: Token, bytes: &[u8]) {
        if let Some(connection) = self.connection_mut(at) {
            connection.send(bytes);
            if connection.has_queued() {
                self.flush(at);
            }
        }
    }

    /// Sends what a connection has queued.
    pub(super) fn flush(&mut self, at: Token) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Some(is_watched) = connection.flush() else { return };
        let interest = if is_watched { Interest::READ | Interest::WRITE } else { Interest::READ };
        if self.registry.change_watch(connection.socket(), at, interest | Interest::EDGE).is_ok() {
            connection.set_write_watched(is_watched);
        }
    }

    /// Sends the last bytes over all connections.
    pub(super) fn send_last(&mut self, bytes: &[u8]) {
        for at in self.connections.tokens() {
            let connection = &mut self.connections[at];
            connection.send(bytes);
            let _ = connection.flush();
            let _ = connection.socket().shutdown_send();
        }
    }

    pub(super) fn receive_datagram(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        self.udp.receive(buffer).ok().flatten()
    }

    /// Sends a datagram; errors count as loss.
    pub(super) fn send_datagram(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.udp.send_to(bytes, to);
    }

    /// Datagrams that the kernel dropped, if it tells.
    pub(super) fn datagrams_dropped(&self) -> Option<u64> {
        self.udp.dropped().ok().map(u64::from)
    }
}
