//! Stopping and waking threads that wait in an event loop.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock::monotonic_ns;
use sys::net::{Epoll, Events, Interest, NetError, Waker};

/// Wakes every thread that watches it, and requests its stop.
///
/// One `eventfd(2)` serves any number of loops: they watch it edge-triggered, so that each
/// [`StopHandle::wake`] reaches all of them and none has to clear it.
#[derive(Debug)]
pub struct StopHandle {
    waker: Waker,
    is_stopped: AtomicBool,
}

impl StopHandle {
    pub fn new() -> Result<Self, NetError> {
        Ok(Self { waker: Waker::new()?, is_stopped: AtomicBool::new(false) })
    }

    /// Wakes all: there is something to look at.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Requests the stop of all threads, for good, and wakes them.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.wake();
    }

    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Sleeps until this moment of the monotonic clock, or until the stop; whether it was stopped.
    /// `deadline_ns` is asked again after each wake-up.
    pub fn sleep_until(&self, deadline_ns: impl Fn() -> u64) -> Result<bool, NetError> {
        let (epoll, mut events) = (Epoll::new()?, Events::with_capacity(1));
        epoll.add(self, 0, Interest::READ | Interest::EDGE)?;
        while !self.is_stopped() && monotonic_ns() < deadline_ns() {
            epoll.wait_until(&mut events, deadline_ns())?;
        }
        Ok(self.is_stopped())
    }
}

impl AsFd for StopHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn stop_ends_a_sleep_at_once() {
        let stop = Arc::new(StopHandle::new().unwrap());
        let until_ns = monotonic_ns() + 60_000_000_000;
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || stop.sleep_until(|| until_ns))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20));
        stop.wake();
        std::thread::sleep(Duration::from_millis(20));
        assert!(sleepers.iter().all(|sleeper| !sleeper.is_finished()), "waking is not stopping");
        stop.stop();
        for sleeper in sleepers {
            assert!(sleeper.join().unwrap().unwrap());
        }
        assert!(monotonic_ns() < until_ns);
    }

    #[test]
    fn sleep_ends_at_its_deadline() {
        let stop = StopHandle::new().unwrap();
        let until_ns = monotonic_ns() + 3_000_000;
        assert!(!stop.sleep_until(|| until_ns).unwrap());
        assert!(monotonic_ns() >= until_ns);
    }
}
