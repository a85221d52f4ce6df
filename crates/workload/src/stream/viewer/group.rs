//! Many players on a few threads, started at one moment and ending by themselves when the hold is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::pace::{Even, Pacer};
use base::timeline::CallTimes;
use sys::clock::monotonic_ns;
use sys::span::Recorder;

use super::config::ViewerSettings;
use super::film::Film;
use super::link::Source;
use super::place;
use super::viewer::{Hold, Role, Viewer};
use super::worker::{SLOT_NS, ThreadRecord, Worker};
use crate::stream::settings::Depth;

/// A hold that is ended early lasts at least so long, so that the resources' rates in it can be read.
const CUT_HOLD_NS_MIN: u64 = 1_000_000_000;

/// What the threads of a group share.
#[derive(Debug)]
pub struct Shared {
    /// The settings.
    pub plan: ViewerSettings,
    /// Where the content is.
    pub source: Source,
    /// The content.
    pub film: Arc<Film>,
    /// The group's start on the monotonic clock.
    pub start_ns: u64,
    /// The threads are to end at once.
    stop: AtomicBool,
    /// The verdict is certain.
    aborted: AtomicBool,
    /// The hold's beginning; `u64::MAX` until it is known.
    hold_from_ns: AtomicU64,
    /// Players whose picture has come.
    playing: AtomicU64,
}

impl Shared {
    /// The hold, as far as it is known.
    #[inline]
    #[must_use]
    pub fn hold(&self) -> Hold {
        let from_ns = self.hold_from_ns.load(Ordering::Relaxed);
        Hold { from_ns, to_ns: from_ns.saturating_add(self.plan.hold.ns()) }
    }

    /// When the hold ends at the latest.
    #[must_use]
    pub fn latest_end_ns(&self) -> u64 {
        self.start_ns + self.plan.hold_after_ns() + self.plan.hold.ns()
    }

    /// A first picture has come. After the last one's the hold can be set, unless it was given, or must be where it is
    /// for others, of whom nothing is known here.
    pub fn one_more_plays(&self, now_ns: u64) {
        let playing = self.playing.fetch_add(1, Ordering::Relaxed) + 1;
        if playing == self.plan.streams && self.plan.warm_up.is_none() && !self.plan.is_part() {
            self.settle_hold(now_ns + 2 * self.plan.cap.ns());
        }
    }

    /// The hold begins with the slot at or after `from_ns`, but not later than it would have anyway.
    fn settle_hold(&self, from_ns: u64) {
        let slots = (from_ns - self.start_ns).div_ceil(SLOT_NS);
        self.hold_from_ns.fetch_min(self.start_ns + slots * SLOT_NS, Ordering::Relaxed);
    }

    /// The verdict is certain: no need to hold on.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Whether the threads are to end, at the slot that is due at `due_ns`.
    #[must_use]
    pub fn is_over(&self, due_ns: u64) -> bool {
        let aborted = || {
            self.aborted.load(Ordering::Relaxed)
                && due_ns >= self.hold().from_ns.saturating_add(CUT_HOLD_NS_MIN)
        };
        self.stop.load(Ordering::Relaxed) || aborted()
    }
}

/// A group at work. Dropping it ends its threads.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<ThreadRecord>>,
    /// Times the threads' calls, where that is wanted.
    recorder: Option<Recorder>,
}

/// What a group leaves behind.
#[derive(Debug)]
pub struct GroupRecord {
    /// What its threads shared.
    pub shared: Arc<Shared>,
    /// What each thread saw.
    pub threads: Vec<ThreadRecord>,
    /// Where their time went, if it was to be recorded.
    pub calls: Option<CallTimes>,
    /// Whether the hold was ended because the verdict was certain.
    pub aborted: bool,
    /// Whether the group was told to stop before its time.
    pub stopped: bool,
}

/// A group cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The kernel gives no thread.
    #[error("no thread could be started for the players: {0}; end other programs or raise the process limit")]
    Thread(std::io::Error),
    /// No descriptors.
    #[error("{0}; raise the limit of open files (ulimit -n)")]
    Net(#[from] sys::net::NetError),
    /// A thread of ours died.
    #[error("a thread of the players ended unexpectedly; please report this as a bug of kagiri")]
    Panicked,
}

/// The places and tasks of the group's streams, in the order of their numbers. Without ranges all begin at the
/// content's start.
#[must_use]
pub fn roles(plan: &ViewerSettings, film: &Film, ranges: bool, start_ns: u64) -> Vec<Role> {
    let starts = Even { count: plan.all(), window_ns: plan.start_window_ns() };
    let role = |stream: u64| Role {
        stream,
        gop: if ranges { place::gop(&film.timeline, stream, plan.seed) } else { 0 },
        depth: plan.depth_of(stream),
        hashes: stream == 0 && plan.depth_of(0) == Depth::Parse,
        connect_ns: start_ns + starts.intended_ns(stream).unwrap_or(0),
    };
    plan.numbers().map(role).collect()
}

impl Group {
    /// Start all threads. They begin at `start_ns` of the monotonic clock.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn start(
        plan: ViewerSettings,
        source: Source,
        film: Arc<Film>,
        ranges: bool,
        start_ns: u64,
    ) -> Result<Self, GroupError> {
        let latest_ns = start_ns + plan.hold_after_ns().next_multiple_of(SLOT_NS);
        let mut shares: Vec<Vec<Viewer>> = (0..plan.threads).map(|_| Vec::new()).collect();
        let threads = shares.len();
        for (i, role) in roles(&plan, &film, ranges, start_ns).into_iter().enumerate() {
            shares[i % threads].push(Viewer::new(role, plan.rules(), &film));
        }
        let shared = Arc::new(Shared {
            source,
            film,
            start_ns,
            stop: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            hold_from_ns: AtomicU64::new(latest_ns),
            playing: AtomicU64::new(0),
            plan,
        });
        // From here on a failure drops the group, which ends the threads that run.
        let recorder = shared.plan.calls.then(crate::calls::record);
        let mut group = Self { shared, threads: Vec::new(), recorder };
        for (i, viewers) in shares.into_iter().enumerate() {
            let worker = Worker::new(Arc::clone(&group.shared), viewers)?;
            let cpus = &group.shared.plan.cpus;
            let cpu = (!cpus.is_empty()).then(|| cpus[i % cpus.len()]);
            let recorder = group.recorder.as_ref().map(Recorder::handle);
            let builder = std::thread::Builder::new().name(format!("players-{i}"));
            let work = move || worker.run(cpu, recorder.as_ref());
            group.threads.push(builder.spawn(work).map_err(GroupError::Thread)?);
        }
        Ok(group)
    }

    /// Whether all threads have ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// How much of its time has passed, 0..1.
    #[must_use]
    pub fn done(&self) -> f64 {
        let (now, start) = (monotonic_ns(), self.shared.start_ns);
        let whole = self.shared.hold().to_ns - start;
        (now.saturating_sub(start) as f64 / whole as f64).min(1.0)
    }

    /// End the threads, which takes some milliseconds unless they have ended by themselves, and collect what they saw.
    ///
    /// # Errors
    /// [`GroupError::Panicked`].
    pub fn finish(mut self) -> Result<GroupRecord, GroupError> {
        let stopped = !self.is_finished();
        self.shared.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.drain(..).map(|thread| thread.join().map_err(|_| GroupError::Panicked));
        let threads = threads.collect::<Result<_, _>>()?;
        let calls = self.recorder.take().map(|recorder| crate::calls::finish(recorder, "players"));
        let aborted = self.shared.aborted.load(Ordering::Relaxed);
        Ok(GroupRecord { shared: Arc::clone(&self.shared), threads, calls, aborted, stopped })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in a thread has been printed by then; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
