//! Threads that start together and stop together, and whose panics become errors.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::NetError;
use sys::thread::{pin_to_cpu, set_timer_slack_ns};

use super::stop::StopHandle;

/// Threads that have not ended so long after a stop are abandoned.
const STOP_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct ThreadSpec {
    /// Name, as the kernel shows it: the first 15 bytes.
    pub name: String,
    /// The CPU that the thread is kept on. A CPU that the process may not use leaves the thread where it is.
    pub cpu: Option<usize>,
    /// Size of the stack in bytes; `None`: 2 MiB.
    pub stack_bytes: Option<usize>,
    /// Whether the kernel may delay wake-ups by no more than a nanosecond instead of 50 us
    /// (`PR_SET_TIMERSLACK`).
    pub is_precise: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    #[error("start thread {name}: {source}; end other programs or raise the limit of processes")]
    Start { name: String, source: std::io::Error },
    #[error("thread {name} panicked: {message}; please report this as a bug of kagiri")]
    Panicked { name: String, message: String },
    #[error("thread {name} did not end within 1 s of its stop; please report this as a bug of kagiri")]
    Abandoned { name: String },
}

#[derive(Debug)]
pub struct ThreadControl {
    stop: Arc<StopHandle>,
    start_ns: AtomicU64,
}

impl ThreadControl {
    /// The common start on the monotonic clock; `u64::MAX` until it is known.
    #[inline]
    pub fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    pub fn stop_handle(&self) -> Arc<StopHandle> {
        self.stop.clone()
    }

    /// Sleeps until the common start; `false` if the group was stopped before.
    pub fn sleep_until_start(&self) -> Result<bool, NetError> {
        // A start that is not known yet is announced by a wake-up.
        Ok(!self.stop.sleep_until(|| self.start_ns())?)
    }
}

#[derive(Debug, Default)]
struct Running {
    threads: Mutex<usize>,
    changed: Condvar,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a thread out when it is dropped, also by a panic.
struct CountOut(Arc<Running>);

impl Drop for CountOut {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.changed.notify_all();
    }
}

/// Threads, each of which returns an `R`. Dropping the group stops them and waits for them, at most a second.
#[derive(Debug)]
pub struct ThreadGroup<R> {
    control: Arc<ThreadControl>,
    running: Arc<Running>,
    threads: Vec<(String, JoinHandle<R>)>,
}

impl<R: Send + 'static> ThreadGroup<R> {
    /// A group without threads, whose common start is at `start_ns` of the monotonic clock; `u64::MAX`: at
    /// [`ThreadGroup::begin`].
    pub fn new(start_ns: u64) -> Result<Self, NetError> {
        let control =
            ThreadControl { stop: Arc::new(StopHandle::new()?), start_ns: AtomicU64::new(start_ns) };
        Ok(Self { control: Arc::new(control), running: Arc::default(), threads: Vec::new() })
    }

    pub fn control(&self) -> &ThreadControl {
        &self.control
    }

    /// Starts a thread, at once: `work` waits for the common start itself.
    pub fn spawn(
        &mut self,
        spec: ThreadSpec,
        work: impl FnOnce(&ThreadControl) -> R + Send + 'static,
    ) -> Result<(), ThreadError> {
        let control = self.control.clone();
        *self.running.lock() += 1;
        let count_out = CountOut(self.running.clone());
        let ThreadSpec { name, cpu, stack_bytes, is_precise } = spec;
        let run = move || {
            let _count_out = count_out;
            // Neither is vital: without them the thread only wakes up later or moves between CPUs.
            let _ = cpu.map(pin_to_cpu);
            let _ = is_precise.then(|| set_timer_slack_ns(1));
            work(&control)
        };
        let builder = std::thread::Builder::new().name(name.clone());
        let builder = stack_bytes.into_iter().fold(builder, std::thread::Builder::stack_size);
        match builder.spawn(run) {
            Ok(thread) => self.threads.push((name, thread)),
            Err(source) => return Err(ThreadError::Start { name, source }),
        }
        Ok(())
    }

    /// Waits for the threads until `deadline`, stops those that have not ended, and returns the results in
    /// the order of the starts. Returns at most a second after the deadline.
    pub fn finish(&mut self, deadline: Deadline) -> Vec<Result<R, ThreadError>> {
        if !self.wait(deadline) {
            self.stop();
            self.wait(Deadline::after(STOP_WITHIN));
        }
        let all_ended = self.is_finished();
        let join = |(name, thread): (String, JoinHandle<R>)| {
            // A thread that has counted itself out is about to end, so that joining it does not wait.
            if !all_ended && !thread.is_finished() {
                return Err(ThreadError::Abandoned { name });
            }
            thread.join().map_err(|panic| ThreadError::Panicked { name, message: message(&*panic) })
        };
        std::mem::take(&mut self.threads).into_iter().map(join).collect()
    }
}

impl<R> ThreadGroup<R> {
    /// Sets the common start and wakes the threads.
    pub fn begin(&self, start_ns: u64) {
        self.control.start_ns.store(start_ns, Ordering::Relaxed);
        self.control.stop.wake();
    }

    pub fn is_finished(&self) -> bool {
        *self.running.lock() == 0
    }

    /// Waits until all threads have ended or the deadline has passed; whether they have ended.
    pub fn wait(&self, deadline: Deadline) -> bool {
        let mut running = self.running.lock();
        while *running > 0 && !deadline.passed() {
            let waited = self.running.changed.wait_timeout(running, deadline.left());
            running = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *running == 0
    }

    pub fn stop(&self) {
        self.control.stop.stop();
    }
}

impl<R> Drop for ThreadGroup<R> {
    fn drop(&mut self) {
        self.stop();
        self.wait(Deadline::after(STOP_WITHIN));
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use sys::clock::{monotonic_ns, sleep_until_ns};

    use super::*;

    fn spec(name: &str) -> ThreadSpec {
        ThreadSpec { name: name.to_owned(), is_precise: true, ..ThreadSpec::default() }
    }

    #[test]
    fn threads_start_together_and_not_before_the_start() {
        let mut group = ThreadGroup::new(u64::MAX).unwrap();
        for k in 0..3 {
            let work = move |control: &ThreadControl| control.sleep_until_start().unwrap().then(monotonic_ns);
            group.spawn(spec(&format!("sleeper-{k}")), work).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
        let start_ns = monotonic_ns() + 20_000_000;
        group.begin(start_ns);
        let results = group.finish(Deadline::after(Duration::from_secs(20)));
        assert_eq!(results.len(), 3);
        for result in results {
            assert!(result.unwrap().is_some_and(|at_ns| at_ns >= start_ns));
        }
    }

    #[test]
    fn panic_in_a_thread_becomes_an_error_with_its_message() {
        let mut group = ThreadGroup::new(0).unwrap();
        group.spawn(spec("good"), |_| 7).unwrap();
        group.spawn(spec("bad"), |_| panic!("no such flow: {}", 3)).unwrap();
        let results = group.finish(Deadline::after(Duration::from_secs(20)));
        assert!(matches!(results[0], Ok(7)));
        let error = results[1].as_ref().unwrap_err().to_string();
        assert!(error.starts_with("thread bad panicked: no such flow: 3;"), "{error}");
    }

    #[test]
    fn stop_ends_threads_that_wait_for_the_start() {
        let mut group = ThreadGroup::new(u64::MAX).unwrap();
        group.spawn(spec("waits"), |control| control.sleep_until_start().unwrap()).unwrap();
        assert!(!group.wait(Deadline::after(Duration::from_millis(10))) && !group.is_finished());
        let results = group.finish(Deadline::after(Duration::ZERO));
        assert!(matches!(results[..], [Ok(false)]));
    }

    #[test]
    fn thread_that_ignores_the_stop_is_abandoned() {
        let mut group = ThreadGroup::new(0).unwrap();
        group.spawn(spec("deaf"), |_| sleep_until_ns(monotonic_ns() + 3_000_000_000)).unwrap();
        group.spawn(spec("quick"), |_| ()).unwrap();
        let results = group.finish(Deadline::after(Duration::ZERO));
        assert!(matches!(&results[0], Err(ThreadError::Abandoned { name }) if name == "deaf"));
        assert!(results[1].is_ok());
    }

    #[test]
    fn thread_is_named_and_pinned() {
        let cpu = sys::thread::online_cpus().unwrap()[0];
        let mut group = ThreadGroup::new(0).unwrap();
        let look = |_: &ThreadControl| {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            (name, sys::thread::online_cpus().unwrap(), sys::thread::timer_slack_ns().unwrap())
        };
        group.spawn(ThreadSpec { cpu: Some(cpu), ..spec("pinned") }, look).unwrap();
        let mut results = group.finish(Deadline::after(Duration::from_secs(20)));
        assert_eq!(results.remove(0).unwrap(), ("pinned\n".to_owned(), vec![cpu], 1));
    }
}
