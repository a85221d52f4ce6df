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
/// Ticks for which such a message counts: a second.
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
struct Tick {
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

    fn bound(&mut self, tick: Tick) -> Bound {
        let Tick { now_ns, capacity, .. } = tick;
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
        let bound = self.hold.bound(Tick {
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
mod tests {
    use super::*;

    const TICK: Tick = Tick {
        now_ns: 0,
        capacity: 20e6,
        delivered: 12e6,
        is_queue: false,
        is_urgent_active: false,
        is_beside_others: false,
    };

    fn at(s: f64) -> Tick {
        Tick { now_ns: (s * 1e9) as u64, ..TICK }
    }

    #[test]
    fn message_that_was_faster_begins_a_search_which_is_doubted_after_one_in_vain() {
        let mut hold = Hold::default();
        hold.confirmed(0, 20e6);
        let shown = |hold: &mut Hold, tick| {
            hold.faster_shown_ticks = 1;
            hold.bound(tick)
        };
        let beside = Tick { is_beside_others: true, ..at(1.0) };
        assert_eq!([shown(&mut hold, beside), hold.bound(at(1.1))], [Bound::Held, Bound::Held]);
        assert_eq!(shown(&mut hold, at(2.0)), Bound::Searching);
        let message = Tick { is_urgent_active: true, ..at(2.1) };
        assert_eq!(hold.bound(message), Bound::Searching, "a message does not end it");
        assert_eq!(hold.bound(Tick { is_queue: true, ..at(2.2) }), Bound::Confirmed);
        assert_eq!(shown(&mut hold, at(12.1)), Bound::Held, "a shaper may have let the message pass");
        assert_eq!(hold.bound(at(12.2)), Bound::Searching, "the usual one");
        assert_eq!(hold.bound(Tick { delivered: 22e6, ..at(12.3) }), Bound::Free);
        hold.confirmed(13_000_000_000, 50e6);
        assert_eq!(shown(&mut hold, at(13.1)), Bound::Searching);
    }

    #[test]
    fn search_by_a_message_that_found_more_leaves_no_doubt() {
        let mut hold = Hold::default();
        hold.confirmed(0, 5e6);
        hold.faster_shown_ticks = 1;
        assert_eq!(hold.bound(Tick { capacity: 5e6, delivered: 5e6, ..at(1.0) }), Bound::Searching);
        assert_eq!(hold.bound(Tick { capacity: 5e6, ..at(1.1) }), Bound::Free);
        hold.confirmed(2_000_000_000, 20e6);
        hold.faster_shown_ticks = 1;
        assert_eq!(hold.bound(at(2.1)), Bound::Searching, "the link has become faster again");
    }

    fn searching() -> Hold {
        let mut hold = Hold::default();
        hold.confirmed(0, 20e6);
        assert_eq!([hold.bound(at(9.9)), hold.bound(at(10.0))], [Bound::Held, Bound::Searching]);
        hold
    }

    #[test]
    fn search_ends_with_a_queue_or_with_more_than_was_known() {
        let mut hold = searching();
        assert_eq!(hold.bound(Tick { delivered: 20.5e6, ..at(10.1) }), Bound::Searching);
        assert_eq!(hold.bound(Tick { is_queue: true, ..at(10.2) }), Bound::Confirmed);
        assert_eq!([hold.bound(at(20.1)), hold.bound(at(20.2))], [Bound::Held, Bound::Searching]);
        let mut hold = searching();
        assert_eq!(hold.bound(Tick { delivered: 22e6, ..at(10.1) }), Bound::Free);
        assert_eq!(hold.bound(at(30.0)), Bound::Free, "until a queue shows how much");
        hold.confirmed(30_000_000_000, 20e6);
        assert_eq!(hold.bound(at(30.1)), Bound::Held);
        // Bulk does not use its rate.
        let mut hold = searching();
        assert_eq!([hold.bound(at(11.0)), hold.bound(at(11.1))], [Bound::Searching, Bound::Held]);
    }

    #[test]
    fn search_is_made_more_often_while_the_capacity_changes() {
        let mut hold = Hold::default();
        hold.confirmed(0, 20e6);
        hold.confirmed(1_000_000_000, 17e6);
        assert_eq!(hold.bound(at(10.9)), Bound::Held, "that is no change");
        hold.confirmed(11_000_000_000, 15e6);
        let mut beside = hold.clone();
        assert_eq!(beside.bound(Tick { is_beside_others: true, ..at(20.9) }), Bound::Held);
        assert_eq!([hold.bound(at(13.9)), hold.bound(at(14.0))], [Bound::Held, Bound::Searching]);
        // It finds nothing; the next is made as soon.
        assert_eq!(hold.bound(Tick { is_queue: true, ..at(14.1) }), Bound::Confirmed);
        assert_eq!([hold.bound(at(17.0)), hold.bound(at(17.2))], [Bound::Held, Bound::Searching]);
        hold.confirmed(70_000_000_000, 15e6);
        assert_eq!([hold.bound(at(79.9)), hold.bound(at(80.0))], [Bound::Held, Bound::Searching]);
    }

    #[test]
    fn messages_without_a_pause_do_not_put_off_a_search_for_ever() {
        let mut hold = Hold::default();
        hold.confirmed(0, 20e6);
        let message = |s| Tick { is_urgent_active: true, ..at(s) };
        assert_eq!([hold.bound(message(10.0)), hold.bound(message(14.9))], [Bound::Held, Bound::Held]);
        assert_eq!(
            [hold.bound(message(15.0)), hold.bound(message(15.1))],
            [Bound::Searching, Bound::Searching]
        );
        assert_eq!(hold.bound(Tick { is_queue: true, ..message(15.2) }), Bound::Confirmed);
        assert_eq!(hold.bound(message(29.0)), Bound::Held, "the next is put off, too");
    }

    #[test]
    fn message_ends_a_search_which_is_made_again_soon() {
        let mut hold = searching();
        let message = |s| Tick { is_urgent_active: true, ..at(s) };
        assert_eq!(hold.bound(message(10.1)), Bound::Held);
        assert_eq!([hold.bound(at(11.0)), hold.bound(message(11.2))], [Bound::Held, Bound::Held]);
        assert_eq!(hold.bound(at(11.3)), Bound::Searching, "none begins beside a message");
        for again in 1..5 {
            let s = 11.3 + 2.0 * f64::from(again);
            assert_eq!([hold.bound(message(s - 1.9)), hold.bound(at(s))], [Bound::Held, Bound::Searching]);
        }
        assert_eq!(hold.bound(message(19.4)), Bound::Searching, "a sixth message does not end it");
    }
}
