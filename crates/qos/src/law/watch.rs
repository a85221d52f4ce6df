//! Between two ticks: room for urgent messages as soon as they begin, and their room for bulk as soon as they
//! have ended.
//!
//! A tick is too late for a message that is to arrive within some ticks, so that its rate would have to be
//! kept free of bulk all the time. Sockets of watched classes are looked at every [`super::WATCH_S`]
//! instead: bulk borrows what they need, and gives it back within milliseconds.

use super::enforcement::Rates;
use super::episode::DRAIN_MIN;
use super::urgent::Ranking;
use super::{Law, SocketRate, State};

/// A queue that stands when a message begins has drained within this share of the shortest target.
const DRAIN_TARGET_SHARE: f64 = 0.25;

/// What changes when messages begin or end.
#[derive(Debug, Clone, PartialEq)]
pub struct Reaction {
    /// Sockets whose rate changes.
    pub rates: Vec<SocketRate>,
    /// Rate of all bulk, as a multiple of what it was.
    pub bulk_factor: f64,
}

impl Law {
    /// Sets which classes of the policy have sockets that are watched: the caller tells at once which of them
    /// begin and end to send ([`Self::follow_messages`]).
    pub fn set_watched(&mut self, classes: Vec<bool>) {
        // Beside other hosts, a message of this one is no news to the others.
        self.urgent.set_watched(if self.is_beside_others { Vec::new() } else { classes });
    }

    /// Sockets of watched classes have begun to send since the last tick or the last call (`true`), or have
    /// sent all. `None`: nothing follows from it.
    pub fn follow_messages(&mut self, now_ns: u64, sockets: &[(u64, bool)]) -> Option<Reaction> {
        if self.is_beside_others {
            return None;
        }
        for sample in &mut self.samples {
            if let Some((_, is_active)) = sockets.iter().find(|(id, _)| *id == sample.id) {
                (sample.unacked, sample.notsent_bytes) = (u32::from(*is_active), 0);
            }
        }
        self.observer.count(&self.settings, &self.samples, &mut self.seen.classes);
        let allocatable = self.allocatable(now_ns);
        let ranking = self.ranking(now_ns, allocatable, &self.seen.classes);
        self.account(now_ns);
        let before = [self.applied, self.bulk];
        let state = match self.settings.given_bit_per_s {
            Some(given) => {
                self.fill(given, &ranking);
                self.without_messages = self.applied;
                State::Given
            }
            None => State::Growing,
        };
        let bounds = self.bounds(state, &self.seen);
        self.bulk = self.bulk.clamp(bounds[0], bounds[1]);
        self.make_room_for_messages(now_ns, state, self.seen.queue_s, &ranking, bounds);
        let Rates { changed: rates, .. } = self.rates(now_ns, &ranking);
        // At a given capacity, UDP has its part of it: what is applied is that of TCP.
        let (before, now) = match state {
            State::Given => (before[1], self.bulk),
            _ => (before[0], self.applied),
        };
        let bulk_factor = if before > 0.0 { now / before } else { 1.0 };
        Some(Reaction { rates, bulk_factor })
    }

    /// Sets what bulk may send beside the messages on their way.
    pub(super) fn make_room_for_messages(
        &mut self,
        now_ns: u64,
        state: State,
        queue_s: Option<f64>,
        ranking: &Ranking,
        [floor, ceiling]: [f64; 2],
    ) {
        self.applied = self.beside_messages(state, queue_s, ranking).clamp(floor, ceiling);
        if self.applied < self.without_messages {
            self.cut_ns = Some(now_ns);
        }
    }

    /// Counts what bulk might send since `applied` was set.
    pub(super) fn account(&mut self, now_ns: u64) {
        let s = now_ns.saturating_sub(self.applied_ns) as f64 * 1e-9;
        self.applied_bits += self.applied * s;
        self.applied_ns = now_ns;
    }

    /// Whether messages left bulk less in the last ticks, each of `dt_s`: what arrived then says little of
    /// the rate that bulk has without them.
    pub(super) fn was_cut(&self, now_ns: u64, ticks: u32, dt_s: f64) -> bool {
        // The rate of a tick is that which the tick before it set.
        let within_ns = 1e9 * dt_s * (f64::from(ticks) + 0.2);
        self.cut_ns.is_some_and(|cut| now_ns.saturating_sub(cut) as f64 <= within_ns)
    }

    /// At an estimated capacity, what the messages on their way need stays free, and a queue drains before it
    /// makes them late.
    fn beside_messages(&self, state: State, queue_s: Option<f64>, ranking: &Ranking) -> f64 {
        let is_estimated = self.settings.given_bit_per_s.is_none() && state != State::Leased;
        if !is_estimated || self.confirmed.is_none() || ranking.for_messages <= 0.0 {
            return self.without_messages;
        }
        let drained_s = DRAIN_TARGET_SHARE * self.settings.target_s();
        let queue = self.capacity * queue_s.unwrap_or(0.0) / drained_s;
        let room = self.beta() * self.capacity - ranking.urgent - ranking.for_messages - queue;
        self.without_messages.min(room.max(DRAIN_MIN * self.without_messages))
    }
}
