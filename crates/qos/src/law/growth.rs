//! Growth of bulk while there is no queue, or a short one.
//!
//! The law finds the capacity by growing until a queue stands, which fills what is kept free. That is right
//! for bulk, but a large message that begins then shares the link until the next tick and later. So bulk
//! leaves what sparse messages need once the capacity is known, and looks for a faster link in short
//! searches: it takes the whole link and a tenth more each tick, until more is delivered than was known, or a
//! queue begins. A message that arrives faster than the capacity allows begins one at once.

use super::observer::Observation;
use super::settings::{START_BIT_PER_S, Settings, State};
use super::urgent::Ranking;
use super::{Law, Step};

/// Growth per tick after a queue stood, and bounds of it.
pub const GROWTH_START: f64 = 0.01;
const GROWTH_MAX: f64 = 0.15;
const GROWTH_FACTOR: f64 = 1.3;
/// Growth near the capacity that is known.
const GROWTH_NEAR_MAX: f64 = 0.02;
const NEAR: [f64; 2] = [0.85, 1.08];
/// Bulk is at most this multiple of what is delivered: the plateau shows before the queue does.
const DELIVERED_MAX: f64 = 1.35;
/// Share of the capacity that sparse messages need at least for bulk to be held.
const HELD_MIN: f64 = 0.1;
/// Share of the capacity that bulk has at least while it is held.
const HELD_LEAST: f64 = 0.25;
/// Time from one search to the next while the capacity is steady and while it changes, and from one that a
/// message ended to the next, in nanoseconds.
const SEARCH_EVERY_NS: u64 = 10_000_000_000;
const SEARCH_EVERY_CHANGING_NS: u64 = 3_000_000_000;
const AGAIN_AFTER_NS: u64 = 1_000_000_000;
/// The capacity counts as changing for this time after it differed by more than this share of what it was.
const CHANGING_NS: u64 = 60_000_000_000;
const CHANGED_SHARE: f64 = 0.2;
/// A search takes no longer; bulk does not use its rate then.
const SEARCH_NS: u64 = 1_000_000_000;
/// For so long messages on their way put off a search that is due: those of several hosts may follow each
/// other without a pause, and bulk would keep what it had when the first came.
const PUT_OFF_NS: u64 = 5_000_000_000;
/// Searches in a row that messages may end.
const ENDED_MAX: u32 = 5;
/// More than this multiple of the capacity means a faster link.
const FASTER: f64 = 1.05;
/// A message that arrives at this multiple of the capacity shows a faster link, or a shaper that lets so much
/// pass at once.
const FASTER_MESSAGE: f64 = 1.3;
/// Ticks for which such a message counts: a second at the usual period.
const SHOWN_TICKS: u32 = 20;
/// The kernel counts the time of a message in ticks of at most this length (jiffies(7)), in seconds.
const KERNEL_TICK_S: f64 = 0.01;
/// Share of the capacity that bulk grows by in each tick of a search.
const SEARCH_STEP: f64 = 0.1;

#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// When a queue showed the capacity last.
    confirmed_ns: u64,
    search: Option<Search>,
    ended: u32,
    /// A search found more, and the law is to find how much.
    is_released: bool,
    changes: Changes,
    /// A message has arrived faster than the capacity allows, which counts for so many more ticks.
    faster_shown_ticks: u32,
    /// Until then such messages show nothing: a search that one began found no faster link.
    doubted_until_ns: u64,
}

/// Whether the capacity has changed of late, such as that of a radio link.
#[derive(Debug, Clone, Copy, Default)]
struct Changes {
    /// The capacity after the last change, in bit/s.
    reference: Option<f64>,
    last_ns: Option<u64>,
}

impl Changes {
    fn confirmed(&mut self, now_ns: u64, capacity: f64) {
        let reference = *self.reference.get_or_insert(capacity);
        if (capacity - reference).abs() > CHANGED_SHARE * reference {
            *self = Self { reference: Some(capacity), last_ns: Some(now_ns) };
        }
    }

    fn search_every_ns(&self, now_ns: u64) -> u64 {
        match self.last_ns.is_some_and(|last| now_ns.saturating_sub(last) < CHANGING_NS) {
            true => SEARCH_EVERY_CHANGING_NS,
            false => SEARCH_EVERY_NS,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Search {
    begun_ns: u64,
    capacity: f64,
    /// A message began it.
    is_by_message: bool,
}

/// What a tick without a long queue showed.
#[derive(Debug, Clone, Copy)]
struct GrowthInput {
    pub now_ns: u64,
    pub capacity: f64,
    /// Of the last ticks, in bit/s.
    pub delivered: f64,
    /// Whether a queue begins.
    pub is_queue: bool,
    /// Whether an urgent message is on its way.
    pub is_urgent_active: bool,
    /// Whether other hosts, of unknown shares, use the link: what a search finds may be theirs.
    pub is_beside_others: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Bulk leaves what is kept free.
    Held,
    /// The same, and a queue has just shown the capacity.
    Confirmed,
    /// Bulk takes the whole link and more.
    Searching,
    /// Bulk grows as if nothing were kept free.
    Free,
}

impl Hold {
    /// A queue showed this capacity, in bit/s.
    pub fn confirmed(&mut self, now_ns: u64, capacity: f64) {
        self.changes.confirmed(now_ns, capacity);
        self.unchanged(now_ns);
    }

    /// The capacity is what was known.
    pub fn unchanged(&mut self, now_ns: u64) {
        let is_in_vain = !self.is_released && self.search.is_some_and(|search| search.is_by_message);
        let doubted_until_ns = if is_in_vain { now_ns + SEARCH_EVERY_NS } else { self.doubted_until_ns };
        *self = Self { confirmed_ns: now_ns, changes: self.changes, doubted_until_ns, ..Self::default() };
    }

    /// What messages have shown is no evidence for ever.
    pub fn forget_messages(&mut self) {
        self.faster_shown_ticks = self.faster_shown_ticks.saturating_sub(1);
    }

    fn bound(&mut self, tick: GrowthInput) -> Bound {
        let GrowthInput { now_ns, capacity, .. } = tick;
        if self.is_released {
            return Bound::Free;
        }
        let every_ns = match tick.is_beside_others {
            true => SEARCH_EVERY_NS,
            false => self.changes.search_every_ns(now_ns),
        };
        let Some(search) = self.search else {
            let due_ns = self.confirmed_ns + every_ns;
            let is_by_message = std::mem::take(&mut self.faster_shown_ticks) > 0
                && now_ns >= self.doubted_until_ns
                && !tick.is_beside_others;
            let is_due = now_ns >= due_ns && (!tick.is_urgent_active || now_ns >= due_ns + PUT_OFF_NS);
            if !is_by_message && !is_due {
                return Bound::Held;
            }
            if is_by_message || tick.is_urgent_active {
                self.ended = ENDED_MAX;
            }
            self.search = Some(Search { begun_ns: now_ns, capacity, is_by_message });
            return Bound::Searching;
        };
        if tick.delivered > FASTER * search.capacity {
            self.is_released = true;
            return Bound::Free;
        }
        if tick.is_queue {
            self.unchanged(now_ns);
            return Bound::Confirmed;
        }
        if tick.is_urgent_active && self.ended < ENDED_MAX {
            self.search = None;
            self.ended += 1;
            self.confirmed_ns = now_ns.saturating_sub(every_ns - AGAIN_AFTER_NS);
            return Bound::Held;
        }
        if now_ns.saturating_sub(search.begun_ns) > SEARCH_NS {
            self.unchanged(now_ns);
            return Bound::Held;
        }
        Bound::Searching
    }
}

impl Law {
    /// A message of an urgent class has arrived. If it took less time than the capacity allows, there is a
    /// search for a faster link at once.
    pub fn message_arrived(&mut self, bytes: f64, transfer_s: f64) {
        let bit_per_s = 8.0 * bytes / (transfer_s + KERNEL_TICK_S);
        if bit_per_s > FASTER_MESSAGE * self.capacity {
            self.hold.faster_shown_ticks = SHOWN_TICKS;
        }
    }

    /// No queue, or a short one.
    pub(super) fn grow(&mut self, step: Step<'_>) -> State {
        let Step { now_ns, dt_s, seen, ranking, queue_s, limit_s } = step;
        self.episode = None;
        self.capacity = self.capacity.max(self.history.delivered(4));
        // A rate that was not applied is not known to fit.
        let is_used = !self.was_cut(now_ns, 1, dt_s)
            && (2 * seen.bulk_backlogged >= seen.bulk_active || self.history.bulk(4) > 0.75 * self.bulk);
        let mut state = if queue_s < limit_s / 2.0 { State::Growing } else { State::Holding };
        let mut delivered = self.history.delivered(2).max(self.history.delivered(3));
        if self.was_cut(now_ns, 3, dt_s) {
            delivered = delivered.max(self.history.delivered(1));
        }
        if is_used {
            self.bulk += match state {
                State::Growing => self.step(ranking, seen, limit_s),
                _ if self.is_beside_others => self.additive(),
                _ => GROWTH_START * self.bulk,
            };
            self.bulk = self.bulk.min(START_BIT_PER_S.max(DELIVERED_MAX * delivered));
        }
        if self.confirmed.is_some() && ranking.sparse > HELD_MIN * self.capacity {
            state = self.keep_free(now_ns, dt_s, ranking, state, delivered);
        }
        self.applied = self.bulk;
        state
    }

    /// Bulk leaves what sparse urgent messages need, but for short searches for a faster link.
    fn keep_free(
        &mut self,
        now_ns: u64,
        dt_s: f64,
        ranking: &Ranking,
        state: State,
        delivered: f64,
    ) -> State {
        let link = self.beta() * self.capacity;
        let room = (link - ranking.urgent_held).max(HELD_LEAST * link);
        let bound = self.hold.bound(GrowthInput {
            now_ns,
            capacity: self.capacity,
            delivered: self.history.delivered(1).max(delivered),
            is_queue: state == State::Holding,
            is_urgent_active: ranking.has_message_without_room(),
            is_beside_others: self.is_beside_others,
        });
        if bound == Bound::Confirmed && !self.was_cut(now_ns, 2, dt_s) {
            let shown = self.history.delivered(1).max(self.history.delivered(2));
            self.capacity = shown.clamp(0.9 * self.capacity, self.capacity);
            self.confirmed = Some(self.capacity);
        }
        match bound {
            Bound::Free => return state,
            Bound::Searching => {
                self.bulk = (self.bulk + SEARCH_STEP * self.capacity).max(link);
                // Growth continues at this pace if it finds more; beside other hosts it would take their
                // shares.
                self.growth = if self.is_beside_others { GROWTH_START } else { SEARCH_STEP };
                return State::Growing;
            }
            Bound::Held | Bound::Confirmed => self.bulk = self.bulk.min(room),
        }
        State::Holding
    }

    /// Growth of this tick while there is no queue, in bit/s; the next is larger.
    fn step(&mut self, ranking: &Ranking, seen: &Observation, limit_s: f64) -> f64 {
        let used = self.bulk + ranking.urgent;
        // What is delivered follows the growth itself: a law that compared with it would always be near.
        let is_near = |known: f64| used > NEAR[0] * known && used < NEAR[1] * known;
        let delay_s = self.settings.delay_s;
        // As much per loop as without a delay.
        let slower = Settings::PERIOD_S / (Settings::PERIOD_S + delay_s);
        if self.confirmed.is_some_and(is_near) {
            self.growth = self.growth.min(slower * GROWTH_NEAR_MAX);
        }
        let growth = self.growth;
        // The queue that a step makes before it shows must be within the limit.
        let most = GROWTH_MAX.min(limit_s / (Settings::PERIOD_S + delay_s + seen.base_s) / GROWTH_FACTOR);
        self.growth = (growth * GROWTH_FACTOR).min(most.max(slower * GROWTH_START));
        match self.is_beside_others {
            true => self.additive() * growth / GROWTH_START,
            false => used * growth,
        }
    }
}

#[cfg(test)]
mod tests;
