//! The sockets of one builder: listeners, connections and the UDP port.

use std::net::SocketAddr;

use reactor::{ACCEPTS_MAX, Accepted, Acceptor, Reactor, Registry, Slab, Timeouts, Token};
use sys::net::{
    Arrivals, Interest, ListenOptions, Listener, Moved, NetError, SocketOptions, TcpSocket, UdpPort,
};

use super::config::BuilderConfig;
use crate::assembly::message_parser::{MessageParser, MessageSink};
use crate::settings::Carrier;
use crate::theory::packets;
use crate::wire::WireError;

const CONNECTION_CLASS: u8 = 0;
pub(super) const LISTENER_CLASS: u8 = 1;
/// Urgent, because delays of clock answers widen the clocks' error bounds.
pub(super) const UDP: Token = Token::single(Token::URGENT);
/// Kernel memory of a queued datagram: a page with its bookkeeping.
const DATAGRAM_BYTES: u64 = 4096;
const RECEIVE_BYTES_MAX: u64 = 256 << 20;
const HANDSHAKES_MAX: usize = 4096;
/// Connections without a hello are closed after so long: TCP repeats a lost hello at least twice within it.
const HELLO_TIMEOUT_NS: u64 = 5_000_000_000;
/// Sources per listener: the kernel distributes their connections unevenly over the listen queues, of 4096
/// each (`net.core.somaxconn`). A full queue delays a connection by a second.
const SOURCES_PER_LISTENER: u32 = 2500;
const LISTENERS_MAX: u32 = 16;
/// Limit of queued orders; more are lost, and repeated like any lost order.
const QUEUED_BYTES_MAX: usize = 64 << 10;
/// How often delayed acknowledgements are requested again.
const DELAY_AGAIN_NS: u64 = 1_000_000_000;
/// From this number of missing payload bytes on, the kernel copies straight to their place.
const DIRECT_BYTES: u32 = 64 << 10;

pub(super) struct Sockets {
    registry: Registry,
    acceptors: Vec<Acceptor>,
    pub(super) udp: UdpPort,
    pub(super) udp_arrivals: Arrivals,
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
            udp_arrivals: Arrivals::of(&udp),
            udp,
            connections: Slab::new(CONNECTION_CLASS),
            handshakes: Timeouts::new([HELLO_TIMEOUT_NS]),
            handshake_count: 0,
        })
    }

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
        if self.registry.watch(&self.connections[at].socket, at, interest).is_err() {
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

    /// The peer sends no more.
    pub(super) fn set_peer_done(&mut self, at: Token) {
        self.connection_mut(at).into_iter().for_each(|connection| connection.is_peer_done = true);
    }

    pub(super) fn remove(&mut self, at: Token) -> Option<Connection> {
        let connection = self.connections.remove(at)?;
        self.end_handshake(at);
        Some(connection)
    }

    /// The connection's hello was accepted.
    pub(super) fn identify(&mut self, at: Token, identity: Identity) {
        self.end_handshake(at);
        if let Some(connection) = self.connections.get_mut(at) {
            connection.identity = Some(identity);
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

    pub(super) fn flush(&mut self, at: Token) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let Some(is_watched) = connection.flush() else { return };
        let interest = if is_watched { Interest::READ | Interest::WRITE } else { Interest::READ };
        if self.registry.change_watch(&connection.socket, at, interest | Interest::EDGE).is_ok() {
            connection.is_write_watched = is_watched;
        }
    }

    /// Sends the last bytes over all connections.
    pub(super) fn send_last(&mut self, bytes: &[u8]) {
        for at in self.connections.tokens() {
            let connection = &mut self.connections[at];
            connection.send(bytes);
            let _ = connection.flush();
            let _ = connection.socket.shutdown_send();
        }
    }

    pub(super) fn send_datagram(&self, bytes: &[u8], to: SocketAddr) {
        let _ = self.udp.send_to(bytes, to);
    }
}

#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) source: u32,
    pub(super) group: u32,
    pub(super) congestion_control: Option<String>,
}

pub(super) enum Received {
    Nothing,
    /// The buffer was filled, so that there may be more; `false`: it was not.
    Bytes {
        is_full: bool,
    },
    Invalid(WireError),
    Closed,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: TcpSocket,
    pub(super) peer: SocketAddr,
    pub(super) parser: MessageParser,
    pub(super) identity: Option<Identity>,
    queued: Vec<u8>,
    /// Whether epoll reports when it is writable.
    is_write_watched: bool,
    delay_again_ns: u64,
    /// Whether the peer sends no more.
    pub(super) is_peer_done: bool,
}

impl Connection {
    pub(super) fn new(socket: TcpSocket, peer: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            parser: MessageParser::default(),
            identity: None,
            queued: Vec::new(),
            is_write_watched: false,
            delay_again_ns: 0,
            is_peer_done: false,
        }
    }

    pub(super) fn source(&self) -> Option<u32> {
        self.identity.as_ref().map(|identity| identity.source)
    }

    /// Receives once, into `scratch` or directly to the payload's place; `on_read` gets the sink between
    /// reading and parsing.
    pub(super) fn receive<S: MessageSink>(
        &mut self,
        scratch: &mut [u8],
        sink: &mut S,
        on_read: impl FnOnce(&mut S) -> u64,
    ) -> Received {
        let is_direct = self.parser.bytes_left() >= DIRECT_BYTES;
        let buffer = if is_direct { self.parser.buffer(sink) } else { &mut [] };
        let (moved, asked, in_place) = if buffer.is_empty() {
            (self.socket.recv(scratch), scratch.len(), false)
        } else {
            (self.socket.recv(buffer), buffer.len(), true)
        };
        let now_ns = on_read(sink);
        self.delay_acknowledgements(now_ns);
        let bytes = match moved {
            Ok(Moved::Bytes(bytes)) => bytes,
            Ok(Moved::WouldBlock) => return Received::Nothing,
            Ok(Moved::End) | Err(_) => return Received::Closed,
        };
        if in_place {
            self.parser.received_in_place(bytes, sink);
        } else if let Err(error) = self.parser.parse(&scratch[..bytes], sink) {
            return Received::Invalid(error);
        }
        Received::Bytes { is_full: bytes >= asked }
    }

    /// Lets the kernel acknowledge every other fragment: acknowledging each would double the work. The kernel
    /// leaves that mode whenever it delayed an acknowledgement and no further fragment came.
    fn delay_acknowledgements(&mut self, now_ns: u64) {
        if now_ns >= self.delay_again_ns {
            self.delay_again_ns = now_ns.saturating_add(DELAY_AGAIN_NS);
            // An optimisation: errors do not matter.
            let _ = self.socket.delay_acknowledgements();
        }
    }

    /// Sends as much as there is room for and queues the rest; too much is dropped.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if !self.queued.is_empty() {
            if self.queued.len() + bytes.len() <= QUEUED_BYTES_MAX {
                self.queued.extend_from_slice(bytes);
            }
            return;
        }
        let sent = match self.socket.send(bytes, false) {
            Ok(Moved::Bytes(sent)) => sent,
            Ok(Moved::WouldBlock) => 0,
            // Reading reports the error.
            Ok(Moved::End) | Err(_) => return,
        };
        self.queued.extend_from_slice(&bytes[sent..]);
    }

    /// Sends what is queued, as far as there is room. Returns whether write events must be switched on or
    /// off.
    pub(super) fn flush(&mut self) -> Option<bool> {
        while !self.queued.is_empty() {
            match self.socket.send(&self.queued, false) {
                Ok(Moved::Bytes(sent)) => drop(self.queued.drain(..sent)),
                Ok(Moved::WouldBlock) => break,
                Ok(Moved::End) | Err(_) => self.queued.clear(),
            }
        }
        (self.has_queued() != self.is_write_watched).then(|| self.has_queued())
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }
}
