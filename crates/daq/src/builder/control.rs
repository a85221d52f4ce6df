//! What a builder thread shares with its part: stop, start, progress.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use sys::net::{NetError, Waker};

#[derive(Debug)]
pub(super) struct Control {
    pub(super) waker: Waker,
    stop: AtomicBool,
    /// When the trial begins; 0: not known yet.
    start_ns: AtomicU64,
    done_millionths: AtomicU32,
    finished: AtomicBool,
    /// Why the trial cannot be measured.
    failure: OnceLock<String>,
    /// Complete events, also before the hold.
    pub(super) complete: AtomicU64,
    /// Events given up.
    pub(super) incomplete: AtomicU64,
    /// Connected sources.
    pub(super) connected: AtomicU32,
}

impl Control {
    pub(super) fn new() -> Result<Self, NetError> {
        Ok(Self {
            waker: Waker::new()?,
            stop: AtomicBool::new(false),
            start_ns: AtomicU64::new(0),
            done_millionths: AtomicU32::new(0),
            finished: AtomicBool::new(false),
            failure: OnceLock::new(),
            complete: AtomicU64::new(0),
            incomplete: AtomicU64::new(0),
            connected: AtomicU32::new(0),
        })
    }

    pub(super) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn start_at(&self, start_ns: u64) {
        self.start_ns.store(start_ns.max(1), Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn start_ns(&self) -> Option<u64> {
        Some(self.start_ns.load(Ordering::Acquire)).filter(|&start_ns| start_ns > 0)
    }

    pub(super) fn set_done(&self, share: f64) {
        self.done_millionths.store((share.clamp(0.0, 1.0) * 1e6) as u32, Ordering::Relaxed);
    }

    pub(super) fn done(&self) -> f64 {
        f64::from(self.done_millionths.load(Ordering::Relaxed)) / 1e6
    }

    pub(super) fn fail(&self, why: &str) {
        let _ = self.failure.set(why.to_owned());
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    pub(super) fn finish(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }
}
