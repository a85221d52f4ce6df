//! kagiri's own protocol between the two ends of a transfer.
//!
//! It shares the port with iperf3's: every connection begins with a cookie of 37 bytes that names the session
//! ([`session_id`]). On the control connection ([`message`]) the server sends its version, the client its
//! order, the server prepares, the client opens the flows and sends `go` at the common start. Both send
//! heartbeats until the senders have ended, the receivers have everything, and the server has reported.

mod call_timing;
mod client;
mod control_link;
mod direction_run;
pub mod message;
mod server;
mod session;
pub mod session_id;
mod session_state;
mod sessions;
mod socket_setup;

pub use client::{Client, ClientOrder};
pub use server::{NativeServer, UnmatchedDatagrams};
pub use sessions::{NativeSettings, SessionEnd};

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use super::control::ControlError;
use super::flow::FlowError;
use super::quic::QuicError;

/// Name and version for the peer.
pub(super) const PROGRAM: &str = concat!("kagiri ", env!("CARGO_PKG_VERSION"));

/// The server's first byte on a control connection; no state of iperf3 has this value.
pub(super) const GREETING: u8 = b'k';

/// Why a session of kagiri's own protocol did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error(
        "{peer} sent a message while {during} that kagiri cannot read ({source}); do both ends run the \
         same version?"
    )]
    Unreadable { peer: SocketAddr, during: &'static str, source: serde_json::Error },
    #[error("{peer} sent an unexpected message while {during}; do both ends run the same version?")]
    Unexpected { peer: SocketAddr, during: &'static str },
    #[error(
        "{peer} runs {program}, which speaks version {theirs} of the transfer protocol, not {}; \
         install the same kagiri at both ends",
        message::VERSION
    )]
    Version { peer: SocketAddr, program: String, theirs: u32 },
    #[error("the server {peer} refused the order: {why}")]
    Refused { peer: SocketAddr, why: String },
    #[error("the server {peer} gave up: {why}")]
    GaveUp { peer: SocketAddr, why: String },
    #[error("{0}")]
    Order(String),
    #[error("{there} of {wanted} flows with {peer} were opened within {} s; does a firewall drop \
     them?", .within.as_secs_f64())]
    Flows { peer: SocketAddr, there: usize, wanted: usize, within: Duration },
    #[error("{peer} is silent: nothing was received from it for {} s", .within.as_secs_f64())]
    Silent { peer: SocketAddr, within: Duration },
    #[error("the transfer with {peer} did not end within {} s", .within.as_secs_f64())]
    Endless { peer: SocketAddr, within: Duration },
    #[error("stopped before its end")]
    Stopped,
}
