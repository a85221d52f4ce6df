//! The control connection of kagiri's and iperf3's protocols: connecting, messages with a deadline each, and
//! a server's sessions.

mod connect;
mod connection;
mod sessions;

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use ::iperf3::WrongLength;
pub use ::iperf3::{COOKIE_BYTES, Cookie};
pub(super) use connect::{ConnectError, connect, connect_all, send_first, wait_until_ready};
pub use connection::Control;
pub(super) use connection::Woken;
pub use reactor::StopHandle;
pub(super) use sessions::Sessions;

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
