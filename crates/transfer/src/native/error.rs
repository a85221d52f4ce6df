//! Why a session of kagiri's own protocol did not come to its end.

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use crate::control::ControlError;
use crate::flow::FlowError;
use crate::quic::QuicError;

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
        super::message::VERSION
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
