//! The messages of a client, and how they can end. Pure.

use std::collections::VecDeque;

use super::connection::TransportError;
use super::stats::{Fault, Moments};

/// Why a connection ends early.
pub(super) type Broken = (Fault, String);

pub(super) fn broken(error: TransportError) -> Broken {
    (Fault::Broken, error.to_string())
}

/// A message that waits for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) number: u64,
    pub(super) at: Moments,
    pub(super) bytes: u64,
    /// Whether it is not on the connection: it waits for one, or for a stream.
    pub(super) is_unsent: bool,
    /// How often it was sent again after the server had refused it.
    pub(super) resends: u32,
}

/// What came of trying to begin a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Began {
    /// None is due, or it has to wait.
    Nothing,
    Message,
    /// One that needs a connection first.
    NeedsLink,
}

/// The messages that wait for their replies, from the oldest on.
#[derive(Debug, Default)]
pub(super) struct Messages {
    queue: VecDeque<UnderWay>,
    /// So many of the oldest have timed out, and their replies may still come: on a connection that replies
    /// in order, they are told apart by their place.
    given_up: usize,
    unsent: usize,
}

impl Messages {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Messages whose time is not over.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() - self.given_up
    }

    pub(super) const fn unsent(&self) -> usize {
        self.unsent
    }

    /// Adds a message that is not on the connection yet.
    pub(super) fn push(&mut self, number: u64, at: Moments, bytes: u64) {
        self.queue.push_back(UnderWay { number, at, bytes, is_unsent: true, resends: 0 });
        self.unsent += 1;
    }

    /// The oldest message whose time is not over.
    pub(super) fn oldest(&self) -> Option<&UnderWay> {
        self.queue.get(self.given_up)
    }

    pub(super) fn newest(&mut self) -> Option<&mut UnderWay> {
        self.queue.back_mut()
    }

    /// The oldest message that is not on the connection.
    pub(super) fn oldest_unsent(&self) -> Option<UnderWay> {
        if self.unsent == 0 {
            return None;
        }
        // Those that wait are nearly always the newest.
        self.queue.iter().rev().filter(|message| message.is_unsent).nth(self.unsent - 1).copied()
    }

    /// The connection stands: those that waited for it can be sent.
    pub(super) fn connected(&mut self, now_ns: u64) {
        self.queue.iter_mut().filter(|message| message.is_unsent).for_each(|message| {
            message.at.connected = now_ns;
        });
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&number, |message| message.number).ok()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut UnderWay> {
        let at = self.position(number)?;
        self.queue.get_mut(at)
    }

    /// A message is on the connection now.
    pub(super) fn sent(&mut self, number: u64) {
        if let Some(message) = self.get_mut(number).filter(|message| message.is_unsent) {
            message.is_unsent = false;
            self.unsent -= 1;
        }
    }

    /// The server refused a message, which waits again; `false`: it has been sent again `resends_max` times.
    pub(super) fn refused(&mut self, number: u64, resends_max: u32) -> bool {
        let can_be_sent = |message: &&mut UnderWay| !message.is_unsent && message.resends < resends_max;
        let Some(message) = self.get_mut(number).filter(can_be_sent) else { return false };
        (message.is_unsent, message.at.written) = (true, u64::MAX);
        message.resends += 1;
        self.unsent += 1;
        true
    }

    /// The message that the next reply in order belongs to.
    pub(super) fn front(&self) -> Option<&UnderWay> {
        self.queue.front()
    }

    /// Takes the message that the next reply in order belongs to, and whether its time was over.
    pub(super) fn take_front(&mut self) -> Option<(UnderWay, bool)> {
        let message = self.queue.pop_front()?;
        self.unsent -= usize::from(message.is_unsent);
        let was_given_up = self.given_up > 0;
        self.given_up -= usize::from(was_given_up);
        Some((message, was_given_up))
    }

    /// Takes a message whose reply came in any order.
    pub(super) fn take(&mut self, number: u64) -> Option<UnderWay> {
        let at = self.position(number)?;
        let message = self.queue.remove(at)?;
        self.unsent -= usize::from(message.is_unsent);
        Some(message)
    }

    /// The time of the oldest is over; its reply may still come, before those of the others.
    pub(super) fn give_up_oldest(&mut self) {
        self.given_up = (self.given_up + 1).min(self.queue.len());
    }

    /// Takes those that end with the connection whose time is not over; `keeps_unsent`: those that are not on
    /// it stay.
    pub(super) fn take_lost(&mut self, keeps_unsent: bool) -> VecDeque<UnderWay> {
        let given_up = std::mem::take(&mut self.given_up);
        let all = std::mem::take(&mut self.queue);
        let (kept, lost): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().skip(given_up).partition(|message| keeps_unsent && message.is_unsent);
        (self.unsent, self.queue) = (kept.len(), kept);
        lost
    }

    /// The connection ended, and nothing is waited for on it.
    pub(super) fn keep_unsent(&mut self) {
        if self.queue.len() > self.unsent {
            self.queue.retain(|message| message.is_unsent);
        }
        self.given_up = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What can happen to the messages of a connection with streams. Choices are taken modulo what there is.
    #[derive(Debug, Clone, Copy)]
    enum Action {
        Push,
        Send,
        Refuse(usize),
        Take(usize),
        Lose(bool),
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            3 => Just(Action::Push),
            3 => Just(Action::Send),
            1 => (0_usize..50).prop_map(Action::Refuse),
            2 => (0_usize..50).prop_map(Action::Take),
            1 => any::<bool>().prop_map(Action::Lose),
        ]
    }

    proptest! {
        #[test]
        fn every_message_ends_once_and_the_oldest_is_sent_first(
            actions in prop::collection::vec(action(), 0..200)
        ) {
            let mut messages = Messages::default();
            // Number, whether it is unsent, and its resends: a plain list of what should be there.
            let mut model: Vec<(u64, bool, u32)> = Vec::new();
            let (mut begun, mut ended) = (0_u64, 0_u64);
            for action in actions {
                match action {
                    Action::Push => {
                        messages.push(begun, Moments::default(), 1);
                        model.push((begun, true, 0));
                        begun += 1;
                    }
                    Action::Send => {
                        let next = model.iter_mut().find(|one| one.1);
                        let wanted = next.as_ref().map(|one| one.0);
                        prop_assert_eq!(messages.oldest_unsent().map(|one| one.number), wanted);
                        if let Some(next) = next {
                            messages.sent(next.0);
                            next.1 = false;
                        }
                    }
                    Action::Refuse(choice) if !model.is_empty() => {
                        let at = choice % model.len();
                        let one = &mut model[at];
                        let wanted = !one.1 && one.2 < 2;
                        prop_assert_eq!(messages.refused(one.0, 2), wanted);
                        if wanted {
                            (one.1, one.2) = (true, one.2 + 1);
                        }
                    }
                    Action::Take(choice) if !model.is_empty() => {
                        let (number, is_unsent, _) = model.remove(choice % model.len());
                        let found = messages.take(number).map(|one| (one.number, one.is_unsent));
                        prop_assert_eq!(found, Some((number, is_unsent)));
                        prop_assert_eq!(messages.take(number), None);
                        ended += 1;
                    }
                    Action::Lose(keeps_unsent) => {
                        let lost = messages.take_lost(keeps_unsent);
                        let before = model.len();
                        model.retain(|one| keeps_unsent && one.1);
                        prop_assert_eq!(lost.len(), before - model.len());
                        ended += lost.len() as u64;
                    }
                    Action::Refuse(_) | Action::Take(_) => {}
                }
                prop_assert_eq!(messages.len(), model.len());
                prop_assert_eq!(messages.unsent(), model.iter().filter(|one| one.1).count());
                prop_assert_eq!(messages.oldest().map(|one| one.number), model.first().map(|one| one.0));
                prop_assert_eq!(begun, ended + messages.len() as u64);
            }
        }
    }

    #[test]
    fn reply_in_order_belongs_to_the_oldest_even_if_its_time_is_over() {
        let mut messages = Messages::default();
        for number in 0..3 {
            messages.push(number, Moments::default(), 1);
            messages.sent(number);
        }
        messages.give_up_oldest();
        assert_eq!((messages.waiting(), messages.oldest().map(|one| one.number)), (2, Some(1)));
        let mut next = || messages.take_front().map(|(message, was_given_up)| (message.number, was_given_up));
        assert_eq!([next(), next()], [Some((0, true)), Some((1, false))]);
        messages.give_up_oldest();
        assert!(messages.take_lost(true).is_empty(), "it has ended already");
        assert_eq!((messages.len(), messages.waiting()), (0, 0));
    }
}
