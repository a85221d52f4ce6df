use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Written by one thread, read by others.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) forwarded: AtomicU64,
    pub(super) forwarded_bytes: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) late_ns_max: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounters {
    pub forwarded: u64,
    /// With Ethernet headers.
    pub forwarded_bytes: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets dropped because the line was full or the other end was down.
    pub dropped: u64,
    pub late_ns_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCounters {
    pub link: usize,
    /// From the first end to the second.
    pub up: DirectionCounters,
    /// From the second end to the first.
    pub down: DirectionCounters,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DirectionCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DirectionCounters {
            forwarded: get(&self.forwarded),
            forwarded_bytes: get(&self.forwarded_bytes),
            lost: get(&self.lost),
            dropped: get(&self.dropped),
            late_ns_max: get(&self.late_ns_max),
        }
    }
}
