//! The time until everything that was written is durable: syncfs(2) after the run.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use super::report::Durable;

/// Between two looks whether the run is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until the file system of `dir` has put everything into safety, at most `within`, or until `stop`.
/// The call cannot be cancelled: it goes on in a thread of its own if it takes longer.
pub fn sync_file_system(dir: OwnedFd, within: Duration, stop: &Arc<AtomicBool>) -> Durable {
    let (send, receive) = sync_channel(1);
    let began = Instant::now();
    let thread = std::thread::Builder::new().name("files-syncfs".to_owned()).spawn(move || {
        let synced = nix::unistd::syncfs(&dir);
        // The receiver may have given up.
        let _ = send.send((synced, Instant::now()));
    });
    if thread.is_err() {
        return Durable::Unknown;
    }
    loop {
        match receive.recv_timeout(LOOK) {
            Ok((Ok(()), at)) => return Durable::After { s: at.duration_since(began).as_secs_f64() },
            Ok((Err(error), _)) => return Durable::Failed { why: format!("syncfs: {}", error.desc()) },
            Err(RecvTimeoutError::Disconnected) => return Durable::Unknown,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Durable::Unknown,
            Err(RecvTimeoutError::Timeout) if began.elapsed() >= within => {
                return Durable::NotWithin { s: within.as_secs_f64() };
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
