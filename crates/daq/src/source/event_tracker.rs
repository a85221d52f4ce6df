//! Tracks the events of one builder: which orders arrived, and which source has sent which event. No I/O.

use std::collections::VecDeque;

use crate::assembly::SourceSet;

/// Bounds of the number of tracked events and of the memory of their source sets.
const KNOWN_MAX: usize = 4096;
const KNOWN_BYTES_MAX: usize = 512 << 10;

/// The events of one builder as one worker's sources know them. Bounded: the oldest are forgotten first.
#[derive(Debug, Default)]
pub(super) struct EventTracker {
    sources: usize,
    /// Distance between event numbers, if known.
    step: Option<u64>,
    /// Missed events that sources catch up on at once.
    behind_max: usize,
    /// Limit of tracked events; while one waits for its order to be repeated, many later ones come and go.
    known_max: usize,
    /// Older events are not sent any more.
    floor: u64,
    /// All sources have claimed every event below; only maintained if `step` is known.
    done_to: u64,
    first: Option<u64>,
    newest: Option<u64>,
    /// In ascending order.
    known: VecDeque<TrackedEvent>,
    spare: Vec<SourceSet>,
}

#[derive(Debug)]
struct TrackedEvent {
    event: u64,
    /// When the first order of it arrived.
    first_order_ns: u64,
    /// Whether an order named it, rather than a later order implying it.
    was_ordered: bool,
    claimed: SourceSet,
    claimed_count: usize,
}

/// What an order changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OrderEffect {
    /// Whether it is the first order of the event.
    pub(super) is_new: bool,
    /// Earlier events, still wanted, of which no order arrived.
    pub(super) missed: u64,
    /// Whether the event had counted as missed: a later order overtook this one.
    pub(super) was_overtaken: bool,
}

impl EventTracker {
    /// `events_max` events may be queued.
    pub(super) fn new(sources: usize, step: Option<u64>, events_max: usize) -> Self {
        let known_max = KNOWN_BYTES_MAX / (8 * sources.div_ceil(64).max(1));
        Self {
            sources,
            step,
            behind_max: events_max.max(1),
            known_max: known_max.min(KNOWN_MAX).max(events_max.max(1)),
            ..Self::default()
        }
    }

    pub(super) fn is_forgotten(&self, event: u64) -> bool {
        event < self.floor
    }

    /// An order of `event` arrived; events before `oldest` are not wanted any more.
    pub(super) fn observe_order(&mut self, event: u64, oldest: u64, again: bool, now_ns: u64) -> OrderEffect {
        // An order cannot declare its own event obsolete.
        self.forget_before(oldest.min(event));
        if event < self.floor {
            return OrderEffect::default();
        }
        let is_new = self.insert(event, now_ns);
        let known = self.position(event).ok().map(|at| &mut self.known[at]);
        let was_ordered = known.is_none_or(|known| std::mem::replace(&mut known.was_ordered, true));
        let before = self.newest;
        self.newest = before.max(Some(event));
        let first = *self.first.get_or_insert(event);
        // A later order overtook it and counted it as missed.
        let was_passed = self.step.is_some() && first < event && Some(event) < before;
        let was_overtaken = was_passed && !was_ordered && !again;
        let mut missed = u64::from(is_new && again && !was_passed);
        if let (Some(step), Some(before)) = (self.step, before) {
            let first = before.saturating_add(step).max(oldest);
            missed += (event.saturating_sub(first) / step).min(self.behind_max as u64);
        }
        OrderEffect { is_new, missed, was_overtaken }
    }

    /// Events before `event`, from `oldest` on, that some source has not claimed, ascending and bounded;
    /// empty if event numbers are not predictable.
    pub(super) fn backlog(&self, event: u64, oldest: u64) -> impl Iterator<Item = u64> + use<> {
        let step = self.step.unwrap_or(u64::MAX);
        let from = oldest.max(self.floor).max(self.done_to);
        let lag = if self.step.is_some() { event.saturating_sub(from) / step } else { 0 };
        let lag = lag.min(self.behind_max as u64 - 1);
        (0..lag).rev().map(move |k| event - (k + 1) * step)
    }

    /// Marks the event as sent by the source with this index; `false` if it is so already, or if the event is
    /// forgotten.
    pub(super) fn claim(&mut self, event: u64, place: usize, now_ns: u64) -> bool {
        if event < self.floor || place >= self.sources {
            return false;
        }
        self.insert(event, now_ns);
        let sources = self.sources;
        let Some(at) = self.position(event).ok() else { return false };
        let known = &mut self.known[at];
        if !known.claimed.insert(place as u32) {
            return false;
        }
        known.claimed_count += 1;
        if known.claimed_count == sources {
            self.advance();
        }
        true
    }

    pub(super) const fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// The source's fragment of the event may be sent again.
    pub(super) fn unclaim(&mut self, event: u64, place: usize) {
        let Ok(at) = self.position(event) else { return };
        let known = &mut self.known[at];
        if known.claimed.contains(place as u32) {
            known.claimed.remove(place as u32);
            known.claimed_count -= 1;
        }
    }

    /// When the first order of the event arrived, if this source has claimed it.
    pub(super) fn claimed_since(&self, event: u64, place: usize) -> Option<u64> {
        let known = &self.known[self.position(event).ok()?];
        known.claimed.contains(place as u32).then_some(known.first_order_ns)
    }

    fn position(&self, event: u64) -> Result<usize, usize> {
        // Mostly the newest is asked for.
        match self.known.back() {
            None => Err(0),
            Some(last) if last.event == event => Ok(self.known.len() - 1),
            Some(last) if last.event < event => Err(self.known.len()),
            Some(_) => self.known.binary_search_by_key(&event, |known| known.event),
        }
    }

    /// Tracks the event; returns whether it is new.
    fn insert(&mut self, event: u64, now_ns: u64) -> bool {
        let Err(at) = self.position(event) else { return false };
        if self.known.len() >= self.known_max {
            if at == 0 {
                return false;
            }
            let oldest = self.known.front().map_or(0, |known| known.event);
            self.forget_before(oldest.saturating_add(1));
            return self.insert(event, now_ns);
        }
        let mut claimed = self.spare.pop().unwrap_or_else(|| SourceSet::new(self.sources as u32));
        claimed.clear();
        self.known.insert(
            at,
            TrackedEvent { event, first_order_ns: now_ns, was_ordered: false, claimed, claimed_count: 0 },
        );
        true
    }

    fn forget_before(&mut self, event: u64) {
        self.floor = self.floor.max(event);
        while self.known.front().is_some_and(|known| known.event < self.floor) {
            self.spare.extend(self.known.pop_front().map(|known| known.claimed));
        }
    }

    /// Raises `done_to`.
    fn advance(&mut self) {
        let Some(step) = self.step else { return };
        for known in &self.known {
            if known.claimed_count < self.sources {
                break;
            }
            // Events in between are done, forgotten or were never ordered.
            if known.event >= self.done_to && known.event.saturating_sub(self.done_to.max(self.floor)) < step
            {
                self.done_to = known.event.saturating_add(step);
            } else if known.event > self.done_to {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEW: OrderEffect = OrderEffect { is_new: true, missed: 0, was_overtaken: false };

    fn all(events: &mut EventTracker, event: u64) -> usize {
        (0..events.sources).filter(|&place| events.claim(event, place, 0)).count()
    }

    #[test]
    fn claim_succeeds_once_per_source() {
        let mut events = EventTracker::new(70, Some(1), 4);
        assert_eq!(events.observe_order(0, 0, false, 5), NEW);
        assert!(events.claim(0, 69, 9) && !events.claim(0, 69, 9) && !events.claim(0, 70, 9));
        assert_eq!(events.observe_order(0, 0, true, 6), OrderEffect::default());
        assert_eq!(all(&mut events, 0), 69);
        assert_eq!((events.claimed_since(0, 3), events.claimed_since(1, 3)), (Some(5), None));
        events.observe_order(1, 1, false, 7);
        assert!(events.is_forgotten(0) && !events.claim(0, 0, 9));
    }

    #[test]
    fn missed_events_form_the_backlog() {
        let mut events = EventTracker::new(2, Some(3), 8);
        events.observe_order(1, 1, false, 0);
        assert_eq!(all(&mut events, 1), 2);
        // The orders of 4 and 7 were lost.
        assert_eq!(events.observe_order(10, 1, false, 0).missed, 2);
        assert_eq!(events.backlog(10, 1).collect::<Vec<_>>(), [4, 7]);
        assert_eq!([4, 7, 10].map(|event| all(&mut events, event)), [2, 2, 2]);
        assert_eq!(events.observe_order(13, 4, false, 0).missed, 0);
        assert_eq!(events.backlog(13, 4).count(), 0);
        // The first order arrives late.
        let mut late = EventTracker::new(2, Some(3), 8);
        assert_eq!(late.observe_order(10, 4, false, 0).missed, 0);
        assert_eq!(late.backlog(10, 4).collect::<Vec<_>>(), [4, 7]);
    }

    /// On a host with several CPUs orders can be delivered out of order.
    #[test]
    fn overtaken_order_is_not_missed() {
        let mut events = EventTracker::new(2, Some(1), 8);
        events.observe_order(0, 0, false, 0);
        assert_eq!((all(&mut events, 0), events.observe_order(2, 0, false, 0).missed), (2, 1));
        assert_eq!([1, 2].map(|event| all(&mut events, event)), [2, 2]);
        assert!(!events.observe_order(2, 0, false, 0).was_overtaken, "a second copy");
        assert!(
            events.observe_order(1, 0, false, 0).was_overtaken
                && !events.observe_order(1, 0, false, 0).was_overtaken
        );
        // A repeated order: it was missed.
        assert_eq!((events.observe_order(4, 0, false, 0).missed, all(&mut events, 3)), (1, 2));
        assert!(!events.observe_order(3, 0, true, 0).was_overtaken);
        // Two orders read in one batch, before any source sends.
        assert_eq!([7, 6].map(|event| events.observe_order(event, 0, false, 0).missed), [2, 0]);
        assert_eq!(events.observe_order(5, 0, true, 0), NEW, "counted once");
        let mut early = EventTracker::new(2, Some(1), 8);
        assert_eq!([1, 0].map(|event| early.observe_order(event, 0, false, 0).was_overtaken), [false, false]);
    }

    #[test]
    fn waiting_event_outlives_later_ones() {
        let mut events = EventTracker::new(100, Some(1), 4);
        events.observe_order(0, 0, false, 0);
        for event in 1..1000 {
            events.observe_order(event, 0, false, 0);
            assert_eq!(all(&mut events, event), 100);
        }
        assert_eq!(all(&mut events, 0), 100);
    }

    #[test]
    fn unknown_step_has_no_backlog() {
        let mut events = EventTracker::new(1, None, 8);
        events.observe_order(1, 1, false, 0);
        assert_eq!(events.observe_order(9, 1, false, 0).missed, 0);
        assert_eq!(events.backlog(9, 1).count(), 0);
        assert_eq!(events.observe_order(5, 1, true, 0), OrderEffect { missed: 1, ..NEW });
        assert!(events.claim(5, 0, 0));
    }

    #[test]
    fn backlog_of_a_leap_is_bounded() {
        let mut events = EventTracker::new(1, Some(1), 4);
        events.observe_order(0, 0, false, 0);
        let far = 1 << 60;
        assert_eq!(events.observe_order(far, 0, false, 0).missed, 4);
        assert_eq!(events.backlog(far, 0).collect::<Vec<_>>(), [far - 3, far - 2, far - 1]);
        assert_eq!(events.observe_order(u64::MAX, 0, false, 0).missed, 4);
        assert_eq!(events.backlog(u64::MAX, 0).count(), 3);
        assert!(events.claim(u64::MAX, 0, 0));
    }

    proptest! {
        #[test]
        fn tracker_stays_bounded_and_claims_once(
            orders in proptest::collection::vec((0_u64..40, 0_u64..12, any::<bool>(), 0_usize..3), 1..200),
            step in proptest::option::of(1_u64..4),
        ) {
            let mut events = EventTracker { known_max: 5, ..EventTracker::new(3, step, 5) };
            let mut claimed = std::collections::HashSet::new();
            for (event, back, again, place) in orders {
                let oldest = event.saturating_sub(back);
                events.observe_order(event, oldest, again, 0);
                let behind: Vec<u64> = events.backlog(event, oldest).collect();
                prop_assert!(behind.len() < 5 && behind.is_sorted() && behind.iter().all(|&e| e < event));
                for event in behind.into_iter().chain([event]) {
                    if events.claim(event, place, 0) {
                        prop_assert!(claimed.insert((event, place)));
                    }
                }
                prop_assert!(events.known.len() <= 5 && events.known.iter().is_sorted_by_key(|k| k.event));
            }
        }
    }
}
