//! A worker: one thread with its event loop and its connections.
//!
//! Sockets are watched edge-triggered and registered once, so an established stream costs one `sendfile` for
//! each time its socket has room, and the share of one `epoll_pwait2` that serves all streams that had room
//! at the same time. Streams that could go on are served in rotation, one slice each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reactor::{ACCEPTS_MAX, Accepted, Acceptor, EventLoop, Reactor, Slab, StateMachine, Timeouts, Token};
use sys::net::{Event, Interest, Listener, NetError, TcpSocket};

use super::connection::{Connection, Next};
use super::context::{Timeout, WorkerContext};
use super::log::log_refused_connection;
use super::stats::{Shared, add};

const CONNECTIONS: u8 = 0;
const LISTENER: Token = Token::single(1);
const INBOX: Token = Token::single(2);

/// How long a closing connection waits for its peer's end.
const LINGER_NS: u64 = 2_000_000_000;
/// Times within the stall deadline that a connection's progress is checked.
const STALL_CHECKS: u64 = 4;

pub struct Worker {
    index: usize,
    shared: Arc<Shared>,
    context: WorkerContext,
    /// The first worker accepts and hands connections to the one that has fewest.
    acceptor: Option<Acceptor>,
    // Boxed: the table keeps its size after a peak of connections.
    connections: Slab<Box<Connection>>,
    timeouts: Timeouts<Timeout, 4>,
    connections_max: usize,
}

impl Worker {
    /// Prepares worker `index`; [`Worker::run`] is its thread.
    pub fn new(index: usize, shared: Arc<Shared>, context: WorkerContext) -> Self {
        let limits = &context.limits;
        let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let stall_ns = ns(limits.send_stall_deadline) / STALL_CHECKS;
        let lengths_ns = [ns(limits.header_deadline), ns(limits.idle_deadline), stall_ns, LINGER_NS];
        Self {
            index,
            connections_max: limits.connections_max.div_ceil(shared.workers.len()).max(1),
            shared,
            context,
            acceptor: None,
            connections: Slab::new(CONNECTIONS),
            timeouts: Timeouts::new(lengths_ns),
        }
    }

    /// Watches the inbox, and `listener` if this is the first worker.
    pub fn watch(&mut self, reactor: &Reactor, listener: Option<Listener>) -> Result<(), NetError> {
        reactor.watch(&self.context.worker.waker, INBOX, Interest::READ)?;
        self.acceptor = listener.map(|listener| Acceptor::new(listener, LISTENER, reactor)).transpose()?;
        Ok(())
    }

    /// Serves until the server stops.
    pub fn run(mut self, events: &mut EventLoop) -> Result<(), NetError> {
        self.context.worker.thread_id.store(sys::thread::thread_id(), Ordering::Relaxed);
        let outcome = events.run(&mut self);
        // Stopped, or the kernel refuses to wait.
        self.close_all();
        outcome
    }

    fn accept(&mut self, reactor: &mut Reactor) {
        for _ in 0..ACCEPTS_MAX {
            let Some(acceptor) = &mut self.acceptor else { return };
            match acceptor.accept(reactor) {
                Accepted::Connection(socket, peer) => {
                    self.shared.accepted.fetch_add(1, Ordering::Relaxed);
                    self.assign(reactor, socket, peer);
                }
                Accepted::None => return,
                Accepted::OutOfDescriptors => {
                    if !self.evict() {
                        self.acceptor.iter_mut().for_each(|acceptor| acceptor.pause(reactor));
                        return;
                    }
                }
            }
        }
    }

    /// Gives a new connection to the worker that has fewest.
    fn assign(&mut self, reactor: &mut Reactor, socket: TcpSocket, peer: SocketAddr) {
        if !self.shared.admit(peer.ip()) {
            self.refuse(&socket, peer, "too many connections of this peer");
            return;
        }
        let workers = &self.shared.workers;
        let load = |i: &usize| (workers[*i].connections.load(Ordering::Relaxed), *i != self.index);
        let chosen = (0..workers.len()).min_by_key(load).unwrap_or(self.index);
        workers[chosen].connections.fetch_add(1, Ordering::Relaxed);
        if chosen == self.index {
            self.add_connection(reactor, socket, peer);
        } else if let Err(socket) = workers[chosen].hand_over(socket, peer) {
            workers[chosen].connections.fetch_sub(1, Ordering::Relaxed);
            self.shared.release(peer.ip());
            self.refuse(&socket, peer, "a worker is too far behind");
        }
    }

    /// Adds a connection to the table, and evicts another if it is full.
    fn add_connection(&mut self, reactor: &mut Reactor, socket: TcpSocket, peer: SocketAddr) {
        if self.connections.len() >= self.connections_max && !self.evict() {
            self.count_out(peer);
            self.refuse(&socket, peer, "all connections are being served");
            return;
        }
        let now_ns = self.context.now_ns;
        let token = self.connections.insert(Box::new(Connection::new(socket, peer, now_ns)));
        let interest = Interest::READ | Interest::WRITE | Interest::EDGE;
        if reactor.watch(self.connections[token].socket(), token, interest).is_err() {
            self.count_out(peer);
            if let Some(connection) = self.connections.remove(token) {
                self.refuse(connection.socket(), peer, "the kernel watches no more sockets");
            }
            return;
        }
        self.timeouts.set(token, Timeout::Head, now_ns);
        reactor.resume(token);
    }

    fn count_out(&self, peer: SocketAddr) {
        self.context.worker.connections.fetch_sub(1, Ordering::Relaxed);
        self.shared.release(peer.ip());
    }

    /// Closes the oldest connection without a complete request, or else the one idle longest; whether there
    /// was one.
    fn evict(&mut self) -> bool {
        let victim = self.timeouts.oldest(Timeout::Head).or_else(|| self.timeouts.oldest(Timeout::Idle));
        let Some(token) = victim else { return false };
        add(&self.context.worker.counters.evicted, 1);
        if let Some(connection) = self.connections.get_mut(token) {
            let reason = "dropped for a newer connection: the table is full";
            connection.log_unfinished(&mut self.context, 503, reason);
            let _ = connection.socket().reset_on_close();
        }
        self.close(token, None);
        true
    }

    /// Refuses a connection that was not added. The response is one short send into an empty socket buffer.
    fn refuse(&mut self, socket: &TcpSocket, peer: SocketAddr, reason: &'static str) {
        const RESPONSE: &[u8] =
            b"HTTP/1.1 503 Service Unavailable\r\nServer: kagiri\r\nContent-Length: 0\r\n\
            Retry-After: 1\r\nConnection: close\r\n\r\n";
        add(&self.context.worker.counters.refused, 1);
        let _ = socket.send(RESPONSE, false);
        log_refused_connection(&self.context.log, peer.ip(), RESPONSE.len() as u64, reason);
    }

    /// Calls `act` with a connection, then does what the connection needs next.
    fn serve(
        &mut self,
        reactor: &mut Reactor,
        token: Token,
        act: impl FnOnce(&mut Connection, &mut WorkerContext) -> Next,
    ) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        let next = act(connection, &mut self.context);
        let timeout = connection.timeout();
        if connection.take_timeout_restart() || self.timeouts.kind(token) != Some(timeout) {
            self.timeouts.set(token, timeout, self.context.now_ns);
        }
        match next {
            Next::Wait => {}
            Next::Again => reactor.resume(token),
            Next::Close => self.close(token, None),
        }
    }

    fn time_out(&mut self, reactor: &mut Reactor, token: Token, timeout: Timeout) {
        match timeout {
            Timeout::Head => {
                const REASON: &str = "no complete request before the deadline";
                add(&self.context.worker.counters.timed_out, 1);
                // Where the response cannot be sent at once, the stall and linger timeouts take over.
                self.timeouts.clear(token);
                self.serve(reactor, token, |connection, context| connection.refuse_late(context, REASON));
            }
            Timeout::Idle => {
                add(&self.context.worker.counters.timed_out, 1);
                if let Some(connection) = self.connections.get_mut(token) {
                    connection.log_unfinished(&mut self.context, 408, "idle for too long");
                }
                self.close(token, None);
            }
            Timeout::Stall => self.check_stall(reactor, token),
            Timeout::Linger => self.close(token, None),
        }
    }

    fn check_stall(&mut self, reactor: &mut Reactor, token: Token) {
        let Some(connection) = self.connections.get(token) else { return self.timeouts.clear(token) };
        let now_ns = self.context.now_ns;
        let stalled = Duration::from_nanos(now_ns.saturating_sub(connection.progress_ns()));
        let limits = &self.context.limits;
        let beyond_grace_s = Duration::from_nanos(now_ns.saturating_sub(connection.since_ns()))
            .saturating_sub(limits.slow_upload_grace)
            .as_secs();
        let least_bytes = limits.upload_bytes_per_s_min.saturating_mul(beyond_grace_s);
        let is_slow = connection.upload_bytes().is_some_and(|bytes| bytes < least_bytes);
        if stalled < limits.send_stall_deadline && !is_slow {
            self.timeouts.set(token, Timeout::Stall, now_ns);
            // Costs one call in seconds, and no stream depends on every edge having been reported.
            reactor.resume(token);
            return;
        }
        add(&self.context.worker.counters.timed_out, 1);
        // What is queued will not be read: free it now.
        let _ = connection.socket().reset_on_close();
        let reason = if is_slow { "an upload too slow" } else { "no progress before the deadline" };
        self.close(token, Some((408, reason)));
    }

    fn close(&mut self, token: Token, why: Option<(u16, &'static str)>) {
        self.timeouts.clear(token);
        let Some(mut connection) = self.connections.remove(token) else { return };
        connection.on_close(&mut self.context, why);
        self.count_out(connection.peer());
    }

    fn close_all(&mut self) {
        for token in self.connections.tokens() {
            self.close(token, Some((503, "server stopped")));
        }
    }
}

impl StateMachine for Worker {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event) {
        match token {
            LISTENER => self.accept(reactor),
            INBOX => {
                self.context.worker.waker.clear();
                for (socket, peer) in self.context.worker.take_inbox() {
                    self.add_connection(reactor, socket, peer);
                }
            }
            token => {
                let Some(connection) = self.connections.get_mut(token) else { return };
                if event.is_readable() {
                    connection.set_readable(event.is_peer_done());
                }
                reactor.resume(token);
            }
        }
    }

    fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
        self.serve(reactor, token, Connection::step);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, _: Token) {
        self.acceptor.iter_mut().for_each(|acceptor| acceptor.on_timer(reactor));
    }

    fn on_stop(&mut self, _: &mut Reactor) {}

    fn before_events(&mut self, reactor: &mut Reactor) {
        self.context.set_time(reactor.now_ns());
    }

    fn after_events(&mut self, reactor: &mut Reactor) {
        while let Some((token, timeout)) = self.timeouts.expired(self.context.now_ns) {
            self.time_out(reactor, token, timeout);
        }
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.timeouts.next_ns()
    }
}
