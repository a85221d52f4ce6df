//! The threads of a group: started, told to stop, waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns, sleep_until_ns};
use sys::net::Waker;
use sys::thread::{online_cpus, set_timer_slack_ns};

use super::error::FlowError;
use super::order::Ended;

/// No call waits longer: so soon a stop is heard.
pub(in crate::transfer) const WAIT_NS: u64 = 40_000_000;
/// So many flows each have a thread of their own, on any host, unless the setting says otherwise.
const ALONE_LEAST: usize = 16;
/// More threads than this are of no use, whoever asks for them.
const THREADS_MAX: usize = 1024;
/// After a stop, threads that have not ended by then are left behind.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Threads need little: their buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// What all threads of a group are told.
#[derive(Debug)]
pub(in crate::transfer) struct Orders {
    pub(in crate::transfer) start_ns: u64,
    silence_max: Duration,
    is_stopped: AtomicBool,
}

impl Orders {
    /// Nothing is sent before `start_ns` of the monotonic clock; nobody waits longer than `silence_max` for a peer.
    pub(in crate::transfer) fn new(start_ns: u64, silence_max: Duration) -> Self {
        Self { start_ns, silence_max, is_stopped: AtomicBool::new(false) }
    }

    pub(in crate::transfer) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// How a flow ends that waits for its peer since `since_ns`, if that is too long.
    pub(in crate::transfer) fn silence(&self, since_ns: u64, now_ns: u64) -> Option<Ended> {
        // Before the common start nobody is expected to move.
        let silent_ns = now_ns.saturating_sub(since_ns.max(self.start_ns));
        (u128::from(silent_ns) >= self.silence_max.as_nanos()).then(|| {
            let seconds = self.silence_max.as_secs_f64();
            Ended::Failed(format!(
                "nothing moved for {seconds} s: is the peer alive, and does a firewall let it through?"
            ))
        })
    }

    /// Sleeps until the common start; `false` when told to stop before.
    pub(in crate::transfer) fn sleep_until_start(&self) -> bool {
        loop {
            let now_ns = monotonic_ns();
            if self.is_stopped() || now_ns >= self.start_ns {
                return !self.is_stopped();
            }
            sleep_until_ns(self.start_ns.min(now_ns + WAIT_NS));
        }
    }
}

/// How many threads are still at work, and the wish to know when none is.
#[derive(Debug, Default)]
struct AtWork {
    threads: Mutex<usize>,
    changed: Condvar,
}

/// Threads at work, each of which brings an `R`. Dropping it stops them.
#[derive(Debug)]
pub(in crate::transfer) struct Crew<R> {
    orders: Arc<Orders>,
    at_work: Arc<AtWork>,
    threads: Vec<JoinHandle<R>>,
    wakers: Vec<Arc<Waker>>,
}

impl<R: Send + 'static> Crew<R> {
    /// Nobody yet.
    pub(in crate::transfer) fn new(orders: Orders) -> Self {
        Self { orders: Arc::new(orders), at_work: Arc::default(), threads: Vec::new(), wakers: Vec::new() }
    }

    /// One thread more, which does `work`; with a waker if it waits for several flows at once.
    ///
    /// # Errors
    /// [`FlowError`]: no thread, or no descriptor for the waker.
    pub(in crate::transfer) fn spawn(
        &mut self,
        waits_for_several: bool,
        work: impl FnOnce(&Orders, Option<&Waker>) -> R + Send + 'static,
    ) -> Result<(), FlowError> {
        let (orders, at_work) = (self.orders.clone(), self.at_work.clone());
        let waker = if waits_for_several { Some(Arc::new(Waker::new()?)) } else { None };
        self.wakers.extend(waker.clone());
        *at_work.lock() += 1;
        // Left also when something panics or no thread is to be had, so that nobody waits for it.
        let leave = Leave(at_work);
        let run = move || {
            let _leave = leave;
            // Wake-ups at the moment asked for. Where the kernel refuses, what is sent at a rate is a little late.
            let _ = set_timer_slack_ns(1);
            work(&orders, waker.as_deref())
        };
        let spawned = std::thread::Builder::new().name("flow".into()).stack_size(STACK_BYTES).spawn(run);
        self.threads.push(spawned.map_err(FlowError::Thread)?);
        Ok(())
    }

    /// Waits for all to end until the deadline, stops those that have not; what they brought. Never waits longer than a
    /// second beyond the deadline; a thread that has not ended by then brings nothing.
    pub(in crate::transfer) fn finish(&mut self, deadline: Deadline) -> Vec<R> {
        if !self.wait(deadline) {
            self.stop();
            self.wait(Deadline::after(STOP_WITHIN));
        }
        let all_ended = self.is_finished();
        // One that has left is about to end, so that joining it does not wait.
        let ended = |thread: &JoinHandle<R>| all_ended || thread.is_finished();
        let threads = std::mem::take(&mut self.threads).into_iter();
        threads.filter(ended).filter_map(|thread| thread.join().ok()).collect()
    }
}

impl<R> Crew<R> {
    /// Whether all have ended.
    pub(in crate::transfer) fn is_finished(&self) -> bool {
        *self.at_work.lock() == 0
    }

    /// Waits until all have ended, or the deadline; whether they have.
    pub(in crate::transfer) fn wait(&self, deadline: Deadline) -> bool {
        let mut threads = self.at_work.lock();
        while *threads > 0 && !deadline.passed() {
            let waited = self.at_work.changed.wait_timeout(threads, deadline.left());
            threads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *threads == 0
    }

    /// Tells all to stop.
    pub(in crate::transfer) fn stop(&self) {
        self.orders.is_stopped.store(true, Ordering::Relaxed);
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

impl<R> Drop for Crew<R> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl AtWork {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that a thread is leaving when it is dropped.
struct Leave(Arc<AtWork>);

impl Drop for Leave {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
}

/// How many threads drive `flows`, and whether several flows share one; `wanted` 0 lets us choose.
pub(in crate::transfer) fn threads_for(flows: usize, wanted: usize) -> (usize, bool) {
    let (cpus, wanted) = (cpus(), wanted.min(THREADS_MAX));
    let alone_most = if wanted == 0 { ALONE_LEAST.max(2 * cpus) } else { wanted };
    match wanted {
        _ if flows <= alone_most => (flows, false),
        0 => (cpus, true),
        _ => (wanted, true),
    }
}

/// The CPUs that this process may use, at least one.
pub(in crate::transfer) fn cpus() -> usize {
    online_cpus().map_or(1, |cpus| cpus.len().max(1))
}
