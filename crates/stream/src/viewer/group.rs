//! Many players on a few threads, started at one moment; the threads end with the hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use base::pace::{Even, Pacer};
use base::timeline::CallTimes;
use sys::clock::monotonic_ns;
use sys::span::Recorder;

use super::connection::ContentSource;
use super::content::Content;
use super::content::start_offsets;
use super::part_settings::ViewerSettings;
use super::stream::{Hold, StreamSpec, ViewerStream};
use super::worker::{SLOT_NS, ThreadRecord, Worker};
use crate::settings::Depth;

/// Least length of a hold that is ended early: long enough to sample the resources' rates.
const ABORTED_HOLD_NS_MIN: u64 = 1_000_000_000;

/// What the threads of a group share.
#[derive(Debug)]
pub struct Shared {
    pub plan: ViewerSettings,
    pub source: ContentSource,
    pub content: Arc<Content>,
    /// On the monotonic clock.
    pub start_ns: u64,
    stop: AtomicBool,
    /// The verdict is certain before the hold's end.
    aborted: AtomicBool,
    /// The beginning of the hold.
    hold_from_ns: AtomicU64,
    /// Streams that have shown a picture.
    playing: AtomicU64,
}

impl Shared {
    #[inline]
    #[must_use]
    pub fn hold(&self) -> Hold {
        let from_ns = self.hold_from_ns.load(Ordering::Relaxed);
        Hold { from_ns, to_ns: from_ns.saturating_add(self.plan.hold.ns()) }
    }

    #[must_use]
    pub fn latest_end_ns(&self) -> u64 {
        self.start_ns + self.plan.hold_after_ns() + self.plan.hold.ns()
    }

    /// Count a stream's first picture. After the last one the hold can begin, unless `warm_up` fixes its
    /// beginning or other hosts, whose progress is unknown here, hold at the same time.
    pub fn record_playback_start(&self, now_ns: u64) {
        let playing = self.playing.fetch_add(1, Ordering::Relaxed) + 1;
        if playing == self.plan.streams && self.plan.warm_up.is_none() && !self.plan.is_part() {
            self.set_hold_start(now_ns + 2 * self.plan.cap.ns());
        }
    }

    /// Begin the hold with the slot at or after `from_ns`, but not later than planned.
    fn set_hold_start(&self, from_ns: u64) {
        let slots = (from_ns - self.start_ns).div_ceil(SLOT_NS);
        self.hold_from_ns.fetch_min(self.start_ns + slots * SLOT_NS, Ordering::Relaxed);
    }

    /// End the hold early: the verdict is certain.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// Whether the threads end at the slot that is due at `due_ns`.
    #[must_use]
    pub fn should_stop(&self, due_ns: u64) -> bool {
        let aborted = || {
            self.aborted.load(Ordering::Relaxed)
                && due_ns >= self.hold().from_ns.saturating_add(ABORTED_HOLD_NS_MIN)
        };
        self.stop.load(Ordering::Relaxed) || aborted()
    }
}

/// A running group. Dropping it ends its threads.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<ThreadRecord>>,
    /// Times the threads' calls.
    recorder: Option<Recorder>,
}

/// What a group measured.
#[derive(Debug)]
pub struct GroupRecord {
    pub shared: Arc<Shared>,
    pub threads: Vec<ThreadRecord>,
    pub calls: Option<CallTimes>,
    /// The hold ended early because the verdict was certain.
    pub aborted: bool,
    /// The group was stopped before the hold's end.
    pub stopped: bool,
}

/// Why a group cannot run.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error("no thread could be started for the players: {0}; end other programs or raise the process limit")]
    Thread(std::io::Error),
    #[error("{0}; raise the limit of open files (ulimit -n)")]
    Net(#[from] sys::net::NetError),
    #[error("a thread of the players ended unexpectedly; please report this as a bug of kagiri")]
    Panicked,
}

/// The group's streams in the order of their numbers. Without `ranges` all begin at the content's start.
fn stream_specs(plan: &ViewerSettings, content: &Content, ranges: bool, start_ns: u64) -> Vec<StreamSpec> {
    let starts = Even { count: plan.all(), window_ns: plan.start_window_ns() };
    let spec = |number: u64| StreamSpec {
        number,
        gop: if ranges { start_offsets::gop(&content.timeline, number, plan.seed) } else { 0 },
        depth: plan.depth_of(number),
        check_hashes: number == 0 && plan.depth_of(0) == Depth::Parse,
        connect_ns: start_ns + starts.intended_ns(number).unwrap_or(0),
    };
    plan.numbers().map(spec).collect()
}

impl Group {
    /// Start all threads; they begin at `start_ns` of the monotonic clock.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn start(
        plan: ViewerSettings,
        source: ContentSource,
        content: Arc<Content>,
        ranges: bool,
        start_ns: u64,
    ) -> Result<Self, GroupError> {
        let latest_ns = start_ns + plan.hold_after_ns().next_multiple_of(SLOT_NS);
        let mut shares: Vec<Vec<ViewerStream>> = (0..plan.threads).map(|_| Vec::new()).collect();
        let threads = shares.len();
        for (i, spec) in stream_specs(&plan, &content, ranges, start_ns).into_iter().enumerate() {
            shares[i % threads].push(ViewerStream::new(spec, plan.rules(), &content));
        }
        let shared = Arc::new(Shared {
            source,
            content,
            start_ns,
            stop: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            hold_from_ns: AtomicU64::new(latest_ns),
            playing: AtomicU64::new(0),
            plan,
        });
        // From here on a failure drops the group, which ends its threads.
        let recorder = shared.plan.calls.then(workload::calls::record);
        let mut group = Self { shared, threads: Vec::new(), recorder };
        for (i, streams) in shares.into_iter().enumerate() {
            let worker = Worker::new(Arc::clone(&group.shared), streams)?;
            let cpus = &group.shared.plan.cpus;
            let cpu = (!cpus.is_empty()).then(|| cpus[i % cpus.len()]);
            let recorder = group.recorder.as_ref().map(Recorder::handle);
            let builder = std::thread::Builder::new().name(format!("players-{i}"));
            let work = move || worker.run(cpu, recorder.as_ref());
            group.threads.push(builder.spawn(work).map_err(GroupError::Thread)?);
        }
        Ok(group)
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// The share of the group's time that has passed, 0..1.
    #[must_use]
    pub fn done(&self) -> f64 {
        let (now, start) = (monotonic_ns(), self.shared.start_ns);
        let whole = self.shared.hold().to_ns - start;
        (now.saturating_sub(start) as f64 / whole as f64).min(1.0)
    }

    /// End the threads within milliseconds and return what they measured.
    ///
    /// # Errors
    /// [`GroupError::Panicked`].
    pub fn finish(mut self) -> Result<GroupRecord, GroupError> {
        let stopped = !self.is_finished();
        self.shared.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.drain(..).map(|thread| thread.join().map_err(|_| GroupError::Panicked));
        let threads = threads.collect::<Result<_, _>>()?;
        let calls = self.recorder.take().map(|recorder| workload::calls::finish(recorder, "players"));
        let aborted = self.shared.aborted.load(Ordering::Relaxed);
        Ok(GroupRecord { shared: Arc::clone(&self.shared), threads, calls, aborted, stopped })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}
