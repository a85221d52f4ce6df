//! What the ends of a test say on the control connection: single bytes of [`State`], and JSON.

use std::time::Duration;

use serde_json::{Map, Value};

use super::json::parse;
use super::{Failure, Iperf3Error, State};
use crate::transfer::control::{Control, ControlError};

impl Control {
    /// Says a state.
    pub(super) fn say(&self, state: State, during: &'static str) -> Result<(), ControlError> {
        self.say_byte(state.byte(), during)
    }

    /// Says why the server gives up. Whether it arrives does not matter any more.
    pub(super) fn say_failure(&mut self, failure: Failure) {
        self.conclude(Duration::from_millis(200));
        let mut bytes = vec![State::ServerError.byte()];
        bytes.extend_from_slice(&failure.bytes());
        let _ = self.say_bytes(&bytes, "giving up");
    }

    /// Hears a state. What ends a test is an error.
    ///
    /// # Errors
    /// [`Iperf3Error`]: silence, the end of the connection, a refusal, a byte that is no state.
    pub(super) fn hear(&self, during: &'static str) -> Result<State, Iperf3Error> {
        self.state_of(self.receive_byte(during)?, during)
    }

    /// The state that a byte of the peer's stands for. What ends a test is an error.
    ///
    /// # Errors
    /// As [`Control::hear`].
    pub(in crate::transfer) fn state_of(&self, byte: u8, during: &'static str) -> Result<State, Iperf3Error> {
        let peer = self.peer();
        match State::read(byte) {
            Some(State::AccessDenied) => Err(Iperf3Error::Busy(peer)),
            Some(State::ServerTerminate | State::ClientTerminate) => Err(Iperf3Error::Terminated(peer)),
            Some(State::ServerError) => {
                // Old servers say no more than that they give up.
                let told = self.receive_bytes(during);
                let failure = told.map_or(Failure { code: 0, errno: 0 }, Failure::read);
                Err(Iperf3Error::GaveUp { peer, failure })
            }
            Some(state) => Ok(state),
            None => Err(Iperf3Error::Unexpected { peer, byte, during }),
        }
    }

    /// Hears the one state that is due.
    pub(super) fn expect(&self, due: State, during: &'static str) -> Result<(), Iperf3Error> {
        let state = self.hear(during)?;
        if state == due {
            return Ok(());
        }
        Err(Iperf3Error::Unexpected { peer: self.peer(), byte: state.byte(), during })
    }

    /// Sends an object.
    pub(super) fn send(&self, object: &Map<String, Value>, during: &'static str) -> Result<(), ControlError> {
        // An object of strings and values is always written.
        self.send_frame(&serde_json::to_vec(object).unwrap_or_default(), during)
    }

    /// Receives an object of at most `bytes_max`.
    pub(super) fn receive(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<Map<String, Value>, Iperf3Error> {
        let text = self.receive_frame(bytes_max, during)?;
        parse(&text).map_err(|source| Iperf3Error::Json { peer: self.peer(), source })
    }
}
