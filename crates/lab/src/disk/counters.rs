use serde::{Deserialize, Serialize};

/// Counters of a modelled disk since its creation. Mechanical counters count only while it is paced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    /// As from fsync(2).
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub waiting: u64,
    /// How often the head changed its track.
    pub seeks: u64,
    /// Accesses served by a buffer or cache alone.
    pub hits: u64,
    /// Time in which the mechanism was seeking, rotating or transferring.
    pub busy_ns: u64,
    /// Mean delay of responses beyond the model.
    pub late_ns_mean: u64,
    /// Largest delay of a response beyond the model.
    pub late_ns_max: u64,
    pub paced: bool,
}
