//! Deadlines of many connections, without looking at many connections.
//!
//! All deadlines of one kind are equally long, so in the order they were set they are also in the order they fall
//! due: a list per kind is a wheel with one slot per connection. Setting, clearing and finding the next one take a
//! few writes, whatever the number of connections, and no memory beyond one link each.

/// What a connection has a deadline for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Completing a request head. The front is the oldest connection without a complete request.
    Head,
    /// Sending another request.
    Idle,
    /// Moving bytes of a response or an upload; a check, not an end.
    Stall,
    /// Taking note of an error answer before the close.
    Linger,
}

/// Every kind, in no order that matters.
pub const KINDS: [Kind; 4] = [Kind::Head, Kind::Idle, Kind::Stall, Kind::Linger];

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    kind: Option<Kind>,
    due_ns: u64,
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { kind: None, due_ns: 0, before: NONE, after: NONE };

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: u32,
    back: u32,
}

/// At most one deadline for each connection slot.
#[derive(Debug)]
pub struct Deadlines {
    length_ns: [u64; 4],
    ends: [Ends; 4],
    links: Vec<Link>,
}

impl Deadlines {
    /// `length_ns` in the order of [`KINDS`].
    pub fn new(length_ns: [u64; 4]) -> Self {
        Self { length_ns, ends: [Ends { front: NONE, back: NONE }; 4], links: Vec::new() }
    }

    /// Sets the deadline of `slot`, in place of the one it has.
    pub fn set(&mut self, slot: u32, kind: Kind, now_ns: u64) {
        self.clear(slot);
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, UNLINKED);
        }
        let ends = &mut self.ends[kind as usize];
        let due_ns = now_ns.saturating_add(self.length_ns[kind as usize]);
        self.links[at] = Link { kind: Some(kind), due_ns, before: ends.back, after: NONE };
        match ends.back {
            NONE => ends.front = slot,
            back => self.links[back as usize].after = slot,
        }
        ends.back = slot;
    }

    /// Takes the deadline of `slot` away.
    pub fn clear(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else { return };
        let Some(kind) = link.kind else { return };
        let Link { before, after, .. } = std::mem::replace(link, UNLINKED);
        match before {
            NONE => self.ends[kind as usize].front = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.ends[kind as usize].back = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// What `slot` has a deadline for.
    pub fn kind(&self, slot: u32) -> Option<Kind> {
        self.links.get(slot as usize)?.kind
    }

    /// The slot whose deadline of this kind was set first.
    pub fn oldest(&self, kind: Kind) -> Option<u32> {
        Some(self.ends[kind as usize].front).filter(|&slot| slot != NONE)
    }

    /// A slot whose deadline has passed, and for what. It stays until set anew or cleared.
    pub fn due(&self, now_ns: u64) -> Option<(u32, Kind)> {
        KINDS.iter().find_map(|&kind| {
            let slot = self.oldest(kind)?;
            (self.links[slot as usize].due_ns <= now_ns).then_some((slot, kind))
        })
    }

    /// When the next deadline passes.
    pub fn next_ns(&self) -> Option<u64> {
        KINDS.iter().filter_map(|&kind| self.oldest(kind)).map(|slot| self.links[slot as usize].due_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Against a plain list of (slot, kind, due).
        #[test]
        fn behaves_like_a_list(steps in proptest::collection::vec((0_u32..20, 0_usize..5, 0_u64..5), 0..300)) {
            let lengths = [10, 60, 7, 2];
            let mut tested = Deadlines::new(lengths);
            let mut model: Vec<(u32, Kind, u64)> = Vec::new();
            let mut now = 0;
            for (slot, what, pass) in steps {
                now += pass;
                model.retain(|m| m.0 != slot);
                if what < 4 {
                    model.push((slot, KINDS[what], now + lengths[what]));
                    tested.set(slot, KINDS[what], now);
                } else {
                    tested.clear(slot);
                }
                proptest::prop_assert_eq!(tested.next_ns(), model.iter().map(|m| m.2).min());
                for kind in KINDS {
                    proptest::prop_assert_eq!(tested.oldest(kind), model.iter().find(|m| m.1 == kind).map(|m| m.0));
                }
                proptest::prop_assert_eq!(tested.due(now).is_some(), model.iter().any(|m| m.2 <= now));
            }
        }
    }
}
