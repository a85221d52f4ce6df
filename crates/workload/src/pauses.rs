//! A witness of pauses: a thread that only sleeps and looks at the clocks finds the times in which this whole
//! program, or the machine, did not run (SIGSTOP, a frozen control group, a suspended machine).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::{boottime_ns, monotonic_ns};
use sys::thread::thread_ready_ns;

const EVERY: Duration = Duration::from_millis(20);
/// A shorter time is no pause: wake-ups can be late for many reasons.
const PAUSE_MIN_NS: u64 = 200_000_000;

/// A time in which this program did not run, on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    from_ns: u64,
    to_ns: u64,
    /// How long the machine was suspended in it, which the monotonic clock does not count.
    suspended_ns: u64,
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct PauseWatch {
    found: Arc<Mutex<Vec<Pause>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PauseWatch {
    /// Errors: there is no thread for it.
    pub fn start() -> std::io::Result<Self> {
        let (found, is_over) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let (kept, ends) = (Arc::clone(&found), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("pause-watch".to_owned());
        let thread = thread.stack_size(64 << 10).spawn(move || watch(&kept, &ends))?;
        Ok(Self { found, is_over, thread: Some(thread) })
    }

    /// Seconds of pauses between two moments of the monotonic clock, the second of which is over.
    pub fn paused_s(&self, from_ns: u64, to_ns: u64) -> f64 {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().map(|pause| within(pause, from_ns, to_ns)).sum::<u64>() as f64 / 1e9
    }

    /// The same after a last look: a pause that has just ended counts.
    pub fn finish(mut self, from_ns: u64, to_ns: u64) -> f64 {
        self.end();
        self.paused_s(from_ns, to_ns)
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for PauseWatch {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(found: &Mutex<Vec<Pause>>, is_over: &AtomicBool) {
    let mut before = Look::now();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(EVERY);
        let now = Look::now();
        if let Some(pause) = pause_between(&before, &now) {
            found.lock().unwrap_or_else(PoisonError::into_inner).push(pause);
        }
        before = now;
    }
}

struct Look {
    at_ns: u64,
    suspended_ns: u64,
    /// How long this thread has waited for a CPU; `None`: the kernel does not say (no schedstat).
    ready_ns: Option<u64>,
}

impl Look {
    fn now() -> Self {
        let at_ns = monotonic_ns();
        let suspended_ns = boottime_ns().saturating_sub(at_ns);
        Self { at_ns, suspended_ns, ready_ns: thread_ready_ns() }
    }
}

/// A pause between two looks. What the thread waited for a CPU is none: others had it.
fn pause_between(before: &Look, now: &Look) -> Option<Pause> {
    let slept_ns = now.at_ns.saturating_sub(before.at_ns);
    let paused_ns = match now.ready_ns.zip(before.ready_ns) {
        Some((to_ns, from_ns)) => {
            let ready_ns = to_ns.saturating_sub(from_ns);
            slept_ns.saturating_sub(ready_ns).saturating_sub(EVERY.as_nanos() as u64)
        }
        // It may have been a wait for a CPU.
        None => 0,
    };
    let suspended_ns = now.suspended_ns.saturating_sub(before.suspended_ns);
    (paused_ns + suspended_ns >= PAUSE_MIN_NS).then(|| Pause {
        from_ns: now.at_ns - paused_ns,
        to_ns: now.at_ns,
        suspended_ns,
    })
}

fn within(pause: &Pause, from_ns: u64, to_ns: u64) -> u64 {
    let length_ns = pause.to_ns.min(to_ns).saturating_sub(pause.from_ns.max(from_ns));
    let is_within = pause.from_ns < to_ns && pause.to_ns > from_ns;
    length_ns + if is_within { pause.suspended_ns } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at_ms: u64, suspended_ms: u64, ready_ms: u64) -> Look {
        Look { at_ns: at_ms * MS, suspended_ns: suspended_ms * MS, ready_ns: Some(ready_ms * MS) }
    }

    #[test]
    fn pause_is_time_without_a_look_and_without_a_wait_for_a_cpu() {
        let before = look(1000, 7, 50);
        for (now, paused_ms) in [
            (look(1020, 7, 50), None),
            (look(1200, 7, 50), None),
            (look(3020, 7, 50), Some(2000)),
            // Others had the CPU.
            (look(3020, 7, 2040), None),
            (look(3020, 7, 550), Some(1500)),
            // The monotonic clock stands still while the machine is suspended.
            (look(1020, 5007, 50), Some(5000)),
            // A pause, or a wait for a CPU: unknown.
            (Look { ready_ns: None, ..look(3020, 7, 50) }, None),
        ] {
            let found = pause_between(&before, &now);
            let found = found.map(|pause| within(&pause, 0, u64::MAX) / MS);
            assert_eq!(found, paused_ms, "{} {} {:?}", now.at_ns, now.suspended_ns, now.ready_ns);
        }
    }

    #[test]
    fn pauses_count_within_the_asked_time_alone() {
        let pause = Pause { from_ns: 10, to_ns: 30, suspended_ns: 5 };
        assert_eq!(
            [(0, 10), (0, 20), (15, 25), (0, 99), (30, 99)].map(|(a, b)| within(&pause, a, b)),
            [0, 15, 15, 25, 0]
        );
    }
}
