//! The threads of the sources: start, wait for connections, stop.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::Waker;
use sys::thread::set_timer_slack_ns;

use super::config::SourcesConfig;
use super::counters::merge;
use super::worker::Worker;
use crate::report::SourcesReport;

/// Concurrent handshakes over all threads: below any builder's listen backlog.
const HANDSHAKES_MAX: usize = 64;
/// Sources per thread. On two CPUs, 1000 sources send half as much again with four threads as with one: the
/// kernel schedules the builder more often between them.
const SOURCES_A_THREAD: usize = 250;
/// Buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// What a thread shows to others.
#[derive(Debug)]
struct Seen {
    waker: Waker,
    standing: AtomicUsize,
    fragments: AtomicU64,
    payload_bytes: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shared {
    is_stopped: AtomicBool,
    start_ns: AtomicU64,
    threads: Vec<Seen>,
    /// Threads whose sources are all connected, or the first error.
    connected: Mutex<Result<usize, String>>,
    changed: Condvar,
}

impl Shared {
    fn new(threads: usize) -> Result<Self, sys::net::NetError> {
        let seen = || {
            Ok(Seen {
                waker: Waker::new()?,
                standing: AtomicUsize::new(0),
                fragments: AtomicU64::new(0),
                payload_bytes: AtomicU64::new(0),
            })
        };
        Ok(Self {
            is_stopped: AtomicBool::new(false),
            start_ns: AtomicU64::new(u64::MAX),
            threads: (0..threads).map(|_| seen()).collect::<Result<_, _>>()?,
            connected: Mutex::new(Ok(0)),
            changed: Condvar::new(),
        })
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// When the trial starts; `u64::MAX`: not known yet.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    pub(super) fn waker(&self, thread: usize) -> &Waker {
        &self.threads[thread].waker
    }

    /// Reports that a thread's sources are all connected, or why they are not.
    pub(super) fn connected(&self, how: Result<(), String>) {
        let mut connected = self.lock();
        match (&mut *connected, how) {
            (Ok(threads), Ok(())) => *threads += 1,
            (Ok(_), Err(why)) => *connected = Err(why),
            (Err(_), _) => {}
        }
        self.changed.notify_all();
    }

    pub(super) fn note_standing(&self, thread: usize, standing: usize) {
        self.threads[thread].standing.store(standing, Ordering::Relaxed);
    }

    pub(super) fn note_sent(&self, thread: usize, fragments: u64, payload_bytes: u64) {
        self.threads[thread].fragments.store(fragments, Ordering::Relaxed);
        self.threads[thread].payload_bytes.store(payload_bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Result<usize, String>> {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.threads.iter().for_each(|thread| thread.waker.wake());
    }
}

/// The running threads; dropping stops them.
#[derive(Debug)]
pub(super) struct SourceThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<SourcesReport>>,
}

/// The number of threads; `wanted` 0: automatic.
fn threads_for(sources: usize, wanted: usize) -> usize {
    let cpus = sys::thread::online_cpus().map_or(1, |cpus| cpus.len().max(1));
    let threads = if wanted == 0 { sources.div_ceil(SOURCES_A_THREAD).min(2 * cpus) } else { wanted };
    threads.clamp(1, sources.max(1))
}

impl SourceThreads {
    /// Starts threads that connect `sources` sources from number `first` on.
    ///
    /// # Errors
    /// Too few file descriptors; a thread cannot be started.
    pub(super) fn start(
        config: &Arc<SourcesConfig>,
        first: u32,
        sources: usize,
        wanted: usize,
    ) -> Result<Self, String> {
        let number = threads_for(sources, wanted);
        let shared = Arc::new(Shared::new(number).map_err(|error| error.to_string())?);
        let mut threads = Self { shared: shared.clone(), threads: Vec::new() };
        for thread in 0..number {
            // Split evenly, in the order of their numbers.
            let (from, to) = (thread * sources / number, (thread + 1) * sources / number);
            let handshakes_max = (HANDSHAKES_MAX / number).max(1);
            let group = Worker::new(config.clone(), first + from as u32, to - from, handshakes_max, thread);
            let group = group.map_err(|error| error.to_string())?;
            let shared = shared.clone();
            let run = move || {
                // Accurate wake-ups; without them staggered fragments are about 50 us late.
                let _ = set_timer_slack_ns(1);
                group.run(&shared)
            };
            let spawned =
                std::thread::Builder::new().name("daq-sources".into()).stack_size(STACK_BYTES).spawn(run);
            let spawned = spawned.map_err(|error| format!("cannot start a thread for sources: {error}"))?;
            threads.threads.push(spawned);
        }
        Ok(threads)
    }

    /// Waits at most `step` for all connections; `Ok(false)`: not yet.
    ///
    /// # Errors
    /// A connection failed.
    pub(super) fn wait_connected(&self, step: Duration) -> Result<bool, String> {
        let connected = self.shared.lock();
        let is_done =
            |connected: &Result<usize, String>| !matches!(connected, Ok(n) if *n < self.threads.len());
        let waited = self.shared.changed.wait_timeout_while(connected, step, |now| !is_done(now));
        let (connected, _) = waited.unwrap_or_else(PoisonError::into_inner);
        connected.as_ref().map(|&threads| threads == self.threads.len()).map_err(Clone::clone)
    }

    /// Established connections.
    pub(super) fn standing(&self) -> usize {
        self.shared.threads.iter().map(|thread| thread.standing.load(Ordering::Relaxed)).sum()
    }

    /// Fragments sent so far, and their payload in bytes.
    pub(super) fn sent(&self) -> (u64, u64) {
        let sum = |(fragments, bytes): (u64, u64), thread: &Seen| {
            let more = thread.fragments.load(Ordering::Relaxed);
            (fragments + more, bytes + thread.payload_bytes.load(Ordering::Relaxed))
        };
        self.shared.threads.iter().fold((0, 0), sum)
    }

    pub(super) fn begin(&self, at_ns: u64) {
        self.shared.start_ns.store(at_ns, Ordering::Relaxed);
        self.shared.wake_all();
    }

    pub(super) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops all threads, waits for them at most `within`, and adds up their reports.
    ///
    /// # Errors
    /// A thread did not end, or panicked.
    pub(super) fn stop(mut self, within: Duration) -> Result<SourcesReport, String> {
        self.tell_to_stop();
        let until = Deadline::after(within);
        while !self.is_finished() && until.pause(Duration::from_millis(1)) {}
        if !self.is_finished() {
            return Err(format!("the source threads did not stop within {within:?}; please report this"));
        }
        let mut sum = SourcesReport::default();
        for thread in std::mem::take(&mut self.threads) {
            let report =
                thread.join().map_err(|_| "a source thread panicked; please report this".to_owned())?;
            merge(&mut sum, report);
        }
        sum.sources.sort_by_key(|source| source.source);
        Ok(sum)
    }

    fn tell_to_stop(&self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        self.shared.wake_all();
    }
}

impl Drop for SourceThreads {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_sources() {
        assert_eq!((threads_for(1, 0), threads_for(3, 8), threads_for(5000, 3)), (1, 3, 3));
        assert!(threads_for(1_000_000, 0) >= 1);
    }
}
