//! The process-wide stop flag.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use indicatif::ProgressBar;
use sys::stop::StopSignal;

use crate::exit::Code;
use crate::output;

/// How often to check for the second Ctrl-C, after which the process ends at once.
const POLL: Duration = Duration::from_millis(200);
/// Signals so close together count as one: `timeout(1)` signals its child, and then its whole group.
const AS_ONE: Duration = Duration::from_millis(100);
/// When a terminal has certainly shown the key that was pressed.
const ECHO: Duration = Duration::from_millis(2);

/// The flag, once the signals are handled.
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// The flag that Ctrl-C, SIGTERM and SIGHUP set; one per process. A second signal ends the process at once;
/// the undo journal then lists the changes that are left.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(flag) = &*known {
        return Ok(Arc::clone(flag));
    }
    let signal = StopSignal::install().context("cannot handle Ctrl-C")?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    std::thread::Builder::new().name("stop".into()).spawn(move || {
        loop {
            if signal.wait_timeout(Duration::from_secs(3600)) {
                erase_echo();
                raised.store(true, Ordering::Relaxed);
                std::thread::sleep(AS_ONE);
                let first = signal.count();
                while signal.count() == first {
                    std::thread::sleep(POLL);
                }
                output::say("kagiri: stopped at once; 'kagiri undo' undoes the remaining changes");
                std::process::exit(Code::Interrupted as i32);
            }
        }
    })?;
    *known = Some(Arc::clone(&flag));
    Ok(flag)
}

/// The bar on standard error, if there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Names the bar that is drawn from now on.
pub fn bar_begins(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
}

/// Erases the `^C` that a terminal shows for Ctrl-C, so that what follows begins on a clean line.
pub fn erase_echo() {
    if !sys::stop::is_key_shown() {
        return;
    }
    // The terminal sends the signal first, and shows the key right afterwards (termios(3), ECHOCTL).
    std::thread::sleep(ECHO);
    let erase = |code: &[u8]| {
        let mut error = std::io::stderr();
        let _ = error.write_all(code).and_then(|()| error.flush());
    };
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    match bar.as_ref().filter(|bar| !bar.is_finished()) {
        // The cursor stands at the end of the bar's line, so that the key is shown below it.
        Some(bar) => bar.suspend(|| erase(b"\r\x1b[K\x1b[A\x1b[K")),
        None => erase(b"\r\x1b[K"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_flag_is_shared() {
        let first = stop_flag().unwrap();
        let again = stop_flag().unwrap();
        assert!(Arc::ptr_eq(&first, &again), "one flag per process");
        assert!(!first.load(Ordering::Relaxed));
    }
}
