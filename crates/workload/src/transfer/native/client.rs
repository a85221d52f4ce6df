//! The client of kagiri's own protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Moved as Bytes, TcpSocket, UdpFlow};

use super::clocks;
use super::course::{Course, Patience, longest};
use super::dial::dial;
use super::dress::{begin, dress_udp, flows_total, options, quic_plan};
use super::error::NativeError;
use super::link::Link;
use super::message::{ClientSays, MESSAGE_BYTES_MAX, REPORT_BYTES_MAX, ServerSays, SessionOrder, VERSION};
use super::moving::Moved;
use super::name::{Role, SessionName};
use crate::transfer::control::{Bell, Control};
use crate::transfer::flow::{FlowSocket, Protocol, room_for};
use crate::transfer::path::Link as PathLink;
use crate::transfer::quic::{QuicEnd, QuicFacts};
use crate::transfer::report::{ClockOffset, Responses, Way, WayReport};

/// How often each end says that it is there.
pub(super) const BEAT: Duration = Duration::from_millis(500);
/// An end that has said nothing for so long is gone.
pub(super) const SILENT: Duration = Duration::from_secs(10);
/// How long the report may take after a wish to stop.
const STOP: Duration = Duration::from_secs(2);
/// A server that ends a transfer which takes too long is given this time to say so.
const GRACE: Duration = Duration::from_secs(30);
/// Datagrams that open flows are sent again after this, until all are there.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long the flows may take to open, and each of them further.
pub(super) const OPEN: Duration = Duration::from_secs(4);
/// Further time to open flows, each.
pub(super) const FLOW: Duration = Duration::from_millis(5);

/// When bytes move.
const FLOWING: &str = "data flows";

/// What a client is to do.
#[derive(Debug, Clone)]
pub struct ClientOrder {
    /// The server.
    pub server: SocketAddr,
    /// What it is asked.
    pub session: SessionOrder,
    /// How long each step of the preparation may take.
    pub step: Duration,
}

/// What a client's session came to.
#[derive(Debug)]
pub struct ClientEnd {
    /// The flows by their way, both ends of each as far as they are known.
    pub ways: Vec<WayReport>,
    /// How they were moved: at this end, and at the server's.
    pub engines: Vec<String>,
    /// Why it broke off, where it did.
    pub broken: Option<String>,
    /// Whether it was ended before its time.
    pub stopped: bool,
    /// The server's program.
    pub program: String,
    /// Of requests, what their answers took.
    pub responses: Option<Responses>,
    /// How far the server's clock is ahead of this host's.
    pub clock: Option<ClockOffset>,
}

/// What the server reports: its ends, and how their flows were moved.
type Remote = (Vec<WayReport>, Vec<(Way, String)>);

/// A client whose flows are open, ready to begin.
pub struct Client {
    link: Link,
    bell: Arc<Bell>,
    order: ClientOrder,
    program: String,
    server_link: Option<PathLink>,
    clock: Option<ClockOffset>,
    sockets: Vec<FlowSocket>,
    quic: Option<QuicEnd>,
    passed: Arc<[AtomicU64; 2]>,
}

impl Client {
    /// Goes on with a server that has answered the cookie of `name` by [`GREETING`](super::GREETING): agrees on the order
    /// and opens the flows. Nothing is measured yet.
    ///
    /// # Errors
    /// [`NativeError`]: the server refuses or falls silent, flows cannot be opened.
    pub fn prepare(
        control: Control,
        name: SessionName,
        order: ClientOrder,
        bell: Arc<Bell>,
    ) -> Result<Self, NativeError> {
        let link = Link::new(control);
        let program = welcome(&link)?;
        link.say(&ClientSays::Order(Box::new(order.session.clone())), "being told the order")?;
        let (server_link, facts) = match link.hear(MESSAGE_BYTES_MAX, "looking at the order")? {
            ServerSays::Ready { link, quic } => (link, quic),
            said => return Err(unexpected(&link, said, "looking at the order")),
        };
        let (sockets, passed) = (Vec::new(), Arc::default());
        let mut client =
            Self { link, bell, order, program, server_link, clock: None, sockets, quic: None, passed };
        client.quic = facts.map(|facts| client.connect_quic(name, &facts)).transpose()?;
        client.sockets = client.open(name)?;
        client.clock = Some(clocks::compare(&client.link)?);
        Ok(client)
    }

    /// The server's program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The server's device towards this host, where its rate is known.
    pub fn server_link(&self) -> Option<PathLink> {
        self.server_link
    }

    /// Payload that has passed: what this end sent, and what it received. Grows while the session runs.
    pub fn passed(&self) -> Arc<[AtomicU64; 2]> {
        self.passed.clone()
    }

    /// Opens all flows and waits until the server has them.
    fn open(&self, name: SessionName) -> Result<Vec<FlowSocket>, NativeError> {
        let wanted = flows_total(&self.order.session);
        room_for(wanted as usize)?;
        let within = OPEN + FLOW * wanted;
        let until = Deadline::after(within);
        match self.order.session.protocol {
            Protocol::Tcp => {
                let sockets = self.open_tcp(name, wanted, until)?;
                self.await_connected(within, until, || Ok(()))?;
                Ok(sockets.into_iter().map(FlowSocket::Tcp).collect())
            }
            Protocol::Udp => {
                let flows = self.open_udp(wanted)?;
                // Until the server has all of them: datagrams may be lost.
                self.await_connected(within, until, || {
                    for (number, flow) in flows.iter().enumerate() {
                        flow.send(name.cookie(Role::Flow(number as u32)).bytes())?;
                    }
                    Ok(())
                })?;
                Ok(flows.into_iter().map(FlowSocket::Udp).collect())
            }
            Protocol::Quic => {
                let during = "looking at the order";
                let peer = self.order.server;
                let quic = self.quic.as_ref().ok_or(NativeError::Unexpected { peer, during })?;
                self.await_quic(quic, within, until)?;
                Ok(Vec::new())
            }
        }
    }

    fn open_tcp(
        &self,
        name: SessionName,
        wanted: u32,
        until: Deadline,
    ) -> Result<Vec<TcpSocket>, NativeError> {
        let options = options(&self.order.session);
        dial(self.order.server, wanted as usize, &options, &self.bell, until, |number, socket| {
            socket.set_silence_limit(super::dress::SILENCE)?;
            let cookie = name.cookie(Role::Flow(number as u32));
            // The buffer of a new connection has room for this.
            match socket.send(cookie.bytes(), false)? {
                Bytes::Bytes(n) if n == cookie.bytes().len() => Ok(()),
                _ => Err(NativeError::Unexpected { peer: self.order.server, during: "the flows are opened" }),
            }
        })
    }

    fn connect_quic(&self, name: SessionName, facts: &QuicFacts) -> Result<QuicEnd, NativeError> {
        let plan = quic_plan(&self.order.session, name, OPEN);
        Ok(QuicEnd::connect(self.order.server, facts, &plan, self.bell.clone())?)
    }

    /// Waits until both ends know of their QUIC connection.
    fn await_quic(&self, quic: &QuicEnd, within: Duration, until: Deadline) -> Result<(), NativeError> {
        self.await_connected(within, until, || Ok(quic.is_connected().map(drop)?))?;
        // The server's word may be here a moment before this end's thread has told of the connection.
        while !quic.is_connected()? {
            if !until.pause(Duration::from_millis(1)) {
                return Err(NativeError::Silent { peer: self.order.server, within });
            }
        }
        Ok(())
    }

    fn open_udp(&self, wanted: u32) -> Result<Vec<UdpFlow>, NativeError> {
        let open = |_| {
            let mut flow = UdpFlow::connect(self.order.server, None)?;
            dress_udp(&mut flow, &self.order.session)?;
            Ok(flow)
        };
        (0..wanted).map(open).collect()
    }

    /// Waits until the server has all flows; `ask` is done again and again until then.
    fn await_connected(
        &self,
        within: Duration,
        until: Deadline,
        ask: impl Fn() -> Result<(), NativeError>,
    ) -> Result<(), NativeError> {
        let during = "the flows are opened";
        // The server knows how many came, and says so when its own time is over.
        let grace = Deadline::after(within + self.order.step);
        loop {
            if !until.passed() {
                ask()?;
            }
            let woken = self.link.wait(Deadline::after(ASK_AGAIN))?;
            if woken.readable {
                return match self.link.hear(MESSAGE_BYTES_MAX, during)? {
                    ServerSays::Connected => Ok(()),
                    said => Err(unexpected(&self.link, said, during)),
                };
            }
            if self.bell.is_stopped() {
                return Err(NativeError::Stopped);
            }
            if grace.passed() {
                return Err(NativeError::Silent { peer: self.order.server, within });
            }
        }
    }

    /// Begins at a moment of the monotonic clock and runs to the end, or until the bell says stop.
    pub fn run(mut self, at_ns: u64) -> ClientEnd {
        let mut course = Course::default();
        let mut remote = None;
        let outcome = self.measure(at_ns, &mut course, &mut remote);
        let broke = outcome.is_err();
        let mut moved = course.finish(broke);
        let responses = moved.iter_mut().find_map(|moved| moved.responses.take());
        let (remote_ways, remote_engines) = remote.unwrap_or_default();
        let own: Vec<(Way, String)> = moved.iter().map(|moved| (moved.way, moved.engine.clone())).collect();
        let engines = [("here", own), ("there", remote_engines)].map(|(place, all)| engines(place, &all));
        // Once more: clocks drift while data flows.
        let clock = self
            .clock
            .filter(|_| !broke)
            .and_then(|before| Some(before.with(&clocks::compare(&self.link).ok()?)));
        let stopped = self.bell.is_stopped();
        let broken = outcome.err().filter(|_| !stopped).map(|error| error.to_string());
        ClientEnd {
            ways: together(moved, remote_ways),
            engines: engines.concat(),
            broken,
            stopped,
            program: self.program,
            responses,
            clock,
        }
    }

    fn measure(
        &mut self,
        at_ns: u64,
        course: &mut Course,
        remote: &mut Option<Remote>,
    ) -> Result<(), NativeError> {
        let during = FLOWING;
        let sockets = std::mem::take(&mut self.sockets);
        *course = begin(&self.order.session, true, at_ns, sockets, self.quic.as_ref())?;
        while monotonic_ns() < at_ns {
            let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
            let woken = self.link.wait(Deadline::after(left))?;
            if self.bell.is_stopped() {
                return Err(NativeError::Stopped);
            }
            if woken.readable {
                match self.hear(during)? {
                    ServerSays::Beat => {}
                    said => return Err(unexpected(&self.link, said, during)),
                }
            }
        }
        self.link.say(&ClientSays::Go, during)?;
        let (mut patience, mut beat) = (Patience::new(self.order.server, SILENT), Deadline::after(BEAT));
        let within = longest(&self.order.session) + GRACE;
        let (limit, mut stopping) = (Deadline::after(within), None::<Deadline>);
        while remote.is_none() || !course.is_over() {
            if self.bell.is_stopped() && stopping.is_none() {
                stopping = Some(Deadline::after(STOP));
                self.link.control().conclude(STOP);
                course.stop_senders();
                self.link.say(&ClientSays::Stop, during)?;
            }
            let looked = course.look();
            for (passed, bytes) in self.passed.iter().zip(course.passed()) {
                passed.store(bytes, Ordering::Relaxed);
            }
            if let Some(sent) = looked.sent {
                self.link.say(&ClientSays::Sent(sent), during)?;
            }
            if beat.passed() {
                self.link.say(&ClientSays::Beat, during)?;
                beat = Deadline::after(BEAT);
            }
            if stopping.is_some_and(|until| until.passed()) {
                return Err(NativeError::Stopped);
            }
            patience.check()?;
            if limit.passed() {
                return Err(NativeError::Endless { peer: self.order.server, within });
            }
            let left = Duration::from_nanos(looked.again_ns.saturating_sub(monotonic_ns()));
            if self.link.wait(Deadline::after(left))?.readable {
                patience.heard();
                match self.hear(during)? {
                    ServerSays::Beat => {}
                    ServerSays::Sent(sent) => course.claim(sent),
                    ServerSays::Report { ways, engines } => *remote = Some((ways, engines)),
                    said => return Err(unexpected(&self.link, said, during)),
                }
            }
        }
        Ok(())
    }

    fn hear(&self, during: &'static str) -> Result<ServerSays, NativeError> {
        self.link.hear(REPORT_BYTES_MAX, during)
    }
}

/// Hears who the server is.
fn welcome(link: &Link) -> Result<String, NativeError> {
    let during = "saying who it is";
    match link.hear(MESSAGE_BYTES_MAX, during)? {
        ServerSays::Welcome { protocol_version: VERSION, program } => Ok(program),
        ServerSays::Welcome { protocol_version: theirs, program } => {
            Err(NativeError::Version { peer: link.peer(), program, theirs })
        }
        said => Err(unexpected(link, said, during)),
    }
}

fn unexpected(link: &Link, said: ServerSays, during: &'static str) -> NativeError {
    let peer = link.peer();
    match said {
        ServerSays::Refused { why } if during == FLOWING => NativeError::GaveUp { peer, why },
        ServerSays::Refused { why } => NativeError::Refused { peer, why },
        _ => NativeError::Unexpected { peer, during },
    }
}

/// Puts the two ends of each way together; the other end is absent where it did not report.
fn together(own: Vec<Moved>, mut remote: Vec<WayReport>) -> Vec<WayReport> {
    let both = |moved: Moved| {
        let other = remote.iter_mut().find(|way| way.way == moved.way);
        let (sender, receiver) = match moved.way {
            Way::Up => (Some(moved.end), other.and_then(|way| way.receiver.take())),
            Way::Down => (other.and_then(|way| way.sender.take()), Some(moved.end)),
        };
        WayReport { way: moved.way, sender, receiver }
    };
    let mut ways: Vec<WayReport> = own.into_iter().map(both).collect();
    // What only the server saw: the requests that reached it.
    remote.retain(|way| ways.iter().all(|own| own.way != way.way));
    ways.extend(remote);
    ways.sort_by_key(|way| way.way);
    ways
}

/// How the flows were moved at one end, of two ways that differ each with its own.
fn engines(place: &str, all: &[(Way, String)]) -> Vec<String> {
    match all {
        [(_, up), (_, down)] if up == down => vec![format!("{place} {up}")],
        [(up, first), (down, second)] => {
            vec![format!("{place} {first} {}, {second} {}", up.word(), down.word())]
        }
        _ => all.iter().map(|(_, engine)| format!("{place} {engine}")).collect(),
    }
}
