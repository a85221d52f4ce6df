//! The memory that fragments are held in until their event ends: blocks of a few fragments, within a budget.
//!
//! A block belongs to one event. Blocks of ended events are kept for the next ones, so that in the steady state nothing is
//! allocated.

/// Blocks are no larger than this, unless a single fragment is.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// What a builder may hold, and what it holds.
#[derive(Debug)]
pub struct Memory {
    budget_bytes: u64,
    block_bytes: usize,
    held_bytes: u64,
    held_bytes_max: u64,
    spare: Vec<Box<[u8]>>,
}

/// The fragments of one event.
#[derive(Debug, Default)]
pub struct Held {
    blocks: Vec<Block>,
    /// The room of each source that has one; sources beyond its end have none.
    rooms: Vec<Option<Room>>,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    used: usize,
}

/// Where a fragment lies in the memory of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    block: u32,
    from: u32,
    bytes: u32,
}

impl Memory {
    /// At most `budget_bytes`; an event is expected to have so many fragments of so many bytes.
    pub fn new(budget_bytes: u64, fragments: u64, fragment_bytes: u64) -> Self {
        // Every block as full as the others: then little of the budget is wasted.
        let (fragments, fragment_bytes) = (fragments.max(1), fragment_bytes.max(1));
        let blocks = fragments.saturating_mul(fragment_bytes).div_ceil(BLOCK_BYTES_MAX).max(1);
        let block_bytes = fragments.div_ceil(blocks).saturating_mul(fragment_bytes).min(budget_bytes.max(1));
        Self {
            budget_bytes,
            block_bytes: usize::try_from(block_bytes).unwrap_or(1 << 20),
            held_bytes: 0,
            held_bytes_max: 0,
            spare: Vec::new(),
        }
    }

    /// Room for a source's fragment of `bytes` in its event's memory; `None`: the budget is used up. A source that comes
    /// again, since its fragment was wrong or cut off, gets the room that it had: one that never does it right uses up no
    /// more than others.
    pub fn take(&mut self, held: &mut Held, source: u32, bytes: u32) -> Option<Room> {
        let at = source as usize;
        let wanted = match held.rooms.get(at).copied().flatten() {
            Some(room) if room.bytes >= bytes => return Some(Room { bytes, ..room }),
            // At least twice as large: then all that it ever had is less than four of its largest fragments.
            Some(room) => bytes.max(room.bytes.saturating_mul(2)),
            None => bytes,
        };
        let room = self.take_new(held, wanted)?;
        if held.rooms.len() <= at {
            held.rooms.resize(at + 1, None);
        }
        held.rooms[at] = Some(room);
        Some(Room { bytes, ..room })
    }

    fn take_new(&mut self, held: &mut Held, bytes: u32) -> Option<Room> {
        let wanted = bytes as usize;
        let fits = held.blocks.last().is_some_and(|block| block.bytes.len() - block.used >= wanted);
        if !fits {
            let bytes = self.block(wanted)?;
            held.blocks.push(Block { bytes, used: 0 });
        }
        let at = held.blocks.len().checked_sub(1)?;
        let block = &mut held.blocks[at];
        let from = block.used;
        block.used += wanted;
        Some(Room { block: u32::try_from(at).ok()?, from: u32::try_from(from).ok()?, bytes })
    }

    fn block(&mut self, wanted: usize) -> Option<Box<[u8]>> {
        let length = wanted.max(self.block_bytes);
        if self.held_bytes + length as u64 > self.budget_bytes {
            return None;
        }
        // Spare blocks are memory as well: they make way for a larger one.
        while wanted > self.block_bytes
            && !self.spare.is_empty()
            && self.all_bytes() + length as u64 > self.budget_bytes
        {
            self.spare.pop();
        }
        let spare = if wanted > self.block_bytes { None } else { self.spare.pop() };
        self.held_bytes += length as u64;
        self.held_bytes_max = self.held_bytes_max.max(self.held_bytes);
        Some(spare.unwrap_or_else(|| vec![0; length].into_boxed_slice()))
    }

    fn all_bytes(&self) -> u64 {
        self.held_bytes + (self.spare.len() * self.block_bytes) as u64
    }

    /// Takes an event's memory back.
    pub fn give_back(&mut self, held: &mut Held) {
        held.rooms.clear();
        for block in held.blocks.drain(..) {
            self.held_bytes -= block.bytes.len() as u64;
            if block.bytes.len() == self.block_bytes {
                self.spare.push(block.bytes);
            }
        }
    }

    /// The most that was held at once, with what blocks had left over, bytes.
    pub const fn held_bytes_max(&self) -> u64 {
        self.held_bytes_max
    }
}

impl Held {
    /// The bytes of a fragment.
    pub fn bytes_of(&mut self, room: Room) -> &mut [u8] {
        let (from, to) = (room.from as usize, room.from as usize + room.bytes as usize);
        self.blocks
            .get_mut(room.block as usize)
            .and_then(|block| block.bytes.get_mut(from..to))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_takes_what_its_fragments_need() {
        let mut memory = Memory::new(1 << 30, 1000, 1024);
        let mut held = Held::default();
        let rooms: Vec<Room> =
            (0..1000).map(|source| memory.take(&mut held, source, 1024).unwrap()).collect();
        assert_eq!(memory.held_bytes_max(), 1000 * 1024);
        for (at, room) in rooms.iter().enumerate() {
            held.bytes_of(*room).fill(at as u8);
        }
        assert!(
            rooms
                .iter()
                .enumerate()
                .all(|(at, room)| held.bytes_of(*room).iter().all(|&byte| byte == at as u8))
        );
        memory.give_back(&mut held);
        assert_eq!((memory.held_bytes, memory.spare.len()), (0, 1));
    }

    #[test]
    fn who_comes_again_gets_the_room_that_it_had() {
        let mut memory = Memory::new(10_000, 2, 1000);
        let mut held = Held::default();
        let first = memory.take(&mut held, 7, 1000).unwrap();
        let others = memory.take(&mut held, 3, 1000).unwrap();
        for _ in 0..1000 {
            assert_eq!(memory.take(&mut held, 7, 1000), Some(first));
            assert_eq!(memory.take(&mut held, 7, 10), Some(Room { bytes: 10, ..first }));
        }
        assert_eq!(memory.held_bytes, 2000);
        // Neither is there much to be had by asking for a little more each time.
        assert!((1001..2000).all(|bytes| memory.take(&mut held, 7, bytes).is_some()));
        assert_eq!(memory.held_bytes, 4000);
        assert_eq!(memory.take(&mut held, 3, 1000), Some(others));
        memory.give_back(&mut held);
        assert_eq!(memory.held_bytes, 0);
        // The next event begins without.
        assert_eq!(memory.take(&mut held, 3, 1000), Some(first));
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded(budget in 1_u64..100_000, sizes in proptest::collection::vec(0_u32..30_000, 0..200)) {
            let mut memory = Memory::new(budget, 10, 1_000);
            let mut events: Vec<Held> = (0..4).map(|_| Held::default()).collect();
            for (at, size) in sizes.into_iter().enumerate() {
                let event = &mut events[at % 4];
                if let Some(room) = memory.take(event, at as u32 % 11, size) {
                    prop_assert_eq!(event.bytes_of(room).len(), size as usize);
                }
                if at % 7 == 0 {
                    memory.give_back(&mut events[at % 3]);
                }
                let really: usize = events.iter().flat_map(|held| &held.blocks).map(|block| block.bytes.len()).sum();
                prop_assert_eq!(really as u64, memory.held_bytes);
                prop_assert!(memory.all_bytes() <= budget);
            }
        }
    }
}
