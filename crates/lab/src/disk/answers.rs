//! Answers that wait for their time: the one place where a modelled disk meets the clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fuser::{ReplyData, ReplyEmpty, ReplyWrite};
use sys::clock::monotonic_ns;

/// No machine needs longer to copy a mebibyte, unless something interrupts it.
const MEBIBYTE_NS_MAX: u64 = 250_000;
/// From this length on, an answer's time is that of its bytes.
const LARGE_BYTES: u64 = 512 << 10;

/// What is said when the time has come.
#[derive(Debug)]
pub(super) enum Answer {
    Read(ReplyData, Vec<u8>),
    Written(ReplyWrite, u32),
    Flushed(ReplyEmpty),
}

#[derive(Debug)]
struct Waiting {
    due_ns: u64,
    /// Those due at the same time go in the order in which they came.
    number: u64,
    answer: Answer,
}

impl Answer {
    /// How many are copied when it is given.
    fn bytes(&self) -> u64 {
        match self {
            Self::Read(_, bytes) => bytes.len() as u64,
            Self::Written(..) | Self::Flushed(_) => 0,
        }
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.due_ns, self.number) == (other.due_ns, other.number)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Buffers of answered reads, to be used again: fresh memory would cost a page fault for every page.
    buffers: Vec<Vec<u8>>,
    numbers: u64,
    /// The least time that copying a mebibyte took; 0 before one was. It is part of the modelled time, too.
    mebibyte_ns: u64,
    /// Whether answers wait at all.
    paced: bool,
    ended: bool,
    late_ns: u64,
    late_ns_max: u64,
    answered: u64,
}

/// The answers under way. One thread is in [`Answers::give`] for as long as there can be any.
#[derive(Debug, Default)]
pub(super) struct Answers {
    state: Mutex<State>,
    changed: Condvar,
}

/// How far the answers kept to their times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Punctuality {
    pub(super) waiting: u64,
    pub(super) late_ns_mean: u64,
    pub(super) late_ns_max: u64,
}

impl Answers {
    /// Gives `answer` when the monotonic clock reads `due_ns`; at once while answers do not wait.
    pub(super) fn give_at(&self, due_ns: u64, answer: Answer) {
        let mut state = self.state();
        if !state.paced || due_ns <= monotonic_ns() {
            drop(state);
            return self.finish(answer);
        }
        let number = state.numbers;
        state.numbers += 1;
        let first = state.waiting.peek().is_none_or(|Reverse(first)| due_ns < first.due_ns);
        state.waiting.push(Reverse(Waiting { due_ns, number, answer }));
        drop(state);
        if first {
            self.changed.notify_one();
        }
    }

    /// Whether answers wait for their time.
    pub(super) fn paced(&self) -> bool {
        self.state().paced
    }

    /// Lets answers wait, or gives all that do, and from now on each at once.
    pub(super) fn set_paced(&self, paced: bool) {
        self.state().paced = paced;
        self.changed.notify_one();
    }

    /// Ends [`Answers::give`] after the answers that still wait have been given.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.paced = false;
        drop(state);
        self.changed.notify_one();
    }

    /// Gives answers at their times, `early_ns` before which the thread is to be awake. Returns after [`Answers::end`].
    pub(super) fn give(&self, early_ns: u64) {
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
            self.finish(due.answer);
            state = self.state();
        }
    }

    fn finish(&self, answer: Answer) {
        match answer {
            Answer::Read(reply, bytes) => {
                let begin_ns = monotonic_ns();
                reply.data(&bytes);
                self.note_copy(bytes.len() as u64, monotonic_ns() - begin_ns);
                let mut state = self.state();
                if state.buffers.len() < 64 {
                    state.buffers.push(bytes);
                }
            }
            Answer::Written(reply, bytes) => reply.written(bytes),
            Answer::Flushed(reply) => reply.ok(),
        }
    }

    /// Learns from a copy how long copies take.
    pub(super) fn note_copy(&self, bytes: u64, took_ns: u64) {
        if bytes < LARGE_BYTES {
            return;
        }
        let mut state = self.state();
        let known_ns = if state.mebibyte_ns > 0 { state.mebibyte_ns } else { MEBIBYTE_NS_MAX };
        state.mebibyte_ns = known_ns.min((took_ns << 20) / bytes);
    }

    /// How long `bytes` take to be copied at the least, as far as is known.
    pub(super) fn copy_ns(&self, bytes: u64) -> u64 {
        (bytes * self.state().mebibyte_ns) >> 20
    }

    /// A buffer of `length` bytes with any content.
    pub(super) fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = self.state().buffers.pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    pub(super) fn punctuality(&self) -> Punctuality {
        let state = self.state();
        Punctuality {
            waiting: state.waiting.len() as u64,
            late_ns_mean: state.late_ns / state.answered.max(1),
            late_ns_max: state.late_ns_max,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
