//! A run in a thread of its own: its progress, its rate of this moment, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::part::{Live, PartError, Progress};
use sys::clock::monotonic_ns;

/// Rates of this moment are those over this time.
const LIVE_NS: u64 = 500_000_000;
/// A stopped run ends within this time, or is abandoned.
const LEAVE: Duration = Duration::from_secs(40);

/// What is shown of a run under way.
pub(crate) struct Watched {
    /// A count so far, and what its rate is called.
    pub(crate) count: Box<dyn Fn() -> u64 + Send>,
    pub(crate) rate: &'static str,
    /// Share of the run that is over, at most 1.
    pub(crate) done: Box<dyn Fn() -> f64 + Send>,
}

impl Watched {
    /// Of a run that takes `whole_ns` from `start_ns` on; `operations` have ended so far.
    pub(crate) fn timed(start_ns: u64, whole_ns: u64, operations: impl Fn() -> u64 + Send + 'static) -> Self {
        let done = move || monotonic_ns().saturating_sub(start_ns) as f64 / whole_ns.max(1) as f64;
        Self { count: Box::new(operations), rate: "ops_per_s", done: Box::new(done) }
    }
}

pub(crate) struct UnderWay<R> {
    thread: JoinHandle<R>,
    watched: Watched,
    /// When the count was last read, and what it was.
    seen: (u64, u64),
    rate_per_s: Option<f64>,
}

impl<R: Send + 'static> UnderWay<R> {
    /// Starts `work`, which waits for `start_ns` (monotonic clock).
    ///
    /// # Errors
    /// The start has passed, or there is no thread.
    pub(crate) fn start(
        start_ns: u64,
        watched: Watched,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Self, PartError> {
        if monotonic_ns() > start_ns {
            return Err(PartError::new("the workers' start time has passed"));
        }
        let thread = std::thread::Builder::new().name("files-run".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| PartError::new(format!("cannot start the run's thread: {error}")))?;
        Ok(Self { thread, watched, seen: (start_ns, 0), rate_per_s: None })
    }

    pub(crate) fn progress(&self) -> Progress {
        if self.thread.is_finished() {
            return Progress::Finished;
        }
        Progress::Running { done: Some((self.watched.done)().min(1.0)) }
    }

    pub(crate) fn live(&mut self) -> Live {
        let now_ns = monotonic_ns();
        let (then_ns, before) = self.seen;
        if now_ns.saturating_sub(then_ns) >= LIVE_NS {
            let count = (self.watched.count)();
            let s = now_ns.saturating_sub(then_ns) as f64 / 1e9;
            self.rate_per_s = Some(count.saturating_sub(before) as f64 / s);
            self.seen = (now_ns, count);
        }
        self.rate_per_s.map(|rate| (self.watched.rate.to_owned(), rate)).into_iter().collect()
    }

    /// Sets `stop` and waits for the run's report.
    ///
    /// # Errors
    /// The run does not end, or panicked.
    pub(crate) fn stop(self, stop: &Arc<AtomicBool>) -> Result<R, PartError> {
        stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + LEAVE;
        while !self.thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.thread.is_finished() {
            return Err(PartError::new("the run did not end after its stop; please report this"));
        }
        self.thread.join().map_err(|_| PartError::new("the run panicked; please report this"))
    }
}
