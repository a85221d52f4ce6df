//! What a modelled disk did, as its server tells it.

use serde::{Deserialize, Serialize};

/// What a modelled disk did since it was made. Only what it did while it took its time counts for the mechanism.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes: what fsync(2) becomes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Accesses that wait for their answer now.
    pub waiting: u64,
    /// How often the head left its track.
    pub seeks: u64,
    /// Accesses that a buffer or cache of the disk answered alone.
    pub hits: u64,
    /// Time for which the mechanism was seeking, turning to its place or transferring, in nanoseconds.
    pub busy_ns: u64,
    /// How much later than modelled answers were given, on average, in nanoseconds.
    pub late_ns_mean: u64,
    /// How much later at the most.
    pub late_ns_max: u64,
    /// Whether the disk takes its time now.
    pub paced: bool,
}
