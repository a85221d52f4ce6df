//! What sources hand over.

use base::histogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a source did, of the whole trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceSent {
    pub source: u32,
    /// Fragments handed to the kernel to the last byte, over all builders.
    pub sent: u64,
    /// Fragments begun and not ended, because the connection or the trial ended.
    pub cut: u64,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts (kernel 6.7 and later).
    pub timeouts: Option<u64>,
    /// Time spent in them, ms.
    pub timeout_ms: Option<u64>,
    /// Duplicates that the other end reported (D-SACK, RFC 2883): sent again for nothing.
    pub dsacks: Option<u64>,
}

/// A connection that had to send again, with the event at which it was noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stall {
    pub source: u32,
    /// The last event that it had sent.
    pub event: u64,
    /// The last event that it can have sent when nothing had been sent again yet.
    pub since_event: u64,
    pub builder: u16,
    /// Segments sent again since the last look.
    pub retransmits: u32,
    /// Timeouts since the last look.
    pub timeouts: u32,
    /// Reported duplicates since the last look.
    pub dsacks: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourcesReport {
    /// The host, among several.
    pub host: Option<String>,
    /// How long all connections took to stand, s.
    pub connect_s: f64,
    pub sources: Vec<SourceSent>,
    /// Payload handed to the kernel, of the whole trial.
    pub payload_bytes: u64,
    pub orders: u64,
    pub orders_dropped: u64,
    /// Lost triggers, known from later ones.
    pub orders_missed: u64,
    /// Orders that the kernel dropped at full sockets (`SO_RXQ_OVFL`).
    pub orders_overflowed: Option<u64>,
    /// Fragments sent because a later trigger revealed a lost one.
    pub caught_up: u64,
    /// Requests to send again that were answered (UDP).
    pub nacks: u64,
    /// Reconnections after a reset by the builder.
    pub reconnected: u64,
    /// CPU time of its threads from the start to the end, s.
    pub cpu_s: f64,
    /// The busiest second of the busiest thread, share of a CPU.
    pub busiest: Option<f64>,
    /// Time in which its threads were ready and had no CPU, s.
    pub ready_s: Option<f64>,
    /// From the order's arrival to the write, all fragments.
    pub own_delay: Histogram,
    /// Connections with retransmissions, up to 100,000.
    pub stalls: Vec<Stall>,
    /// Resident memory of the process at the end, over what it was before the first connection, bytes; with
    /// the kernel's socket memory where it is known.
    pub memory_bytes: Option<u64>,
    pub broke_off: Option<String>,
}
