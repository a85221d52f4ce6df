//! Connecting without blocking: a few handshakes at a time, each with a deadline, again after a failure.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use sys::net::{ConnectState, Interest, NetError, SocketOptions, TcpSocket};

use super::event_loop::Reactor;
use super::slab::{Slab, Token};

/// How often a failed attempt is repeated, and after what delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay before the first repetition.
    pub first: Duration,
    /// Each further delay is the one before times this.
    pub factor: u32,
    /// Repetitions at most.
    pub retries_max: u32,
}

impl Backoff {
    pub const NONE: Self = Self { first: Duration::ZERO, factor: 1, retries_max: 0 };

    /// The delay after this number of failures (from 1 on); `None`: give up.
    pub fn delay(&self, failures: u32) -> Option<Duration> {
        (failures <= self.retries_max)
            .then(|| self.first.saturating_mul(self.factor.saturating_pow(failures.saturating_sub(1))))
    }
}

#[derive(Clone, Debug)]
pub struct ConnectSettings {
    pub local: Option<SocketAddr>,
    /// Set before connecting.
    pub options: SocketOptions,
    /// Handshakes under way at a time: no more than the peer's backlog holds.
    pub handshakes_max: usize,
    pub timeout: Duration,
    /// What to do after a failure.
    pub backoff: Backoff,
}

impl Default for ConnectSettings {
    /// 64 handshakes at a time, 10 s each, no repetition.
    fn default() -> Self {
        Self {
            local: None,
            options: SocketOptions::default(),
            handshakes_max: 64,
            timeout: Duration::from_secs(10),
            backoff: Backoff::NONE,
        }
    }
}

/// The end of one request to connect.
#[derive(Debug)]
pub struct ConnectOutcome {
    /// The caller's number of the request.
    pub key: u64,
    /// The other end.
    pub peer: SocketAddr,
    /// The connected socket, which is not watched any more; or the error of the last attempt.
    pub result: Result<TcpSocket, NetError>,
}

#[derive(Debug)]
struct Attempt {
    key: u64,
    peer: SocketAddr,
    failures: u32,
    /// `None` while it waits for its turn.
    socket: Option<TcpSocket>,
}

/// Connections to be made in an event loop.
#[derive(Debug)]
pub struct Connector {
    settings: ConnectSettings,
    attempts: Slab<Attempt>,
    waiting: VecDeque<Token>,
    handshakes: usize,
    outcomes: VecDeque<ConnectOutcome>,
}

impl Connector {
    /// A connector whose tokens are of `class`. Pass on its events and timers to [`Connector::on_ready`] and
    /// [`Connector::on_timer`].
    pub fn new(class: u8, settings: ConnectSettings) -> Self {
        Self {
            settings,
            attempts: Slab::new(class),
            waiting: VecDeque::new(),
            handshakes: 0,
            outcomes: VecDeque::new(),
        }
    }

    /// Requests a connection and begins as many handshakes as are allowed. `key` comes back with the outcome.
    pub fn connect(&mut self, reactor: &mut Reactor, key: u64, peer: SocketAddr) {
        self.waiting.push_back(self.attempts.insert(Attempt { key, peer, failures: 0, socket: None }));
        self.begin_waiting(reactor);
    }

    /// The next request that has ended. Ask after each call of the other methods, until there is none.
    pub fn next_outcome(&mut self) -> Option<ConnectOutcome> {
        self.outcomes.pop_front()
    }

    pub fn pending(&self) -> usize {
        self.attempts.len()
    }

    /// The socket of a handshake is ready.
    pub fn on_ready(&mut self, reactor: &mut Reactor, token: Token) {
        self.check(reactor, token);
        self.begin_waiting(reactor);
    }

    /// The deadline of a handshake has passed, or the delay after a failure.
    pub fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(attempt) = self.attempts.get(token) else { return };
        if attempt.socket.is_none() {
            self.waiting.push_back(token);
        } else {
            let target = attempt.peer.to_string();
            self.fail(
                reactor,
                token,
                NetError { action: "connect to", target, source: ErrorKind::TimedOut.into() },
            );
        }
        self.begin_waiting(reactor);
    }

    fn begin_waiting(&mut self, reactor: &mut Reactor) {
        while self.handshakes < self.settings.handshakes_max.max(1)
            && let Some(token) = self.waiting.pop_front()
        {
            self.begin(reactor, token);
        }
    }

    fn begin(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(attempt) = self.attempts.get_mut(token) else { return };
        self.handshakes += 1;
        let begun = TcpSocket::connect_start(attempt.peer, self.settings.local, &self.settings.options)
            .and_then(|socket| reactor.watch(&socket, token, Interest::WRITE).map(|()| socket));
        match begun {
            Ok(socket) => {
                attempt.socket = Some(socket);
                let timeout_ns = u64::try_from(self.settings.timeout.as_nanos()).unwrap_or(u64::MAX);
                reactor.set_timer(token, sys::clock::monotonic_ns().saturating_add(timeout_ns));
            }
            Err(error) => self.fail(reactor, token, error),
        }
    }

    fn check(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(attempt) = self.attempts.get_mut(token) else { return };
        let Some(socket) = &attempt.socket else { return };
        match socket.connect_result() {
            Ok(ConnectState::InProgress) => {}
            Ok(ConnectState::Connected) => match reactor.unwatch(socket) {
                Ok(()) => {
                    reactor.clear_timer(token);
                    self.handshakes -= 1;
                    let attempt = self.attempts.remove(token);
                    let outcome = attempt.and_then(|Attempt { key, peer, socket, .. }| {
                        Some(ConnectOutcome { key, peer, result: Ok(socket?) })
                    });
                    self.outcomes.extend(outcome);
                }
                Err(error) => self.fail(reactor, token, error),
            },
            Err(error) => {
                // The kernel names only a descriptor.
                let target = attempt.peer.to_string();
                self.fail(reactor, token, NetError { action: "connect to", target, ..error });
            }
        }
    }

    fn fail(&mut self, reactor: &mut Reactor, token: Token, error: NetError) {
        let Some(attempt) = self.attempts.get_mut(token) else { return };
        self.handshakes -= 1;
        attempt.socket = None;
        attempt.failures += 1;
        if let Some(delay) = self.settings.backoff.delay(attempt.failures) {
            let delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
            reactor.set_timer(token, sys::clock::monotonic_ns().saturating_add(delay_ns));
            return;
        }
        reactor.clear_timer(token);
        let (key, peer) = (attempt.key, attempt.peer);
        self.attempts.remove(token);
        self.outcomes.push_back(ConnectOutcome { key, peer, result: Err(error) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sys::clock::monotonic_ns;
    use sys::net::{Event, ListenOptions, Listener};

    use super::super::{EventLoop, StateMachine, StopHandle};
    use super::*;

    /// Connects until no request is left.
    struct Client {
        connector: Connector,
        outcomes: Vec<ConnectOutcome>,
        handshakes_most: usize,
        /// Accepts the connections that fill its backlog when the first attempt has failed.
        listener: Option<Listener>,
    }

    impl Client {
        fn look(&mut self, reactor: &mut Reactor) {
            self.handshakes_most = self.handshakes_most.max(self.connector.handshakes);
            self.outcomes.extend(std::iter::from_fn(|| self.connector.next_outcome()));
            if self.connector.pending() == 0 {
                reactor.finish();
            }
        }
    }

    impl StateMachine for Client {
        fn on_ready(&mut self, reactor: &mut Reactor, token: Token, _: Event) {
            self.connector.on_ready(reactor, token);
            self.look(reactor);
        }
        fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
            if let Some(listener) = &self.listener {
                while let Ok(Some(_)) = listener.accept() {}
            }
            self.connector.on_timer(reactor, token);
            self.look(reactor);
        }
        fn on_stop(&mut self, _: &mut Reactor) {}
    }

    fn listener(backlog: i32) -> Listener {
        let options = ListenOptions { backlog, ..ListenOptions::default() };
        Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &options).unwrap()
    }

    fn connect(peers: &[SocketAddr], settings: ConnectSettings, listener: Option<Listener>) -> Client {
        let mut events = EventLoop::new(Arc::new(StopHandle::new().unwrap()), 16).unwrap();
        let mut client = Client {
            connector: Connector::new(4, settings),
            outcomes: Vec::new(),
            handshakes_most: 0,
            listener,
        };
        for (key, peer) in (0..).zip(peers) {
            client.connector.connect(events.reactor(), key, *peer);
        }
        client.look(events.reactor());
        events.run(&mut client).unwrap();
        client
    }

    /// Fills the backlog, so that the kernel drops further SYNs.
    fn fill(listener: &Listener) -> Vec<TcpSocket> {
        let mut sockets: Vec<TcpSocket> = Vec::new();
        loop {
            let socket =
                TcpSocket::connect_start(listener.local_addr(), None, &SocketOptions::default()).unwrap();
            if socket.connect_result().unwrap() == ConnectState::InProgress {
                return sockets;
            }
            sockets.push(socket);
            assert!(sockets.len() < 64, "the backlog never fills");
        }
    }

    #[test]
    fn all_requests_end_with_their_keys() {
        let listener = listener(64);
        let settings = ConnectSettings { handshakes_max: 4, ..ConnectSettings::default() };
        let client = connect(&[listener.local_addr(); 20], settings, None);
        assert!(client.outcomes.iter().all(|outcome| outcome.result.is_ok()));
        let mut keys: Vec<u64> = client.outcomes.iter().map(|outcome| outcome.key).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..20).collect::<Vec<_>>());
        assert!(client.handshakes_most <= 4);
    }

    #[test]
    fn refused_connection_is_an_error_that_names_the_peer() {
        // Bound and not listening: refused, and no other program takes the port.
        let bound = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let peer = bound.local_addr().unwrap();
        let client = connect(&[peer], ConnectSettings::default(), None);
        let error = client.outcomes[0].result.as_ref().unwrap_err();
        assert_eq!((error.kind(), error.target.clone()), (ErrorKind::ConnectionRefused, peer.to_string()));
    }

    #[test]
    fn connect_fails_at_its_deadline_without_an_answer() {
        let listener = listener(0);
        let _filled = fill(&listener);
        let settings = ConnectSettings { timeout: Duration::from_millis(60), ..ConnectSettings::default() };
        let from_ns = monotonic_ns();
        let client = connect(&[listener.local_addr()], settings, None);
        let took_ns = monotonic_ns() - from_ns;
        let error = client.outcomes[0].result.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!((60_000_000..20_000_000_000).contains(&took_ns), "{took_ns}");
    }

    #[test]
    fn failed_attempt_is_repeated_after_the_delay() {
        let listener = listener(0);
        let _filled = fill(&listener);
        let backoff = Backoff { first: Duration::from_millis(30), factor: 4, retries_max: 2 };
        let timeout = Duration::from_millis(60);
        let settings = ConnectSettings { timeout, backoff, ..ConnectSettings::default() };
        let from_ns = monotonic_ns();
        let client = connect(&[listener.local_addr()], settings, Some(listener));
        assert!(client.outcomes[0].result.is_ok());
        assert!(monotonic_ns() - from_ns >= 90_000_000);
    }

    #[test]
    fn delays_grow_by_the_factor_until_the_last_repetition() {
        let backoff = Backoff { first: Duration::from_millis(100), factor: 4, retries_max: 3 };
        let delays_ms = [1, 2, 3, 4].map(|failures| backoff.delay(failures).map(|delay| delay.as_millis()));
        assert_eq!(delays_ms, [Some(100), Some(400), Some(1600), None]);
        assert_eq!(Backoff::NONE.delay(1), None);
    }
}
