//! One client's session, as its server conducts it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};

use super::call_timing::prepared;
use super::client::{FLOW, OPEN};
use super::control_link::{ControlLink, boot_id};
use super::direction_run::DirectionResult;
use super::message::{ClientMessage, MESSAGE_BYTES_MAX, ServerMessage, SessionOrder, VERSION};
use super::session_id::{SessionId, is_kagiri};
use super::session_state::{FLOWING, Heartbeat, SessionState, longest};
use super::sessions::{Arrival, NativeSettings, SessionEnd, Sessions};
use super::socket_setup::{begin, flows_total, quic_plan, set_up_tcp, set_up_udp};
use super::{NativeError, PROGRAM};
use crate::control::{COOKIE_BYTES, Cookie, StopHandle};
use crate::flow::{FlowSocket, Protocol, room_for};
use crate::path_rate::Link as PathLink;
use crate::quic::{self, QuicEndpoint, QuicFacts};
use crate::report::DirectionReport;
use crate::settings::check::{
    BUFFER_BYTES_MAX, MESSAGE_BYTES_MAX as REQUEST_BYTES_MAX, QUIC_WINDOW_BYTES_MAX, THREADS_MAX,
};

/// The most that a call or a datagram may hold, bytes.
const SIZE_BYTES_MAX: u32 = 64 << 20;
/// Of all threads of a session: one buffer for calls each.
const CALL_BUFFERS_BYTES_MAX: u64 = 512 << 20;
/// The longest time that an order may ask for, ns: a day.
const TIME_NS_MAX: u64 = 86_400 * 1_000_000_000;
/// The shortest interval that a client may request, ns.
const BEAT_NS_MIN: u64 = 100_000_000;

pub(super) struct Session {
    pub(super) name: SessionId,
    /// This end's address that the client connected to.
    pub(super) local: SocketAddr,
    pub(super) link: ControlLink,
    pub(super) stop_handle: Arc<StopHandle>,
    pub(super) arrivals: Receiver<Arrival>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) settings: NativeSettings,
    /// Kept until the client has left, so that what it has not read is still delivered.
    pub(super) quic: Option<QuicEndpoint>,
}

impl Session {
    /// Runs the session to its end. Every wait has a deadline.
    pub(super) fn run(mut self, is_full: bool) -> SessionEnd {
        let mut order = None;
        let mut state = SessionState::default();
        let outcome = self.conduct(is_full, &mut order, &mut state);
        let moved = state.finish(outcome.is_err());
        let (mut directions, mut engines) = (Vec::new(), Vec::new());
        for DirectionResult { direction, end, engine, .. } in moved {
            directions.push(DirectionReport::of_client(direction, None, Some(end)));
            engines.push((direction, engine));
        }
        let reported = outcome.and_then(|()| {
            self.link.control.conclude(self.settings.step);
            let during = "the results are reported";
            self.link.send(&ServerMessage::Report { directions: directions.clone(), engines }, during)?;
            self.await_leave();
            Ok(())
        });
        if let Err(error) = &reported {
            self.link.control.conclude(Duration::from_millis(200));
            // Best effort.
            let _ = self.link.send(&ServerMessage::Refused { why: error.to_string() }, "giving up");
        }
        let problem = reported.err().map(|error| error.to_string());
        SessionEnd { peer: self.link.peer(), order, directions, problem }
    }

    fn conduct(
        &mut self,
        is_full: bool,
        known: &mut Option<SessionOrder>,
        state: &mut SessionState,
    ) -> Result<(), NativeError> {
        let welcome = ServerMessage::Welcome { protocol_version: VERSION, program: PROGRAM.to_owned() };
        self.link.send_greeting()?;
        self.link.send(&welcome, "being welcomed")?;
        let during = "being asked for an order";
        let ClientMessage::Order(order) = self.link.read(MESSAGE_BYTES_MAX, during)? else {
            return Err(NativeError::Unexpected { peer: self.link.peer(), during });
        };
        let order = known.insert(*order).clone();
        if is_full {
            let most = self.settings.sessions_max;
            return Err(NativeError::Order(format!("{most} sessions run already; try again later")));
        }
        check(&order, &self.settings).map_err(NativeError::Order)?;
        room_for(flows_total(&order) as usize)?;
        let _softirqs = prepared(&order);
        let sockets = self.gather(&order)?;
        self.link.send(&ServerMessage::Connected, "the flows are opened")?;
        self.await_go()?;
        drop_greetings(&sockets);
        *state = begin(&order, false, monotonic_ns(), sockets, self.quic.as_ref())?;
        self.attend(&order, state)
    }

    /// Waits for the flows, in the order of their numbers.
    fn gather(&mut self, order: &SessionOrder) -> Result<Vec<FlowSocket>, NativeError> {
        let within = OPEN + FLOW * flows_total(order);
        let (quic, wanted) = match order.protocol {
            Protocol::Quic => (Some(self.listen_for_quic(order)?), 0),
            Protocol::Tcp | Protocol::Udp => (None, flows_total(order) as usize),
        };
        self.sessions.expect(self.name, wanted as u32);
        let link = PathLink::towards(self.link.peer());
        self.link.send(&ServerMessage::Ready { link, quic }, "the order is answered")?;
        let until = Deadline::after(within);
        let mut there: BTreeMap<u32, FlowSocket> = BTreeMap::new();
        loop {
            while let Ok(arrival) = self.arrivals.try_recv() {
                let (number, socket) = set_up(arrival, order)?;
                there.insert(number, socket);
            }
            if there.len() >= wanted && self.quic.as_ref().map_or(Ok(true), QuicEndpoint::is_connected)? {
                return Ok(there.into_values().collect());
            }
            if until.passed() {
                let peer = self.link.peer();
                return Err(NativeError::Flows { peer, there: there.len(), wanted, within });
            }
            let woken = self.link.wait(until)?;
            self.check_stop()?;
            if woken.readable {
                self.receive_beat("the flows are opened")?;
            }
        }
    }

    fn listen_for_quic(&mut self, order: &SessionOrder) -> Result<QuicFacts, NativeError> {
        let plan = quic_plan(order, self.name, OPEN);
        let (end, facts) =
            QuicEndpoint::listen(self.local, self.link.peer(), &plan, self.stop_handle.clone())?;
        self.quic = Some(end);
        Ok(facts)
    }

    fn check_stop(&self) -> Result<(), NativeError> {
        if self.stop_handle.is_stopped() { Err(NativeError::Stopped) } else { Ok(()) }
    }

    fn receive_beat(&self, during: &'static str) -> Result<(), NativeError> {
        match self.link.read(MESSAGE_BYTES_MAX, during)? {
            ClientMessage::Beat => Ok(()),
            ClientMessage::Stop => Err(NativeError::Stopped),
            _ => Err(NativeError::Unexpected { peer: self.link.peer(), during }),
        }
    }

    fn await_go(&self) -> Result<(), NativeError> {
        let during = "being told to begin";
        let until = Deadline::after(self.settings.start_within);
        let boot = boot_id();
        while !until.passed() {
            let woken = self.link.wait(until)?;
            self.check_stop()?;
            if !woken.readable {
                continue;
            }
            match self.link.read(MESSAGE_BYTES_MAX, during)? {
                ClientMessage::Go => return Ok(()),
                ClientMessage::Clock => self.tell_clock(&boot)?,
                ClientMessage::Beat => {}
                ClientMessage::Stop => return Err(NativeError::Stopped),
                _ => return Err(NativeError::Unexpected { peer: self.link.peer(), during }),
            }
        }
        Err(NativeError::Silent { peer: self.link.peer(), within: self.settings.start_within })
    }

    fn tell_clock(&self, boot: &Option<String>) -> Result<(), NativeError> {
        let says = ServerMessage::Clock { monotonic_ns: monotonic_ns(), boot: boot.clone() };
        self.link.send(&says, "comparing clocks")
    }

    /// Watches until both ends' senders have ended and all has come that will.
    fn attend(&self, order: &SessionOrder, state: &mut SessionState) -> Result<(), NativeError> {
        let mut heartbeat = Heartbeat::new(longest(order));
        while !state.is_over() {
            self.check_stop()?;
            if !heartbeat.step(&self.link, state, ServerMessage::Sent, &ServerMessage::Beat)? {
                continue;
            }
            match self.link.read(MESSAGE_BYTES_MAX, FLOWING)? {
                ClientMessage::Beat => {}
                ClientMessage::Sent(sent) => state.claim(sent),
                ClientMessage::Stop => state.stop_senders(),
                _ => return Err(NativeError::Unexpected { peer: self.link.peer(), during: FLOWING }),
            }
        }
        Ok(())
    }

    /// A connection that is closed with unread data is reset, which may lose the last message: the client
    /// closes first.
    fn await_leave(&self) {
        let until = Deadline::after(self.settings.step);
        let boot = boot_id();
        while !until.passed() {
            match self.link.read(MESSAGE_BYTES_MAX, "leaving") {
                Ok(ClientMessage::Clock) if self.tell_clock(&boot).is_ok() => {}
                Ok(ClientMessage::Beat | ClientMessage::Sent(_) | ClientMessage::Stop) => {}
                _ => return,
            }
        }
    }
}

fn set_up(arrival: Arrival, order: &SessionOrder) -> Result<(u32, FlowSocket), NativeError> {
    match arrival {
        Arrival::Tcp(number, socket) => {
            set_up_tcp(&socket, order)?;
            Ok((number, FlowSocket::Tcp(socket)))
        }
        Arrival::Udp(number, mut flow) => {
            set_up_udp(&mut flow, order)?;
            Ok((number, FlowSocket::Udp(flow)))
        }
    }
}

/// Repeated opening datagrams are queued before the data and would look like a loss.
fn drop_greetings(sockets: &[FlowSocket]) {
    let mut buffer = [0; COOKIE_BYTES];
    for socket in sockets {
        let FlowSocket::Udp(flow) = socket else { continue };
        while flow.peek(&mut buffer) == Some(COOKIE_BYTES)
            && Cookie::read(&buffer).is_some_and(|cookie| is_kagiri(&cookie))
            && flow.receive(&mut buffer).is_ok()
        {}
    }
}

/// Whether an order can be carried out.
fn check(order: &SessionOrder, settings: &NativeSettings) -> Result<(), String> {
    let flows = flows_total(order);
    let refuse = |what: String| Err(what);
    if order.protocol_version != VERSION {
        return refuse(format!(
            "this is {PROGRAM}, which speaks version {VERSION} of the transfer protocol, and the \
             client speaks {}",
            order.protocol_version
        ));
    }
    if settings.key.is_some() && order.key != settings.key {
        return refuse("the order has no valid key of this server".to_owned());
    }
    if order.flows == 0 || flows > settings.flows_max {
        return refuse(format!("{flows} flows were requested; 1 to {} are allowed", settings.flows_max));
    }
    if order.size_bytes > SIZE_BYTES_MAX {
        return refuse(format!(
            "calls of {} bytes were requested; at most {SIZE_BYTES_MAX} are allowed",
            order.size_bytes
        ));
    }
    if order.time_ns > TIME_NS_MAX || order.omit_ns > TIME_NS_MAX {
        return refuse("more than a day was requested".to_owned());
    }
    if order.beat_ns < BEAT_NS_MIN {
        return refuse("intervals shorter than 100 ms were requested".to_owned());
    }
    if order.protocol == Protocol::Udp && order.requests.is_none() && order.size_bytes < 16 {
        return refuse("datagrams of less than 16 bytes cannot be counted".to_owned());
    }
    if order.protocol == Protocol::Quic && (order.flows > quic::FLOWS_MAX || order.requests.is_some()) {
        return refuse(format!("QUIC carries up to {} streams of bytes, and no requests", quic::FLOWS_MAX));
    }
    check_memory(order)
}

/// Bounds threads and memory, whatever the client has checked.
fn check_memory(order: &SessionOrder) -> Result<(), String> {
    if order.threads > THREADS_MAX {
        return Err(format!("{} threads were requested; at most {THREADS_MAX} are allowed", order.threads));
    }
    let bytes = u64::from(order.threads) * u64::from(order.size_bytes);
    if bytes > CALL_BUFFERS_BYTES_MAX {
        return Err(format!(
            "{} threads with calls of {} bytes were requested; at most {CALL_BUFFERS_BYTES_MAX} bytes are \
             allowed together",
            order.threads, order.size_bytes
        ));
    }
    let most = if order.protocol == Protocol::Quic { QUIC_WINDOW_BYTES_MAX } else { BUFFER_BYTES_MAX };
    let buffers = [order.send_buffer_bytes, order.receive_buffer_bytes].into_iter().flatten();
    if let Some(bytes) = buffers.max().filter(|bytes| *bytes > most) {
        return Err(format!("buffers of {bytes} bytes were requested; at most {most} are allowed"));
    }
    let messages = order.requests.iter().flat_map(|of| [Some(of.size), of.answer_size]).flatten();
    if let Some(bytes) = messages.map(|size| size.bytes()).max().filter(|bytes| *bytes > REQUEST_BYTES_MAX) {
        return Err(format!(
            "requests of {bytes} bytes were ordered; at most {REQUEST_BYTES_MAX} are allowed"
        ));
    }
    Ok(())
}
