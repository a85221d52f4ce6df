//! The requests of a flow that wait for their answers. Pure: the caller passes the time.

use std::collections::VecDeque;

use crate::driver::SentRequest;

/// Most requests in flight on one flow: a peer that reads and never answers costs a MiB. With UDP, the oldest
/// is given up after this many later ones.
pub(super) const REQUESTS_MAX: usize = 1 << 16;

/// Requests in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// From the oldest that waits; answered ones behind it are `None`.
    sent: VecDeque<Option<SentRequest>>,
    first: u64,
    pub(super) waiting: usize,
}

impl InFlight {
    /// The number of the next request to be sent.
    pub(super) fn next(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    pub(super) fn push(&mut self, sent: SentRequest) {
        self.sent.push_back(Some(sent));
        self.waiting += 1;
    }

    /// The answer to the oldest request arrived.
    pub(super) fn answered_next(&mut self) -> Option<SentRequest> {
        self.take(0)
    }

    /// The answer to the request whose number ends in these `bits` low bits arrived; `None` if no such
    /// request waits: the answer is a duplicate, or too late. Of several requests it is the latest, because
    /// the others would have been answered before.
    pub(super) fn answered(&mut self, low: u64, bits: u32) -> Option<SentRequest> {
        let mask = u64::MAX >> (64 - bits);
        let last = self.next().checked_sub(1)?;
        let number = last.checked_sub(last.wrapping_sub(low) & mask)?;
        let at = number.checked_sub(self.first)?;
        self.take(usize::try_from(at).ok()?)
    }

    /// Gives up the oldest that waits, if it was sent before this moment or if too many wait.
    pub(super) fn given_up(&mut self, before_ns: u64) -> Option<SentRequest> {
        let oldest = *self.sent.front()?.as_ref()?;
        (oldest.sent_ns < before_ns || self.sent.len() >= REQUESTS_MAX).then(|| self.take(0)).flatten()
    }

    fn take(&mut self, at: usize) -> Option<SentRequest> {
        let sent = self.sent.get_mut(at)?.take()?;
        self.waiting -= 1;
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first += 1;
        }
        Some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sent(at_ns: u64) -> SentRequest {
        SentRequest { intended_ns: at_ns, sent_ns: at_ns + 1 }
    }

    #[test]
    fn answers_match_requests_in_order() {
        let mut in_flight = InFlight::default();
        assert_eq!(in_flight.answered_next(), None, "no request was sent");
        (0..3).for_each(|n| in_flight.push(sent(n)));
        assert_eq!([in_flight.answered_next(), in_flight.answered_next()], [Some(sent(0)), Some(sent(1))]);
        assert_eq!((in_flight.waiting, in_flight.next()), (1, 3));
    }

    #[test]
    fn short_numbers_name_the_latest_request() {
        let mut in_flight = InFlight::default();
        assert_eq!(in_flight.answered(0, 8), None);
        (0..300).for_each(|n| in_flight.push(sent(n)));
        assert_eq!(in_flight.answered(43, 8), Some(sent(299)));
        assert_eq!(in_flight.answered(43, 8), None, "twice");
        assert_eq!(in_flight.answered(44, 8), Some(sent(44)));
        assert_eq!(in_flight.answered(5, 64), Some(sent(5)));
        assert_eq!(in_flight.answered(u64::MAX, 64), None, "never sent");
    }

    #[test]
    fn old_requests_are_given_up() {
        let mut in_flight = InFlight::default();
        (0..10).for_each(|n| in_flight.push(sent(n)));
        in_flight.answered(1, 64);
        assert_eq!(in_flight.given_up(3), Some(sent(0)));
        assert_eq!((in_flight.given_up(3), in_flight.given_up(4)), (None, Some(sent(2))));
        (10..3 + REQUESTS_MAX as u64).for_each(|n| in_flight.push(sent(n)));
        assert_eq!((in_flight.given_up(0), in_flight.given_up(0)), (Some(sent(3)), None));
    }

    proptest! {
        /// Compares with a map of all waiting requests.
        #[test]
        fn in_flight_matches_a_model(steps in prop::collection::vec((0_u8..4, 0_u64..40), 1..250)) {
            let (mut in_flight, mut waiting) = (InFlight::default(), BTreeMap::new());
            let mut next = 0_u64;
            for (what, number) in steps {
                match what {
                    0 | 1 => {
                        in_flight.push(sent(next));
                        waiting.insert(next, sent(next));
                        next += 1;
                    }
                    2 => {
                        let number = next.saturating_sub(number);
                        prop_assert_eq!(in_flight.answered(number & 0xff, 8), waiting.remove(&number));
                    }
                    _ => {
                        let oldest = waiting.pop_first().map(|(_, sent)| sent);
                        prop_assert_eq!(in_flight.answered_next(), oldest);
                    }
                }
                prop_assert_eq!((in_flight.waiting, in_flight.next()), (waiting.len(), next));
            }
        }
    }
}
