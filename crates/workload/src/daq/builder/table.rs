//! The events that a builder has under way, and what it remembers of those that ended.

use std::collections::VecDeque;

use super::memory::Held;

/// Events that were given up and are remembered, so that what still comes of them is told from what comes twice.
const GIVEN_UP_MAX: usize = 256;
/// Fragments of events that lie further back than so many are from the past.
const PAST_EVENTS: u64 = 65_536;
/// So many events under way are looked at for a trigger that was late.
const LATE_BEFORE_MAX: usize = 64;

/// A set of sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources(Vec<u64>);

impl Sources {
    /// An empty set, for the sources 0 to `sources - 1`.
    pub fn none_of(sources: u32) -> Self {
        Self(vec![0; sources.div_ceil(64) as usize])
    }

    /// Adds a source; returns whether it is new.
    pub fn insert(&mut self, source: u32) -> bool {
        let Some(word) = self.0.get_mut((source / 64) as usize) else { return false };
        let bit = 1 << (source % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Takes a source out.
    pub fn remove(&mut self, source: u32) {
        if let Some(word) = self.0.get_mut((source / 64) as usize) {
            *word &= !(1 << (source % 64));
        }
    }

    /// Whether a source is in it.
    pub fn contains(&self, source: u32) -> bool {
        self.0.get((source / 64) as usize).is_some_and(|word| word & (1 << (source % 64)) != 0)
    }

    /// Those of the sources 0 to `sources - 1` that are not in it.
    pub fn missing(&self, sources: u32) -> impl Iterator<Item = u32> + '_ {
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

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// A fragment that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// Whose.
    pub source: u32,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// When it was sent, by the source's clock, ns.
    pub sent_ns: u64,
    /// When its last byte was read, ns.
    pub arrived_ns: u64,
    /// Whether its order had to be repeated, or a later trigger told of it.
    pub caught_up: bool,
}

/// An event under way.
#[derive(Debug)]
pub struct Slot {
    /// Its number.
    pub event: u64,
    /// When its trigger was due, ns.
    pub due_ns: u64,
    /// When its trigger was sent, ns.
    pub triggered_ns: u64,
    /// How late that was, ns; or how late an earlier trigger was, less the time since then, if that is more: a builder that
    /// could not run sends the triggers of all that time together, and has the sources busy with them.
    pub triggers_late_ns: u64,
    /// Whether it counts: its trigger was due in the hold.
    pub in_hold: bool,
    /// Whose fragments came.
    pub present: Sources,
    /// The fragments, in the order of their arrival.
    pub came: Vec<Came>,
    /// Payload that came, bytes.
    pub payload_bytes: u64,
    /// Their memory.
    pub held: Held,
    /// How many times orders were repeated for it.
    pub repeats: u32,
    /// How late the builder was to read one of its fragments at most, ns.
    pub read_late_ns: u64,
}

/// What a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// An event under way, in this slot.
    UnderWay(u32),
    /// It was built.
    Complete,
    /// It was given up.
    GivenUp,
    /// So long ago that nobody remembers.
    Past,
    /// No trigger told of it yet.
    Never,
}

/// The events of one builder.
#[derive(Debug)]
pub struct Table {
    sources: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Event and slot, ascending.
    under_way: Vec<(u64, u32)>,
    given_up: VecDeque<(u64, Sources)>,
    /// The last event triggered.
    last: Option<u64>,
    under_way_max: usize,
}

impl Table {
    /// For events of so many sources.
    pub const fn new(sources: u32) -> Self {
        Self {
            sources,
            slots: Vec::new(),
            free: Vec::new(),
            under_way: Vec::new(),
            given_up: VecDeque::new(),
            last: None,
            under_way_max: 0,
        }
    }

    /// An event begins: its number is above all before it. Returns its slot.
    pub fn begin(&mut self, event: u64, due_ns: u64, triggered_ns: u64, in_hold: bool) -> u32 {
        let late_ns = triggered_ns.saturating_sub(due_ns);
        let before = self.under_way.iter().rev().take(LATE_BEFORE_MAX);
        let before = before.map(|&(_, slot)| {
            let slot = &self.slots[slot as usize];
            let since_ns = triggered_ns.saturating_sub(slot.triggered_ns);
            slot.triggered_ns.saturating_sub(slot.due_ns).saturating_sub(since_ns)
        });
        let before_ns = before.max().unwrap_or(0);
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                event,
                due_ns,
                triggered_ns,
                triggers_late_ns: 0,
                in_hold,
                present: Sources::none_of(self.sources),
                came: Vec::new(),
                payload_bytes: 0,
                held: Held::default(),
                repeats: 0,
                read_late_ns: 0,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[at as usize];
        (slot.event, slot.due_ns, slot.triggered_ns, slot.in_hold) = (event, due_ns, triggered_ns, in_hold);
        slot.triggers_late_ns = late_ns.max(before_ns);
        (slot.payload_bytes, slot.repeats, slot.read_late_ns) = (0, 0, 0);
        self.under_way.push((event, at));
        self.under_way_max = self.under_way_max.max(self.under_way.len());
        self.last = Some(event);
        at
    }

    /// What is known of a number. `own`: whether it is one of this builder's.
    pub fn known(&self, event: u64) -> Known {
        if let Some(slot) = self.slot_of(event) {
            return Known::UnderWay(slot);
        }
        match self.last {
            Some(last) if event <= last => {
                if self.given_up.iter().any(|(number, _)| *number == event) {
                    Known::GivenUp
                } else if last - event > PAST_EVENTS
                    || self
                        .given_up
                        .front()
                        .is_some_and(|(oldest, _)| event < *oldest && self.given_up.len() == GIVEN_UP_MAX)
                {
                    Known::Past
                } else {
                    Known::Complete
                }
            }
            _ => Known::Never,
        }
    }

    /// The slot of an event under way.
    pub fn slot_of(&self, event: u64) -> Option<u32> {
        match &self.under_way[..] {
            [(only, slot)] => (*only == event).then_some(*slot),
            many => many.binary_search_by_key(&event, |(number, _)| *number).ok().map(|at| many[at].1),
        }
    }

    /// The event in a slot, if it is (still) that one.
    pub fn held(&mut self, slot: u32, event: u64) -> Option<&mut Slot> {
        let at = self.slot_of(event).filter(|&at| at == slot)?;
        self.slots.get_mut(at as usize)
    }

    /// An event under way.
    pub fn slot(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// An event under way.
    pub fn look(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// An event ended; what it holds is to be given back first. Unless it is complete, its missing are remembered.
    pub fn end(&mut self, slot: u32) {
        let sources = self.sources as usize;
        let ended = &mut self.slots[slot as usize];
        let event = ended.event;
        if ended.came.len() < sources {
            if self.given_up.len() == GIVEN_UP_MAX {
                self.given_up.pop_front();
            }
            self.given_up.push_back((event, ended.present.clone()));
        }
        ended.present.clear();
        ended.came.clear();
        if let Ok(at) = self.under_way.binary_search_by_key(&event, |(number, _)| *number) {
            self.under_way.remove(at);
            self.free.push(slot);
        }
    }

    /// A fragment of an event that was given up: whether it had come before.
    pub fn came_before(&mut self, event: u64, source: u32) -> bool {
        let given_up = self.given_up.iter_mut().find(|(number, _)| *number == event);
        given_up.is_some_and(|(_, present)| !present.insert(source))
    }

    /// Events under way with their slots, ascending.
    pub fn under_way(&self) -> &[(u64, u32)] {
        &self.under_way
    }

    /// How many fragments are still to come, of all events under way together.
    pub fn missing(&self) -> u64 {
        let sources = self.sources as usize;
        let missing = |(_, slot): &(u64, u32)| sources - self.look(*slot).came.len().min(sources);
        self.under_way.iter().map(missing).sum::<usize>() as u64
    }

    /// The oldest event under way; without one `next`.
    pub fn oldest(&self, next: u64) -> u64 {
        self.under_way.first().map_or(next, |(event, _)| *event)
    }

    /// The most events that were under way at once.
    pub const fn under_way_max(&self) -> usize {
        self.under_way_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_who_is_missing() {
        let mut set = Sources::none_of(130);
        assert!((0..130).filter(|source| source % 3 != 0).all(|source| set.insert(source)));
        assert!(!set.insert(1) && set.contains(1) && !set.contains(3));
        assert!(set.missing(130).eq((0..130).step_by(3)));
        set.remove(1);
        assert_eq!(set.missing(130).nth(1), Some(1));
        assert!(!set.insert(100_000) && !set.contains(100_000));
    }

    #[test]
    fn triggers_that_were_held_up_together_share_the_lateness() {
        let mut table = Table::new(1);
        let mut late_ns = |event, due_ns, triggered_ns| {
            let slot = table.begin(event, due_ns, triggered_ns, true);
            (slot, table.slot(slot).triggers_late_ns)
        };
        let (first, late) = late_ns(0, 100, 160);
        assert_eq!((late, late_ns(1, 150, 161).1, late_ns(2, 170, 170).1), (60, 59, 50));
        assert_eq!(late_ns(3, 220, 220).1, 0, "by then the sources have done what came late");
        table.end(first);
        let next = table.begin(4, 165, 165, true);
        assert_eq!(table.slot(next).triggers_late_ns, 7, "of those that are under way");
    }

    #[test]
    fn what_ended_is_remembered_for_what_it_was() {
        let mut table = Table::new(2);
        assert_eq!(table.known(0), Known::Never);
        let [zero, one, two] = [0, 1, 2].map(|event| table.begin(event, 0, 0, true));
        assert_eq!((table.under_way_max(), table.oldest(3)), (3, 0));
        for source in [0, 1] {
            let slot = table.slot(one);
            slot.present.insert(source);
            slot.came.push(Came { source, payload_bytes: 0, sent_ns: 0, arrived_ns: 0, caught_up: false });
        }
        table.slot(zero).present.insert(1);
        table.end(one);
        table.end(zero);
        let known: Vec<Known> = (0..4).map(|event| table.known(event)).collect();
        assert_eq!(known, [Known::GivenUp, Known::Complete, Known::UnderWay(two), Known::Never]);
        assert!(!table.came_before(0, 0) && table.came_before(0, 0) && table.came_before(0, 1));
        assert_eq!(table.begin(100_000, 0, 0, true), zero);
        assert_eq!((table.known(1), table.held(zero, 0).is_none(), table.oldest(9)), (Known::Past, true, 2));
    }
}
