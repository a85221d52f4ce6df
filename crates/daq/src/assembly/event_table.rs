//! The events under way, and which events ended how.

use std::collections::VecDeque;

use super::fragment_memory::EventMemory;

/// Given-up events that are remembered, to distinguish late fragments from duplicates.
const GIVEN_UP_MAX: usize = 256;
/// Fragments of older events count as `from_the_past`.
const PAST_EVENTS: u64 = 65_536;
/// Events under way that are searched for a late trigger.
const LATE_BEFORE_MAX: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceSet(Vec<u64>);

impl SourceSet {
    /// An empty set for the sources 0 to `sources - 1`.
    pub(crate) fn new(sources: u32) -> Self {
        Self(vec![0; sources.div_ceil(64) as usize])
    }

    /// Returns whether the source is new.
    pub(crate) fn insert(&mut self, source: u32) -> bool {
        let Some(word) = self.0.get_mut((source / 64) as usize) else { return false };
        let bit = 1 << (source % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, source: u32) {
        if let Some(word) = self.0.get_mut((source / 64) as usize) {
            *word &= !(1 << (source % 64));
        }
    }

    pub(crate) fn contains(&self, source: u32) -> bool {
        self.0.get((source / 64) as usize).is_some_and(|word| word & (1 << (source % 64)) != 0)
    }

    /// The sources below `sources` that are not in the set.
    pub(crate) fn missing(&self, sources: u32) -> impl Iterator<Item = u32> + '_ {
        let words = self.0.iter().zip(0_u32..);
        let missing = words.flat_map(|(&word, at)| {
            let mut gaps = !word;
            std::iter::from_fn(move || {
                let bit = (gaps != 0).then(|| gaps.trailing_zeros())?;
                gaps &= gaps - 1;
                Some(at * 64 + bit)
            })
        });
        missing.take_while(move |&source| source < sources)
    }

    /// Makes it equal to `other` without allocating.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.0.clone_from(&other.0);
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub source: u32,
    pub payload_bytes: u32,
    /// By the source's clock.
    pub sent_ns: u64,
    /// When its last byte was read.
    pub arrived_ns: u64,
    /// Whether its order was repeated, or a later trigger revealed it.
    pub recovered: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Event {
    pub event: u64,
    pub due_ns: u64,
    pub triggered_ns: u64,
    /// Delay of its trigger, or of an earlier one less the time since, if that is larger: a builder that got
    /// no CPU sends all triggers of that time at once, and keeps the sources busy.
    pub triggers_late_ns: u64,
    pub present: SourceSet,
    pub fragments: Vec<Fragment>,
    pub memory: EventMemory,
    /// The largest delay of reading one of its fragments.
    pub read_late_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventStatus {
    UnderWay(u32),
    Complete,
    GivenUp,
    /// Too old to be remembered.
    Past,
    /// Not triggered yet.
    Never,
}

#[derive(Debug, Default)]
pub(crate) struct EventTable {
    sources: u32,
    slots: Vec<Event>,
    free: Vec<u32>,
    /// Event and slot, ascending.
    under_way: Vec<(u64, u32)>,
    given_up: VecDeque<(u64, SourceSet)>,
    last: Option<u64>,
    pub(crate) under_way_max: usize,
}

impl EventTable {
    pub(crate) fn new(sources: u32) -> Self {
        Self { sources, ..Self::default() }
    }

    /// Begins an event; numbers ascend. Returns its slot.
    pub(crate) fn begin(&mut self, event: u64, due_ns: u64, triggered_ns: u64) -> u32 {
        let late_ns = triggered_ns.saturating_sub(due_ns);
        let before = self.under_way.iter().rev().take(LATE_BEFORE_MAX);
        let before = before.map(|&(_, slot)| {
            let slot = &self.slots[slot as usize];
            let since_ns = triggered_ns.saturating_sub(slot.triggered_ns);
            slot.triggered_ns.saturating_sub(slot.due_ns).saturating_sub(since_ns)
        });
        let before_ns = before.max().unwrap_or(0);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Event { present: SourceSet::new(self.sources), ..Event::default() });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[at as usize];
        (slot.event, slot.due_ns, slot.triggered_ns) = (event, due_ns, triggered_ns);
        slot.triggers_late_ns = late_ns.max(before_ns);
        slot.read_late_ns = 0;
        self.under_way.push((event, at));
        self.under_way_max = self.under_way_max.max(self.under_way.len());
        self.last = Some(event);
        at
    }

    pub(crate) fn status(&self, event: u64) -> EventStatus {
        if let Some(slot) = self.slot_of(event) {
            return EventStatus::UnderWay(slot);
        }
        match self.last {
            Some(last) if event <= last => {
                if self.given_up.iter().any(|(number, _)| *number == event) {
                    EventStatus::GivenUp
                } else if last - event > PAST_EVENTS
                    || self
                        .given_up
                        .front()
                        .is_some_and(|(oldest, _)| event < *oldest && self.given_up.len() == GIVEN_UP_MAX)
                {
                    EventStatus::Past
                } else {
                    EventStatus::Complete
                }
            }
            _ => EventStatus::Never,
        }
    }

    pub(crate) fn slot_of(&self, event: u64) -> Option<u32> {
        match &self.under_way[..] {
            [(only, slot)] => (*only == event).then_some(*slot),
            many => many.binary_search_by_key(&event, |(number, _)| *number).ok().map(|at| many[at].1),
        }
    }

    /// The event in a slot, if it is still this one.
    pub(crate) fn current_event(&mut self, slot: u32, event: u64) -> Option<&mut Event> {
        let at = self.slot_of(event).filter(|&at| at == slot)?;
        self.slots.get_mut(at as usize)
    }

    pub(crate) fn event_mut(&mut self, slot: u32) -> &mut Event {
        &mut self.slots[slot as usize]
    }

    pub(crate) fn event(&self, slot: u32) -> &Event {
        &self.slots[slot as usize]
    }

    /// Ends an event; its memory must be released first. The sources of an incomplete event are remembered.
    pub(crate) fn end(&mut self, slot: u32) {
        let sources = self.sources as usize;
        let ended = &mut self.slots[slot as usize];
        let event = ended.event;
        if ended.fragments.len() < sources {
            if self.given_up.len() == GIVEN_UP_MAX {
                self.given_up.pop_front();
            }
            self.given_up.push_back((event, ended.present.clone()));
        }
        ended.present.clear();
        ended.fragments.clear();
        if let Ok(at) = self.under_way.binary_search_by_key(&event, |(number, _)| *number) {
            self.under_way.remove(at);
            self.free.push(slot);
        }
    }

    /// Marks a late fragment of a given-up event; returns whether it had arrived before.
    pub(crate) fn mark_late(&mut self, event: u64, source: u32) -> bool {
        let given_up = self.given_up.iter_mut().find(|(number, _)| *number == event);
        given_up.is_some_and(|(_, present)| !present.insert(source))
    }

    /// Events under way with their slots, ascending.
    pub(crate) fn under_way(&self) -> &[(u64, u32)] {
        &self.under_way
    }

    pub(crate) fn missing(&self) -> u64 {
        let sources = self.sources as usize;
        let missing = |(_, slot): &(u64, u32)| sources - self.event(*slot).fragments.len().min(sources);
        self.under_way.iter().map(missing).sum::<usize>() as u64
    }

    /// The oldest event under way, or `next`.
    pub(crate) fn oldest(&self, next: u64) -> u64 {
        self.under_way.first().map_or(next, |(event, _)| *event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_set_lists_missing_sources() {
        let mut set = SourceSet::new(130);
        assert!((0..130).filter(|source| source % 3 != 0).all(|source| set.insert(source)));
        assert!(!set.insert(1) && set.contains(1) && !set.contains(3));
        assert!(set.missing(130).eq((0..130).step_by(3)));
        set.remove(1);
        assert_eq!(set.missing(130).nth(1), Some(1));
        assert!(!set.insert(100_000) && !set.contains(100_000));
    }

    #[test]
    fn delayed_triggers_share_the_lateness() {
        let mut table = EventTable::new(1);
        let mut late_ns = |event, due_ns, triggered_ns| {
            let slot = table.begin(event, due_ns, triggered_ns);
            (slot, table.event_mut(slot).triggers_late_ns)
        };
        let (first, late) = late_ns(0, 100, 160);
        assert_eq!((late, late_ns(1, 150, 161).1, late_ns(2, 170, 170).1), (60, 59, 50));
        assert_eq!(late_ns(3, 220, 220).1, 0, "by then the sources have done what came late");
        table.end(first);
        let next = table.begin(4, 165, 165);
        assert_eq!(table.event_mut(next).triggers_late_ns, 7, "of those that are under way");
    }

    #[test]
    fn ended_events_keep_their_status() {
        let mut table = EventTable::new(2);
        assert_eq!(table.status(0), EventStatus::Never);
        let [zero, one, two] = [0, 1, 2].map(|event| table.begin(event, 0, 0));
        assert_eq!((table.under_way_max, table.oldest(3)), (3, 0));
        for source in [0, 1] {
            let slot = table.event_mut(one);
            slot.present.insert(source);
            slot.fragments.push(Fragment { source, ..Fragment::default() });
        }
        table.event_mut(zero).present.insert(1);
        table.end(one);
        table.end(zero);
        let known: Vec<EventStatus> = (0..4).map(|event| table.status(event)).collect();
        assert_eq!(
            known,
            [EventStatus::GivenUp, EventStatus::Complete, EventStatus::UnderWay(two), EventStatus::Never]
        );
        assert!(!table.mark_late(0, 0) && table.mark_late(0, 0) && table.mark_late(0, 1));
        assert_eq!(table.begin(100_000, 0, 0), zero);
        assert_eq!(
            (table.status(1), table.current_event(zero, 0).is_none(), table.oldest(9)),
            (EventStatus::Past, true, 2)
        );
    }
}
