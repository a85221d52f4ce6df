//! Timeouts of many connections in constant time.
//!
//! All timeouts of one kind are equally long, so they expire in the order in which they were set: a linked
//! list for each kind needs no sorting. Setting, clearing and finding the next one take a few writes,
//! whatever the number of connections.

use super::slab::Token;

/// What a timeout is for, such as an idle connection or an unfinished handshake.
pub trait TimeoutKind: Copy + PartialEq {
    /// The number of the kind, from 0 on.
    fn index(self) -> usize;
}

impl TimeoutKind for () {
    fn index(self) -> usize {
        0
    }
}

const NONE: usize = usize::MAX;

#[derive(Clone, Copy, Debug)]
struct Link<K> {
    /// The token and the kind; `None`: no timeout is set.
    set: Option<(Token, K)>,
    due_ns: u64,
    before: usize,
    after: usize,
}

impl<K> Link<K> {
    const UNLINKED: Self = Self { set: None, due_ns: 0, before: NONE, after: NONE };
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: usize,
    back: usize,
}

/// At most one timeout for each token of one [`Slab`](super::Slab), of `KINDS` kinds. Pure: the caller passes
/// the time.
#[derive(Debug)]
pub struct Timeouts<K, const KINDS: usize> {
    length_ns: [u64; KINDS],
    ends: [Ends; KINDS],
    links: Vec<Link<K>>,
}

impl<K: TimeoutKind, const KINDS: usize> Timeouts<K, KINDS> {
    /// No timeout set; `length_ns` by the number of the kind.
    pub fn new(length_ns: [u64; KINDS]) -> Self {
        Self { length_ns, ends: [Ends { front: NONE, back: NONE }; KINDS], links: Vec::new() }
    }

    /// Sets the timeout of `token`, in place of the one that its slot has.
    pub fn set(&mut self, token: Token, kind: K, now_ns: u64) {
        let at = token.index();
        if at >= self.links.len() {
            self.links.resize(at + 1, Link::UNLINKED);
        }
        self.unlink(at);
        let ends = &mut self.ends[kind.index()];
        let due_ns = now_ns.saturating_add(self.length_ns[kind.index()]);
        self.links[at] = Link { set: Some((token, kind)), due_ns, before: ends.back, after: NONE };
        match ends.back {
            NONE => ends.front = at,
            back => self.links[back].after = at,
        }
        ends.back = at;
    }

    pub fn clear(&mut self, token: Token) {
        if self.kind(token).is_some() {
            self.unlink(token.index());
        }
    }

    fn unlink(&mut self, at: usize) {
        let Link { set: Some((_, kind)), before, after, .. } =
            std::mem::replace(&mut self.links[at], Link::UNLINKED)
        else {
            return;
        };
        match before {
            NONE => self.ends[kind.index()].front = after,
            before => self.links[before].after = after,
        }
        match after {
            NONE => self.ends[kind.index()].back = before,
            after => self.links[after].before = before,
        }
    }

    pub fn kind(&self, token: Token) -> Option<K> {
        self.links.get(token.index())?.set.filter(|set| set.0 == token).map(|set| set.1)
    }

    pub fn oldest(&self, kind: K) -> Option<Token> {
        Some(self.front(kind.index())?.set?.0)
    }

    /// A token whose timeout has expired, and the kind. It remains until it is set anew or cleared.
    pub fn expired(&self, now_ns: u64) -> Option<(Token, K)> {
        let fronts = (0..KINDS).filter_map(|kind| self.front(kind));
        fronts.filter(|link| link.due_ns <= now_ns).find_map(|link| link.set)
    }

    pub fn next_ns(&self) -> Option<u64> {
        (0..KINDS).filter_map(|kind| self.front(kind)).map(|link| link.due_ns).min()
    }

    fn front(&self, kind: usize) -> Option<&Link<K>> {
        self.links.get(self.ends[kind].front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Kind(usize);

    impl TimeoutKind for Kind {
        fn index(self) -> usize {
            self.0
        }
    }

    proptest::proptest! {
        /// Against a plain list of (token, kind, due).
        #[test]
        fn timeouts_behave_like_a_list(
            steps in proptest::collection::vec((0_u32..20, 0_usize..5, 0_u64..5), 0..300),
        ) {
            let lengths = [10, 60, 7, 2];
            let mut tested = Timeouts::new(lengths);
            let mut model: Vec<(Token, Kind, u64)> = Vec::new();
            let mut now = 0;
            for (slot, what, pass) in steps {
                let token = Token::fixed(1, slot);
                now += pass;
                model.retain(|m| m.0 != token);
                if what < 4 {
                    model.push((token, Kind(what), now + lengths[what]));
                    tested.set(token, Kind(what), now);
                } else {
                    tested.clear(token);
                }
                proptest::prop_assert_eq!(tested.next_ns(), model.iter().map(|m| m.2).min());
                for kind in (0..4).map(Kind) {
                    let oldest = model.iter().find(|m| m.1 == kind).map(|m| m.0);
                    proptest::prop_assert_eq!(tested.oldest(kind), oldest);
                }
                proptest::prop_assert_eq!(tested.expired(now).is_some(), model.iter().any(|m| m.2 <= now));
            }
        }
    }

    #[test]
    fn timeout_of_an_earlier_generation_is_not_cleared_by_the_next() {
        let mut slab = super::super::Slab::new(0);
        let mut timeouts = Timeouts::<(), 1>::new([10]);
        let first = slab.insert(());
        slab.remove(first);
        let second = slab.insert(());
        timeouts.set(second, (), 0);
        timeouts.clear(first);
        assert_eq!((timeouts.kind(first), timeouts.kind(second)), (None, Some(())));
        assert_eq!(timeouts.expired(10), Some((second, ())));
    }
}
