//! Errors of a control connection.

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use ::iperf3::WrongLength;

/// Why a control connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("{peer} closed the control connection while {during}")]
    Closed { peer: SocketAddr, during: &'static str },
    #[error("{peer} did not answer within {} s while {during}", seconds(*.within))]
    Silent { peer: SocketAddr, during: &'static str, within: Duration },
    #[error("{peer} speaks another protocol, or is broken: {source}")]
    Length { peer: SocketAddr, source: WrongLength },
    #[error("stopped before its end")]
    Stopped,
}

/// Rounded to ms: it is what a deadline had left a moment ago.
fn seconds(within: Duration) -> f64 {
    (within.as_secs_f64() * 1e3).round() / 1e3
}
