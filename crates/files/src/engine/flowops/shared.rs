//! What the threads of a run share: all of it is read only while they run, but for single atomic numbers.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use sys::clock::monotonic_ns;

use super::aio::AioPool;
use super::content::Content;
use crate::engine::compile::Compiled;
use crate::engine::events::Events;
use crate::engine::report::Ended;
use crate::tree::FileTree;

/// A number in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded(pub AtomicU64);

/// How the run is to be made.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// As filebench does it, with its faults.
    pub is_strict: bool,
    pub quit: wml::Quit,
    /// Before the judged time begins.
    pub omit_ns: u64,
    pub hold_ns: u64,
    /// Operations per second of all threads, in an open loop.
    pub rate_per_s: Option<f64>,
    pub event_rate: Option<u64>,
    pub seed: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub settings: RunSettings,
    pub compiled: Compiled,
    pub trees: Vec<FileTree>,
    /// What is written.
    pub content: Content,
    pub aio: Option<AioPool>,
    /// Operations of each thread, for the live display.
    pub live: Vec<Padded>,
    /// The kernel's id of each thread that has started; 0 before.
    pub ids: Vec<AtomicI32>,
    /// Set once the start is known.
    pub times: OnceLock<RunTimes>,
    is_over: AtomicBool,
    ended: Mutex<Option<Ended>>,
}

/// Moments of the monotonic clock.
#[derive(Debug)]
pub(crate) struct RunTimes {
    pub start_ns: u64,
    /// The judged time.
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: Option<Events>,
}

impl Shared {
    pub(crate) fn new(
        settings: RunSettings,
        compiled: Compiled,
        trees: Vec<FileTree>,
        content: Content,
        aio: Option<AioPool>,
        threads: usize,
    ) -> Self {
        let live = (0..threads).map(|_| Padded::default()).collect();
        let ids = (0..threads).map(|_| AtomicI32::new(0)).collect();
        let (times, is_over, ended) = (OnceLock::new(), AtomicBool::new(false), Mutex::new(None));
        Self { settings, compiled, trees, content, aio, live, ids, times, is_over, ended }
    }

    /// The times of a run that starts at this moment; the first thread that asks decides.
    pub(crate) fn times(&self, start_ns: u64) -> &RunTimes {
        self.times.get_or_init(|| {
            let from_ns = start_ns.saturating_add(self.settings.omit_ns);
            RunTimes {
                start_ns,
                from_ns,
                to_ns: from_ns.saturating_add(self.settings.hold_ns),
                events: self.settings.event_rate.map(|rate| Events::new(rate, start_ns)),
            }
        })
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the run for all threads. The first reason counts, but a failure is more than a regular end.
    pub(crate) fn end(&self, why: Ended) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.is_none() || (*ended == Some(Ended::Done) && matches!(why, Ended::Failed(_))) {
            *ended = Some(why);
        }
        drop(ended);
        self.is_over.store(true, Ordering::Relaxed);
        self.compiled.gates.iter().for_each(|gate| gate.look());
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Seconds since the start.
    pub(crate) fn elapsed_s(&self) -> f64 {
        let start_ns = self.times.get().map_or_else(monotonic_ns, |times| times.start_ns);
        monotonic_ns().saturating_sub(start_ns) as f64 / 1e9
    }
}
