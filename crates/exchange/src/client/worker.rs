//! The event loop of a thread of clients.

use std::time::Duration;

use reactor::{ConnectOutcome, ConnectSettings, Connector, Reactor, StateMachine, Token};
use sys::clock::monotonic_ns;
use sys::net::{Event, Interest};

use super::busiest::Busiest;
use super::client::Client;
use super::connection::{Channel, Handshake, HandshakeError, Link, Step};
use super::message::Began;
use super::sampler::SocketSampler;
use super::shared::{Shared, Unconnected, WorkerSpec};
use super::stats::{ClassStats, Fault};

const CLIENT: u8 = 1;
const CONNECT: u8 = 2;
/// The beginning of the hold.
const HOLD: Token = Token::single(3);
/// Longest wait within a read.
const CALL_WAIT: Duration = Duration::from_millis(10);
/// No timer may be due within so much time when a read begins to wait: the kernel prolongs a wait by up to
/// two ticks, which are 10 ms at most.
const CALL_MARGIN_NS: u64 = 40_000_000;
/// Messages that begin at once: those on free streams are written together.
const BEGINS_MAX: usize = 256;
/// Calls on one connection before others have their turn.
const STEPS_MAX: usize = 16;

pub(super) struct Worker {
    pub(super) shared: Shared,
    clients: Vec<Client>,
    connector: Connector,
    /// Clients whose first connection is not there yet.
    unready: usize,
    pub(super) problem: Option<Unconnected>,
    start_ns: Option<u64>,
    begin_ns: u64,
    /// Clients that are not done.
    left: usize,
    /// A message whose reply did not come within a wait in a read.
    slow: Option<u64>,
    sampler: SocketSampler,
    pub(super) busiest: Busiest,
}

impl Worker {
    pub(super) fn new(spec: WorkerSpec, clients: Vec<Client>, stats: Vec<ClassStats>) -> Self {
        let timeout = Duration::from_nanos(spec.timeout_ns);
        let settings =
            ConnectSettings { options: spec.options.clone(), timeout, ..ConnectSettings::default() };
        Self {
            connector: Connector::new(CONNECT, settings),
            unready: 0,
            problem: None,
            start_ns: None,
            begin_ns: 0,
            left: clients.len(),
            slow: None,
            sampler: SocketSampler::new(spec.sample_ns, stats.len(), spec.keeps_clients),
            busiest: Busiest::default(),
            shared: Shared::new(spec, stats),
            clients,
        }
    }

    /// Begins to connect; fresh connections are made later.
    pub(super) fn connect(&mut self, reactor: &mut Reactor) {
        if self.shared.spec.is_fresh {
            return;
        }
        self.unready = self.clients.len();
        for index in 0..self.clients.len() {
            self.connect_one(index, reactor);
        }
        // Some may have failed at once; no event follows.
        self.take_outcomes(reactor);
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.unready == 0
    }

    /// The common start is known.
    pub(super) fn begin(&mut self, start_ns: u64, reactor: &mut Reactor) {
        let Self { shared, clients, .. } = self;
        let spec = &shared.spec;
        self.start_ns = Some(start_ns);
        self.begin_ns = start_ns.saturating_add(spec.omit_ns);
        shared.end_ns = spec.time_ns.map_or(u64::MAX, |time_ns| self.begin_ns.saturating_add(time_ns));
        shared.stats.iter_mut().for_each(|stats| stats.begin(start_ns, self.begin_ns));
        clients.iter_mut().for_each(|client| client.begin(&spec.classes[client.class], start_ns));
        self.busiest = Busiest::new(start_ns);
        if spec.omit_ns > 0 {
            reactor.set_timer(HOLD, self.begin_ns);
        }
        for index in 0..self.clients.len() {
            self.set_timer(index, reactor);
        }
    }

    /// Whether all clients are done, or cannot continue.
    pub(super) const fn is_over(&self) -> bool {
        self.left == 0 || self.problem.is_some()
    }

    /// The hold, in seconds after the start.
    pub(super) fn hold_s(&self) -> (f64, f64) {
        let s = |ns: u64| ns.saturating_sub(self.start_ns.unwrap_or(ns)) as f64 / 1e9;
        let end_ns = self.shared.end_ns.min(monotonic_ns().max(self.begin_ns + 1_000_000));
        (s(self.begin_ns), s(end_ns))
    }

    /// Adds what connections that still stand waited for.
    pub(super) fn end(&mut self) {
        self.clients.iter().for_each(|client| client.end(&mut self.shared));
    }

    fn connect_one(&mut self, index: usize, reactor: &mut Reactor) {
        self.clients[index].link = Link::Connecting;
        let server = self.shared.spec.server_of(self.clients[index].class);
        self.connector.connect(reactor, index as u64, server);
    }

    fn take_outcomes(&mut self, reactor: &mut Reactor) {
        while let Some(ConnectOutcome { key, result, .. }) = self.connector.next_outcome() {
            let index = key as usize;
            if !matches!(self.clients[index].link, Link::Connecting) {
                // The message that it was made for timed out, and another connection is there.
                continue;
            }
            let interest = Interest::READ | Interest::WRITE | Interest::EDGE;
            let send_buffer = self.shared.spec.classes[self.clients[index].class].send_buffer_bytes;
            let watched = result.and_then(|socket| {
                send_buffer.map(|bytes| socket.set_send_buffer(bytes)).transpose()?;
                reactor.watch(&socket, Token::fixed(CLIENT, key as u32), interest).map(|()| socket)
            });
            let (before_start, protocol) = (self.start_ns.is_none(), &self.shared.spec.protocol);
            let begun = watched.map_err(HandshakeError::from);
            let begun = begun.and_then(|socket| Handshake::begin(socket, protocol, before_start));
            self.take_step(index, begun, reactor);
        }
    }

    /// Continues the handshake of a client; returns whether it has one.
    fn continue_handshake(&mut self, index: usize, reactor: &mut Reactor) -> bool {
        let link = &mut self.clients[index].link;
        match std::mem::replace(link, Link::None) {
            Link::Handshake(handshake) => {
                let stepped = handshake.step(&self.shared.spec.protocol, self.start_ns.is_none());
                self.take_step(index, stepped, reactor);
                true
            }
            other => {
                *link = other;
                false
            }
        }
    }

    fn take_step(&mut self, index: usize, stepped: Result<Step, HandshakeError>, reactor: &mut Reactor) {
        let (client, before_start) = (&mut self.clients[index], self.start_ns.is_none());
        match stepped {
            Ok(Step::Waiting(handshake)) => {
                client.link = Link::Handshake(handshake);
                // Later, the message that waits for the connection has a deadline.
                if before_start && client.timer_ns == u64::MAX {
                    client.timer_ns = monotonic_ns().saturating_add(self.shared.spec.timeout_ns);
                    reactor.set_timer(Token::fixed(CLIENT, index as u32), client.timer_ns);
                }
            }
            Ok(Step::Done(mut channel)) => {
                let waits = self.clients.len() == 1 && !self.shared.spec.is_fresh;
                if let (Channel::Stream(transport), true) = (&mut channel, waits) {
                    transport.set_wait(CALL_WAIT);
                }
                let client = &mut self.clients[index];
                self.unready = self.unready.saturating_sub(1);
                self.shared.protocol_used =
                    channel.name(&self.shared.spec.protocol).or(self.shared.protocol_used);
                client.connected(channel, &mut self.shared);
                self.advance(index, reactor);
            }
            Err(error) if before_start => self.problem = Some(self.shared.unconnected(error)),
            Err(error) => {
                let why = self.shared.unconnected(error).to_string();
                client.lose(Fault::Connect, &why, &mut self.shared);
                self.set_timer(index, reactor);
            }
        }
    }

    /// Does what the client can do now, as much as is fair to others.
    fn advance(&mut self, index: usize, reactor: &mut Reactor) {
        if self.start_ns.is_none() || self.clients[index].is_done {
            return;
        }
        let (client, shared) = (&mut self.clients[index], &mut self.shared);
        for _ in 0..STEPS_MAX {
            let moved = client.write(shared).and_then(|wrote| Ok(client.read(shared, false)? | wrote));
            let moved = moved.unwrap_or_else(|(fault, why)| {
                client.lose(fault, &why, shared);
                false
            });
            let mut has_begun = false;
            for _ in 0..BEGINS_MAX {
                match client.begin_next(shared) {
                    Began::NeedsLink => {
                        self.connect_one(index, reactor);
                        return self.set_timer(index, reactor);
                    }
                    Began::Nothing => break,
                    Began::Message => has_begun = true,
                }
            }
            if !moved && !has_begun {
                return self.set_timer(index, reactor);
            }
        }
        reactor.resume(Token::fixed(CLIENT, index as u32));
        self.set_timer(index, reactor);
    }

    /// Waits in a read for the reply that the only client waits for, which saves the wait for readiness.
    /// `false`: there is more to wait for, or the reply takes long. The sampler can be late by such a wait.
    pub(super) fn wait_in_call(&mut self, reactor: &mut Reactor) -> bool {
        let [client] = &mut self.clients[..] else { return false };
        let Some(number) = client.awaited_reply().filter(|number| self.slow != Some(*number)) else {
            return false;
        };
        let quiet_until_ns = monotonic_ns() + CALL_MARGIN_NS;
        if reactor.has_resumes() || reactor.next_timer_ns().is_some_and(|due_ns| due_ns < quiet_until_ns) {
            return false;
        }
        match client.read(&mut self.shared, true) {
            Ok(true) => {}
            Ok(false) => {
                self.slow = Some(number);
                return false;
            }
            Err((fault, why)) => client.lose(fault, &why, &mut self.shared),
        }
        self.advance(0, reactor);
        // Also while a long reply comes in pieces.
        self.observe(monotonic_ns());
        true
    }

    /// Reads what is due: the thread's CPU time, and the sockets' memory.
    fn observe(&mut self, now_ns: u64) {
        if self.start_ns.is_some_and(|start_ns| start_ns <= now_ns) {
            self.busiest.look(now_ns);
            self.sampler.sample(&self.clients, &mut self.shared.stats, now_ns);
        }
    }

    /// Sets the timer to the next moment at which the client has something to do, or ends it.
    fn set_timer(&mut self, index: usize, reactor: &mut Reactor) {
        let (client, token) = (&mut self.clients[index], Token::fixed(CLIENT, index as u32));
        match client.next_ns(&self.shared) {
            _ if client.is_done => {}
            None => {
                client.is_done = true;
                self.left -= 1;
                reactor.clear_timer(token);
            }
            Some(next_ns) => {
                if next_ns != std::mem::replace(&mut client.timer_ns, next_ns) {
                    reactor.set_timer(token, next_ns);
                }
            }
        }
    }
}

impl StateMachine for Worker {
    fn on_ready(&mut self, reactor: &mut Reactor, token: Token, event: Event) {
        match token.class() {
            CLIENT => {
                self.clients[token.index()].link.after_event(event);
                if !self.continue_handshake(token.index(), reactor) {
                    self.advance(token.index(), reactor);
                }
            }
            _ => self.connector.on_ready(reactor, token),
        }
    }

    fn on_resume(&mut self, reactor: &mut Reactor, token: Token) {
        self.advance(token.index(), reactor);
    }

    fn on_timer(&mut self, reactor: &mut Reactor, token: Token) {
        match token.class() {
            CLIENT => {
                let client = &mut self.clients[token.index()];
                client.timer_ns = u64::MAX;
                if self.start_ns.is_none() {
                    if matches!(client.link, Link::Handshake(_)) {
                        self.problem = Some(self.shared.unconnected(HandshakeError::Late));
                    }
                    return;
                }
                client.give_up(&mut self.shared);
                client.expire(&mut self.shared);
                self.advance(token.index(), reactor);
            }
            CONNECT => self.connector.on_timer(reactor, token),
            _ => self.clients.iter_mut().for_each(Client::mark),
        }
    }

    fn after_events(&mut self, reactor: &mut Reactor) {
        self.take_outcomes(reactor);
        self.observe(reactor.now_ns());
    }

    fn next_deadline_ns(&self) -> Option<u64> {
        self.start_ns.map(|start_ns| start_ns.max(self.sampler.next_ns()))
    }

    fn on_stop(&mut self, _: &mut Reactor) {}
}
