//! Messages of kagiri's protocol on a control connection.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::clock::Deadline;

use super::error::NativeError;
use crate::control::{Control, Woken};

pub(super) struct ControlLink {
    control: Control,
}

impl ControlLink {
    pub(super) fn new(control: Control) -> Self {
        Self { control }
    }

    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    pub(super) fn peer(&self) -> std::net::SocketAddr {
        self.control.peer()
    }

    /// Sends the byte that announces kagiri's protocol.
    pub(super) fn send_greeting(&self) -> Result<(), NativeError> {
        Ok(self.control.send_byte(super::GREETING, "being identified")?)
    }

    pub(super) fn send(&self, message: &impl Serialize, during: &'static str) -> Result<(), NativeError> {
        let text = serde_json::to_vec(message).map_err(|source| NativeError::Unreadable {
            peer: self.peer(),
            during,
            source,
        })?;
        Ok(self.control.send_frame(&text, during)?)
    }

    pub(super) fn read<T: DeserializeOwned>(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<T, NativeError> {
        let text = self.control.receive_frame(bytes_max, during)?;
        serde_json::from_slice(&text).map_err(|source| NativeError::Unreadable {
            peer: self.peer(),
            during,
            source,
        })
    }

    /// Waits for the peer or the stop handle, at most until `until`.
    pub(super) fn wait(&self, until: Deadline) -> Result<Woken, NativeError> {
        Ok(self.control.wait(until)?)
    }
}
