//! How far apart the two ends' clocks are, from questions over the control connection.

use sys::clock::monotonic_ns;

use super::control_link::ControlLink;
use super::error::NativeError;
use super::message::{ClientMessage, MESSAGE_BYTES_MAX, ServerMessage};
use crate::report::ClockOffset;

/// Questions; the quickest answer bounds the offset best.
const QUESTIONS: u32 = 8;

/// Asks the server for its clock, several times.
///
/// # Errors
/// [`NativeError`]: it does not answer so.
pub(super) fn measure(link: &ControlLink) -> Result<ClockOffset, NativeError> {
    let during = "comparing clocks";
    let mut best: Option<ClockOffset> = None;
    for _ in 0..QUESTIONS {
        let asked_ns = monotonic_ns();
        link.send(&ClientMessage::Clock, during)?;
        let answer = link.read(MESSAGE_BYTES_MAX, during)?;
        let answered_ns = monotonic_ns();
        match answer {
            ServerMessage::Clock { monotonic_ns, boot } => {
                let is_same = boot.is_some() && boot == boot_id();
                let found = if is_same {
                    ClockOffset::default()
                } else {
                    offset(asked_ns, monotonic_ns, answered_ns)
                };
                best = best.filter(|best| best.bound_ns <= found.bound_ns).or(Some(found));
            }
            // It was sent before the question came.
            ServerMessage::Beat => {}
            _ => return Err(NativeError::Unexpected { peer: link.peer(), during }),
        }
    }
    best.ok_or(NativeError::Unexpected { peer: link.peer(), during })
}

/// The server's clock was read between the question and its answer: half of that time is the bound.
fn offset(asked_ns: u64, there_ns: u64, answered_ns: u64) -> ClockOffset {
    let bound_ns = answered_ns.saturating_sub(asked_ns).div_ceil(2);
    let middle_ns = i128::from(asked_ns) + i128::from(bound_ns);
    let offset_ns = i128::from(there_ns) - middle_ns;
    ClockOffset { offset_ns: offset_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64, bound_ns }
}

/// What tells hosts that share one kernel, and so one clock, from others.
pub(super) fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_true_offset_is_within_the_bound(
            asked_ns in 0..1_u64 << 60, there in 0..1_000_000_u64, back in 0..1_000_000_u64, apart in -1_000_000_000..1_000_000_000_i64,
        ) {
            let there_ns = (asked_ns + there).saturating_add_signed(apart);
            let true_offset = there_ns as i64 - (asked_ns + there) as i64;
            let found = offset(asked_ns, there_ns, asked_ns + there + back);
            prop_assert!((found.offset_ns - true_offset).unsigned_abs() <= found.bound_ns);
        }
    }
}
