//! The counts of a flow, written by its thread and read by others while it runs.

use std::sync::atomic::{AtomicU64, Ordering};

use super::FlowCount;

/// Stands for an unknown count: no flow counts so far.
const UNKNOWN: u64 = u64::MAX;

/// One writer, any number of readers. Each count by itself is right at some recent moment; together they need
/// not be of the same one. A cache line pair of its own, so that flows do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct FlowCounters {
    bytes: AtomicU64,
    datagrams: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
    reordered: AtomicU64,
    duplicated: AtomicU64,
    refused: AtomicU64,
    overslept_ns: AtomicU64,
    jitter_ns: AtomicU64,
}

impl FlowCounters {
    /// What the thread of the flow has counted.
    pub(crate) fn read(&self) -> FlowCount {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        FlowCount {
            bytes: of(&self.bytes),
            datagrams: of(&self.datagrams),
            lost: of(&self.lost),
            overflowed: Some(of(&self.overflowed)).filter(|&count| count != UNKNOWN),
            reordered: of(&self.reordered),
            duplicated: of(&self.duplicated),
            refused: of(&self.refused),
            overslept_ns: of(&self.overslept_ns),
            jitter_ns: of(&self.jitter_ns),
        }
    }

    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_overslept_ns(&self, overslept_ns: u64) {
        self.overslept_ns.store(overslept_ns, Ordering::Relaxed);
    }

    /// All that a datagram flow counts, but its bytes and what its schedule does.
    pub(crate) fn set_datagrams(&self, count: &FlowCount) {
        let set = |counters: &AtomicU64, value: u64| counters.store(value, Ordering::Relaxed);
        set(&self.datagrams, count.datagrams);
        set(&self.lost, count.lost);
        set(&self.overflowed, count.overflowed.unwrap_or(UNKNOWN));
        set(&self.reordered, count.reordered);
        set(&self.duplicated, count.duplicated);
        set(&self.refused, count.refused);
        set(&self.jitter_ns, count.jitter_ns);
    }
}
