//! What the workers of a run share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use sys::clock::monotonic_ns;

use super::access::address::Address;
use super::access::client::Client;
use super::access::failure::Failure;
use super::mix::Mix;
use super::recorder::Recorder;
use crate::engine::report::Ended;

/// Recorders that the workers share.
const RECORDERS: u64 = 16;
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;
const INTERVALS_MAX: u64 = 100_000;
/// Without an answer for this time, while requests fail, the server is gone.
const DEAD_NS: u64 = 3_000_000_000;

/// How the run is to be made.
#[derive(Debug, Clone)]
pub struct ObjectsSettings {
    pub threads: u64,
    pub objects: u64,
    pub size: wml::Number,
    pub mix: Mix,
    pub omit_ns: u64,
    pub hold_ns: u64,
    /// Requests per second of all workers, in an open loop.
    pub rate_per_s: Option<f64>,
    pub seed: u64,
}

/// Moments of the monotonic clock.
pub(crate) struct Times {
    pub start_ns: u64,
    from_ns: u64,
    to_ns: u64,
}

impl Times {
    pub(crate) fn is_judged(&self, ended_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&ended_ns)
    }

    /// Whether a request without an answer counts: it was begun before the end, and the judged time would not
    /// show it otherwise, however many wait.
    pub(crate) fn is_judged_late(&self, began_ns: u64, ended_ns: u64) -> bool {
        began_ns < self.to_ns && ended_ns >= self.from_ns
    }
}

/// What the workers share.
pub(crate) struct Shared {
    pub client: Client,
    pub own: Address,
    pub settings: ObjectsSettings,
    pub mix: Mix,
    pub content: Bytes,
    times: OnceLock<Times>,
    is_over: AtomicBool,
    ended: Mutex<Option<Ended>>,
    recorders: Vec<Mutex<Recorder>>,
    /// Requests that were answered in each interval of the judged time.
    intervals: Vec<AtomicU64>,
    answered: AtomicU64,
    last_success_ns: AtomicU64,
}

impl Shared {
    pub(crate) fn new(settings: ObjectsSettings, client: Client, own: Address, content: Bytes) -> Self {
        let intervals = settings.hold_ns.div_ceil(INTERVAL_NS).min(INTERVALS_MAX);
        Self {
            mix: settings.mix.clone(),
            client,
            own,
            content,
            times: OnceLock::new(),
            is_over: AtomicBool::new(false),
            ended: Mutex::new(None),
            recorders: (0..RECORDERS).map(|_| Mutex::default()).collect(),
            intervals: (0..intervals).map(|_| AtomicU64::new(0)).collect(),
            answered: AtomicU64::new(0),
            last_success_ns: AtomicU64::new(0),
            settings,
        }
    }

    /// Sets the times of the run, before its workers begin.
    pub(crate) fn begin(&self, start_ns: u64, from_ns: u64, to_ns: u64) {
        self.times.get_or_init(|| Times { start_ns, from_ns, to_ns });
    }

    pub(crate) fn recorders(&self) -> Vec<Recorder> {
        let copied =
            |recorder: &Mutex<Recorder>| recorder.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.recorders.iter().map(copied).collect()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that were answered in each interval of the judged time.
    pub(crate) fn intervals(&self) -> Vec<u64> {
        self.intervals.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn times(&self) -> &Times {
        // Workers begin after `begin`.
        self.times.get_or_init(|| Times { start_ns: 0, from_ns: 0, to_ns: 0 })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends the run for all workers. The first reason counts.
    pub(crate) fn end(&self, why: Ended) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record(&self, worker: u64, add: impl FnOnce(&mut Recorder)) {
        let recorder = &self.recorders[(worker % RECORDERS) as usize];
        add(&mut recorder.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn count_round(&self, worker: u64, is_late: bool) {
        if self.times().is_judged(monotonic_ns()) {
            self.record(worker, |recorder| {
                recorder.rounds += 1;
                recorder.late_rounds += u64::from(is_late);
            });
        }
    }

    pub(crate) fn succeed(&self, at_ns: u64) {
        self.last_success_ns.fetch_max(at_ns, Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
        let times = self.times();
        if times.is_judged(at_ns)
            && let Some(count) = self.intervals.get(((at_ns - times.from_ns) / INTERVAL_NS) as usize)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the run if nothing has succeeded for long.
    pub(crate) fn check_alive(&self, now_ns: u64, failure: &Failure) {
        let since = self.last_success_ns.load(Ordering::Relaxed).max(self.times().start_ns);
        if now_ns.saturating_sub(since) >= DEAD_NS {
            let what = format!("no request to {} succeeded for {} s", self.own, DEAD_NS / 1_000_000_000);
            self.end(Ended::Failed(failure.sentence(&what)));
        }
    }
}

/// For the live display.
#[derive(Clone)]
pub struct Answered(Arc<Shared>);

impl Answered {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0.answered.load(Ordering::Relaxed)
    }
}
