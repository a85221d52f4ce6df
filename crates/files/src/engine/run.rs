//! A run: its threads are started together, watched, and their counts added up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reactor::{ThreadError, ThreadGroup, ThreadSpec};
use sys::clock::{Deadline, monotonic_ns};
use sys::net::NetError;
use workload::pauses::PauseWatch;

use super::compile::{Compiled, ThreadPlan};
use super::flowops::aio::AioPool;
use super::flowops::content::Content;
use super::flowops::shared::{RunSettings, Shared};
use super::report::{CpuReport, Durable, Ended, RowReport, RunReport, WaitSamples};
use super::watch::storage_reads::StorageReads;
use super::watch::waits::WaitSampler;
use super::worker::{ThreadReport, Worker};
use crate::tree::FileTree;

/// Calls that are under way at the end of the run may take so long.
const LEAVE: Duration = Duration::from_secs(30);
/// A stack that the deepest flowop fits in several times.
const STACK_BYTES: usize = 256 << 10;
/// The series of a run has about so many points.
const INTERVALS: u64 = 50;
const INTERVAL_NS: std::ops::RangeInclusive<u64> = 100_000_000..=1_000_000_000;
/// Between two looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(20);
const LOST_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the threads cannot be stopped: {0}")]
    Control(#[from] NetError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("memory of {0} threads: {1}; use fewer threads or smaller reads and writes")]
    Memory(usize, std::io::Error),
    #[error("start threads for asynchronous writes: {0}; raise the limit of processes")]
    Aio(std::io::Error),
}

/// Threads that wait for their start.
pub struct Run {
    shared: Arc<Shared>,
    group: ThreadGroup<ThreadReport>,
    interval_ns: u64,
    reads: StorageReads,
}

impl Run {
    /// Starts the threads; they wait.
    pub fn prepare(
        settings: RunSettings,
        compiled: Compiled,
        trees: Vec<FileTree>,
        content: Content,
    ) -> Result<Self, StartError> {
        let aio = compiled.has_aio.then(AioPool::start).transpose().map_err(StartError::Aio)?;
        let interval_ns = (settings.hold_ns / INTERVALS).clamp(*INTERVAL_NS.start(), *INTERVAL_NS.end());
        let plans: Vec<ThreadPlan> = compiled
            .threads
            .iter()
            .flat_map(|plan| std::iter::repeat_n(plan, usize::try_from(plan.instances).unwrap_or(0)))
            .cloned()
            .collect();
        let shared = Arc::new(Shared::new(settings, compiled, trees, content, aio, plans.len()));
        let mut group = ThreadGroup::new(u64::MAX)?;
        for (number, plan) in plans.into_iter().enumerate() {
            let spec = ThreadSpec {
                name: format!("{}-{number}", plan.name),
                stack_bytes: Some(STACK_BYTES),
                ..ThreadSpec::default()
            };
            let worker = Worker::new(shared.clone(), plan, number, interval_ns);
            let worker = worker.map_err(|error| StartError::Memory(shared.live.len(), error))?;
            group.spawn(spec, move |control| worker.run(control))?;
        }
        Ok(Self { shared, group, interval_ns, reads: StorageReads::default() })
    }

    pub fn threads(&self) -> usize {
        self.shared.live.len()
    }

    /// What a display reads while the run is under way.
    pub fn watch(&self) -> Watched {
        Watched(self.shared.clone())
    }

    /// Sets the start, at a moment of the monotonic clock.
    pub fn begin(&mut self, start_ns: u64) {
        self.shared.times(start_ns);
        if self.shared.settings.omit_ns == 0 {
            // A small set can be read whole before the first look.
            self.reads.begin();
        }
        self.group.begin(start_ns);
    }

    /// Waits until the end, until `stop` or until nothing is left to do, and adds up what was counted.
    /// Asks `lost` now and then why the storage is gone, which ends the run.
    pub fn wait(mut self, stop: &Arc<AtomicBool>, lost: &dyn Fn() -> Option<String>) -> RunReport {
        let times = self.shared.times(u64::MAX);
        let (start_ns, from_ns, to_ns) = (times.start_ns, times.from_ns, times.to_ns);
        let (mut asked, mut waits) = (Instant::now(), WaitSampler::default());
        let pauses = PauseWatch::start().ok();
        while !self.group.wait(Deadline::after(LOOK)) && monotonic_ns() < to_ns {
            if stop.load(Ordering::Relaxed) {
                self.shared.end(Ended::Stopped);
                break;
            }
            if asked.elapsed() >= LOST_EVERY {
                if let Some(why) = lost() {
                    self.shared.end(Ended::Failed(why));
                    break;
                }
                asked = Instant::now();
            }
            if (from_ns..to_ns).contains(&monotonic_ns()) {
                self.reads.begin();
                waits.look(&self.shared.ids);
            }
        }
        // Calls that are under way are waited for, but not for ever.
        let deadline = Deadline::after(LEAVE);
        while !self.group.wait(Deadline::after(LOOK)) && !deadline.passed() {}
        let ended_ns = monotonic_ns();
        let storage_read_bytes = self.reads.end();
        let results = self.group.finish(Deadline::after(Duration::ZERO));
        let report = self.sum(results, (start_ns, from_ns, to_ns.min(ended_ns.max(from_ns))));
        let s = |s: f64| start_ns + (s * 1e9) as u64;
        let paused_s = pauses.map_or(0.0, |pauses| pauses.finish(s(report.from_s), s(report.to_s)));
        RunReport { waits: waits.samples, paused_s, storage_read_bytes, ..report }
    }

    fn sum(
        &self,
        results: Vec<Result<ThreadReport, ThreadError>>,
        (start_ns, from_ns, to_ns): (u64, u64, u64),
    ) -> RunReport {
        let shared = &self.shared;
        let mut rows: Vec<RowReport> =
            shared.compiled.rows.iter().map(|row| RowReport::new(&row.name, row.kind)).collect();
        let (mut cpu, mut hanging, mut broken) = (CpuReport::default(), 0, None);
        let (mut intervals, mut rounds, mut late_rounds) = (Vec::new(), 0, 0);
        cpu.ready_s = Some(0.0);
        let mut last_ns = from_ns;
        for result in results {
            let thread = match result {
                Ok(thread) => thread,
                Err(error @ ThreadError::Panicked { .. }) => {
                    broken = Some(Ended::Failed(error.to_string()));
                    continue;
                }
                Err(_) => {
                    hanging += 1;
                    continue;
                }
            };
            for (all, own) in rows.iter_mut().zip(&thread.rows) {
                add(all, own);
            }
            cpu.user_s += thread.cpu.user_s;
            cpu.system_s += thread.cpu.system_s;
            cpu.ready_s = cpu.ready_s.zip(thread.cpu.ready_s).map(|(all, own)| all + own);
            cpu.waits += thread.cpu.waits;
            cpu.preemptions += thread.cpu.preemptions;
            intervals.resize(intervals.len().max(thread.intervals.len()), 0);
            intervals.iter_mut().zip(&thread.intervals).for_each(|(all, own)| *all += own);
            rounds += thread.rounds;
            late_rounds += thread.late_rounds;
            last_ns = last_ns.max(thread.end_ns);
        }
        let is_early = shared.ended().is_some() || last_ns < to_ns;
        let end_ns = if is_early { last_ns.min(to_ns) } else { to_ns };
        let by_itself = if last_ns < to_ns { Ended::Done } else { Ended::Time };
        let s = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        RunReport {
            threads: shared.live.len() as u64,
            hanging,
            ended: broken.or(shared.ended()).unwrap_or(by_itself),
            from_s: s(from_ns),
            to_s: s(end_ns.max(from_ns)),
            rows,
            cpu,
            cpus: sys::thread::online_cpus().map_or(1, |cpus| cpus.len()) as u64,
            intervals,
            interval_s: self.interval_ns as f64 / 1e9,
            late_rounds,
            rounds,
            rate_per_s: shared.settings.rate_per_s,
            waits: WaitSamples::default(),
            durable: Durable::Unknown,
            paused_s: 0.0,
            storage_read_bytes: None,
        }
    }
}

fn add(all: &mut RowReport, own: &super::recorder::RowCounts) {
    all.count += own.count;
    all.bytes += own.bytes;
    all.sum_ns += own.sum_ns;
    all.all_count += own.all_count;
    own.times.add_to(&mut all.times);
    for (message, count) in &own.errors {
        *all.errors.entry(message.clone()).or_default() += count;
    }
}

/// A run that is under way, for a display.
#[derive(Debug, Clone)]
pub struct Watched(Arc<Shared>);

impl Watched {
    /// Operations of all threads until now.
    pub fn operations(&self) -> u64 {
        self.0.live.iter().map(|operations| operations.0.load(Ordering::Relaxed)).sum()
    }
}
