//! Spans of this program's own work, cheap enough for the inside of a data path: two readings of the CPU's
//! time-stamp counter and one entry of a thread's own ring.
//!
//! How a part of kagiri times its calls and puts the table into its report:
//!
//! ```
//! # use sys as sys;
//! use sys::span::{self, Recorder, SpanName};
//! static SEND: SpanName = SpanName::new("send");
//!
//! // The part, if its plan asks for a timeline; what its threads get is cloned from it.
//! let recorder = Recorder::start(0);
//! let handle = recorder.handle();
//! let thread = std::thread::spawn(move || {
//!     // Each thread of the data path, once, for as long as it is to be recorded.
//!     let _joined = handle.join();
//!     // Each call. Costs one load of a flag while nothing in the program records.
//!     span::time(&SEND, || std::hint::black_box(1))
//! });
//! # thread.join().unwrap();
//! // At its end: plain data that goes into the report (`base::timeline::CallTimes`, serde).
//! let recorded = recorder.finish("sender");
//! assert_eq!((recorded.times.calls[0].name.as_str(), recorded.times.calls[0].count), ("send", 1));
//! ```
//!
//! Spans may lie within each other. Recorders do not share anything, so that several parts in one process
//! each see their own threads. A span in which the thread was switched out is [`CallState::Blocked`], others
//! are [`CallState::Ready`]; where the system does not report it, all are [`CallState::Unknown`]. A ring that
//! is full loses the newest spans, and counts them.

mod clock;
mod off_cpu;
mod recorder;
mod ring;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::timeline::CallState;

pub use clock::{Clock, clock};
pub use recorder::{Handle, Recorded, Recorder};

use clock::ticks;
use ring::Ring;

/// What a span is called; one static for each place.
#[derive(Debug)]
pub struct SpanName {
    name: &'static str,
    /// Its number among all names, from 1 on; 0 before its first span.
    number: AtomicU32,
}

/// All names that were used, by their number less one.
static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<&'static str>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SpanName {
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
        let mut names = names();
        // Another thread may have been first, or another place that is called the same.
        let place = names.iter().position(|name| *name == self.name).unwrap_or_else(|| {
            names.push(self.name);
            names.len() - 1
        });
        let number = u32::try_from(place + 1).unwrap_or(u32::MAX);
        self.number.store(number, Ordering::Relaxed);
        number
    }
}

/// Number of recorded threads in this process.
static RECORDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Where this thread's spans go.
    static OWN: RefCell<Option<Arc<Ring>>> = const { RefCell::new(None) };
}

/// This thread's spans are recorded while this lives.
#[derive(Debug)]
#[must_use = "the thread is recorded until this is dropped"]
pub struct Joined {
    /// What was recorded before, by another recorder.
    before: Option<Arc<Ring>>,
    /// Dropped by the thread that joined.
    of_thread: std::marker::PhantomData<*const ()>,
}

impl Joined {
    fn with(ring: Arc<Ring>) -> Self {
        RECORDED.fetch_add(1, Ordering::Relaxed);
        let before = OWN.try_with(|own| own.borrow_mut().replace(ring)).ok().flatten();
        Self { before, of_thread: std::marker::PhantomData }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        RECORDED.fetch_sub(1, Ordering::Relaxed);
        // A thread whose locals are gone is about to end.
        let _ = OWN.try_with(|own| *own.borrow_mut() = self.before.take());
    }
}

/// A span that ends when this is dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Entered {
    from: u64,
    switches: Option<u64>,
    /// 0 while not recording.
    number: u32,
}

#[inline]
pub fn enter(name: &SpanName) -> Entered {
    if RECORDED.load(Ordering::Relaxed) == 0 {
        return Entered { from: 0, switches: None, number: 0 };
    }
    let (number, from) = (name.number(), ticks());
    Entered { from, switches: off_cpu::switches(), number }
}

#[inline]
pub fn time<T>(name: &SpanName, what: impl FnOnce() -> T) -> T {
    let _span = enter(name);
    what()
}

impl Entered {
    #[inline]
    pub fn discard(mut self) {
        self.number = 0;
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if self.number == 0 {
            return;
        }
        let state = match (self.switches, off_cpu::switches()) {
            (Some(before), Some(after)) if before == after => CallState::Ready,
            (Some(_), Some(_)) => CallState::Blocked,
            _ => CallState::Unknown,
        };
        let to = ticks();
        // A thread whose locals are gone is about to end; its last spans are not missed.
        let _ = OWN.try_with(|own| {
            if let Some(ring) = &*own.borrow() {
                ring.put(self.from, to, What { number: self.number, state }.packed());
            }
        });
    }
}

/// A span's name and state, packed for the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct What {
    number: u32,
    state: CallState,
}

impl What {
    fn packed(self) -> u64 {
        (u64::from(self.number) << 2) | self.state as u64
    }

    fn unpacked(word: u64) -> Self {
        let state = match word & 3 {
            0 => CallState::Ready,
            1 => CallState::Blocked,
            _ => CallState::Unknown,
        };
        Self { number: (word >> 2) as u32, state }
    }
}

/// One recorded span, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub name: &'static str,
    pub from_ns: u64,
    pub to_ns: u64,
    /// Whether the thread was switched out inside.
    pub state: CallState,
}

/// One thread's spans, in the order in which they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadSpans {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// Its name when it joined; empty if it has none.
    pub name: String,
    pub spans: Vec<Span>,
    /// Spans lost because the ring was full.
    pub lost: u64,
}

#[cfg(test)]
mod tests;
