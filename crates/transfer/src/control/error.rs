//! Errors of a control connection.

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use ::iperf3::WrongLength;

/// Why a control connection ended.
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
    /// The peer sent nothing in time.
    #[error("{peer} did not answer within {} s while {during}", seconds(*.within))]
    Silent {
        /// Who.
        peer: SocketAddr,
        /// When.
        during: &'static str,
        /// For how long it was waited.
        within: Duration,
    },
    /// A message of a length that is not accepted.
    #[error("{peer} speaks another protocol, or is broken: {source}")]
    Length {
        /// Who.
        peer: SocketAddr,
        /// What is wrong.
        source: WrongLength,
    },
    /// This end was stopped.
    #[error("stopped before its end")]
    Stopped,
}

/// Rounded to ms: it is what a deadline had left a moment ago.
fn seconds(within: Duration) -> f64 {
    (within.as_secs_f64() * 1e3).round() / 1e3
}
