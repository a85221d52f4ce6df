//! The client of kagiri's own protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{TcpSocket, UdpFlow};
use workload::softirqs::SoftirqWatch;

use super::NativeError;
use super::call_timing::prepared;
use super::control_link::ControlLink;
use super::direction_run::DirectionResult;
use super::message::{
    ClientMessage, MESSAGE_BYTES_MAX, ServerMessage, SessionOrder, VERSION, report_bytes_max,
};
use super::session_id::{Role, SessionId};
use super::session_state::{FLOWING, Heartbeat, SessionState, longest};
use super::socket_setup::{begin, flows_total, options, quic_plan, set_up_udp};
use crate::control::{ConnectError, Control, StopHandle, connect_all, send_first};
use crate::flow::{Direction, FlowSocket, Protocol, room_for};
use crate::path_rate::Link as PathLink;
use crate::quic::{QuicEndpoint, QuicFacts};
use crate::report::{ClockOffset, DirectionReport, TransferReport};

/// Time for the report after a stop.
const STOP: Duration = Duration::from_secs(2);
/// Time for a server to report that the transfer took too long.
const GRACE: Duration = Duration::from_secs(30);
/// Repetition interval of the datagrams that open flows.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long the flows may take to open, and each of them further.
pub(super) const OPEN: Duration = Duration::from_secs(4);
/// Further time to open flows, each.
pub(super) const FLOW: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct ClientOrder {
    pub server: SocketAddr,
    pub session: SessionOrder,
    /// How long each step of the preparation may take.
    pub step: Duration,
}

/// What the server reports: its ends, and how their flows were moved.
type Remote = (Vec<DirectionReport>, Vec<(Direction, String)>);

/// A client whose flows are open, ready to begin.
pub struct Client {
    link: ControlLink,
    stop_handle: Arc<StopHandle>,
    order: ClientOrder,
    /// The server's device towards this host, where its rate is known.
    pub(crate) server_link: Option<PathLink>,
    clock: Option<ClockOffset>,
    sockets: Vec<FlowSocket>,
    quic: Option<QuicEndpoint>,
    /// The watch that the ends of the flows join.
    _softirqs: Option<Arc<SoftirqWatch>>,
    /// Payload that has passed: what this end sent, and what it received. Grows while the session runs.
    pub(crate) passed: Arc<[AtomicU64; 2]>,
}

impl Client {
    /// Goes on with a server that has answered the cookie of `name` by [`GREETING`](super::GREETING): agrees
    /// on the order and opens the flows. Nothing is measured yet.
    pub fn prepare(
        control: Control,
        name: SessionId,
        order: ClientOrder,
        stop_handle: Arc<StopHandle>,
    ) -> Result<Self, NativeError> {
        let link = ControlLink { control };
        welcome(&link)?;
        link.send(&ClientMessage::Order(Box::new(order.session.clone())), "being told the order")?;
        let (server_link, facts) = match link.read(MESSAGE_BYTES_MAX, "checking the order")? {
            ServerMessage::Ready { link, quic } => (link, quic),
            said => return Err(unexpected(&link, said, "checking the order")),
        };
        let _softirqs = prepared(&order.session);
        let (sockets, passed) = (Vec::new(), Arc::default());
        let (clock, quic) = (None, None);
        let mut client =
            Self { link, stop_handle, order, server_link, clock, sockets, quic, _softirqs, passed };
        client.quic = facts.map(|facts| client.connect_quic(name, &facts)).transpose()?;
        client.sockets = client.open(name)?;
        client.clock = Some(client.link.compare_clocks()?);
        Ok(client)
    }

    /// Opens all flows and waits until the server has them.
    fn open(&self, name: SessionId) -> Result<Vec<FlowSocket>, NativeError> {
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
                let during = "checking the order";
                let peer = self.order.server;
                let quic = self.quic.as_ref().ok_or(NativeError::Unexpected { peer, during })?;
                self.await_quic(quic, within, until)?;
                Ok(Vec::new())
            }
        }
    }

    fn open_tcp(&self, name: SessionId, wanted: u32, until: Deadline) -> Result<Vec<TcpSocket>, NativeError> {
        let (options, peer, within) = (options(&self.order.session), self.order.server, until.left());
        let greet = |number, socket: &TcpSocket| {
            socket.set_silence_limit(super::socket_setup::SILENCE)?;
            send_first(socket, name.cookie(Role::Flow(number as u32)).bytes(), peer)
        };
        connect_all(peer, wanted as usize, &options, &self.stop_handle, until, greet).map_err(|error| {
            match error {
                ConnectError::Net(error) => error.into(),
                ConnectError::Late(there) => {
                    NativeError::Flows { peer, there, wanted: wanted as usize, within }
                }
                ConnectError::Stopped => NativeError::Stopped,
            }
        })
    }

    fn connect_quic(&self, name: SessionId, facts: &QuicFacts) -> Result<QuicEndpoint, NativeError> {
        let plan = quic_plan(&self.order.session, name, OPEN);
        Ok(QuicEndpoint::connect(self.order.server, facts, &plan, self.stop_handle.clone())?)
    }

    /// Waits until both ends know of their QUIC connection.
    fn await_quic(&self, quic: &QuicEndpoint, within: Duration, until: Deadline) -> Result<(), NativeError> {
        self.await_connected(within, until, || Ok(quic.is_connected().map(drop)?))?;
        // The server's message may arrive before this end's thread has published the connection.
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
            set_up_udp(&mut flow, &self.order.session)?;
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
        // The server knows how many came, and reports it when its own time is over.
        let grace = Deadline::after(within + self.order.step);
        loop {
            if !until.passed() {
                ask()?;
            }
            let woken = self.link.wait(Deadline::after(ASK_AGAIN))?;
            if woken.readable {
                return match self.link.read(MESSAGE_BYTES_MAX, during)? {
                    ServerMessage::Connected => Ok(()),
                    said => Err(unexpected(&self.link, said, during)),
                };
            }
            if self.stop_handle.is_stopped() {
                return Err(NativeError::Stopped);
            }
            if grace.passed() {
                return Err(NativeError::Silent { peer: self.order.server, within });
            }
        }
    }

    /// Begins at a moment of the monotonic clock and runs to the end, or until the stop handle is stopped;
    /// adds to `report` what was measured.
    pub fn run(mut self, at_ns: u64, report: &mut TransferReport) {
        let mut state = SessionState::default();
        let mut remote = None;
        let outcome = self.measure(at_ns, &mut state, &mut remote);
        let broke = outcome.is_err();
        let mut moved = state.finish(broke);
        report.responses = moved.iter_mut().find_map(|moved| moved.responses.take());
        let (remote_directions, remote_engines) = remote.unwrap_or_default();
        let own: Vec<(Direction, String)> =
            moved.iter().map(|moved| (moved.direction, moved.engine.clone())).collect();
        let engines = [("client", own), ("server", remote_engines)].map(|(place, all)| engines(place, &all));
        report.engine = engines.concat().join("; ");
        // Again: clocks drift while data flows.
        let before = self.clock.filter(|_| !broke);
        report.clock = before.and_then(|before| Some(before.with(&self.link.compare_clocks().ok()?)));
        report.stopped = self.stop_handle.is_stopped();
        report.broken = outcome.err().filter(|_| !report.stopped).map(|error| error.to_string());
        report.directions = join_ends(moved, remote_directions);
    }

    fn measure(
        &mut self,
        at_ns: u64,
        state: &mut SessionState,
        remote: &mut Option<Remote>,
    ) -> Result<(), NativeError> {
        let during = FLOWING;
        let sockets = std::mem::take(&mut self.sockets);
        *state = begin(&self.order.session, true, at_ns, sockets, self.quic.as_ref())?;
        while monotonic_ns() < at_ns {
            let left = Duration::from_nanos(at_ns.saturating_sub(monotonic_ns()));
            let woken = self.link.wait(Deadline::after(left))?;
            if self.stop_handle.is_stopped() {
                return Err(NativeError::Stopped);
            }
            if woken.readable {
                match self.read(during)? {
                    ServerMessage::Beat => {}
                    said => return Err(unexpected(&self.link, said, during)),
                }
            }
        }
        self.link.send(&ClientMessage::Go, during)?;
        let mut heartbeat = Heartbeat::new(longest(&self.order.session) + GRACE);
        let mut stopping = None::<Deadline>;
        while remote.is_none() || !state.is_over() {
            if self.stop_handle.is_stopped() && stopping.is_none() {
                stopping = Some(Deadline::after(STOP));
                self.link.control.conclude(STOP);
                state.stop_senders();
                self.link.send(&ClientMessage::Stop, during)?;
            }
            if stopping.is_some_and(|until| until.passed()) {
                return Err(NativeError::Stopped);
            }
            let is_readable = heartbeat.step(&self.link, state, ClientMessage::Sent, &ClientMessage::Beat)?;
            for (passed, bytes) in self.passed.iter().zip(state.passed) {
                passed.store(bytes, Ordering::Relaxed);
            }
            if is_readable {
                match self.read(during)? {
                    ServerMessage::Beat => {}
                    ServerMessage::Sent(sent) => state.claim(sent),
                    ServerMessage::Report { directions, engines } => *remote = Some((directions, engines)),
                    said => return Err(unexpected(&self.link, said, during)),
                }
            }
        }
        Ok(())
    }

    fn read(&self, during: &'static str) -> Result<ServerMessage, NativeError> {
        self.link.read(report_bytes_max(flows_total(&self.order.session)), during)
    }
}

/// Checks the version of the server.
fn welcome(link: &ControlLink) -> Result<(), NativeError> {
    let during = "identifying itself";
    match link.read(MESSAGE_BYTES_MAX, during)? {
        ServerMessage::Welcome { protocol_version: VERSION, .. } => Ok(()),
        ServerMessage::Welcome { protocol_version: theirs, program } => {
            Err(NativeError::Version { peer: link.peer(), program, theirs })
        }
        said => Err(unexpected(link, said, during)),
    }
}

fn unexpected(link: &ControlLink, said: ServerMessage, during: &'static str) -> NativeError {
    let peer = link.peer();
    match said {
        ServerMessage::Refused { why } if during == FLOWING => NativeError::GaveUp { peer, why },
        ServerMessage::Refused { why } => NativeError::Refused { peer, why },
        _ => NativeError::Unexpected { peer, during },
    }
}

/// Joins the two ends of each direction; the other end is absent where it did not report.
fn join_ends(own: Vec<DirectionResult>, mut remote: Vec<DirectionReport>) -> Vec<DirectionReport> {
    let join = |DirectionResult { direction, end, .. }: DirectionResult| {
        let other = remote.iter_mut().find(|report| report.direction == direction);
        let server = match direction {
            Direction::Up => other.and_then(|report| report.receiver.take()),
            _ => other.and_then(|report| report.sender.take()),
        };
        DirectionReport::of_client(direction, Some(end), server)
    };
    let mut joined: Vec<DirectionReport> = own.into_iter().map(join).collect();
    // Only the server reports the requests that reached it.
    remote.retain(|report| joined.iter().all(|own| own.direction != report.direction));
    joined.extend(remote);
    joined.sort_by_key(|report| report.direction);
    joined
}

/// How the flows were moved at one end, of two ways that differ each with its own.
fn engines(place: &str, all: &[(Direction, String)]) -> Vec<String> {
    match all {
        [(_, up), (_, down)] if up == down => vec![format!("{place}: {up}")],
        [(up, first), (down, second)] => {
            vec![format!("{place}: {} {first}, {} {second}", up.word(), down.word())]
        }
        _ => all.iter().map(|(_, engine)| format!("{place}: {engine}")).collect(),
    }
}
