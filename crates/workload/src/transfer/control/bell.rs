//! How other threads reach the one that conducts a test.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sys::net::{NetError, Waker};

/// Wakes the conductor of a test, and tells it to stop.
#[derive(Debug)]
pub struct Bell {
    waker: Waker,
    stop: AtomicBool,
}

impl Bell {
    /// A quiet one.
    ///
    /// # Errors
    /// [`NetError`]: no descriptors left.
    pub fn new() -> Result<Self, NetError> {
        Ok(Self { waker: Waker::new()?, stop: AtomicBool::new(false) })
    }

    /// Wakes the conductor: there is something to look at.
    pub fn ring(&self) {
        self.waker.wake();
    }

    /// Tells it to end the test now. What was measured until then is still reported.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether it was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Makes it quiet again; a wish to stop remains.
    pub(crate) fn hush(&self) {
        self.waker.clear();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
