//! The threads of the sources: start, wait for connections, stop.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use reactor::{EventLoop, ThreadGroup, ThreadSpec};
use sys::clock::Deadline;

use super::config::SourcesConfig;
use super::counters::merge;
use super::worker::{Worker, WorkerProgress};
use crate::report::SourcesReport;

/// Concurrent handshakes over all threads: below any builder's listen backlog.
const HANDSHAKES_MAX: usize = 64;
/// Sources per thread. On two CPUs, 1000 sources send half as much again with four threads as with one: the
/// kernel schedules the builder more often between them.
const SOURCES_A_THREAD: usize = 250;
const READY_MAX: usize = 512;
/// Buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;

#[derive(Debug)]
pub(super) struct SourceThreads {
    pub(super) group: ThreadGroup<SourcesReport>,
    progress: Vec<Arc<WorkerProgress>>,
    /// One message of each thread: its sources are all connected, or why they are not.
    connected: Receiver<Result<(), String>>,
    threads_connected: usize,
}

fn threads_for(sources: usize, wanted: usize) -> usize {
    let cpus = sys::thread::online_cpus().map_or(1, |cpus| cpus.len().max(1));
    let threads = if wanted == 0 { sources.div_ceil(SOURCES_A_THREAD).min(2 * cpus) } else { wanted };
    threads.clamp(1, sources.max(1))
}

impl SourceThreads {
    /// Starts threads that connect `sources` sources from number `first` on.
    pub(super) fn start(
        config: &Arc<SourcesConfig>,
        first: u32,
        sources: usize,
        wanted: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let number = threads_for(sources, wanted);
        let (sender, connected) = channel();
        let group = ThreadGroup::new(u64::MAX)?;
        let mut started = Self { group, progress: Vec::new(), connected, threads_connected: 0 };
        for thread in 0..number {
            // Split evenly, in the order of their numbers.
            let (from, to) = (thread * sources / number, (thread + 1) * sources / number);
            let handshakes_max = (HANDSHAKES_MAX / number).max(1);
            let mut events = EventLoop::new(started.group.control().stop_handle(), READY_MAX)?;
            let registry = events.reactor().registry();
            let worker =
                Worker::new(config.clone(), first + from as u32, to - from, handshakes_max, registry)?;
            let (sender, progress) = (sender.clone(), Arc::new(WorkerProgress::default()));
            started.progress.push(progress.clone());
            let spec = ThreadSpec {
                name: "daq-sources".into(),
                stack_bytes: Some(STACK_BYTES),
                // Otherwise staggered fragments are about 50 us late.
                is_precise: true,
                ..ThreadSpec::default()
            };
            started.group.spawn(spec, move |control| worker.run(events, control, &progress, &sender))?;
        }
        Ok(started)
    }

    /// Waits at most `step` for all connections; `Ok(false)`: not yet.
    pub(super) fn wait_connected(&mut self, step: Duration) -> Result<bool, String> {
        let until = Deadline::after(step);
        while self.threads_connected < self.progress.len() {
            match self.connected.recv_timeout(until.left()) {
                Ok(connected) => connected?,
                Err(RecvTimeoutError::Timeout) => return Ok(false),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("a thread of the sources panicked; please report this".to_owned());
                }
            }
            self.threads_connected += 1;
        }
        Ok(true)
    }

    pub(super) fn standing(&self) -> usize {
        self.progress.iter().map(|progress| progress.standing.load(Ordering::Relaxed)).sum()
    }

    /// Fragments sent so far, and their payload in bytes.
    pub(super) fn sent(&self) -> (u64, u64) {
        let sum = |of: fn(&WorkerProgress) -> &AtomicU64| {
            self.progress.iter().map(|progress| of(progress).load(Ordering::Relaxed)).sum()
        };
        (sum(|progress| &progress.fragments), sum(|progress| &progress.payload_bytes))
    }

    /// Stops all threads, waits for them at most `within`, and adds up their reports.
    pub(super) fn stop(mut self, within: Duration) -> Result<SourcesReport, String> {
        self.group.stop();
        let mut sum = SourcesReport::default();
        for report in self.group.finish(Deadline::after(within)) {
            merge(&mut sum, report.map_err(|error| error.to_string())?);
        }
        sum.sources.sort_by_key(|source| source.source);
        Ok(sum)
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
