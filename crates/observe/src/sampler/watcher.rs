//! The thread that samples: one plain thread, absolute deadlines, nothing bunched.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::thread::{set_timer_slack_ns, thread_cpu_ns};

use super::rates::rates;
use super::record::Record;
use super::source::Sources;

/// After an interruption longer than this (a suspended machine) the places of the missed samples are not kept one by
/// one.
const MISSED_MOST: u64 = 600;

/// What the thread brings back.
pub struct Watch {
    pub sources: Sources,
    pub record: Record,
    /// CPU time of the thread over the wall time between the first and the last reading, in %.
    pub cost_cpu_percent: Option<f64>,
}

/// A running thread. Dropping it ends it.
pub struct Watcher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Watch>>,
}

impl Watcher {
    /// Samples `sources` from `at_ns` of the monotonic clock, every `interval_ns`, until it is ended.
    pub fn start(sources: Sources, at_ns: u64, interval_ns: u64) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || watch(sources, at_ns, interval_ns, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Whether the thread is gone although nobody has ended it.
    pub fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, within one reading. `None` when the thread had died.
    pub fn finish(mut self) -> Option<Watch> {
        self.stop = None;
        self.thread.take()?.join().ok()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that died has nothing to give back.
            let _ = thread.join();
        }
    }
}

/// Waits until `deadline_ns`; `false` when the watcher was ended before. Waiting on the channel is as exact as a sleep
/// (a futex with an absolute time on the monotonic clock), and ends at once.
fn wait_until(deadline_ns: u64, stopped: &Receiver<()>) -> bool {
    loop {
        let left_ns = deadline_ns.saturating_sub(monotonic_ns());
        match stopped.recv_timeout(Duration::from_nanos(left_ns)) {
            Err(RecvTimeoutError::Timeout) if monotonic_ns() >= deadline_ns => return true,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

fn watch(mut sources: Sources, at_ns: u64, interval_ns: u64, stopped: &Receiver<()>) -> Watch {
    // Without the right to set it the samples are 50 us later, which `late_ms_max` shows.
    let _ = set_timer_slack_ns(1);
    let mut record = Record::new();
    if !wait_until(at_ns, stopped) {
        return Watch { sources, record, cost_cpu_percent: None };
    }
    let cpu_from_ns = thread_cpu_ns();
    let mut previous = sources.read();
    let from_ns = previous.at_ns;
    let seconds = |ns: u64| ns.saturating_sub(at_ns) as f64 / 1e9;
    let mut place = 1u64;
    while wait_until(at_ns + place * interval_ns, stopped) {
        let late_ns = monotonic_ns().saturating_sub(at_ns + place * interval_ns);
        record.note_late_ns(late_ns);
        // Whole intervals that are over keep their places without a value; the sample that is taken now belongs to
        // the last of them and covers all the time since the one before.
        let missed = late_ns / interval_ns;
        for behind in 0..missed.min(MISSED_MOST) {
            record.push_missed(seconds(at_ns + (place + behind) * interval_ns));
        }
        place += missed;
        let current = sources.read();
        record.push(seconds(current.at_ns), rates(&previous, &current));
        previous = current;
        place += 1;
    }
    let wall_ns = monotonic_ns().saturating_sub(from_ns);
    let cpu_ns = thread_cpu_ns().saturating_sub(cpu_from_ns);
    let cost_cpu_percent = (wall_ns > 0).then(|| 100.0 * cpu_ns as f64 / wall_ns as f64);
    Watch { sources, record, cost_cpu_percent }
}
