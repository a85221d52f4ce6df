//! What a flow is told to do and what it says of itself: plain data, shared by the engines, the wire
//! protocols and the judge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::driver::Mode;

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A TCP connection for each flow.
    #[default]
    Tcp,
    /// Datagrams from a connected UDP socket for each flow.
    Udp,
    /// A stream for each flow of one encrypted QUIC connection (RFC 9000).
    Quic,
}

/// Direction of the bytes, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
    /// Both at once, in separate flows.
    Both,
}

impl Direction {
    /// The name in plans and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Both => "both",
        }
    }

    /// [`Self::Up`], [`Self::Down`] or the two of them, in the order of flow numbers.
    pub fn each(self) -> &'static [Self] {
        match self {
            Self::Up => &[Self::Up],
            Self::Down => &[Self::Down],
            Self::Both => &[Self::Up, Self::Down],
        }
    }
}

/// Which end of a flow this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
}

impl Side {
    /// The other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// When a flow is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// After so many bytes.
    Bytes(u64),
    /// At a moment of this host's monotonic clock.
    AtNs(u64),
    /// When the peer ends it, or this side is told to stop.
    Peer,
}

/// What each datagram begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// Nothing: loss cannot be told (classic `ttcp`).
    None,
    /// Seconds, microseconds and a 32-bit count, big-endian: iperf3.
    Counted32,
    /// The same with a 64-bit count: iperf3 with `--udp-counters-64bit`, and kagiri itself.
    #[default]
    Counted64,
}

/// The spec that one flow is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSpec {
    /// Which end this is.
    pub side: Side,
    /// Where received bytes end; senders ignore it.
    pub mode: Mode,
    /// Bytes given to the kernel (or asked of it) in one call, 0 for as many as is cheapest; of UDP, the
    /// payload of one datagram.
    pub size_bytes: u32,
    /// When it is over.
    pub end: End,
    /// The rate that a sender keeps to, bits of payload per second; flat out unless given, or when 0.
    pub rate_bit_per_s: Option<u64>,
    /// Datagrams' header.
    pub stamp: Stamp,
}
