//! What every model of a disk's mechanism shares.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MechanismStats {
    pub seeks: u64,
    pub hits: u64,
    pub busy_ns: u64,
}

/// Transfer time of `bytes`, rounded up.
pub(super) fn transfer_ns(bytes: u64, byte_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(byte_per_s.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
