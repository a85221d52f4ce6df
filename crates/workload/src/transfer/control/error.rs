//! Why a control connection came to its end.

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use super::WrongLength;

/// Why a control connection came to its end.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The kernel.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The peer closed it.
    #[error("{peer} closed the control connection while {during}")]
    Closed {
        /// Who.
        peer: SocketAddr,
        /// When.
        during: &'static str,
    },
    /// The peer said nothing in time.
    #[error("{peer} did not answer within {} s while {during}", seconds(*.within))]
    Silent {
        /// Who.
        peer: SocketAddr,
        /// When.
        during: &'static str,
        /// For how long it was waited.
        within: Duration,
    },
    /// A text of a length that is not taken.
    #[error("{peer} speaks another protocol, or is broken: {source}")]
    Length {
        /// Who.
        peer: SocketAddr,
        /// What is wrong.
        source: WrongLength,
    },
    /// This end was told to stop.
    #[error("stopped before its end")]
    Stopped,
}

/// Of what was left of a deadline a moment ago: to the millisecond.
fn seconds(within: Duration) -> f64 {
    (within.as_secs_f64() * 1e3).round() / 1e3
}
