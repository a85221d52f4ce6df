//! The control connection of kagiri's and iperf3's protocols: connecting, and messages with a deadline each.

mod connect;
mod connection;
mod error;

pub use ::iperf3::{COOKIE_BYTES, Cookie};
pub(super) use connect::{ConnectError, connect, connect_all, send_first, wait_until_ready};
pub use connection::Control;
pub(super) use connection::Woken;
pub use error::ControlError;
pub use reactor::StopHandle;
