//! Flowops that wait for others: a wake-up, or a semaphore.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A wait looks at least so often whether the run is over.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct State {
    wake_ups: u64,
    tokens: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    high_water: AtomicU64,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most tokens that a blocking post leaves.
    pub(crate) fn set_high_water(&self, tokens: u64) {
        self.high_water.store(tokens, Ordering::Relaxed);
    }

    /// Waits until `is_open`, or until the time that is left is over; whether it is open.
    fn wait(&self, left: impl Fn() -> Option<Duration>, mut is_open: impl FnMut(&mut State) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if is_open(&mut state) {
                return true;
            }
            let Some(left) = left() else { return false };
            let waited = self.changed.wait_timeout(state, left.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the next wake-up. `left`: the time that is left, `None` at the end of the run.
    pub(crate) fn block(&self, left: impl Fn() -> Option<Duration>) -> bool {
        let before = self.lock().wake_ups;
        self.wait(left, |state| state.wake_ups != before)
    }

    pub(crate) fn wake(&self) {
        self.lock().wake_ups += 1;
        self.changed.notify_all();
    }

    /// Takes tokens, once there are as many.
    pub(crate) fn take(&self, tokens: u64, left: impl Fn() -> Option<Duration>) -> bool {
        let is_taken = self.wait(left, |state| {
            let is_open = state.tokens >= tokens;
            state.tokens -= if is_open { tokens } else { 0 };
            is_open
        });
        self.changed.notify_all();
        is_taken
    }

    /// Adds tokens; a blocking post waits until there are no more than the high water mark.
    pub(crate) fn post(&self, tokens: u64, is_blocking: bool, left: impl Fn() -> Option<Duration>) -> bool {
        let high_water = self.high_water.load(Ordering::Relaxed);
        let is_posted = self.wait(left, |state| {
            let is_open = !is_blocking || high_water == 0 || state.tokens <= high_water;
            state.tokens = state.tokens.saturating_add(if is_open { tokens } else { 0 });
            is_open
        });
        self.changed.notify_all();
        is_posted
    }

    /// Wakes all waits, so that they notice the end.
    pub(crate) fn look(&self) {
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn within(limit: Duration) -> impl Fn() -> Option<Duration> {
        let end = Instant::now() + limit;
        move || end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    #[test]
    fn semaphore_hands_over_tokens() {
        let gate = Gate::default();
        gate.set_high_water(1);
        let soon = || within(Duration::from_millis(20));
        assert!(gate.post(2, true, soon()));
        assert!(!gate.post(1, true, soon()), "above the high water mark it waits");
        assert!(gate.post(1, false, soon()), "one that does not block does not");
        assert!(gate.take(3, soon()) && !gate.take(1, soon()));
    }

    #[test]
    fn block_waits_for_the_next_wake_up_and_never_longer_than_the_run() {
        let gate = Gate::default();
        gate.wake();
        assert!(!gate.block(within(Duration::from_millis(20))), "that one came before");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.block(within(Duration::from_secs(20))));
            while !waiting.is_finished() {
                gate.wake();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(waiting.join().unwrap());
        });
    }
}
