//! Classic `ttcp` (Mike Muuss and Terry Slattery, 1984) at the other end: bytes over TCP until the connection
//! ends, or datagrams between others of four bytes that say where they begin and end.
//!
//! There is no word of agreement: `ttcp -r` listens for one sender and ends with it, `ttcp -t` connects and
//! sends. nuttcp speaks the same in its classic mode over TCP. A datagram carries nothing that would tell
//! whether one is missing, so of UDP only the bytes that came are known.

mod receive;
mod send;

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use super::control::StopHandle;
use super::flow::{FlowError, FlowReport, Mode, Protocol, ThreadReport};

pub use receive::Receiver;
pub use send::{SendOrder, send};

/// Where `ttcp` listens unless told otherwise.
pub const PORT: u16 = 5001;
/// Bytes that `ttcp` gives to or takes from the kernel at once unless told otherwise.
pub const BLOCK_BYTES: u32 = 8192;
/// Datagrams of at most so many bytes begin or end a stream.
pub const MARK_BYTES: usize = 4;

/// How long anything may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until a receiver answers, or a sender comes.
    pub first: Duration,
    /// Nothing moves any more.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { first: Duration::from_secs(10), silence: Duration::from_secs(10) }
    }
}

/// What a stream came to, as this end saw it.
#[derive(Debug)]
pub struct TtcpReport {
    /// The other end.
    pub peer: SocketAddr,
    /// The stream.
    pub flow: FlowReport,
    /// The thread that carried it.
    pub threads: Vec<ThreadReport>,
    /// How it moved the bytes.
    pub engine: String,
}

impl TtcpReport {
    /// Seconds from the first byte to the last; absent if fewer than two calls moved any.
    pub fn seconds(&self) -> Option<f64> {
        let (first_ns, last_ns) = self.flow.moved_ns?;
        Some((last_ns - first_ns) as f64 / 1e9).filter(|seconds| *seconds > 0.0)
    }
}

/// Why there was no stream.
#[derive(Debug, thiserror::Error)]
pub enum TtcpError {
    /// The kernel.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The flow could not be started.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// Nobody answered.
    #[error("{peer} did not answer within {} s; does `ttcp -r` run there?", .within.as_secs_f64())]
    NoAnswer {
        /// Who.
        peer: SocketAddr,
        /// For how long it was waited.
        within: Duration,
    },
    /// Nobody came.
    #[error("no sender came to {local} within {} s; start `ttcp -t` there", .within.as_secs_f64())]
    Nobody {
        /// Where it was waited.
        local: SocketAddr,
        /// For how long.
        within: Duration,
    },
    /// Somebody else's stream came.
    #[error("a stream came from {peer}, not from {expected}; who else sends there?")]
    Stranger {
        /// Who.
        peer: SocketAddr,
        /// From where it was expected.
        expected: std::net::IpAddr,
    },
    /// Another protocol than it speaks.
    #[error("ttcp speaks TCP and UDP, not QUIC")]
    Quic,
    /// This end was told to stop before there was a stream.
    #[error("stopped before its end")]
    Stopped,
}

/// How this end carries a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Where received bytes end.
    pub mode: Mode,
    /// Bytes a call, or a datagram.
    pub block_bytes: u32,
    /// How long anything may take.
    pub patience: Patience,
}

impl Manner {
    /// As `ttcp` does it.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, mode: Mode::Copy, block_bytes: BLOCK_BYTES, patience: Patience::default() }
    }
}
