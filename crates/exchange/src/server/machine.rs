//! The event loop of the server.

use std::net::IpAddr;

use reactor::{ACCEPTS_MAX, Accepted, Acceptor, Reactor, Slab, StateMachine, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, Interest, Listener, Moved, NetError, TcpSocket, UdpPort};

use super::connection::{Buffers, Connection, Served};
use super::receive_thread::ReceiveThread;
use super::trials::{BackgroundCount, Trials};
use super::{ServerReport, ServerSettings};
use crate::wire::{DATAGRAM_HEADER_BYTES, Hello, Purpose, u64_at};

const LISTENER: u8 = 1;
const DATAGRAMS: Token = Token::single(2);
const CONNECTION: u8 = 3;
/// A connection that has sent no hello within this time is closed.
const HELLO_WITHIN_NS: u64 = 10_000_000_000;
/// Messages of the only connection with messages until it is handed over to a thread of its own.
const LEND_AFTER: u32 = 32;
/// Datagrams that are taken before connections are served.
const DATAGRAMS_AT_ONCE: usize = 256;

pub(super) struct Machine {
    settings: ServerSettings,
    acceptors: Vec<Acceptor>,
    datagrams: UdpPort,
    connections: Slab<Connection>,
    trials: Trials,
    buffers: Buffers,
    refused: u64,
    receive_thread: ReceiveThread,
    /// Connections that carry messages, with the one that is handed over.
    message_connections: usize,
}

impl Machine {
    pub(super) fn new(
        listeners: Vec<Listener>,
        datagrams: UdpPort,
        settings: ServerSettings,
        log: Option<super::Log>,
        receive_thread: ReceiveThread,
        reactor: &mut Reactor,
    ) -> Result<Self, NetError> {
        reactor.watch(&datagrams, DATAGRAMS, Interest::READ)?;
        let acceptors = (0..).zip(listeners);
        let acceptors = acceptors.map(|(at, one)| Acceptor::new(one, Token::fixed(LISTENER, at), reactor));
        Ok(Self {
            acceptors: acceptors.collect::<Result<_, _>>()?,
            datagrams,
            connections: Slab::new(CONNECTION),
            trials: Trials::default(),
            buffers: Buffers::new(settings.service_ns, log),
            refused: 0,
            receive_thread,
            message_connections: 0,
            settings,
        })
    }

    pub(super) fn report(&self) -> ServerReport {
        ServerReport { refused: self.refused, ..self.buffers.report() }
    }

    fn accept(&mut self, reactor: &mut Reactor, listener: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.acceptors[listener].accept(reactor) {
                Accepted::Connection(socket, peer) if self.is_admitted(peer.ip()) => {
                    self.insert(reactor, socket);
                }
                Accepted::Connection(..) => self.refused += 1,
                Accepted::None => return,
                Accepted::OutOfDescriptors => return self.acceptors[listener].pause(reactor),
            }
        }
    }

    fn is_admitted(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.settings.admitted.as_ref().is_none_or(|nets| nets.iter().any(|net| net.contains(&peer)))
    }

    fn insert(&mut self, reactor: &mut Reactor, socket: TcpSocket) {
        // Without it only small replies are slower.
        let _ = socket.set_nodelay(true);
        if let Some(token) = self.watch(reactor, Connection::new(socket)) {
            reactor.set_timer(token, reactor.now_ns() + HELLO_WITHIN_NS);
        }
    }

    /// Serves a connection from now on; what its socket has to report is an event. `None`: it is closed.
    fn watch(&mut self, reactor: &mut Reactor, connection: Connection) -> Option<Token> {
        let token = self.connections.insert(connection);
        let interest = Interest::READ | Interest::WRITE | Interest::EDGE;
        if reactor.watch(&self.connections[token].socket, token, interest).is_err() {
            self.connections.remove(token);
            return None;
        }
        Some(token)
    }

    fn serve(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let hello = match connection.hello {
            Some(hello) => hello,
            None => match connection.greet() {
                Ok(None) => return,
                Ok(Some(hello)) if self.settings.key == 0 || self.settings.key == hello.key => {
                    reactor.clear_timer(token);
                    if !self.enter(hello, token) {
                        return self.refuse(reactor, token);
                    }
                    hello
                }
                _ => return self.refuse(reactor, token),
            },
        };
        let Some(connection) = self.connections.get_mut(token) else { return };
        match hello.purpose {
            Purpose::Messages => match connection.serve(&mut self.buffers) {
                Served::Waits(None) => self.hand_over(reactor, token),
                Served::Waits(Some(due_ns)) => reactor.set_timer(token, due_ns),
                Served::Again => reactor.resume(token),
                Served::Over => self.close(reactor, token),
            },
            Purpose::Background => self.count(reactor, token, hello.trial),
            Purpose::Attend | Purpose::Count => {
                let mut bytes = [0; 16];
                match connection.socket.recv(&mut bytes) {
                    Ok(Moved::WouldBlock) => {}
                    // Nothing is expected but the end.
                    Ok(Moved::Bytes(_)) => reactor.resume(token),
                    Ok(Moved::End) if hello.purpose == Purpose::Count => {
                        let count = self.trials.count_now(hello.trial, token);
                        self.answer(reactor, token, &count);
                    }
                    Ok(Moved::End) | Err(_) => self.close(reactor, token),
                }
            }
        }
    }

    /// Lends a connection to the thread that waits in `recv`, if no other carries messages.
    fn hand_over(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(connection) = self.connections.get(token) else { return };
        let is_alone = self.message_connections == 1 && self.settings.service_ns == 0;
        if !is_alone || connection.replies < LEND_AFTER || !connection.is_idle() {
            return;
        }
        if reactor.unwatch(&connection.socket).is_err() {
            return;
        }
        let Some(connection) = self.connections.remove(token) else { return };
        if let Some(connection) = self.receive_thread.hand_over(connection) {
            self.take_back(reactor, connection);
        }
    }

    fn take_back(&mut self, reactor: &mut Reactor, mut connection: Connection) {
        connection.replies = 0;
        if self.watch(reactor, connection).is_none() {
            self.message_connections -= 1;
        }
    }

    /// `false`: there is no room for it.
    fn enter(&mut self, hello: Hello, token: Token) -> bool {
        match hello.purpose {
            Purpose::Attend => self.trials.attend(hello.trial),
            Purpose::Count => self.trials.wait_for_count(hello.trial, token),
            Purpose::Messages => {
                self.message_connections += 1;
                if self.message_connections > 1 {
                    self.receive_thread.request_return();
                }
                true
            }
            Purpose::Background => true,
        }
    }

    /// Counts what arrived over a connection of background load.
    fn count(&mut self, reactor: &mut Reactor, token: Token, trial: u64) {
        let Some(connection) = self.connections.get(token) else { return };
        for _ in 0..4 {
            match connection.socket.recv(&mut self.buffers.receive) {
                Ok(Moved::Bytes(bytes)) => self.trials.arrived(trial, bytes as u64, monotonic_ns()),
                Ok(Moved::WouldBlock) => return,
                Ok(Moved::End) | Err(_) => return self.close(reactor, token),
            }
        }
        reactor.resume(token);
    }

    fn receive_datagrams(&mut self) {
        let mut bytes = [0; 2048];
        for _ in 0..DATAGRAMS_AT_ONCE {
            // An error concerns one datagram; the next call shows the next one.
            let Ok(Some((length, peer))) = self.datagrams.receive(&mut bytes) else { return };
            if length < DATAGRAM_HEADER_BYTES || !self.is_admitted(peer.ip()) {
                continue;
            }
            let (trial, key) = (u64_at(&bytes, 0), u64_at(&bytes, 8));
            if self.settings.key == 0 || self.settings.key == key {
                self.trials.arrived(trial, length as u64, monotonic_ns());
            }
        }
    }

    fn refuse(&mut self, reactor: &mut Reactor, token: Token) {
        self.refused += 1;
        reactor.clear_timer(token);
        self.connections.remove(token);
    }

    fn close(&mut self, reactor: &mut Reactor, token: Token) {
        reactor.clear_timer(token);
        let Some(connection) = self.connections.remove(token) else { return };
        match connection.hello {
            Some(Hello { purpose: Purpose::Attend, trial, .. }) => {
                let Some((waiting, count)) = self.trials.leave(trial) else { return };
                waiting.into_iter().for_each(|token| self.answer(reactor, token, &count));
            }
            Some(Hello { purpose: Purpose::Count, trial, .. }) => {
                self.trials.count_now(trial, token);
            }
            Some(Hello { purpose: Purpose::Messages, .. }) => self.message_connections -= 1,
            _ => {}
        }
    }

    /// Sends the count, and closes the connection.
    fn answer(&mut self, reactor: &mut Reactor, token: Token, count: &BackgroundCount) {
        reactor.clear_timer(token);
        let Some(connection) = self.connections.remove(token) else { return };
        let bytes = serde_json::to_vec(count).unwrap_or_default();
        // It is far smaller than a new socket's buffer; what does not fit is missed by the peer, which says
        // so. A close with bytes unsent sends them first.
        let _ = connection.socket.send(&bytes, false);
    }
}

impl StateMachine for Machine {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event) {
        match token {
            DATAGRAMS => self.receive_datagrams(),
            token if token.class() == LISTENER => self.accept(reactor, token.index()),
            token => {
                if let Some(connection) = self.connections.get_mut(token) {
                    connection.readiness.after_event(event);
                }
                self.serve(reactor, token);
            }
        }
    }

    fn on_wake(&mut self, reactor: &mut Reactor) {
        while let Some((connection, served)) = self.receive_thread.take_returned() {
            match served {
                Served::Over => self.message_connections -= 1,
                Served::Waits(_) | Served::Again => self.take_back(reactor, connection),
            }
        }
    }

    fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
        self.serve(reactor, token);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        match self.connections.get(token) {
            _ if token.class() == LISTENER => self.acceptors[token.index()].on_timer(reactor),
            Some(connection) if connection.hello.is_none() => self.refuse(reactor, token),
            Some(_) => self.serve(reactor, token),
            None => {}
        }
    }

    fn on_stop(&mut self, _: &mut Reactor) {}
}
