//! Who may send next, so that never more is under way to a builder than its port can hold.
//!
//! The *credit* is how many fragments (and bytes) may be under way at once, over all events of a builder. A fragment is
//! under way from its grant until it arrives, its source is gone, or its event ends; the only one that is under way, if it is
//! large and was pulled, until it nearly arrived. When all sources of an event have their
//! grant, those of the next one begin, so that the port does not idle between events.

use std::collections::VecDeque;

/// A range of sources that may send for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The event.
    pub event: u64,
    /// The first source.
    pub first_source: u32,
    /// How many.
    pub sources: u32,
}

/// How grants reach sources, which decides how many sources one is best for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// By multicast: the fewer grants the better, so each is for half the credit at least.
    Many,
    /// Over one source's connection: each is for one source.
    One,
}

/// One bit a source.
#[derive(Debug, Clone, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn clear_for(&mut self, sources: u32) {
        self.0.clear();
        self.0.resize((sources as usize).div_ceil(64), 0);
    }

    fn has(&self, source: u32) -> bool {
        self.0.get(source as usize / 64).is_some_and(|word| word >> (source % 64) & 1 == 1)
    }

    /// Sets the bit; returns whether it was not set before.
    fn set(&mut self, source: u32) -> bool {
        let Some(word) = self.0.get_mut(source as usize / 64) else { return false };
        let bit = 1 << (source % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn unset(&mut self, source: u32) {
        if let Some(word) = self.0.get_mut(source as usize / 64) {
            *word &= !(1 << (source % 64));
        }
    }
}

/// An event that is not over yet.
#[derive(Debug, Default)]
struct Open {
    event: u64,
    /// Sources below this one have their grant.
    next_source: u32,
    /// Whose fragment is not to be waited for: it came, or its source is gone.
    settled: Bits,
    under_way: u32,
    under_way_bytes: u64,
}

/// The account of what is under way to one builder.
#[derive(Debug)]
pub struct Grants {
    sources: u32,
    credit: u32,
    credit_bytes: u64,
    reach: Reach,
    /// Ascending, as they were opened.
    events: VecDeque<Open>,
    /// Kept for the next event, so that none allocates.
    spare: Vec<Open>,
    gone: Bits,
    under_way: u32,
    under_way_bytes: u64,
}

impl Grants {
    /// For sources 0 to `sources`, of which `credit` fragments (at least one) may be under way.
    pub fn new(sources: u32, credit: u32, reach: Reach) -> Self {
        let mut gone = Bits::default();
        gone.clear_for(sources);
        Self {
            sources,
            credit: credit.max(1),
            credit_bytes: u64::MAX,
            reach,
            events: VecDeque::new(),
            spare: Vec::new(),
            gone,
            under_way: 0,
            under_way_bytes: 0,
        }
    }

    /// From now on so many fragments may be under way, at least one.
    pub fn set_credit(&mut self, credit: u32) {
        self.credit = credit.max(1);
    }

    /// From now on so many bytes may be under way, however many fragments that is; one fragment may be larger.
    pub fn set_credit_bytes(&mut self, bytes: u64) {
        self.credit_bytes = bytes.max(1);
    }

    /// Fragments that may be under way.
    pub fn credit(&self) -> u32 {
        self.credit
    }

    /// Fragments that are under way.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// How many fragments have to come before there is anything new to hand out; by single pulls that is the next one.
    pub fn awaited(&self) -> u64 {
        let until = match self.reach {
            Reach::One => self.under_way.min(1),
            Reach::Many if self.all_handed_out() => self.under_way,
            Reach::Many => self.under_way.saturating_sub(self.credit / 2),
        };
        until.into()
    }

    /// Whether all sources of all open events have their grant, so that another event could make use of the credit.
    pub fn all_handed_out(&self) -> bool {
        self.events.iter().all(|open| open.next_source >= self.sources)
    }

    /// An event happened: its sources are granted when it is their turn. Events are opened in ascending order.
    pub fn open(&mut self, event: u64) {
        let mut open = self.spare.pop().unwrap_or_default();
        open.event = event;
        open.next_source = 0;
        (open.under_way, open.under_way_bytes) = (0, 0);
        open.settled.clone_from(&self.gone);
        self.events.push_back(open);
    }

    /// The next sources that may send, to be called until there is none; `bytes` says how large the fragment of an event
    /// and source is, as the port counts, and says the same whenever it is asked.
    pub fn next(&mut self, bytes: impl Fn(u64, u32) -> u64) -> Option<Grant> {
        let sources = self.sources;
        // Those that are settled cost nothing: pass them by.
        let at = self.events.iter_mut().position(|open| {
            while open.next_source < sources && open.settled.has(open.next_source) {
                open.next_source += 1;
            }
            open.next_source < sources
        })?;
        let free = self.credit.saturating_sub(self.under_way);
        let open = &self.events[at];
        let (event, first) = (open.event, open.next_source);
        let most = match self.reach {
            Reach::Many => free,
            Reach::One => free.min(1),
        };
        let (mut end, mut count, mut added_bytes) = (first, 0_u32, 0_u64);
        while end < self.sources {
            if open.settled.has(end) {
                // In the midst of a range an order to it is harmless; alone it would be a waste.
                if self.reach == Reach::One {
                    break;
                }
                end += 1;
                continue;
            }
            let more_bytes = bytes(event, end);
            let all_bytes = self.under_way_bytes.saturating_add(added_bytes).saturating_add(more_bytes);
            let alone = self.under_way == 0 && count == 0;
            if count >= most || (all_bytes > self.credit_bytes && !alone) {
                break;
            }
            (end, count, added_bytes) = (end + 1, count + 1, added_bytes + more_bytes);
        }
        let whole = end >= self.sources;
        if count == 0 || !(whole || self.is_worth_it(count, added_bytes)) {
            return None;
        }
        let open = &mut self.events[at];
        open.next_source = end;
        open.under_way += count;
        open.under_way_bytes += added_bytes;
        self.under_way += count;
        self.under_way_bytes += added_bytes;
        Some(Grant { event, first_source: first, sources: end - first })
    }

    /// Whether a grant of so much need not wait for more credit to come back.
    fn is_worth_it(&self, count: u32, bytes: u64) -> bool {
        let half = count >= self.credit.div_ceil(2) || bytes >= self.credit_bytes / 2;
        half || self.reach == Reach::One || self.under_way == 0
    }

    /// The fragment came (or nearly), granted or not; `bytes` as [`Self::next`] was told. A second time it counts for
    /// nothing. Returns whether credit came back.
    pub fn arrived(&mut self, event: u64, source: u32, bytes: u64) -> bool {
        let Some(at) = self.place(event) else { return false };
        let open = &mut self.events[at];
        let is_back = open.settled.set(source) && source < open.next_source;
        if is_back {
            let bytes = bytes.min(open.under_way_bytes);
            open.under_way = open.under_way.saturating_sub(1);
            open.under_way_bytes -= bytes;
            self.under_way = self.under_way.saturating_sub(1);
            self.under_way_bytes = self.under_way_bytes.saturating_sub(bytes);
        }
        is_back
    }

    /// The source's connection ended: nothing of it is waited for, now or in later events. `bytes` as in [`Self::next`].
    pub fn gone(&mut self, source: u32, bytes: impl Fn(u64, u32) -> u64) {
        self.gone.set(source);
        let events: Vec<u64> = self.events.iter().map(|open| open.event).collect();
        for event in events {
            self.arrived(event, source, bytes(event, source));
        }
    }

    /// The source came again: later events count on it.
    pub fn came_again(&mut self, source: u32) {
        self.gone.unset(source);
    }

    /// The event is complete or was given up: what it still had under way is free again.
    pub fn end(&mut self, event: u64) {
        let Some(open) = self.place(event).and_then(|at| self.events.remove(at)) else { return };
        self.under_way = self.under_way.saturating_sub(open.under_way);
        self.under_way_bytes = self.under_way_bytes.saturating_sub(open.under_way_bytes);
        self.spare.push(open);
    }

    fn place(&self, event: u64) -> Option<usize> {
        self.events.binary_search_by_key(&event, |open| open.event).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: fn(u64, u32) -> u64 = |_, _| 1000;

    fn grant(event: u64, first_source: u32, sources: u32) -> Option<Grant> {
        Some(Grant { event, first_source, sources })
    }

    #[test]
    fn grants_come_by_half_the_credit_and_go_on_with_the_next_event() {
        let mut grants = Grants::new(10, 4, Reach::Many);
        assert_eq!(grants.next(SIZE), None);
        grants.open(7);
        assert_eq!(grants.next(SIZE), grant(7, 0, 4));
        assert_eq!((grants.next(SIZE), grants.awaited()), (None, 2));
        assert!(grants.arrived(7, 2, 1000));
        assert!(!grants.arrived(7, 2, 1000), "twice");
        assert_eq!((grants.next(SIZE), grants.under_way()), (None, 3), "one is too few for a grant");
        grants.arrived(7, 0, 1000);
        assert_eq!(grants.next(SIZE), grant(7, 4, 2));
        for source in [1, 3, 4, 5] {
            grants.arrived(7, source, 1000);
        }
        assert_eq!(grants.next(SIZE), grant(7, 6, 4));
        assert!(grants.all_handed_out() && grants.awaited() == 4);
        grants.open(8);
        grants.arrived(7, 6, 1000);
        grants.arrived(7, 7, 1000);
        assert_eq!(grants.next(SIZE), grant(8, 0, 2));
        grants.end(7);
        assert_eq!(
            (grants.next(SIZE), grants.under_way()),
            (grant(8, 2, 2), 4),
            "an ended event frees its credit"
        );
    }

    #[test]
    fn pulls_are_single_and_bytes_bound_them_too() {
        let mut grants = Grants::new(3, 2, Reach::One);
        grants.open(1);
        assert_eq!(
            [grants.next(SIZE), grants.next(SIZE), grants.next(SIZE)],
            [grant(1, 0, 1), grant(1, 1, 1), None]
        );
        let mut grants = Grants::new(5, 5, Reach::Many);
        grants.set_credit_bytes(2_500);
        grants.open(1);
        assert_eq!(grants.next(SIZE), grant(1, 0, 2));
        grants.arrived(1, 0, 1000);
        grants.arrived(1, 1, 1000);
        assert_eq!(grants.next(|_, _| 10_000), grant(1, 2, 1), "one that is too large goes alone");
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let mut grants = Grants::new(4, 2, Reach::Many);
        grants.gone(1, SIZE);
        grants.open(1);
        assert_eq!(grants.next(SIZE), grant(1, 0, 3), "the gone one in the middle takes no credit");
        grants.gone(0, SIZE);
        grants.gone(2, SIZE);
        assert_eq!(grants.next(SIZE), grant(1, 3, 1));
        grants.came_again(1);
        grants.end(1);
        grants.open(2);
        assert_eq!(grants.next(SIZE), grant(2, 1, 1).map(|grant| Grant { sources: 3, ..grant }));
    }

    proptest! {
        #[test]
        fn never_more_is_under_way_than_credit_and_everybody_has_a_turn(
            sources in 1..200_u32,
            credit in 1..64_u32,
            one in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut grants = Grants::new(sources, credit, if one { Reach::One } else { Reach::Many });
            let (mut under_way, mut built) = (Vec::new(), 0);
            let size = |event: u64, source: u32| event * 7 + u64::from(source) + 1;
            for event in 0..4 {
                grants.open(event);
            }
            while built < 4 * sources {
                while let Some(grant) = grants.next(size) {
                    under_way.extend((grant.first_source..grant.first_source + grant.sources).map(|s| (grant.event, s)));
                    prop_assert!(under_way.len() <= credit as usize);
                }
                prop_assert_eq!(under_way.len(), grants.under_way() as usize);
                prop_assert!(!under_way.is_empty(), "it stands still");
                let (event, source) = under_way.swap_remove(random.usize(..under_way.len()));
                grants.arrived(event, source, size(event, source));
                built += 1;
            }
            prop_assert_eq!((grants.under_way, grants.under_way_bytes), (0, 0));
        }
    }
}
