//! Delays replies until their time: the only place where a modelled disk uses the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use sys::clock::monotonic_ns;

/// Longest time to copy a mebibyte without an interruption.
const MEBIBYTE_NS_MAX: u64 = 250_000;
/// From this size on, the copy dominates the time of a reply.
const LARGE_BYTES: u64 = 512 << 10;

#[derive(Debug)]
pub(super) enum DelayedReply {
    Read(ReplyData, Vec<u8>),
    Written(ReplyWrite, u32),
    Flushed(ReplyEmpty),
}

#[derive(Debug)]
struct QueuedReply {
    due_ns: u64,
    number: u64,
    answer: DelayedReply,
}

impl DelayedReply {
    fn bytes(&self) -> u64 {
        match self {
            Self::Read(_, bytes) => bytes.len() as u64,
            Self::Written(..) | Self::Flushed(_) => 0,
        }
    }
}

impl PartialEq for QueuedReply {
    fn eq(&self, other: &Self) -> bool {
        (self.due_ns, self.number) == (other.due_ns, other.number)
    }
}

impl Eq for QueuedReply {}

impl PartialOrd for QueuedReply {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedReply {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: BinaryHeap<Reverse<QueuedReply>>,
    /// Buffers for reuse: fresh memory would cause a page fault for every page.
    buffers: Vec<Vec<u8>>,
    numbers: u64,
    /// Shortest copy of a mebibyte; 0 if unknown. The modelled time includes the copy.
    mebibyte_ns: u64,
    paced: bool,
    ended: bool,
    late_ns: u64,
    late_ns_max: u64,
    answered: u64,
}

/// Pending replies. One thread stays in [`DelayQueue::run`].
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lateness {
    pub(super) waiting: u64,
    pub(super) late_ns_mean: u64,
    pub(super) late_ns_max: u64,
}

impl DelayQueue {
    /// Sends a reply at `due_ns` of the monotonic clock, or at once if replies are not delayed.
    pub(super) fn reply_at(&self, due_ns: u64, answer: DelayedReply) {
        let mut state = self.state();
        if !state.paced || due_ns <= monotonic_ns() {
            drop(state);
            return self.send_reply(answer);
        }
        let number = state.numbers;
        state.numbers += 1;
        let first = state.waiting.peek().is_none_or(|Reverse(first)| due_ns < first.due_ns);
        state.waiting.push(Reverse(QueuedReply { due_ns, number, answer }));
        drop(state);
        if first {
            self.changed.notify_one();
        }
    }

    pub(super) fn paced(&self) -> bool {
        self.state().paced
    }

    /// Starts delaying replies; or stops it and sends all pending ones.
    pub(super) fn set_paced(&self, paced: bool) {
        self.state().paced = paced;
        self.changed.notify_one();
    }

    /// Sends all pending replies and ends [`DelayQueue::run`].
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.paced = false;
        drop(state);
        self.changed.notify_one();
    }

    /// Sends replies at their times; wakes up `early_ns` before. Returns after [`DelayQueue::end`].
    pub(super) fn run(&self, early_ns: u64) {
        let mut state = self.state();
        loop {
            let now_ns = monotonic_ns();
            let Some(Reverse(first)) = state.waiting.peek() else {
                if state.ended {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let hand_over_ns = (first.answer.bytes() * state.mebibyte_ns) >> 20;
            let wake_ns = first.due_ns.saturating_sub(early_ns + hand_over_ns);
            if state.paced && wake_ns > now_ns {
                let pause = Duration::from_nanos(wake_ns - now_ns);
                state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Some(Reverse(due)) = state.waiting.pop() else { continue };
            if state.paced {
                let late_ns = now_ns.saturating_sub(wake_ns + early_ns);
                state.late_ns += late_ns;
                state.late_ns_max = state.late_ns_max.max(late_ns);
                state.answered += 1;
            }
            drop(state);
            self.send_reply(due.answer);
            state = self.state();
        }
    }

    fn send_reply(&self, answer: DelayedReply) {
        match answer {
            DelayedReply::Read(reply, bytes) => {
                let begin_ns = monotonic_ns();
                reply.data(&bytes);
                self.record_copy(bytes.len() as u64, monotonic_ns() - begin_ns);
                let mut state = self.state();
                if state.buffers.len() < 64 {
                    state.buffers.push(bytes);
                }
            }
            DelayedReply::Written(reply, bytes) => reply.written(bytes),
            DelayedReply::Flushed(reply) => reply.ok(),
        }
    }

    pub(super) fn record_copy(&self, bytes: u64, took_ns: u64) {
        if bytes < LARGE_BYTES {
            return;
        }
        let mut state = self.state();
        let known_ns = if state.mebibyte_ns > 0 { state.mebibyte_ns } else { MEBIBYTE_NS_MAX };
        state.mebibyte_ns = known_ns.min((took_ns << 20) / bytes);
    }

    pub(super) fn copy_ns(&self, bytes: u64) -> u64 {
        (bytes * self.state().mebibyte_ns) >> 20
    }

    /// A buffer of `length` bytes with arbitrary content.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.state().buffers.pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    pub(super) fn lateness(&self) -> Lateness {
        let state = self.state();
        Lateness {
            waiting: state.waiting.len() as u64,
            late_ns_mean: state.late_ns / state.answered.max(1),
            late_ns_max: state.late_ns_max,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
