//! The server's side of one test.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{TcpSocket, UdpFlow};

use super::data_stream::{set_up_tcp, set_up_udp};
use super::flows::Flows;
use super::report::Finished;
use super::session_status::{Progress, Progressed, SessionStatus, compare};
use super::stream_results::patience;
use super::udp_accept::{AcceptSlot, UdpAcceptQueue};
use super::{
    Carrying, Deadlines, Iperf3Error, Parameters, Refusal, Results, ServerError, ServerOutput, State,
    TestReport,
};
use crate::control::{Control, ControlError, Cookie, StopHandle};
use crate::flow::{FlowSocket, Side};
use ::iperf3::json::{PARAMETERS_BYTES_MAX, parse};
use ::iperf3::udp_connect::WELCOME;
use ::iperf3::{Direction, Protocol};

/// Further time for each stream to connect.
const STREAM: Duration = Duration::from_millis(100);

/// A client that requests bytes ends its test when it has them. Datagrams may be lost, so it gets the time to
/// send all bytes this many times: enough if one in this many arrives. A frozen client receives none.
const AGAIN: u32 = 100;

const OPENING: &str = "the data streams are opened";

/// A data connection of a session.
#[derive(Debug)]
pub enum Arrival {
    /// Over TCP, its cookie read. Streams are numbered in the order in which they were accepted.
    Tcp {
        socket: TcpSocket,
        /// Its number among the server's accepted connections.
        sequence: u64,
    },
    /// A socket for the client that said hello.
    Udp(UdpFlow),
}

#[derive(Debug, Clone)]
pub struct SessionSettings {
    pub carrying: Carrying,
    pub deadlines: Deadlines,
    /// The most streams that a client may ask for, both directions together.
    pub streams_max: u32,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { carrying: Carrying::default(), deadlines: Deadlines::default(), streams_max: 4096 }
    }
}

pub struct Session {
    /// The control connection, its cookie read.
    pub control: Control,
    pub cookie: Cookie,
    pub stop_handle: Arc<StopHandle>,
    /// Its data connections, as they arrive.
    pub arrivals: Receiver<Arrival>,
    /// The state of the test for other threads.
    pub status: Arc<SessionStatus>,
    /// The queue of sessions that open UDP streams.
    pub udp_queue: Arc<UdpAcceptQueue>,
    pub settings: SessionSettings,
}

#[derive(Default)]
struct Record {
    parameters: Option<Parameters>,
    finished: Option<Finished>,
    remote: Option<Results>,
}

/// The deadline of a session whose client does not end its test.
struct Expiry {
    at: Deadline,
    within: Duration,
    after: &'static str,
    /// Whether the deadline is final.
    is_final: bool,
}

impl Expiry {
    fn new(limit: Duration, within: Duration, after: &'static str) -> Self {
        Self { at: Deadline::after(limit), within, after, is_final: false }
    }

    /// All requested data has passed.
    fn hasten(&mut self, within: Duration) {
        self.is_final = true;
        if within < self.at.left() {
            let after = "of when all that it asked for had passed";
            *self = Self { at: Deadline::after(within), within, after, is_final: true };
        }
    }
}

impl Session {
    /// Runs the test to its end. Every wait has a deadline.
    pub fn run(mut self) -> TestReport {
        let mut record = Record::default();
        let outcome = self.conduct(&mut record);
        if let Err(error) = &outcome {
            if let Some(server_error) = error.server_error() {
                self.control.send_error(server_error);
            } else if matches!(error, Iperf3Error::Control(ControlError::Stopped)) {
                self.control.conclude(Duration::from_millis(200));
                let _ = self.control.send_state(State::ServerTerminate, "being told of the end");
            }
        }
        let finished = record.finished.or_else(|| self.status.finish(true));
        let mut report = TestReport::new(self.control.peer(), self.cookie, finished);
        report.explain(outcome.as_ref().err());
        report.parameters = record.parameters;
        report.remote = record.remote;
        report
    }

    fn conduct(&mut self, record: &mut Record) -> Result<(), Iperf3Error> {
        let parameters = record.parameters.insert(self.negotiate()?).clone();
        self.status.agree(&parameters);
        let sockets = self.gather(&parameters)?;
        self.control.send_state(State::TestStart, "starting the test")?;
        let silence = patience(&parameters, self.settings.deadlines.stall);
        let flows = Flows::start(sockets, &parameters, &self.settings.carrying, silence, false)?;
        let watch = Progress::new(&parameters, flows.started_ns, silence);
        self.status.begin(flows);
        self.control.send_state(State::TestRunning, "starting the test")?;
        self.attend(&parameters, watch)?;
        self.status.end(true);
        self.exchange(&parameters, record)
    }

    fn negotiate(&self) -> Result<Parameters, Iperf3Error> {
        let during = "being asked for parameters";
        let peer = self.control.peer();
        self.control.send_state(State::ParamExchange, during)?;
        let text = self.control.receive_frame(PARAMETERS_BYTES_MAX, during)?;
        let object = parse(&text).map_err(|source| Iperf3Error::Json { peer, source })?;
        let refused = |source| Iperf3Error::Refused { peer, source };
        let parameters = Parameters::read(&object).map_err(refused)?;
        let (asked, most) = (parameters.streams_total(), self.settings.streams_max);
        if asked > most {
            let message = format!("the client asks for {asked} streams; {most} are taken");
            return Err(refused(Refusal { code: ServerError::STREAMS, message }));
        }
        Ok(parameters)
    }

    /// Asks for the data streams and waits for them.
    fn gather(&self, parameters: &Parameters) -> Result<Vec<FlowSocket>, Iperf3Error> {
        let total = parameters.streams_total();
        let within = self.settings.deadlines.step + STREAM * total;
        // UDP streams carry no cookie, so that the sessions of one host open them one after the other.
        let _turn = match parameters.protocol {
            Protocol::Tcp => None,
            Protocol::Udp => Some(self.await_turn(Deadline::after(within), within)?),
        };
        self.status.open_places(total);
        self.control.send_state(State::CreateStreams, OPENING)?;
        let (wanted, until) = (total as usize, Deadline::after(within));
        let mut arrived: Vec<(u64, FlowSocket)> = Vec::new();
        loop {
            while let Ok(arrival) = self.arrivals.try_recv() {
                let order = arrived.len() as u64;
                arrived.push(self.dress(arrival, order, parameters)?);
            }
            if arrived.len() >= wanted {
                break;
            }
            if !self.is_rung(until)? {
                let (peer, there) = (self.control.peer(), arrived.len());
                return Err(Iperf3Error::Streams { peer, there, wanted, within });
            }
        }
        arrived.sort_by_key(|(sequence, _)| *sequence);
        Ok(arrived.into_iter().map(|(_, socket)| socket).collect())
    }

    fn await_turn(&self, until: Deadline, within: Duration) -> Result<AcceptSlot, Iperf3Error> {
        let peer = self.control.peer();
        let turn = self.udp_queue.line_up(peer.ip(), self.cookie, self.stop_handle.clone());
        while !turn.has_come() {
            if !self.is_rung(until)? {
                return Err(ControlError::Silent { peer, during: OPENING, within }.into());
            }
        }
        Ok(turn)
    }

    /// Waits for the stop handle while the client is silent; `false` if the time is over.
    fn is_rung(&self, until: Deadline) -> Result<bool, Iperf3Error> {
        loop {
            let woken = self.control.wait(until)?;
            if self.stop_handle.is_stopped() {
                return Err(ControlError::Stopped.into());
            }
            if woken.readable {
                let state = self.control.receive_state(OPENING)?;
                return Err(Iperf3Error::Unexpected {
                    peer: self.control.peer(),
                    byte: state.byte(),
                    during: OPENING,
                });
            }
            if woken.rung || until.passed() {
                return Ok(woken.rung);
            }
        }
    }

    fn dress(
        &self,
        arrival: Arrival,
        order: u64,
        parameters: &Parameters,
    ) -> Result<(u64, FlowSocket), Iperf3Error> {
        match arrival {
            Arrival::Tcp { socket, sequence } => {
                set_up_tcp(&socket, self.control.peer(), parameters, self.settings.deadlines.stall)?;
                Ok((sequence, FlowSocket::Tcp(socket)))
            }
            Arrival::Udp(mut flow) => {
                set_up_udp(&mut flow, parameters)?;
                flow.send(&WELCOME)?;
                Ok((order, FlowSocket::Udp(flow)))
            }
        }
    }

    /// Watches until the client announces the end.
    fn attend(&self, parameters: &Parameters, mut watch: Progress) -> Result<(), Iperf3Error> {
        let during = "the test runs";
        let peer = self.control.peer();
        let deadlines = &self.settings.deadlines;
        let from_ns = monotonic_ns();
        let mut expiry = match watch.end_ns() {
            Some(end_ns) => {
                let own = Duration::from_nanos(end_ns.saturating_sub(from_ns));
                Expiry::new(own + deadlines.grace, deadlines.grace, "of its time")
            }
            None => {
                let is_unheard =
                    parameters.protocol == Protocol::Udp && parameters.direction == Direction::Reverse;
                let longest = if is_unheard { deadlines.unheard } else { deadlines.longest };
                Expiry::new(longest, longest, "of its beginning")
            }
        };
        loop {
            let seen = watch.look(&self.status, peer)?;
            if seen == Progressed::Done && parameters.bytes_asked().is_some() && !expiry.is_final {
                let took = Duration::from_nanos(monotonic_ns().saturating_sub(from_ns));
                expiry.hasten(took.saturating_mul(AGAIN).saturating_add(deadlines.grace));
            }
            if self.stop_handle.is_stopped() {
                return Err(ControlError::Stopped.into());
            }
            if expiry.at.passed() {
                return Err(Iperf3Error::Expired { peer, within: expiry.within, after: expiry.after });
            }
            if !self.control.wait(Deadline::after(watch.pause().min(expiry.at.left())))?.readable {
                continue;
            }
            match self.control.receive_state(during)? {
                State::TestEnd => return Ok(()),
                // Old clients repeat it.
                State::TestStart => {}
                state => return Err(Iperf3Error::Unexpected { peer, byte: state.byte(), during }),
            }
        }
    }

    /// Receives the client's results, drains the streams, and sends the results of this end.
    fn exchange(&self, parameters: &Parameters, record: &mut Record) -> Result<(), Iperf3Error> {
        let during = "the results are exchanged";
        self.control.send_state(State::ExchangeResults, during)?;
        let remote = self.control.receive_results(parameters, false, during)?;
        self.status.ask(|flows| flows.drain(Some(&remote), self.settings.deadlines.drain));
        let finished = record.finished.insert(self.status.finish(false).ok_or(ControlError::Stopped)?);
        compare(finished, &remote);
        record.remote = Some(remote);
        if parameters.wants_output {
            finished.results.output = Some(ServerOutput::Text(self.output(finished)));
        }
        self.control.send_json(&finished.results.to_json(), during)?;
        self.control.send_state(State::DisplayResults, during)?;
        // All is known: a client may close without a message.
        let _ = self.control.receive_state(during);
        Ok(())
    }

    /// What `--get-server-output` shows.
    fn output(&self, finished: &Finished) -> String {
        let mut text = format!(
            "kagiri {}: test {} with {}\n",
            env!("CARGO_PKG_VERSION"),
            self.cookie,
            self.control.peer()
        );
        for stream in &finished.streams {
            let verb = if stream.side == Side::Sender { "sent" } else { "received" };
            let (bytes, seconds) = (stream.own.bytes.unwrap_or(0), stream.own.seconds.unwrap_or(0.0));
            let rate = if seconds > 0.0 { bytes as f64 * 8e-6 / seconds } else { 0.0 };
            // Writing to a string cannot fail.
            let _ =
                write!(text, "[{:3}] {verb} {bytes} bytes in {seconds:.3} s, {rate:.3} Mbit/s", stream.id);
            if let (Some(lost), Some(packets), Side::Receiver) =
                (stream.own.errors, stream.own.packets, stream.side)
                && packets > 0
            {
                let _ = write!(text, ", {lost} of {packets} datagrams lost");
            }
            text.push('\n');
        }
        text
    }
}
