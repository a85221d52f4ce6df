//! The trials that a server serves: who takes part, and what arrived of the background load. Pure.

use std::collections::BTreeMap;

use reactor::Token;
use serde::{Deserialize, Serialize};

/// More trials at a time are an attack.
const TRIALS_MAX: usize = 256;
/// Time over which arriving bytes are summed up.
pub const SLOT_NS: u64 = 100_000_000;
/// With more slots, each two become one: an answer fits the buffer of any socket.
const SLOTS_MAX: usize = 1200;

/// What arrived of the background load of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundCount {
    pub bytes: u64,
    /// From the first byte to the last, ns.
    pub elapsed_ns: u64,
    /// The length of a slot, ns.
    pub slot_ns: u64,
    /// Bytes in each slot from the first byte on.
    pub slots: Vec<u64>,
    /// The moment of the first byte; of no meaning to others.
    #[serde(skip)]
    first_ns: Option<u64>,
}

impl Default for BackgroundCount {
    fn default() -> Self {
        Self { bytes: 0, elapsed_ns: 0, slot_ns: SLOT_NS, slots: Vec::new(), first_ns: None }
    }
}

impl BackgroundCount {
    pub fn add(&mut self, bytes: u64, now_ns: u64) {
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        self.bytes += bytes;
        self.elapsed_ns = now_ns.saturating_sub(first_ns);
        while self.elapsed_ns / self.slot_ns >= SLOTS_MAX as u64 {
            self.slots = self.slots.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.slot_ns *= 2;
        }
        let slot = (self.elapsed_ns / self.slot_ns) as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] += bytes;
    }
}

#[derive(Debug, Default)]
struct Trial {
    /// Connections of clients that take part.
    attending: u32,
    /// Connections that wait for the count.
    waiting: Vec<Token>,
    background: BackgroundCount,
}

/// The trials by their numbers.
#[derive(Debug, Default)]
pub(super) struct Trials(BTreeMap<u64, Trial>);

impl Trials {
    /// `false`: there are too many.
    pub(super) fn attend(&mut self, trial: u64) -> bool {
        let is_new = !self.0.contains_key(&trial);
        if is_new && self.0.len() >= TRIALS_MAX {
            return false;
        }
        self.0.entry(trial).or_default().attending += 1;
        true
    }

    /// A client has left: after the last one, those that wait for the count get it.
    pub(super) fn leave(&mut self, trial: u64) -> Option<(Vec<Token>, BackgroundCount)> {
        let found = self.0.get_mut(&trial)?;
        found.attending = found.attending.saturating_sub(1);
        if found.attending > 0 {
            return None;
        }
        let found = self.0.remove(&trial)?;
        Some((found.waiting, found.background))
    }

    /// `false`: there are too many.
    pub(super) fn wait_for_count(&mut self, trial: u64, token: Token) -> bool {
        let is_new = !self.0.contains_key(&trial);
        if is_new && self.0.len() >= TRIALS_MAX {
            return false;
        }
        self.0.entry(trial).or_default().waiting.push(token);
        true
    }

    /// One that waited wants it now, or is gone.
    pub(super) fn count_now(&mut self, trial: u64, token: Token) -> BackgroundCount {
        let Some(found) = self.0.get_mut(&trial) else { return BackgroundCount::default() };
        found.waiting.retain(|waiting| *waiting != token);
        let background = found.background.clone();
        if found.waiting.is_empty() && found.attending == 0 {
            self.0.remove(&trial);
        }
        background
    }

    /// Bytes of a trial without participants are not counted.
    pub(super) fn arrived(&mut self, trial: u64, bytes: u64, now_ns: u64) {
        if let Some(found) = self.0.get_mut(&trial) {
            found.background.add(bytes, now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_comes_when_the_last_client_leaves() {
        let mut trials = Trials::default();
        let token = Token::single(9);
        assert!(trials.wait_for_count(1, token) && trials.attend(1) && trials.attend(1));
        trials.arrived(1, 100, 5);
        trials.arrived(2, 100, 5);
        trials.arrived(1, 50, 5 + SLOT_NS);
        assert_eq!(trials.leave(1), None);
        let (waiting, count) = trials.leave(1).unwrap();
        assert_eq!((waiting, count.bytes, count.elapsed_ns), (vec![token], 150, SLOT_NS));
        assert_eq!(count.slots, [100, 50]);
        assert_eq!(trials.leave(1), None, "it is gone");
    }

    #[test]
    fn slots_of_a_long_trial_become_longer() {
        let mut count = BackgroundCount::default();
        (0..10_000).for_each(|slot| count.add(1, 7 + slot * SLOT_NS));
        assert!(count.slots.len() <= SLOTS_MAX && count.slot_ns == 16 * SLOT_NS, "{}", count.slot_ns);
        assert_eq!((count.bytes, count.slots.iter().sum()), (10_000, 10_000_u64));
    }

    #[test]
    fn trials_are_limited() {
        let mut trials = Trials::default();
        assert!((0..TRIALS_MAX as u64).all(|trial| trials.attend(trial)));
        assert!(!trials.attend(u64::MAX) && trials.attend(3));
        assert!(!trials.wait_for_count(u64::MAX, Token::single(9)));
    }
}
