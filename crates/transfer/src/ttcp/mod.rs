//! Classic `ttcp` (Mike Muuss and Terry Slattery, 1984) at the other end: bytes over TCP until the connection
//! ends, or datagrams between marks of four bytes at their beginning and end.
//!
//! The ends agree on nothing: `ttcp -r` listens for one sender and ends with it, `ttcp -t` connects and
//! sends. nuttcp speaks the same in its classic mode over TCP. Its datagrams have no
//! numbers, so losses are unknown: over UDP only received bytes are counted.

mod receive;
mod send;

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use super::control::StopHandle;
use super::flow::{FlowError, FlowReport, Mode, Protocol, ThreadReport};

pub use receive::Receiver;
pub use send::{SendOrder, send};

/// Default size of `ttcp`'s reads and writes, bytes.
pub const BLOCK_BYTES: u32 = 8192;
/// Datagrams of at most this size begin or end a stream, bytes.
pub const MARK_BYTES: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Time for a receiver to answer, or a sender to connect.
    pub first: Duration,
    /// Time without a byte after which a stream has failed.
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
    pub peer: SocketAddr,
    pub flow: FlowReport,
    pub threads: Vec<ThreadReport>,
    pub engine: String,
}

impl TtcpReport {
    /// Seconds from the first byte to the last; absent if fewer than two calls moved any.
    pub fn seconds(&self) -> Option<f64> {
        let (first_ns, last_ns) = self.flow.moved_ns?;
        Some((last_ns - first_ns) as f64 / 1e9).filter(|seconds| *seconds > 0.0)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TtcpError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Flow(#[from] FlowError),
    #[error("{peer} did not answer within {} s; does `ttcp -r` run there?", .within.as_secs_f64())]
    NoAnswer { peer: SocketAddr, within: Duration },
    #[error("no sender came to {local} within {} s; start `ttcp -t` there", .within.as_secs_f64())]
    NoSender { local: SocketAddr, within: Duration },
    #[error("a stream came from {peer}, not from {expected}; who else sends there?")]
    Stranger { peer: SocketAddr, expected: std::net::IpAddr },
    #[error("ttcp speaks TCP and UDP, not QUIC")]
    Quic,
    #[error("stopped before its end")]
    Stopped,
}

/// How this end carries a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    pub protocol: Protocol,
    /// Where received bytes end.
    pub mode: Mode,
    /// Bytes a call, or a datagram.
    pub block_bytes: u32,
    pub patience: Patience,
}

impl Manner {
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, mode: Mode::Copy, block_bytes: BLOCK_BYTES, patience: Patience::default() }
    }
}
