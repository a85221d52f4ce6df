//! Many players on a few threads, started at one moment; the threads end with the hold.

use std::sync::Arc;
use std::time::Duration;

use base::pace::{Even, Pacer};
use base::timeline::CallTimes;
use reactor::{ThreadError, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::NetError;
use sys::span::Recorder;

use super::connection::ContentSource;
use super::part_settings::ViewerSettings;
use super::shared::Shared;
use super::stream::{StreamSpec, ViewerStream};
use super::worker::{ThreadRecord, Worker};
use crate::content::Content;
use crate::content::start_offsets;
use crate::settings::Depth;

/// How long the threads may take for their last readings on an overloaded host.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

/// A running group. Dropping it ends its threads.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    threads: ThreadGroup<Result<ThreadRecord, NetError>>,
    /// Times the threads' calls.
    recorder: Option<Recorder>,
}

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

#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("{0}; raise the limit of open files (ulimit -n)")]
    Net(#[from] NetError),
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
    pub fn start(
        plan: ViewerSettings,
        source: ContentSource,
        content: Arc<Content>,
        ranges: bool,
        start_ns: u64,
    ) -> Result<Self, GroupError> {
        let mut shares: Vec<Vec<ViewerStream>> = (0..plan.threads).map(|_| Vec::new()).collect();
        let threads = shares.len();
        for (i, spec) in stream_specs(&plan, &content, ranges, start_ns).into_iter().enumerate() {
            shares[i % threads].push(ViewerStream::new(spec, plan.rules(), &content));
        }
        let shared = Arc::new(Shared::new(plan, source, content, start_ns));
        let recorder = shared.plan.calls.then(workload::calls::record);
        // A failure from here on drops the group, which ends its threads.
        let mut group = Self { shared, threads: ThreadGroup::new(start_ns)?, recorder };
        for (i, streams) in shares.into_iter().enumerate() {
            let worker = Worker::new(Arc::clone(&group.shared), streams);
            let mut events = Worker::event_loop(group.threads.control().stop_handle())?;
            let cpus = &group.shared.plan.cpus;
            let cpu = cpus.get(i % cpus.len().max(1)).copied();
            let spec = ThreadSpec { name: format!("players-{i}"), cpu, stack_bytes: None, is_precise: true };
            let recorder = group.recorder.as_ref().map(Recorder::handle);
            group.threads.spawn(spec, move |_| worker.run(&mut events, recorder.as_ref()))?;
        }
        Ok(group)
    }

    pub fn is_finished(&self) -> bool {
        self.threads.is_finished()
    }

    /// The share of the group's time that has passed, 0..1.
    pub fn done(&self) -> f64 {
        let (now, start) = (monotonic_ns(), self.shared.start_ns);
        let whole = self.shared.hold().to_ns - start;
        (now.saturating_sub(start) as f64 / whole as f64).min(1.0)
    }

    /// Ends the threads and returns what they measured. On an idle host that takes milliseconds.
    pub fn finish(mut self) -> Result<GroupRecord, GroupError> {
        let stopped = !self.is_finished();
        self.threads.stop();
        let threads = self.threads.finish(Deadline::after(FINISH_WITHIN)).into_iter();
        let threads = threads.map(|ended| Ok(ended??)).collect::<Result<_, GroupError>>()?;
        let calls = self.recorder.take().map(|recorder| workload::calls::finish(recorder, "players"));
        let aborted = self.shared.is_aborted();
        Ok(GroupRecord { shared: self.shared, threads, calls, aborted, stopped })
    }
}
