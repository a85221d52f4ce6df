//! One timer for each token, in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::slab::{Token, TokenMap};

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// The value of the slot that set it last.
    token: Option<Token>,
    /// `u64::MAX`: not set.
    due_ns: u64,
    /// The heap's entry that counts; `u64::MAX`: there is none.
    queued_ns: u64,
}

impl Default for Timer {
    fn default() -> Self {
        Self { token: None, due_ns: u64::MAX, queued_ns: u64::MAX }
    }
}

/// Timers at any moments, at most one for each token. Setting one anew to a later moment costs two writes;
/// the heap learns of it when the earlier moment comes. Pure: the caller passes the time.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, Token)>>,
    timers: TokenMap<Timer>,
}

impl Timers {
    /// Sets the timer of `token`, in place of the one that its slot has.
    pub fn set(&mut self, token: Token, due_ns: u64) {
        let timer = self.timers.entry(token);
        (timer.token, timer.due_ns) = (Some(token), due_ns);
        if due_ns < timer.queued_ns {
            timer.queued_ns = due_ns;
            self.heap.push(Reverse((due_ns, token)));
        }
    }

    pub fn clear(&mut self, token: Token) {
        let timer = self.timers.entry(token);
        if timer.token == Some(token) {
            timer.due_ns = u64::MAX;
        }
    }

    pub fn next_ns(&mut self) -> Option<u64> {
        loop {
            let Reverse((at_ns, token)) = *self.heap.peek()?;
            let timer = self.timers.entry(token);
            if timer.queued_ns == at_ns && timer.due_ns == at_ns {
                return Some(at_ns);
            }
            self.heap.pop();
            if timer.queued_ns == at_ns {
                timer.queued_ns = timer.due_ns;
                if timer.due_ns != u64::MAX {
                    self.heap.push(Reverse((timer.due_ns, token)));
                }
            }
        }
    }

    /// Takes the next timer that has expired. The timer of a slab's removed value still expires unless it was
    /// cleared, or set for the slot's next value; the slab does not know its token then.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<Token> {
        self.next_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let Reverse((_, token)) = self.heap.pop()?;
        std::mem::take(self.timers.entry(token)).token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Token = Token::fixed(0, 0);
    const B: Token = Token::fixed(0, 1);
    const C: Token = Token::fixed(5, 0);

    #[test]
    fn timers_expire_in_the_order_of_their_moments() {
        let mut timers = Timers::default();
        for (token, due_ns) in [(A, 30), (B, 10), (C, 20)] {
            timers.set(token, due_ns);
        }
        assert_eq!((timers.next_ns(), timers.pop_expired(9)), (Some(10), None));
        assert_eq!([25, 25, 25, 30].map(|now| timers.pop_expired(now)), [Some(B), Some(C), None, Some(A)]);
        assert_eq!(timers.next_ns(), None);
    }

    #[test]
    fn timer_set_anew_expires_once_and_cleared_one_never() {
        let mut timers = Timers::default();
        timers.set(A, 10);
        timers.set(A, 50);
        timers.set(B, 10);
        timers.clear(B);
        assert_eq!((timers.next_ns(), timers.pop_expired(49)), (Some(50), None));
        timers.set(A, 20);
        assert_eq!((timers.pop_expired(60), timers.pop_expired(60)), (Some(A), None));
    }

    #[test]
    fn timer_belongs_to_the_value_that_set_it_last() {
        let mut slab = crate::Slab::new(0);
        let mut timers = Timers::default();
        let first = slab.insert(());
        timers.set(first, 10);
        slab.remove(first);
        let second = slab.insert(());
        timers.set(second, 30);
        timers.clear(first);
        assert_eq!((timers.pop_expired(29), timers.pop_expired(30)), (None, Some(second)));
    }

    proptest::proptest! {
        /// Against a plain list of (token, due).
        #[test]
        fn timers_behave_like_a_list(
            steps in proptest::collection::vec((0_u32..8, 0_u64..30, 0_u64..4), 0..300),
        ) {
            let mut timers = Timers::default();
            let mut model: Vec<(Token, u64)> = Vec::new();
            let mut now_ns = 0;
            for (index, within_ns, pass_ns) in steps {
                let token = Token::fixed((index % 2) as u8, index);
                now_ns += pass_ns;
                model.retain(|timer| timer.0 != token);
                if within_ns < 25 {
                    model.push((token, now_ns + within_ns));
                    timers.set(token, now_ns + within_ns);
                } else {
                    timers.clear(token);
                }
                if pass_ns > 1 {
                    while let Some(token) = timers.pop_expired(now_ns) {
                        let least_ns = model.iter().map(|timer| timer.1).min();
                        let at = model.iter().position(|timer| timer.0 == token && Some(timer.1) == least_ns);
                        proptest::prop_assert!(at.is_some());
                        model.remove(at.unwrap_or_default());
                    }
                    proptest::prop_assert!(model.iter().all(|timer| timer.1 > now_ns));
                }
                proptest::prop_assert_eq!(timers.next_ns(), model.iter().map(|timer| timer.1).min());
            }
        }
    }
}
