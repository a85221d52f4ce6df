//! Connections by token. A token carries a generation, so that it never names a later occupant of its slot.

use std::fmt;
use std::ops::{Index, IndexMut};

/// Bits of a generation; the rest of a token is its class (8 bits) and its index (32 bits). A token is reused
/// after 2^24 occupants of one slot, while an event is stale only until the end of the wait that brought it.
const GENERATION_BITS: u32 = 24;

/// Names a watched descriptor: its class, its slot in the class and the generation of the slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Classes from here on are urgent: their events are delivered before all others of the same wait.
    pub const URGENT: u8 = 0xf0;
    /// The stop handle of the loop.
    pub(crate) const STOP: Self = Self::single(0xff);

    /// The token of a descriptor that lives as long as the loop, such as a listener. `class` must be no
    /// slab's and not 255.
    pub const fn single(class: u8) -> Self {
        Self::new(class, 0, 0)
    }

    /// The token of the slot `index` in a class whose slots are never reused: no slab, but a fixed list.
    pub const fn fixed(class: u8, index: u32) -> Self {
        Self::new(class, 0, index)
    }

    const fn new(class: u8, generation: u32, index: u32) -> Self {
        let generation = generation & ((1 << GENERATION_BITS) - 1);
        Self((class as u64) << 56 | (generation as u64) << 32 | index as u64)
    }

    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The class: which of the machine's tables it belongs to.
    pub const fn class(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The slot in that table.
    pub const fn index(self) -> usize {
        self.0 as u32 as usize
    }

    pub(crate) const fn is_urgent(self) -> bool {
        self.class() >= Self::URGENT
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = (self.0 >> 32) as u32 & ((1 << GENERATION_BITS) - 1);
        write!(f, "Token({}:{}.{generation})", self.class(), self.index())
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values in reused slots, each under a token of its own.
#[derive(Debug)]
pub struct Slab<T> {
    class: u8,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub const fn new(class: u8) -> Self {
        Self { class, slots: Vec::new(), free: Vec::new() }
    }

    /// Adds a value. Panics beyond 2^32 values.
    pub fn insert(&mut self, value: T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("a slab has at most 2^32 slots")
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Token::new(self.class, slot.generation, index)
    }

    /// Takes a value out; `None` if it has gone already.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let value = self.slot_mut(token)?.value.take()?;
        let slot = &mut self.slots[token.index()];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index() as u32);
        Some(value)
    }

    #[inline]
    pub fn get(&self, token: Token) -> Option<&T> {
        let slot = self.slots.get(token.index())?;
        slot.value.as_ref().filter(|_| self.token(slot, token.index()) == token)
    }

    /// The value of a token; `None` if it has gone.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        self.slot_mut(token)?.value.as_mut()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn tokens(&self) -> Vec<Token> {
        let occupied = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        occupied.map(|(index, slot)| self.token(slot, index)).collect()
    }

    fn slot_mut(&mut self, token: Token) -> Option<&mut Slot<T>> {
        let class = self.class;
        let slot = self.slots.get_mut(token.index())?;
        (Token::new(class, slot.generation, token.index() as u32) == token).then_some(slot)
    }

    fn token(&self, slot: &Slot<T>, index: usize) -> Token {
        Token::new(self.class, slot.generation, index as u32)
    }
}

impl<T> Index<Token> for Slab<T> {
    type Output = T;
    fn index(&self, token: Token) -> &T {
        self.get(token).expect("the token's value is there")
    }
}

impl<T> IndexMut<Token> for Slab<T> {
    fn index_mut(&mut self, token: Token) -> &mut T {
        self.get_mut(token).expect("the token's value is there")
    }
}

/// One small value for each class and index, made on demand.
#[derive(Debug, Default)]
pub(crate) struct TokenMap<T>(Vec<Vec<T>>);

impl<T: Copy + Default> TokenMap<T> {
    #[inline]
    pub(crate) fn entry(&mut self, token: Token) -> &mut T {
        let (class, index) = (usize::from(token.class()), token.index());
        if class >= self.0.len() {
            self.0.resize_with(class + 1, Vec::new);
        }
        let of_class = &mut self.0[class];
        if index >= of_class.len() {
            of_class.resize(index + 1, T::default());
        }
        &mut of_class[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_of_removed_value_does_not_reach_the_next_one() {
        let mut slab = Slab::new(3);
        let first = slab.insert('a');
        assert_eq!((slab.remove(first), slab.len()), (Some('a'), 0));
        let second = slab.insert('b');
        assert_eq!((first.index(), first.class()), (second.index(), second.class()));
        assert_ne!(first, second);
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!((slab[second], slab.tokens(), slab.len()), ('b', vec![second], 1));
    }

    #[test]
    fn token_of_another_class_reaches_nothing() {
        let mut slab = Slab::new(0);
        let token = slab.insert(1);
        assert_eq!(slab.get(Token::fixed(1, 0)), None);
        assert_eq!(slab.get(token), Some(&1));
        assert!(Token::single(Token::URGENT).is_urgent() && !token.is_urgent());
    }

    #[test]
    fn generations_wrap_within_their_bits() {
        let mut slab = Slab::new(7);
        slab.slots.push(Slot { generation: u32::MAX, value: None });
        slab.free.push(0);
        let last = slab.insert(());
        assert_eq!((last.class(), last.index()), (7, 0));
        assert_eq!(slab.remove(last), Some(()));
        let next = slab.insert(());
        assert_eq!((next, slab.get(last)), (Token::fixed(7, 0), None));
    }

    proptest::proptest! {
        /// Against a plain map of tokens.
        #[test]
        fn slab_behaves_like_a_map(steps in proptest::collection::vec((0_usize..10, 0_u32..100), 0..200)) {
            let mut slab = Slab::new(1);
            let mut model: Vec<(Token, u32)> = Vec::new();
            for (what, value) in steps {
                if what < 6 {
                    model.push((slab.insert(value), value));
                } else if !model.is_empty() {
                    let (token, value) = model.swap_remove(what % model.len());
                    proptest::prop_assert_eq!(slab.remove(token), Some(value));
                    proptest::prop_assert_eq!(slab.remove(token), None);
                }
                proptest::prop_assert_eq!(slab.len(), model.len());
                for (token, value) in &model {
                    proptest::prop_assert_eq!(slab.get(*token), Some(value));
                }
            }
        }
    }
}
