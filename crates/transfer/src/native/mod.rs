//! kagiri's own protocol between the two ends of a transfer.
//!
//! It shares the port with iperf3's: every connection begins with a cookie of 37 bytes that names the session
//! ([`session_id`]). On the control connection ([`message`]) the server sends its version, the client its
//! order, the server prepares, the client opens the flows and sends `go` at the common start. Both send
//! heartbeats until the senders have ended, the receivers have everything, and the server has reported.

mod client;
mod control_link;
mod direction_run;
mod error;
pub mod message;
mod server;
mod session;
pub mod session_id;
mod session_state;
mod sessions;
mod socket_setup;
mod transport;

pub use client::{Client, ClientOrder};
pub use error::NativeError;
pub use server::{NativeServer, UnmatchedDatagrams};
pub use sessions::{NativeSettings, SessionEnd};

/// Name and version for the peer.
pub(super) const PROGRAM: &str = concat!("kagiri ", env!("CARGO_PKG_VERSION"));

/// The server's first byte on a control connection; no state of iperf3 has this value.
pub(super) const GREETING: u8 = b'k';
