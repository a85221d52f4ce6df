//! What every model of a disk's mechanism shares.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

/// Work of the mechanism so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismStats {
    /// How often the head changed its track.
    pub seeks: u64,
    /// Accesses served by a buffer or cache alone.
    pub hits: u64,
    /// Time in which the mechanism was seeking, rotating or transferring.
    pub busy_ns: u64,
}

/// Transfer time of `bytes`, rounded up.
pub(super) fn transfer_ns(bytes: u64, byte_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(byte_per_s.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
