//! The control connection, in kagiri's own words.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::clock::Deadline;

use super::error::NativeError;
use crate::transfer::control::{Control, Woken};

/// The control connection, in kagiri's own words.
pub(super) struct Link {
    control: Control,
}

impl Link {
    pub(super) fn new(control: Control) -> Self {
        Self { control }
    }

    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    pub(super) fn peer(&self) -> std::net::SocketAddr {
        self.control.peer()
    }

    /// Tells that what follows is kagiri's.
    pub(super) fn greet(&self) -> Result<(), NativeError> {
        Ok(self.control.say_byte(super::GREETING, "being greeted")?)
    }

    /// Says `message`, within a step.
    pub(super) fn say(&self, message: &impl Serialize, during: &'static str) -> Result<(), NativeError> {
        let text = serde_json::to_vec(message).map_err(|source| NativeError::Unreadable {
            peer: self.peer(),
            during,
            source,
        })?;
        Ok(self.control.send_frame(&text, during)?)
    }

    /// Hears a message of at most `bytes_max`, within a step.
    pub(super) fn hear<T: DeserializeOwned>(
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

    /// Waits for the peer or the bell, at most until `until`.
    pub(super) fn wait(&self, until: Deadline) -> Result<Woken, NativeError> {
        Ok(self.control.wait(until)?)
    }
}
