//! Spans of this program's own work, cheap enough for the inside of a data path: two readings of the CPU's time-stamp
//! counter and one entry of a thread's own ring.
//!
//! ```
//! # use kagiri_sys as sys;
//! use sys::span::{self, SpanName};
//! static SEND: SpanName = SpanName::new("send");
//! let recording = span::record();
//! {
//!     let _span = span::enter(&SEND);
//!     // work
//! }
//! let threads = recording.drain();
//! assert_eq!((threads[0].spans.len(), threads[0].lost), (1, 0));
//! ```
//!
//! While nobody records, a span is one load of a flag. A ring that is full loses the newest spans, and counts them.

mod clock;
mod ring;

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use clock::{Clock, clock};

use clock::{Anchor, ticks};
use ring::Ring;

/// What a span is called; one static for each place.
#[derive(Debug)]
pub struct SpanName {
    name: &'static str,
    /// Its number among all names, from 1 on; 0 before its first span.
    number: AtomicU32,
}

impl SpanName {
    /// A name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, number: AtomicU32::new(0) }
    }

    fn number(&self) -> u32 {
        match self.number.load(Ordering::Relaxed) {
            0 => self.register(),
            number => number,
        }
    }

    #[cold]
    fn register(&self) -> u32 {
        let mut all = all();
        // Another thread may have been first.
        let known = self.number.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        all.names.push(self.name);
        let number = u32::try_from(all.names.len()).unwrap_or(u32::MAX);
        self.number.store(number, Ordering::Relaxed);
        number
    }
}

/// Whether spans are recorded.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// What all threads share.
struct All {
    names: Vec<&'static str>,
    rings: Vec<Arc<Ring>>,
}

static ALL: Mutex<All> = Mutex::new(All { names: Vec::new(), rings: Vec::new() });

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static OWN: OnceCell<Arc<Ring>> = const { OnceCell::new() };
}

/// A span that goes on until this is dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Entered {
    from: u64,
    /// 0 while nobody records.
    number: u32,
}

/// Begins a span.
#[inline]
pub fn enter(name: &SpanName) -> Entered {
    if !RECORDING.load(Ordering::Relaxed) {
        return Entered { from: 0, number: 0 };
    }
    Entered { number: name.number(), from: ticks() }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let to = ticks();
        // A thread whose locals are gone is about to end; its last spans are not missed.
        let _ = OWN.try_with(|own| own.get_or_init(new_ring).put(self.from, to, self.number));
    }
}

#[cold]
fn new_ring() -> Arc<Ring> {
    let ring = Arc::new(Ring::new());
    all().rings.push(Arc::clone(&ring));
    ring
}

/// One recorded span, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// What it is called.
    pub name: &'static str,
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
}

/// One thread's spans, in the order in which they ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSpans {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Its name when it made its first span; empty if it has none.
    pub name: String,
    /// Its spans.
    pub spans: Vec<Span>,
    /// How many found no room since the last time.
    pub lost: u64,
}

/// Spans are recorded while this lives. One at a time: a second one shares the rings of the first.
#[derive(Debug)]
pub struct Recording {
    began: Anchor,
}

/// Begins to record. What older recordings left in the rings is dropped.
pub fn record() -> Recording {
    clock::choose();
    let recording = Recording { began: Anchor::now() };
    for ring in &all().rings {
        ring.take(|_, _, _| {});
        ring.lost();
    }
    RECORDING.store(true, Ordering::Release);
    recording
}

impl Recording {
    /// Takes the spans that have ended meanwhile, by thread. To be called before a thread has made 65,536 of them.
    pub fn drain(&self) -> Vec<ThreadSpans> {
        let now = Anchor::now();
        let mut all = all();
        let All { names, rings } = &mut *all;
        let of_ring = |ring: &Arc<Ring>| {
            let mut spans = Vec::new();
            ring.take(|from, to, number| {
                let name = names.get(number as usize - 1).copied().unwrap_or("");
                let ns = |ticks| self.began.ns_of(ticks, &now);
                spans.push(Span { name, from_ns: ns(from), to_ns: ns(to) });
            });
            ThreadSpans { thread: ring.thread, name: ring.name.clone(), spans, lost: ring.lost() }
        };
        let threads: Vec<ThreadSpans> = rings.iter().map(of_ring).collect();
        // A ring that only this list still holds belongs to a thread that has ended, and is empty now.
        rings.retain(|ring| Arc::strong_count(ring) > 1);
        threads.into_iter().filter(|thread| !thread.spans.is_empty() || thread.lost > 0).collect()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
