//! The time until everything that was written is durable, as a call that cannot be cancelled says it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use sys::clock::monotonic_ns;

use crate::engine::report::Durable;

/// Between two looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the file system of `dir` has put everything into safety (syncfs(2)).
pub fn sync_file_system(dir: &OwnedFd, began: Instant) -> Durable {
    match nix::unistd::syncfs(dir) {
        Ok(()) => Durable::After { s: began.elapsed().as_secs_f64() },
        Err(error) => Durable::Failed { why: format!("syncfs: {}", error.desc()) },
    }
}

/// What `work` finds out, which gets the moment at which the run ended, `ended_ns` of the monotonic clock:
/// calls that were under way then belong to the time until all is durable. Waits at most `within`, or until
/// `stop`.
/// Its calls cannot be cancelled: it continues in a thread of its own if it takes longer.
pub fn within(
    within: Duration,
    ended_ns: u64,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(Instant) -> Durable + Send + 'static,
) -> Durable {
    let (send, receive) = sync_channel(1);
    let now = Instant::now();
    let since = Duration::from_nanos(monotonic_ns().saturating_sub(ended_ns));
    let began = now.checked_sub(since).unwrap_or(now);
    let thread = std::thread::Builder::new().name("files-durable".to_owned()).spawn(move || {
        // The receiver may have given up.
        let _ = send.send(work(began));
    });
    if let Err(error) = thread {
        return Durable::Failed { why: format!("no thread could be started: {error}") };
    }
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(durable) => return durable,
            Err(RecvTimeoutError::Disconnected) => return Durable::Unknown,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Durable::Unknown,
            Err(RecvTimeoutError::Timeout) if began.elapsed() >= within => {
                return Durable::NotWithin { s: within.as_secs_f64(), left: None };
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
