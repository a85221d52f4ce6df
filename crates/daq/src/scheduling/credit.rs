//! Grants sources the right to send, so that never more is under way to a builder than its port can hold.
//!
//! The *credit* is the limit of fragments (and bytes) under way at once, over all events of a builder. A
//! fragment is under way from its grant until it arrives, its source disconnects, or its event ends; a large
//! one that was pulled alone until it nearly arrived. When all sources of an event are granted, the next
//! event's follow, so that the port does not idle between events.

use std::collections::VecDeque;

use crate::assembly::SourceSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub event: u64,
    pub first_source: u32,
    pub sources: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantScope {
    /// Multicast: a grant is for half the credit at least, to save orders.
    Range,
    Single,
}

#[derive(Debug, Default)]
struct OpenEvent {
    event: u64,
    /// Sources below this one are granted.
    next_source: u32,
    /// Sources that need not be waited for: their fragment arrived, or they are disconnected.
    settled: SourceSet,
    under_way: u32,
    under_way_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct CreditManager {
    sources: u32,
    pub(crate) credit: u32,
    credit_bytes: u64,
    scope: GrantScope,
    /// Ascending.
    events: VecDeque<OpenEvent>,
    /// Reused, to save allocations.
    spare: Vec<OpenEvent>,
    gone: SourceSet,
    pub(crate) under_way: u32,
    under_way_bytes: u64,
}

impl CreditManager {
    /// For the sources 0 to `sources - 1`; `credit` is at least one.
    pub(crate) fn new(sources: u32, credit: u32, scope: GrantScope) -> Self {
        Self {
            sources,
            credit: credit.max(1),
            credit_bytes: u64::MAX,
            scope,
            events: VecDeque::new(),
            spare: Vec::new(),
            gone: SourceSet::new(sources),
            under_way: 0,
            under_way_bytes: 0,
        }
    }

    /// Limits the fragments under way; at least one.
    pub(crate) fn set_credit(&mut self, credit: u32) {
        self.credit = credit.max(1);
    }

    /// Limits the bytes under way; a single fragment may be larger.
    pub(crate) fn set_credit_bytes(&mut self, bytes: u64) {
        self.credit_bytes = bytes.max(1);
    }

    /// Fragments that must arrive before the next grant.
    pub(crate) fn fragments_until_grant(&self) -> u64 {
        let until = match self.scope {
            GrantScope::Single => self.under_way.min(1),
            GrantScope::Range if self.all_granted() => self.under_way,
            GrantScope::Range => self.under_way.saturating_sub(self.credit / 2),
        };
        until.into()
    }

    /// Whether all sources of all events are granted.
    pub(crate) fn all_granted(&self) -> bool {
        self.events.iter().all(|open| open.next_source >= self.sources)
    }

    /// Begins an event; numbers ascend.
    pub(crate) fn begin_event(&mut self, event: u64) {
        let mut open = self.spare.pop().unwrap_or_default();
        open.event = event;
        open.next_source = 0;
        (open.under_way, open.under_way_bytes) = (0, 0);
        open.settled.copy_from(&self.gone);
        self.events.push_back(open);
    }

    /// The next grant; call it until there is none. `bytes`: the wire length of an event's fragment of a
    /// source, always the same.
    pub(crate) fn next_grant(&mut self, bytes: impl Fn(u64, u32) -> u64) -> Option<Grant> {
        let sources = self.sources;
        // Skip settled sources.
        let at = self.events.iter_mut().position(|open| {
            while open.next_source < sources && open.settled.contains(open.next_source) {
                open.next_source += 1;
            }
            open.next_source < sources
        })?;
        let free = self.credit.saturating_sub(self.under_way);
        let open = &self.events[at];
        let (event, first) = (open.event, open.next_source);
        let most = match self.scope {
            GrantScope::Range => free,
            GrantScope::Single => free.min(1),
        };
        let (mut end, mut count, mut added_bytes) = (first, 0_u32, 0_u64);
        while end < self.sources {
            if open.settled.contains(end) {
                // Within a range a settled source is harmless; a grant for it alone would be wasted.
                if self.scope == GrantScope::Single {
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

    /// Whether a grant of this size need not wait for more credit.
    fn is_worth_it(&self, count: u32, bytes: u64) -> bool {
        let half = count >= self.credit.div_ceil(2) || bytes >= self.credit_bytes / 2;
        half || self.scope == GrantScope::Single || self.under_way == 0
    }

    /// A fragment arrived (or nearly), granted or not; `bytes` as in [`Self::next_grant`]. Returns whether
    /// credit came back: only the first time.
    pub(crate) fn fragment_arrived(&mut self, event: u64, source: u32, bytes: u64) -> bool {
        let Some(at) = self.position(event) else { return false };
        let open = &mut self.events[at];
        let is_back = open.settled.insert(source) && source < open.next_source;
        if is_back {
            let bytes = bytes.min(open.under_way_bytes);
            open.under_way = open.under_way.saturating_sub(1);
            open.under_way_bytes -= bytes;
            self.under_way = self.under_way.saturating_sub(1);
            self.under_way_bytes = self.under_way_bytes.saturating_sub(bytes);
        }
        is_back
    }

    /// The source disconnected: it is not waited for. `bytes` as in [`Self::next_grant`].
    pub(crate) fn source_left(&mut self, source: u32, bytes: impl Fn(u64, u32) -> u64) {
        self.gone.insert(source);
        let events: Vec<u64> = self.events.iter().map(|open| open.event).collect();
        for event in events {
            self.fragment_arrived(event, source, bytes(event, source));
        }
    }

    /// The source reconnected: later events wait for it, and so do those that lack its fragment (`lacks`).
    /// Returns the latter ones that it was granted before: it must be asked again. That may exceed the
    /// credit by its fragments. `bytes` as in [`Self::next_grant`].
    pub(crate) fn source_returned(
        &mut self,
        source: u32,
        lacks: impl Fn(u64) -> bool,
        bytes: impl Fn(u64, u32) -> u64,
    ) -> Vec<u64> {
        self.gone.remove(source);
        let mut again = Vec::new();
        for open in &mut self.events {
            if !open.settled.contains(source) || !lacks(open.event) {
                continue;
            }
            open.settled.remove(source);
            if source < open.next_source {
                let bytes = bytes(open.event, source);
                (open.under_way, open.under_way_bytes) = (open.under_way + 1, open.under_way_bytes + bytes);
                (self.under_way, self.under_way_bytes) = (self.under_way + 1, self.under_way_bytes + bytes);
                again.push(open.event);
            }
        }
        again
    }

    /// Ends an event; what it had under way is free again.
    pub(crate) fn end_event(&mut self, event: u64) {
        let Some(open) = self.position(event).and_then(|at| self.events.remove(at)) else { return };
        self.under_way = self.under_way.saturating_sub(open.under_way);
        self.under_way_bytes = self.under_way_bytes.saturating_sub(open.under_way_bytes);
        self.spare.push(open);
    }

    fn position(&self, event: u64) -> Option<usize> {
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
    fn grants_use_half_the_credit_and_continue_with_next_event() {
        let mut credit = CreditManager::new(10, 4, GrantScope::Range);
        assert_eq!(credit.next_grant(SIZE), None);
        credit.begin_event(7);
        assert_eq!(credit.next_grant(SIZE), grant(7, 0, 4));
        assert_eq!((credit.next_grant(SIZE), credit.fragments_until_grant()), (None, 2));
        assert!(credit.fragment_arrived(7, 2, 1000));
        assert!(!credit.fragment_arrived(7, 2, 1000), "twice");
        assert_eq!((credit.next_grant(SIZE), credit.under_way), (None, 3), "one is too few for a grant");
        credit.fragment_arrived(7, 0, 1000);
        assert_eq!(credit.next_grant(SIZE), grant(7, 4, 2));
        for source in [1, 3, 4, 5] {
            credit.fragment_arrived(7, source, 1000);
        }
        assert_eq!(credit.next_grant(SIZE), grant(7, 6, 4));
        assert!(credit.all_granted() && credit.fragments_until_grant() == 4);
        credit.begin_event(8);
        credit.fragment_arrived(7, 6, 1000);
        credit.fragment_arrived(7, 7, 1000);
        assert_eq!(credit.next_grant(SIZE), grant(8, 0, 2));
        credit.end_event(7);
        assert_eq!(
            (credit.next_grant(SIZE), credit.under_way),
            (grant(8, 2, 2), 4),
            "an ended event frees its credit"
        );
    }

    #[test]
    fn single_grants_and_byte_credit() {
        let mut credit = CreditManager::new(3, 2, GrantScope::Single);
        credit.begin_event(1);
        assert_eq!(
            [credit.next_grant(SIZE), credit.next_grant(SIZE), credit.next_grant(SIZE)],
            [grant(1, 0, 1), grant(1, 1, 1), None]
        );
        let mut credit = CreditManager::new(5, 5, GrantScope::Range);
        credit.set_credit_bytes(2_500);
        credit.begin_event(1);
        assert_eq!(credit.next_grant(SIZE), grant(1, 0, 2));
        credit.fragment_arrived(1, 0, 1000);
        credit.fragment_arrived(1, 1, 1000);
        assert_eq!(credit.next_grant(|_, _| 10_000), grant(1, 2, 1), "one that is too large goes alone");
    }

    #[test]
    fn disconnected_sources_take_no_credit() {
        let mut credit = CreditManager::new(4, 2, GrantScope::Range);
        credit.source_left(1, SIZE);
        credit.begin_event(1);
        assert_eq!(credit.next_grant(SIZE), grant(1, 0, 3), "the gone one in the middle takes no credit");
        credit.source_left(0, SIZE);
        credit.source_left(2, SIZE);
        assert_eq!(credit.next_grant(SIZE), grant(1, 3, 1));
        assert!(credit.source_returned(1, |_| false, SIZE).is_empty());
        credit.end_event(1);
        credit.begin_event(2);
        assert_eq!(credit.next_grant(SIZE), grant(2, 1, 1).map(|grant| Grant { sources: 3, ..grant }));
    }

    #[test]
    fn returned_source_is_asked_again_for_what_it_was_granted() {
        let mut credit = CreditManager::new(4, 2, GrantScope::Range);
        credit.begin_event(1);
        assert_eq!(credit.next_grant(SIZE), grant(1, 0, 2));
        credit.source_left(0, SIZE);
        credit.source_left(3, SIZE);
        credit.begin_event(2);
        assert_eq!(credit.source_returned(0, |_| true, SIZE), [1], "event 2 is not granted to it yet");
        assert!(credit.source_returned(3, |_| true, SIZE).is_empty(), "neither event");
        assert_eq!((credit.under_way, credit.under_way_bytes), (2, 2000));
        for source in [0, 1] {
            assert!(credit.fragment_arrived(1, source, 1000));
        }
        assert_eq!(credit.next_grant(SIZE), grant(1, 2, 2), "to source 3 as well");
        credit.fragment_arrived(1, 2, 1000);
        credit.fragment_arrived(1, 3, 1000);
        assert_eq!((credit.next_grant(SIZE), credit.under_way), (grant(2, 0, 2), 2));
    }

    proptest! {
        #[test]
        fn credit_is_never_exceeded_and_all_are_granted(
            sources in 1..200_u32,
            credit in 1..64_u32,
            one in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let scope = if one { GrantScope::Single } else { GrantScope::Range };
            let mut manager = CreditManager::new(sources, credit, scope);
            let (mut under_way, mut built) = (Vec::new(), 0);
            let size = |event: u64, source: u32| event * 7 + u64::from(source) + 1;
            for event in 0..4 {
                manager.begin_event(event);
            }
            while built < 4 * sources {
                while let Some(grant) = manager.next_grant(size) {
                    let range = grant.first_source..grant.first_source + grant.sources;
                    under_way.extend(range.map(|source| (grant.event, source)));
                    prop_assert!(under_way.len() <= credit as usize);
                }
                prop_assert_eq!(under_way.len(), manager.under_way as usize);
                prop_assert!(!under_way.is_empty(), "it stands still");
                let (event, source) = under_way.swap_remove(random.usize(..under_way.len()));
                manager.fragment_arrived(event, source, size(event, source));
                built += 1;
            }
            prop_assert_eq!((manager.under_way, manager.under_way_bytes), (0, 0));
        }
    }
}
