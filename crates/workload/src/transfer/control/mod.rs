//! The control connection, which kagiri's own protocol and iperf3's have alike: how it is opened, by which words it says
//! whose it is, and bytes and texts on it, each within its deadline.

mod bell;
mod connect;
mod connection;
mod cookie;
mod error;
mod frame;

pub use bell::Bell;
pub(super) use connect::{await_socket, connect};
pub use connection::Control;
pub(super) use connection::Woken;
pub use cookie::{COOKIE_BYTES, Cookie};
pub use error::ControlError;
pub use frame::{WrongLength, frame, length};
