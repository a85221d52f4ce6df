//! Messages of kagiri's protocol on a control connection.

use base::clock::{Batch, Probe};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::clock::{Deadline, monotonic_ns};

use super::NativeError;
use super::message::{ClientMessage, MESSAGE_BYTES_MAX, ServerMessage};
use crate::control::{Control, Woken};
use crate::report::ClockOffset;

/// Probes of one comparison of the clocks.
const CLOCK_PROBES: u32 = 8;

pub(super) struct ControlLink {
    pub(super) control: Control,
}

impl ControlLink {
    pub(super) fn peer(&self) -> std::net::SocketAddr {
        self.control.peer()
    }

    /// Sends the byte that announces kagiri's protocol.
    pub(super) fn send_greeting(&self) -> Result<(), NativeError> {
        Ok(self.control.send_byte(super::GREETING, "being identified")?)
    }

    pub(super) fn send(&self, message: &impl Serialize, during: &'static str) -> Result<(), NativeError> {
        let failed = |source| NativeError::Unreadable { peer: self.peer(), during, source };
        let text = serde_json::to_vec(message).map_err(failed)?;
        Ok(self.control.send_frame(&text, during)?)
    }

    pub(super) fn read<T: DeserializeOwned>(
        &self,
        bytes_max: usize,
        during: &'static str,
    ) -> Result<T, NativeError> {
        let text = self.control.receive_frame(bytes_max, during)?;
        let failed = |source| NativeError::Unreadable { peer: self.peer(), during, source };
        serde_json::from_slice(&text).map_err(failed)
    }

    /// Waits for the peer or the stop handle, at most until `until`.
    pub(super) fn wait(&self, until: Deadline) -> Result<Woken, NativeError> {
        Ok(self.control.wait(until)?)
    }

    /// Asks the server for its clock several times.
    pub(super) fn compare_clocks(&self) -> Result<ClockOffset, NativeError> {
        let during = "comparing clocks";
        let unexpected = || NativeError::Unexpected { peer: self.peer(), during };
        let mut batch: Option<Batch> = None;
        for _ in 0..CLOCK_PROBES {
            let t1_ns = monotonic_ns();
            self.send(&ClientMessage::Clock, during)?;
            let (there_ns, boot) = loop {
                match self.read(MESSAGE_BYTES_MAX, during)? {
                    ServerMessage::Clock { monotonic_ns, boot } => break (monotonic_ns, boot),
                    // It was sent before the question came.
                    ServerMessage::Beat => {}
                    _ => return Err(unexpected()),
                }
            };
            let probe = Probe { t1_ns, t2_ns: there_ns, t3_ns: there_ns, t4_ns: monotonic_ns() };
            if boot.is_some() && boot == boot_id() {
                return Ok(ClockOffset::default());
            }
            match &mut batch {
                Some(batch) => drop(batch.add(&probe)),
                none => *none = Batch::new(&probe, false),
            }
        }
        batch.as_ref().map(offset).ok_or_else(unexpected)
    }
}

/// The server's clock minus this host's, where the batch has the difference the other way round.
fn offset(batch: &Batch) -> ClockOffset {
    let middle_ns = (i128::from(batch.lower.offset_ns) + i128::from(batch.upper.offset_ns)) / 2;
    let offset_ns = (-middle_ns).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    ClockOffset { offset_ns, bound_ns: batch.bound_ns() }
}

/// Identifies the running kernel: hosts that share it share one clock.
pub(super) fn boot_id() -> Option<String> {
    Some(sys::proc::boot_id()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn clock_offset_is_within_its_bound(
            asked_ns in 0..1_u64 << 60,
            there in 0..1_000_000_u64,
            back in 0..1_000_000_u64,
            apart in -1_000_000_000..1_000_000_000_i64,
        ) {
            let there_ns = (asked_ns + there).saturating_add_signed(apart);
            let true_offset = there_ns as i64 - (asked_ns + there) as i64;
            let probe =
                Probe { t1_ns: asked_ns, t2_ns: there_ns, t3_ns: there_ns, t4_ns: asked_ns + there + back };
            let found = offset(&Batch::new(&probe, false).unwrap());
            prop_assert!((found.offset_ns - true_offset).unsigned_abs() <= found.bound_ns);
        }
    }
}
