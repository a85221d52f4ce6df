//! What a flow is told to do and what it says of itself: plain data, shared by the engines, the wire protocols and the
//! judge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sys::net::TcpInfo;

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A connection of TCP each flow.
    #[default]
    Tcp,
    /// Datagrams from a connected UDP socket each flow.
    Udp,
    /// A stream each flow of one connection of QUIC (RFC 9000), encrypted as it always is.
    Quic,
}

/// Which way the bytes go, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
    /// Both at once, in flows of their own.
    Both,
}

/// Where received bytes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In memory of the receiving program, as in any program that uses them.
    #[default]
    Copy,
    /// In the kernel, which frees them unread (`MSG_TRUNC`, tcp(7)): what the path carries without the copy.
    Discard,
}

/// How a TCP sender gives its bytes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Large `send` calls, which copy.
    Write,
    /// References to the same pages of a pipe, filled once (tee(2), splice(2)).
    Splice,
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

/// The order that one flow is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowOrder {
    /// Which end this is.
    pub side: Side,
    /// Where received bytes end; senders ignore it.
    pub mode: Mode,
    /// Bytes given to the kernel (or asked of it) in one call, 0 for as many as is cheapest; of UDP, the payload of one
    /// datagram.
    pub size_bytes: u32,
    /// When it is over.
    pub end: End,
    /// The rate that a sender keeps to, bits of payload per second; flat out unless given, or when 0.
    pub rate_bit_per_s: Option<u64>,
    /// Datagrams' header.
    pub stamp: Stamp,
}

/// How far a flow is. Counts only grow; they are read while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowCount {
    /// Payload bytes that the kernel took or gave.
    pub bytes: u64,
    /// Datagrams sent or received.
    pub datagrams: u64,
    /// Datagrams that were sent before the last that came, and never came; receivers only.
    pub lost: u64,
    /// Of these, dropped at the receiver's full socket (`SO_RXQ_OVFL`, socket(7)); absent where it cannot be told.
    pub overflowed: Option<u64>,
    /// Datagrams that came after a later one.
    pub reordered: u64,
    /// Datagrams that came twice.
    pub duplicated: u64,
    /// Times that the kernel had no room for what a sender gave it (`EAGAIN`, `ENOBUFS`).
    pub refused: u64,
    /// By how much a sender at a rate put off its schedule because it was woken too late, ns.
    #[serde(default)]
    pub overslept_ns: u64,
    /// Smoothed jitter of the datagrams' transit time, ns (RFC 1889, A.8).
    pub jitter_ns: u64,
}

impl FlowCount {
    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    /// What came after it was `before`.
    #[must_use]
    pub fn without(&self, before: &Self) -> Self {
        Self { jitter_ns: self.jitter_ns, ..self.each(before, u64::saturating_sub) }
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: of(self.bytes, other.bytes),
            datagrams: of(self.datagrams, other.datagrams),
            lost: of(self.lost, other.lost),
            overflowed: match (self.overflowed, other.overflowed) {
                (None, None) => None,
                (own, other) => Some(of(own.unwrap_or(0), other.unwrap_or(0))),
            },
            reordered: of(self.reordered, other.reordered),
            duplicated: of(self.duplicated, other.duplicated),
            refused: of(self.refused, other.refused),
            overslept_ns: of(self.overslept_ns, other.overslept_ns),
            jitter_ns: self.jitter_ns.max(other.jitter_ns),
        }
    }
}

/// How long datagrams were on their way, ns: the receiver's monotonic clock at the arrival less the sender's at the
/// departure. Between hosts the offset of the clocks is in it, so that it may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    /// The least.
    pub min_ns: i64,
    /// The mean.
    pub mean_ns: i64,
    /// The most.
    pub max_ns: i64,
}

/// Why a flow ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It did what it was told.
    Done,
    /// The peer ended it in order.
    ByPeer,
    /// It was told to stop.
    Stopped,
    /// It could not go on: what happened.
    Failed(String),
}

/// What a flow came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// Its final counts.
    pub count: FlowCount,
    /// The moments of this host's monotonic clock at which its first and last byte moved; absent when none did.
    pub moved_ns: Option<(u64, u64)>,
    /// What moved at the first of these moments: of a receiver, it had come before.
    #[serde(default)]
    pub first_bytes: u64,
    /// Why it ended.
    pub ended: Ended,
    /// What the kernel says of the connection at its end; TCP only.
    #[serde(skip)]
    pub tcp: Option<TcpInfo>,
    /// The congestion control of the connection; TCP only.
    pub congestion: Option<String>,
    /// The path's MTU that the kernel believes in, bytes.
    pub path_mtu_bytes: Option<u32>,
    /// How long datagrams were on their way; receivers of stamped ones only.
    pub transit: Option<Transit>,
    /// The most datagrams that can have been dropped at the receiver's full socket after the last that came: they are
    /// in no count. Absent where it cannot be told.
    pub overflowed_after: Option<u64>,
}

impl FlowReport {
    /// One that moved nothing.
    pub fn new(ended: Ended) -> Self {
        Self {
            count: FlowCount::default(),
            moved_ns: None,
            first_bytes: 0,
            ended,
            tcp: None,
            congestion: None,
            path_mtu_bytes: None,
            transit: None,
            overflowed_after: None,
        }
    }
}

/// What a thread of a group used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Time that it was ready to run and had no CPU, ns; absent where the kernel does not tell.
    #[serde(default)]
    pub ready_ns: Option<u64>,
    /// From its start to its end, ns.
    pub wall_ns: u64,
}
