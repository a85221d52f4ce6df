//! Which events of one builder the sources of a group know of, and who has sent what. Pure.

use std::collections::VecDeque;

/// Events that are remembered at most, and the memory that who has sent them may take.
const KNOWN_MAX: usize = 4096;
const KNOWN_BYTES_MAX: usize = 512 << 10;

/// The events of one builder as a group of sources knows them. Bounded: of more events than it may have on hand the oldest
/// are forgotten.
#[derive(Debug)]
pub(super) struct Events {
    sources: usize,
    /// How far apart event numbers are, where that is known.
    step: Option<u64>,
    /// Events that are caught up on at once.
    behind_max: usize,
    /// Events that are remembered. While one waits for an order to be repeated, many after it come and go.
    known_max: usize,
    /// Nothing older is sent any more.
    floor: u64,
    /// Every event of ours below it was taken by all sources. Of use only where `step` is known.
    done_to: u64,
    /// The first that was heard of.
    first: Option<u64>,
    /// The newest that was heard of.
    newest: Option<u64>,
    /// Ascending.
    known: VecDeque<Known>,
    spare: Vec<Vec<u64>>,
}

#[derive(Debug)]
struct Known {
    event: u64,
    /// When its first order came.
    heard_ns: u64,
    /// Whether that was an order for this event, rather than a later one's word.
    was_ordered: bool,
    taken: Vec<u64>,
    taken_count: usize,
}

/// What an order told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// Whether it is the first that is heard of the event.
    pub(super) is_new: bool,
    /// Events before it, still wanted, that were never heard of.
    pub(super) missed: u64,
    /// Whether it was taken for missed: a later order overtook it.
    pub(super) was_overtaken: bool,
}

impl Events {
    /// None yet, for so many sources; of so many events may be on hand what is still to be sent.
    pub(super) fn new(sources: usize, step: Option<u64>, events_max: usize) -> Self {
        let known_max = KNOWN_BYTES_MAX / (8 * sources.div_ceil(64).max(1));
        Self {
            sources,
            step,
            behind_max: events_max.max(1),
            known_max: known_max.min(KNOWN_MAX).max(events_max.max(1)),
            floor: 0,
            done_to: 0,
            first: None,
            newest: None,
            known: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Whether an event is too old to be sent.
    pub(super) fn is_forgotten(&self, event: u64) -> bool {
        event < self.floor
    }

    /// An order about `event` arrived, which says that those before `oldest` are not wanted any more.
    pub(super) fn hear(&mut self, event: u64, oldest: u64, again: bool, now_ns: u64) -> Heard {
        // An order cannot declare its own event to be too old.
        self.forget_before(oldest.min(event));
        if event < self.floor {
            return Heard::default();
        }
        let is_new = self.insert(event, now_ns);
        let known = self.position(event).ok().map(|at| &mut self.known[at]);
        let was_ordered = known.is_none_or(|known| std::mem::replace(&mut known.was_ordered, true));
        let before = self.newest;
        self.newest = before.max(Some(event));
        let first = *self.first.get_or_insert(event);
        // A later order went past it, and counted it as missed.
        let was_passed = self.step.is_some() && first < event && Some(event) < before;
        let was_overtaken = was_passed && !was_ordered && !again;
        let mut missed = u64::from(is_new && again && !was_passed);
        if let (Some(step), Some(before)) = (self.step, before) {
            let first = before.saturating_add(step).max(oldest);
            missed += (event.saturating_sub(first) / step).min(self.behind_max as u64);
        }
        Heard { is_new, missed, was_overtaken }
    }

    /// Events before `event`, from `oldest` on, that not every source has taken: what there is to catch up on, ascending.
    /// Not more than may be on hand; none where numbers are not known in advance.
    pub(super) fn behind(&self, event: u64, oldest: u64) -> impl Iterator<Item = u64> + use<> {
        let step = self.step.unwrap_or(u64::MAX);
        let from = oldest.max(self.floor).max(self.done_to);
        let lag = if self.step.is_some() { event.saturating_sub(from) / step } else { 0 };
        let lag = lag.min(self.behind_max as u64 - 1);
        (0..lag).rev().map(move |k| event - (k + 1) * step)
    }

    /// The source, by its place in the group, takes the event to send it: `false` if it has done so before, or if the
    /// event is forgotten.
    pub(super) fn take(&mut self, event: u64, place: usize, now_ns: u64) -> bool {
        if event < self.floor || place >= self.sources {
            return false;
        }
        self.insert(event, now_ns);
        let sources = self.sources;
        let Some(at) = self.position(event).ok() else { return false };
        let known = &mut self.known[at];
        let (word, bit) = (place / 64, 1 << (place % 64));
        if known.taken[word] & bit != 0 {
            return false;
        }
        known.taken[word] |= bit;
        known.taken_count += 1;
        if known.taken_count == sources {
            self.advance();
        }
        true
    }

    /// When the first order of an event came that this source has taken.
    pub(super) fn taken_since(&self, event: u64, place: usize) -> Option<u64> {
        let known = &self.known[self.position(event).ok()?];
        let word = known.taken.get(place / 64)?;
        (word & 1 << (place % 64) != 0).then_some(known.heard_ns)
    }

    fn position(&self, event: u64) -> Result<usize, usize> {
        // Mostly it is about the newest.
        match self.known.back() {
            None => Err(0),
            Some(last) if last.event == event => Ok(self.known.len() - 1),
            Some(last) if last.event < event => Err(self.known.len()),
            Some(_) => self.known.binary_search_by_key(&event, |known| known.event),
        }
    }

    /// Makes the event known if it is not; whether it was not.
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
        let mut taken = self.spare.pop().unwrap_or_default();
        taken.clear();
        taken.resize(self.sources.div_ceil(64), 0);
        self.known.insert(at, Known { event, heard_ns: now_ns, was_ordered: false, taken, taken_count: 0 });
        true
    }

    fn forget_before(&mut self, event: u64) {
        self.floor = self.floor.max(event);
        while self.known.front().is_some_and(|known| known.event < self.floor) {
            self.spare.extend(self.known.pop_front().map(|known| known.taken));
        }
    }

    /// Moves the mark below which nothing is left to take.
    fn advance(&mut self) {
        let Some(step) = self.step else { return };
        for known in &self.known {
            if known.taken_count < self.sources {
                break;
            }
            // Nothing that is still wanted lies between, unless it was never heard of.
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

    fn all(events: &mut Events, event: u64) -> usize {
        (0..events.sources).filter(|&place| events.take(event, place, 0)).count()
    }

    #[test]
    fn each_source_takes_an_event_once() {
        let mut events = Events::new(70, Some(1), 4);
        assert_eq!(events.hear(0, 0, false, 5), Heard { is_new: true, ..Heard::default() });
        assert!(events.take(0, 69, 9) && !events.take(0, 69, 9) && !events.take(0, 70, 9));
        assert_eq!(events.hear(0, 0, true, 6), Heard::default());
        assert_eq!(all(&mut events, 0), 69);
        assert_eq!((events.taken_since(0, 3), events.taken_since(1, 3)), (Some(5), None));
        events.hear(1, 1, false, 7);
        assert!(events.is_forgotten(0) && !events.take(0, 0, 9));
    }

    #[test]
    fn what_was_missed_is_behind() {
        let mut events = Events::new(2, Some(3), 8);
        events.hear(1, 1, false, 0);
        assert_eq!(all(&mut events, 1), 2);
        // 4 and 7 were lost.
        assert_eq!(events.hear(10, 1, false, 0).missed, 2);
        assert_eq!(events.behind(10, 1).collect::<Vec<_>>(), [4, 7]);
        assert_eq!([4, 7, 10].map(|event| all(&mut events, event)), [2, 2, 2]);
        assert_eq!(events.hear(13, 4, false, 0).missed, 0);
        assert_eq!(events.behind(13, 4).count(), 0);
        // Heard of late, and nothing was heard before.
        let mut late = Events::new(2, Some(3), 8);
        assert_eq!(late.hear(10, 4, false, 0).missed, 0);
        assert_eq!(late.behind(10, 4).collect::<Vec<_>>(), [4, 7]);
    }

    /// As on a host with several CPUs: the order was on its way all the time.
    #[test]
    fn an_order_that_was_overtaken_was_not_missed() {
        let mut events = Events::new(2, Some(1), 8);
        events.hear(0, 0, false, 0);
        assert_eq!((all(&mut events, 0), events.hear(2, 0, false, 0).missed), (2, 1));
        assert_eq!([1, 2].map(|event| all(&mut events, event)), [2, 2]);
        assert!(!events.hear(2, 0, false, 0).was_overtaken, "a second copy");
        assert!(events.hear(1, 0, false, 0).was_overtaken && !events.hear(1, 0, false, 0).was_overtaken);
        // Told again because it was missed.
        assert_eq!((events.hear(4, 0, false, 0).missed, all(&mut events, 3)), (1, 2));
        assert!(!events.hear(3, 0, true, 0).was_overtaken);
        // Read together, before anybody sends.
        assert_eq!([7, 6].map(|event| events.hear(event, 0, false, 0).missed), [2, 0]);
        assert_eq!(events.hear(5, 0, true, 0), Heard { is_new: true, ..Heard::default() }, "counted once");
        let mut early = Events::new(2, Some(1), 8);
        assert_eq!([1, 0].map(|event| early.hear(event, 0, false, 0).was_overtaken), [false, false]);
    }

    #[test]
    fn an_event_that_waits_is_not_forgotten_for_those_that_come_and_go() {
        let mut events = Events::new(100, Some(1), 4);
        events.hear(0, 0, false, 0);
        for event in 1..1000 {
            events.hear(event, 0, false, 0);
            assert_eq!(all(&mut events, event), 100);
        }
        assert_eq!(all(&mut events, 0), 100);
    }

    #[test]
    fn where_numbers_are_not_known_nothing_is_behind() {
        let mut events = Events::new(1, None, 8);
        events.hear(1, 1, false, 0);
        assert_eq!(events.hear(9, 1, false, 0).missed, 0);
        assert_eq!(events.behind(9, 1).count(), 0);
        assert_eq!(events.hear(5, 1, true, 0), Heard { missed: 1, is_new: true, was_overtaken: false });
        assert!(events.take(5, 0, 0));
    }

    #[test]
    fn a_leap_is_bounded() {
        let mut events = Events::new(1, Some(1), 4);
        events.hear(0, 0, false, 0);
        let far = 1 << 60;
        assert_eq!(events.hear(far, 0, false, 0).missed, 4);
        assert_eq!(events.behind(far, 0).collect::<Vec<_>>(), [far - 3, far - 2, far - 1]);
        assert_eq!(events.hear(u64::MAX, 0, false, 0).missed, 4);
        assert_eq!(events.behind(u64::MAX, 0).count(), 3);
        assert!(events.take(u64::MAX, 0, 0));
    }

    proptest! {
        #[test]
        fn whatever_is_heard_nothing_grows_and_nothing_is_taken_twice(
            orders in proptest::collection::vec((0_u64..40, 0_u64..12, any::<bool>(), 0_usize..3), 1..200),
            step in proptest::option::of(1_u64..4),
        ) {
            let mut events = Events { known_max: 5, ..Events::new(3, step, 5) };
            let mut taken = std::collections::HashSet::new();
            for (event, back, again, place) in orders {
                let oldest = event.saturating_sub(back);
                events.hear(event, oldest, again, 0);
                let behind: Vec<u64> = events.behind(event, oldest).collect();
                prop_assert!(behind.len() < 5 && behind.is_sorted() && behind.iter().all(|&e| e < event));
                for event in behind.into_iter().chain([event]) {
                    if events.take(event, place, 0) {
                        prop_assert!(taken.insert((event, place)));
                    }
                }
                prop_assert!(events.known.len() <= 5 && events.known.iter().is_sorted_by_key(|k| k.event));
            }
        }
    }
}
