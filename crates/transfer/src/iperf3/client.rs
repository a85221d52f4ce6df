//! The client of any iperf3 server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::SocketOptions;

use super::data_stream::{open_tcp, open_udp};
use super::flows::{Carrying, Flows};
use super::report::Finished;
use super::session_status::{Progress, Progressed, SessionStatus, compare};
use super::stream_results::patience;
use super::{Deadlines, Iperf3Error, Parameters, Results, State, TestReport};
use crate::control::{Control, ControlError, Cookie, StopHandle, Woken, connect};
use crate::flow::FlowSocket;
use ::iperf3::Protocol;

/// Time limit of each closing step after a stop request.
const STOP_STEP: Duration = Duration::from_secs(2);
/// Further time to open streams, each.
const STREAM: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub struct ClientOrder {
    pub server: SocketAddr,
    pub parameters: Parameters,
    pub carrying: Carrying,
    pub deadlines: Deadlines,
}

/// A client whose server has taken the parameters and waits for the data streams.
pub struct Client {
    control: Control,
    cookie: Cookie,
    order: ClientOrder,
    stop_handle: Arc<StopHandle>,
    pub status: Arc<SessionStatus>,
    finished: Option<Finished>,
    remote: Option<Results>,
}

impl Client {
    /// Connects to the server and agrees on the parameters. Nothing is measured yet.
    pub fn prepare(order: ClientOrder, stop_handle: Arc<StopHandle>) -> Result<Self, Iperf3Error> {
        let until = Deadline::after(order.deadlines.step);
        let socket = connect(order.server, &SocketOptions::default(), &stop_handle, until)?;
        let control = Control::new(socket, order.server, stop_handle.clone(), order.deadlines.step)?;
        let cookie = Cookie::random();
        control.send_cookie(&cookie)?;
        control.expect_state(State::ParamExchange, "being asked for a test")?;
        Self::agree(control, cookie, order, stop_handle)
    }

    /// Continues with a server that has answered `cookie` by [`State::ParamExchange`].
    pub fn agree(
        control: Control,
        cookie: Cookie,
        order: ClientOrder,
        stop_handle: Arc<StopHandle>,
    ) -> Result<Self, Iperf3Error> {
        // While data flows, the control connection is silent, and datagrams do not show whether their
        // receiver still exists.
        control.limit_silence(order.deadlines.stall)?;
        control.send_json(&order.parameters.to_json(), "being told the parameters")?;
        control.expect_state(State::CreateStreams, "looking at the parameters")?;
        let status = Arc::new(SessionStatus::default());
        status.agree(&order.parameters);
        Ok(Self { control, cookie, order, stop_handle, status, finished: None, remote: None })
    }

    /// Opens the streams, runs the test to its end or until stopped, and receives the results of the server.
    pub fn run(mut self) -> TestReport {
        let problem = match self.measure() {
            Ok(()) => self.stop_handle.is_stopped().then_some(ControlError::Stopped.into()),
            Err(error) => {
                self.control.conclude(Duration::from_millis(200));
                let _ = self.control.send_state(State::ClientTerminate, "being told of the end");
                Some(error)
            }
        };
        let finished = self.finished.take().or_else(|| self.status.finish(true));
        let mut report = TestReport::new(self.order.server, self.cookie, finished);
        report.explain(problem.as_ref());
        report.parameters = Some(self.order.parameters);
        report.remote = self.remote;
        report
    }

    fn measure(&mut self) -> Result<(), Iperf3Error> {
        let sockets = self.open_streams()?;
        self.control.expect_state(State::TestStart, "starting the test")?;
        self.control.expect_state(State::TestRunning, "starting the test")?;
        let parameters = &self.order.parameters;
        let silence = patience(parameters, self.order.deadlines.stall);
        let flows = Flows::start(sockets, parameters, &self.order.carrying, silence, true)?;
        let watch = Progress::new(parameters, flows.started_ns, silence);
        self.status.begin(flows);
        self.attend(watch)?;
        if self.stop_handle.is_stopped() {
            self.control.conclude(STOP_STEP.min(self.control.step()));
        }
        self.status.end(false);
        self.exchange()
    }

    fn open_streams(&self) -> Result<Vec<FlowSocket>, Iperf3Error> {
        let (peer, parameters) = (self.order.server, &self.order.parameters);
        let wanted = parameters.streams_total();
        let until = Deadline::after(self.order.deadlines.step + STREAM * wanted);
        let silence = self.order.deadlines.stall;
        let open = |_| match parameters.protocol {
            Protocol::Tcp => open_tcp(peer, &self.cookie, parameters, &self.stop_handle, until, silence),
            Protocol::Udp => open_udp(peer, parameters, &self.stop_handle, until),
        };
        (0..wanted).map(open).collect::<Result<_, _>>().map_err(|error| self.refusal().unwrap_or(error))
    }

    /// The server's reason for ending the test, if it sent one: a better error than that of a stream.
    fn refusal(&self) -> Option<Iperf3Error> {
        let during = "the data streams are opened";
        let woken = self.control.wait(Deadline::after(Duration::ZERO)).ok()?;
        woken.readable.then(|| match self.control.receive_state(during) {
            Ok(state) => Iperf3Error::Unexpected { peer: self.order.server, byte: state.byte(), during },
            Err(error) => error,
        })
    }

    /// Watches until the test is over.
    fn attend(&self, mut watch: Progress) -> Result<(), Iperf3Error> {
        let peer = self.order.server;
        while !self.stop_handle.is_stopped() && watch.look(&self.status, peer)? == Progressed::Going {
            let mut pause = watch.pause();
            if let Some(end_ns) = watch.end_ns() {
                let left = Duration::from_nanos(end_ns.saturating_sub(monotonic_ns()));
                if left.is_zero() {
                    break;
                }
                pause = pause.min(left);
            }
            if self.control.wait(Deadline::after(pause))?.readable {
                let during = "the test runs";
                let state = self.control.receive_state(during)?;
                return Err(Iperf3Error::Unexpected { peer, byte: state.byte(), during });
            }
        }
        Ok(())
    }

    /// Announces the end and exchanges the results.
    fn exchange(&mut self) -> Result<(), Iperf3Error> {
        let during = "the results are exchanged";
        if !self.stop_handle.is_stopped() {
            // The test has ended: a stop changes nothing any more.
            self.control.conclude(self.order.deadlines.step);
        }
        if self.order.parameters.bytes_asked().is_some() {
            let goes_on = |woken: Woken| !woken.readable && !self.stop_handle.is_stopped();
            let pause = |span| self.control.wait(Deadline::after(span)).is_ok_and(goes_on);
            self.status.ask(|flows| flows.settle(self.order.deadlines.stall, pause));
        }
        if self.order.parameters.protocol == Protocol::Udp {
            self.status.change_flows(Flows::read_drops);
        }
        self.control.send_state(State::TestEnd, during)?;
        self.control.expect_state(State::ExchangeResults, during)?;
        self.status.ask(|flows| flows.drain(None, self.order.deadlines.drain));
        let finished = self.finished.insert(self.status.finish(false).ok_or(ControlError::Stopped)?);
        self.control.send_json(&finished.results.to_json(), during)?;
        let parameters = &self.order.parameters;
        let remote = self.control.receive_results(parameters, parameters.wants_output, during)?;
        compare(finished, &remote);
        self.remote = Some(remote);
        // All is known: errors from here on do not matter.
        if self.control.expect_state(State::DisplayResults, during).is_ok() {
            let _ = self.control.send_state(State::IperfDone, during);
        }
        Ok(())
    }
}
