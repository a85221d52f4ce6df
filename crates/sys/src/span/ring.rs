//! A ring of one thread's spans: the thread writes, one reader reads, neither waits.

use std::sync::atomic::{AtomicU64, Ordering};

/// Spans that a ring holds.
pub(super) const SPANS: usize = 1 << 16;
/// Words of a span: beginning, end, and what it is; the fourth is free and keeps a span within one cache
/// line.
const WORDS: usize = 4;

#[derive(Debug)]
pub(super) struct Ring {
    pub(super) thread: u32,
    pub(super) name: String,
    words: Box<[AtomicU64]>,
    /// Spans written, by the thread alone.
    written: AtomicU64,
    /// Spans taken, by the reader alone.
    taken: AtomicU64,
    lost: AtomicU64,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self {
            thread: crate::thread::thread_id().cast_unsigned(),
            name: std::thread::current().name().unwrap_or("").to_owned(),
            words: (0..SPANS * WORDS).map(|_| AtomicU64::new(0)).collect(),
            written: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn slot(&self, count: u64) -> &[AtomicU64] {
        let at = (count as usize % SPANS) * WORDS;
        &self.words[at..at + WORDS]
    }

    /// Adds a span; called by the ring's thread alone.
    #[inline]
    pub(super) fn put(&self, from: u64, to: u64, what: u64) {
        let written = self.written.load(Ordering::Relaxed);
        // Acquire: what the reader has taken it has read.
        if written - self.taken.load(Ordering::Acquire) >= SPANS as u64 {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let [first, second, third, _] = self.slot(written) {
            first.store(from, Ordering::Relaxed);
            second.store(to, Ordering::Relaxed);
            third.store(what, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
    }

    /// Delivers pending spans; called by one reader at a time.
    pub(super) fn take(&self, mut each: impl FnMut(u64, u64, u64)) {
        let written = self.written.load(Ordering::Acquire);
        for count in self.taken.load(Ordering::Relaxed)..written {
            if let [first, second, third, _] = self.slot(count) {
                let [from, to, what] = [first, second, third].map(|word| word.load(Ordering::Relaxed));
                each(from, to, what);
            }
        }
        self.taken.store(written, Ordering::Release);
    }

    /// Spans lost since the last call.
    pub(super) fn lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}
