//! What a direction of a line has done.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Written by the direction's thread, read by anybody.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) forwarded: AtomicU64,
    pub(super) forwarded_bytes: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) late_ns_max: AtomicU64,
}

/// What a direction of a line has done since the lab is up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Packets carried to the other end.
    pub forwarded: u64,
    /// Their bytes, Ethernet headers included.
    pub forwarded_bytes: u64,
    /// Packets lost on purpose.
    pub lost: u64,
    /// Packets dropped because too much was on the way, or because the other end was down.
    pub dropped: u64,
    /// The most that a packet was handed over later than it should have been, nanoseconds.
    pub late_ns_max: u64,
}

/// What a line has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineCount {
    /// The link's number.
    pub link: usize,
    /// From its first end to its second.
    pub up: Counted,
    /// From its second end to its first.
    pub down: Counted,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        // One thread writes: a plain addition would do, this one needs no lock either.
        counter.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counted {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counted {
            forwarded: get(&self.forwarded),
            forwarded_bytes: get(&self.forwarded_bytes),
            lost: get(&self.lost),
            dropped: get(&self.dropped),
            late_ns_max: get(&self.late_ns_max),
        }
    }
}
