//! Memory for the payloads of events under way: blocks within a limit.
//!
//! A block belongs to one event. Blocks of ended events are reused, so that nothing is allocated in the
//! steady state.

/// Largest block, unless a single fragment is larger.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct FragmentMemory {
    budget_bytes: u64,
    /// A source that sends a fragment of an event again, in a larger size, gets no more than this.
    share_bytes: u64,
    block_bytes: usize,
    held_bytes: u64,
    pub(crate) held_bytes_max: u64,
    spare: Vec<Box<[u8]>>,
}

#[derive(Debug, Default)]
pub(crate) struct EventMemory {
    blocks: Vec<Block>,
    /// By source: its last range, and the bytes of all of them.
    ranges: Vec<Option<(MemoryRange, u64)>>,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    used: usize,
}

/// The place of a fragment in its event's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    block: u32,
    from: u32,
    bytes: u32,
}

impl FragmentMemory {
    /// `fragments` of `fragment_bytes` are expected per event; `share_bytes`: a source's share of one.
    pub(super) fn new(budget_bytes: u64, share_bytes: u64, fragments: u64, fragment_bytes: u64) -> Self {
        // Equal blocks waste least.
        let (fragments, fragment_bytes) = (fragments.max(1), fragment_bytes.max(1));
        let blocks = fragments.saturating_mul(fragment_bytes).div_ceil(BLOCK_BYTES_MAX).max(1);
        let block_bytes = fragments.div_ceil(blocks).saturating_mul(fragment_bytes).min(budget_bytes.max(1));
        let block_bytes = usize::try_from(block_bytes).unwrap_or(1 << 20);
        Self { budget_bytes, share_bytes, block_bytes, ..Self::default() }
    }

    /// Memory for a source's fragment; `None`: the limit is reached, or the source's share. A source that
    /// sends its fragment again, after a corrupt or cut one, gets the same memory again.
    pub(super) fn allocate(
        &mut self,
        held: &mut EventMemory,
        source: u32,
        bytes: u32,
    ) -> Option<MemoryRange> {
        let at = source as usize;
        let (wanted, before) = match held.ranges.get(at).copied().flatten() {
            Some((range, _)) if range.bytes >= bytes => return Some(MemoryRange { bytes, ..range }),
            // Otherwise many small steps would take all.
            Some((_, before)) if before + u64::from(bytes) > self.share_bytes => return None,
            Some((_, before)) => (bytes, before),
            None => (bytes, 0),
        };
        let range = self.allocate_new(held, wanted)?;
        if held.ranges.len() <= at {
            held.ranges.resize(at + 1, None);
        }
        held.ranges[at] = Some((range, before + u64::from(wanted)));
        Some(range)
    }

    fn allocate_new(&mut self, held: &mut EventMemory, bytes: u32) -> Option<MemoryRange> {
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
        Some(MemoryRange { block: u32::try_from(at).ok()?, from: u32::try_from(from).ok()?, bytes })
    }

    fn block(&mut self, wanted: usize) -> Option<Box<[u8]>> {
        let left = self.budget_bytes - self.held_bytes;
        let fits = |length: &usize| *length as u64 <= left;
        // Near the limit a block is no larger than its fragment.
        let length = Some(wanted.max(self.block_bytes)).filter(fits).or(Some(wanted).filter(fits))?;
        let is_usual = length == self.block_bytes;
        // Free blocks count towards the limit, too: drop them in favour of one of another size.
        while !is_usual && !self.spare.is_empty() && self.all_bytes() + length as u64 > self.budget_bytes {
            self.spare.pop();
        }
        let spare = if is_usual { self.spare.pop() } else { None };
        self.held_bytes += length as u64;
        self.held_bytes_max = self.held_bytes_max.max(self.held_bytes);
        Some(spare.unwrap_or_else(|| vec![0; length].into_boxed_slice()))
    }

    fn all_bytes(&self) -> u64 {
        self.held_bytes + (self.spare.len() * self.block_bytes) as u64
    }

    pub(super) fn release(&mut self, held: &mut EventMemory) {
        held.ranges.clear();
        for block in held.blocks.drain(..) {
            self.held_bytes -= block.bytes.len() as u64;
            if block.bytes.len() == self.block_bytes {
                self.spare.push(block.bytes);
            }
        }
    }
}

impl EventMemory {
    pub(super) fn bytes(&mut self, range: MemoryRange) -> &mut [u8] {
        let (from, to) = (range.from as usize, range.from as usize + range.bytes as usize);
        self.blocks
            .get_mut(range.block as usize)
            .and_then(|block| block.bytes.get_mut(from..to))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn event_allocates_what_its_fragments_need() {
        let mut memory = FragmentMemory::new(1 << 30, 1 << 20, 1000, 1024);
        let mut held = EventMemory::default();
        let ranges: Vec<MemoryRange> =
            (0..1000).map(|source| memory.allocate(&mut held, source, 1024).unwrap()).collect();
        assert_eq!(memory.held_bytes_max, 1000 * 1024);
        for (at, range) in ranges.iter().enumerate() {
            held.bytes(*range).fill(at as u8);
        }
        assert!(
            ranges
                .iter()
                .enumerate()
                .all(|(at, range)| held.bytes(*range).iter().all(|&byte| byte == at as u8))
        );
        memory.release(&mut held);
        assert_eq!((memory.held_bytes, memory.spare.len()), (0, 1));
    }

    #[test]
    fn repeated_fragment_reuses_its_memory() {
        let mut memory = FragmentMemory::new(10_000, 5000, 2, 1000);
        let mut held = EventMemory::default();
        let first = memory.allocate(&mut held, 7, 1000).unwrap();
        let others = memory.allocate(&mut held, 3, 1000).unwrap();
        for _ in 0..1000 {
            assert_eq!(memory.allocate(&mut held, 7, 1000), Some(first));
            assert_eq!(memory.allocate(&mut held, 7, 10), Some(MemoryRange { bytes: 10, ..first }));
        }
        assert_eq!(memory.held_bytes, 2000);
        // Growing by a little each time gains nothing, either: beyond its share it gets no more.
        assert_eq!((1001..2000).filter(|&bytes| memory.allocate(&mut held, 7, bytes).is_some()).count(), 3);
        assert_eq!(memory.held_bytes, 8000);
        assert_eq!(memory.allocate(&mut held, 3, 1000), Some(others));
        memory.release(&mut held);
        assert_eq!(memory.held_bytes, 0);
        // The next event starts anew.
        assert_eq!(memory.allocate(&mut held, 3, 1000), Some(first));
    }

    #[test]
    fn last_block_is_no_larger_than_its_fragment_near_the_limit() {
        // Blocks of 800 bytes, of which only one fits.
        let mut memory = FragmentMemory::new(1000, 1000, 8, 100);
        let mut held = EventMemory::default();
        assert!((0..10).all(|source| memory.allocate(&mut held, source, 100).is_some()));
        assert_eq!((memory.allocate(&mut held, 10, 1), memory.held_bytes), (None, 1000));
        memory.release(&mut held);
        assert_eq!((memory.held_bytes, memory.spare.len()), (0, 1));
    }

    proptest! {
        #[test]
        fn memory_limit_is_never_exceeded(
            budget in 1_u64..100_000,
            sizes in proptest::collection::vec(0_u32..30_000, 0..200),
        ) {
            let mut memory = FragmentMemory::new(budget, budget, 10, 1_000);
            let mut events: Vec<EventMemory> = (0..4).map(|_| EventMemory::default()).collect();
            for (at, size) in sizes.into_iter().enumerate() {
                let event = &mut events[at % 4];
                if let Some(range) = memory.allocate(event, at as u32 % 11, size) {
                    prop_assert_eq!(event.bytes(range).len(), size as usize);
                }
                if at % 7 == 0 {
                    memory.release(&mut events[at % 3]);
                }
                let blocks = events.iter().flat_map(|held| &held.blocks);
                let held_bytes: usize = blocks.map(|block| block.bytes.len()).sum();
                prop_assert_eq!(held_bytes as u64, memory.held_bytes);
                prop_assert!(memory.all_bytes() <= budget);
            }
        }
    }
}
