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
    /// The control connection.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The kernel.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The flows could not be started.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The connection of QUIC.
    #[error(transparent)]
    Quic(#[from] QuicError),
    /// A message that cannot be read.
    #[error(
        "{peer} sent a message while {during} that is none of kagiri's ({source}); do both ends run the same version?"
    )]
    Unreadable {
        /// Who.
        peer: SocketAddr,
        /// When.
        during: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A message that does not belong here.
    #[error(
        "{peer} sent something else than what was due while {during}; do both ends run the same version?"
    )]
    Unexpected {
        /// Who.
        peer: SocketAddr,
        /// When.
        during: &'static str,
    },
    /// Another version of the protocol.
    #[error(
        "{peer} runs {program}, which speaks version {theirs} of the transfer protocol, not {}; install the same kagiri at both ends",
        super::message::VERSION
    )]
    Version {
        /// Who.
        peer: SocketAddr,
        /// Its program.
        program: String,
        /// Its version.
        theirs: u32,
    },
    /// The server will not, or cannot.
    #[error("the server {peer} cannot take this: {why}")]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// The server ends what it had begun.
    #[error("the server {peer} gave up: {why}")]
    GaveUp {
        /// Who.
        peer: SocketAddr,
        /// Its reason.
        why: String,
    },
    /// The order cannot be met here.
    #[error("{0}")]
    Order(String),
    /// The flows did not come together.
    #[error("{there} of {wanted} flows with {peer} were opened within {} s; does a firewall drop them?", .within.as_secs_f64())]
    Flows {
        /// With whom.
        peer: SocketAddr,
        /// How many there are.
        there: usize,
        /// How many there should be.
        wanted: usize,
        /// For how long it was waited.
        within: Duration,
    },
    /// The other end said nothing for too long while data flowed.
    #[error("{peer} fell silent: nothing came from it for {} s", .within.as_secs_f64())]
    Silent {
        /// Who.
        peer: SocketAddr,
        /// For how long it was waited.
        within: Duration,
    },
    /// It went on beyond all bounds.
    #[error("the transfer with {peer} had not ended within {} s", .within.as_secs_f64())]
    Endless {
        /// With whom.
        peer: SocketAddr,
        /// What it may take.
        within: Duration,
    },
    /// This end was told to stop.
    #[error("stopped before its end")]
    Stopped,
}
