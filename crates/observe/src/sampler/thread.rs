//! The thread that samples: one plain thread with absolute deadlines.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::thread::{set_timer_slack_ns, thread_cpu_ns};

use super::rates::{Sample, rates};
use super::recorder::Recorder;
use super::sources::Sources;

/// After an interruption longer than this (a suspended machine), the missed samples are not recorded one by
/// one.
const MISSED_MOST: u64 = 600;

/// What the thread returns.
pub struct Watch {
    pub sources: Sources,
    pub recorder: Recorder,
    /// CPU time of the thread over the wall time between the first and the last reading, in %.
    pub cost_cpu_percent: Option<f64>,
}

type Last = Arc<Mutex<Option<Sample>>>;

pub struct SamplerThread {
    last: Last,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Watch>>,
}

impl SamplerThread {
    /// Samples `sources` from `at_ns` of the monotonic clock, every `interval_ns`, until it is ended.
    pub fn start(sources: Sources, at_ns: u64, interval_ns: u64) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let last = Last::default();
        let seen = Arc::clone(&last);
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || watch(sources, at_ns, interval_ns, &stopped, &seen))?;
        Ok(Self { last, stop: Some(stop), thread: Some(thread) })
    }

    pub fn last(&self) -> Option<Sample> {
        // A sample is consistent even if a thread panicked with the lock.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread ended without a request.
    pub fn is_dead(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it, within one reading. `None` if the thread panicked.
    pub fn finish(mut self) -> Option<Watch> {
        self.stop = None;
        self.thread.take()?.join().ok()
    }
}

impl Drop for SamplerThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked returns nothing.
            let _ = thread.join();
        }
    }
}

/// Waits until `deadline_ns`; `false` if the sampler was ended before. Waiting on the channel is as exact as
/// a sleep (a futex with an absolute time on the monotonic clock), and ends at once.
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

/// When samples are due. Pure, so that lateness can be tested without being late.
struct Schedule {
    at_ns: u64,
    interval_ns: u64,
    /// Which sample comes next, counted from 1.
    place: u64,
}

impl Schedule {
    fn new(at_ns: u64, interval_ns: u64) -> Self {
        Self { at_ns, interval_ns: interval_ns.max(1), place: 1 }
    }

    fn due_ns(&self, place: u64) -> u64 {
        self.at_ns.saturating_add(place.saturating_mul(self.interval_ns))
    }

    fn next_ns(&self) -> u64 {
        self.due_ns(self.place)
    }

    /// Advances to the sample after the one taken at `now_ns`; returns the due times of the samples in
    /// between, which are lost. The sample taken belongs to the last complete interval, and covers all of
    /// them.
    fn advance(&mut self, now_ns: u64) -> Vec<u64> {
        let late = now_ns.saturating_sub(self.next_ns()) / self.interval_ns;
        let lost = (0..late.min(MISSED_MOST)).map(|behind| self.due_ns(self.place + behind)).collect();
        self.place = self.place.saturating_add(late).saturating_add(1);
        lost
    }
}

fn watch(mut sources: Sources, at_ns: u64, interval_ns: u64, stopped: &Receiver<()>, last: &Last) -> Watch {
    // If it cannot be set, samples are 50 us later, which `late_ms_max` shows.
    let _ = set_timer_slack_ns(1);
    let mut recorder = Recorder::default();
    if !wait_until(at_ns, stopped) {
        return Watch { sources, recorder, cost_cpu_percent: None };
    }
    let cpu_from_ns = thread_cpu_ns();
    let mut schedule = Schedule::new(at_ns, interval_ns);
    let mut previous = sources.read();
    let from_ns = previous.at_ns;
    recorder.note_late_ns(from_ns.saturating_sub(at_ns));
    let seconds = |ns: u64| ns.saturating_sub(at_ns) as f64 / 1e9;
    while wait_until(schedule.next_ns(), stopped) {
        let current = sources.read();
        recorder.note_late_ns(current.at_ns.saturating_sub(schedule.next_ns()));
        for lost_ns in schedule.advance(current.at_ns) {
            recorder.push_missed(seconds(lost_ns));
        }
        let sample = rates(&previous, &current);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
        recorder.push(seconds(current.at_ns), sample);
        previous = current;
    }
    let wall_ns = monotonic_ns().saturating_sub(from_ns);
    let cpu_ns = thread_cpu_ns().saturating_sub(cpu_from_ns);
    let cost_cpu_percent = (wall_ns > 0).then(|| 100.0 * cpu_ns as f64 / wall_ns as f64);
    Watch { sources, recorder, cost_cpu_percent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_samples_are_skipped_not_bunched() {
        // The sample due at 1100 is taken at: lost, next due.
        let table: [(u64, &[u64], u64); 6] = [
            (1100, &[], 1200),
            (1199, &[], 1200),
            (1200, &[1100], 1300),
            (1299, &[1100], 1300),
            (1450, &[1100, 1200, 1300], 1500),
            (900, &[], 1200),
        ];
        for (now, lost, next) in table {
            let mut schedule = Schedule::new(1000, 100);
            assert_eq!(schedule.next_ns(), 1100);
            assert_eq!(schedule.advance(now), lost, "taken at {now}");
            assert_eq!(schedule.next_ns(), next, "taken at {now}");
        }
    }

    #[test]
    fn deadlines_do_not_drift_and_long_gaps_are_bounded() {
        let mut schedule = Schedule::new(7, 100);
        for place in 1..=1000 {
            assert_eq!(schedule.next_ns(), 7 + place * 100);
            assert!(schedule.advance(7 + place * 100 + 99).is_empty());
        }
        let lost = schedule.advance(u64::MAX / 2);
        assert_eq!(lost.len() as u64, MISSED_MOST);
        let next = schedule.next_ns();
        assert!(next > u64::MAX / 2 && next - u64::MAX / 2 <= 100);
        Schedule::new(u64::MAX, 0).advance(u64::MAX);
    }
}
