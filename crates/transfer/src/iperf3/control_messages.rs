//! States and JSON on the control connection.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Iperf3Error, Parameters, Results, ServerError, State};
use crate::control::{Control, ControlError};
use ::iperf3::json::{OUTPUT_BYTES_MAX, results_bytes_max};

impl Control {
    pub(super) fn send_state(&self, state: State, during: &'static str) -> Result<(), ControlError> {
        self.send_byte(state.byte(), during)
    }

    /// Sends the server's reason for giving up; best effort.
    pub(super) fn send_error(&mut self, server_error: ServerError) {
        self.conclude(Duration::from_millis(200));
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend_from_slice(&server_error.bytes());
        let _ = self.send_bytes(&bytes, "giving up");
    }

    /// Receives a state. A state that ends the test is an error.
    pub(super) fn receive_state(&self, during: &'static str) -> Result<State, Iperf3Error> {
        self.state_of(self.receive_byte(during)?, during)
    }

    /// Reads a state. A state that ends the test is an error.
    pub(crate) fn state_of(&self, byte: u8, during: &'static str) -> Result<State, Iperf3Error> {
        let peer = self.peer();
        match State::read(byte) {
            Some(State::AccessDenied) => Err(Iperf3Error::Busy(peer)),
            Some(State::ServerTerminate | State::ClientTerminate) => Err(Iperf3Error::Terminated(peer)),
            Some(State::ServerError) => {
                // Old servers send no reason.
                let received = self.receive_bytes(during);
                let server_error = received.map_or(ServerError { code: 0, errno: 0 }, ServerError::read);
                Err(Iperf3Error::GaveUp { peer, server_error })
            }
            Some(state) => Ok(state),
            None => Err(Iperf3Error::Unexpected { peer, byte, during }),
        }
    }

    /// Receives this state; another one is an error.
    pub(super) fn expect_state(&self, due: State, during: &'static str) -> Result<(), Iperf3Error> {
        let state = self.receive_state(during)?;
        if state == due {
            return Ok(());
        }
        Err(Iperf3Error::Unexpected { peer: self.peer(), byte: state.byte(), during })
    }

    pub(super) fn send_json(
        &self,
        object: &Map<String, Value>,
        during: &'static str,
    ) -> Result<(), ControlError> {
        let bytes = serde_json::to_vec(object).expect("an object of strings and values can be written");
        self.send_frame(&bytes, during)
    }

    /// Receives the other end's results of a test of `parameters`.
    pub(super) fn receive_results(
        &self,
        parameters: &Parameters,
        output: bool,
        during: &'static str,
    ) -> Result<Results, Iperf3Error> {
        let (peer, streams) = (self.peer(), parameters.streams_total());
        let most = if output { OUTPUT_BYTES_MAX } else { 0 }.max(results_bytes_max(streams));
        let text = self.receive_frame(most, during)?;
        Results::read(&text, streams).map_err(|source| Iperf3Error::Json { peer, source })
    }
}
