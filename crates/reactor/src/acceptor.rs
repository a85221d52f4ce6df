//! Accepting connections without blocking and without spinning when the descriptors are used up.

use std::net::SocketAddr;

use sys::net::{Interest, Listener, NetError, TcpSocket};

use super::event_loop::Reactor;
use super::slab::Token;

/// Connections to accept for one event, before established ones are served.
pub const ACCEPTS_MAX: usize = 64;
const PAUSE_NS: u64 = 50_000_000;

#[derive(Debug)]
pub enum Accepted {
    Connection(TcpSocket, SocketAddr),
    /// No connection waits, or accepting is paused.
    None,
    /// No descriptor is left, in this process or on this host. The connection waits in the backlog: close
    /// another one and accept again, or [`Acceptor::pause`].
    OutOfDescriptors,
}

/// A listener in an event loop.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    token: Token,
    is_paused: bool,
}

impl Acceptor {
    /// Watches `listener` under `token`. Pass on events of the token to [`Acceptor::accept`] until it returns
    /// none, or [`ACCEPTS_MAX`] times, and timers to [`Acceptor::on_timer`].
    /// Errors: [`NetError`]: the kernel watches no more descriptors.
    pub fn new(listener: Listener, token: Token, reactor: &Reactor) -> Result<Self, NetError> {
        reactor.watch(&listener, token, Interest::READ)?;
        Ok(Self { listener, token, is_paused: false })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Accepts one connection. Pauses if accepting fails for another reason than a lack of descriptors.
    pub fn accept(&mut self, reactor: &mut Reactor) -> Accepted {
        if self.is_paused {
            return Accepted::None;
        }
        match self.listener.accept() {
            Ok(Some((socket, peer))) => Accepted::Connection(socket, peer),
            Ok(None) => Accepted::None,
            Err(error) if error.is_out_of_resources() => Accepted::OutOfDescriptors,
            Err(_) => {
                self.pause(reactor);
                Accepted::None
            }
        }
    }

    /// Stops accepting for 50 ms: no descriptor is left, or there are as many connections as the caller
    /// allows. The backlog keeps new connections meanwhile.
    pub fn pause(&mut self, reactor: &mut Reactor) {
        // Level-triggered: a listener that stays watched would wake the loop again at once.
        self.is_paused = reactor.unwatch(&self.listener).is_ok() || self.is_paused;
        reactor.set_timer(self.token, reactor.now_ns() + PAUSE_NS);
    }

    /// Accepts again after a pause.
    pub fn on_timer(&mut self, reactor: &mut Reactor) {
        self.is_paused = reactor.watch(&self.listener, self.token, Interest::READ).is_err();
        if self.is_paused {
            reactor.set_timer(self.token, reactor.now_ns() + PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sys::clock::monotonic_ns;
    use sys::net::{Event, ListenOptions, SocketOptions};

    use super::super::{EventLoop, StateMachine, StopHandle};
    use super::*;

    const LISTENER: Token = Token::single(1);

    /// Accepts at most `connections_max` connections; then pauses until `on_timer`.
    struct Machine {
        acceptor: Acceptor,
        connections: Vec<TcpSocket>,
        connections_max: usize,
        pauses: Vec<u64>,
        resumed: Vec<u64>,
    }

    impl StateMachine for Machine {
        fn on_ready(&mut self, reactor: &mut Reactor, _: Token, _: Event) {
            while let Accepted::Connection(socket, _) = self.acceptor.accept(reactor) {
                self.connections.push(socket);
                if self.connections.len() == self.connections_max {
                    self.pauses.push(monotonic_ns());
                    self.acceptor.pause(reactor);
                }
            }
        }
        fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
            assert_eq!(token, LISTENER);
            self.resumed.push(monotonic_ns());
            self.connections_max += 1;
            self.acceptor.on_timer(reactor);
        }
        fn on_stop(&mut self, _: &mut Reactor) {}
    }

    #[test]
    fn paused_acceptor_leaves_connections_in_the_backlog_and_does_not_spin() {
        let mut events = EventLoop::new(Arc::new(StopHandle::new().unwrap()), 16).unwrap();
        let listener =
            Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &ListenOptions::default()).unwrap();
        let acceptor = Acceptor::new(listener, LISTENER, events.reactor()).unwrap();
        let server = acceptor.local_addr();
        let connect = |_| TcpSocket::connect_start(server, None, &SocketOptions::default()).unwrap();
        let clients: Vec<_> = (0..3).map(connect).collect();
        let mut machine = Machine {
            acceptor,
            connections: Vec::new(),
            connections_max: 2,
            pauses: Vec::new(),
            resumed: Vec::new(),
        };
        let mut rounds = 0;
        while machine.connections.len() < clients.len() {
            events.poll_once(&mut machine, u64::MAX).unwrap();
            rounds += 1;
            assert!(rounds < 20, "the loop spins");
        }
        assert_eq!(machine.resumed.len(), 1);
        assert!(machine.resumed[0] - machine.pauses[0] >= PAUSE_NS);
    }
}
