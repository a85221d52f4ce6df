//! Which files of a set exist and who uses them: one word of memory per file, changed without locks.

use std::sync::atomic::{AtomicU32, Ordering};

use fastrand::Rng;

const EXISTS: u32 = 1 << 31;
/// A thread creates or deletes it.
const BUSY: u32 = 1 << 30;
/// Random tries before all are looked at.
const TRIES: u32 = 24;

/// What a thread needs a slot for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// To open or to look at: it exists. The thread is counted as a user.
    Existing,
    /// To delete: it exists and has no user.
    Unused,
    /// To create.
    Missing,
}

/// How a slot is chosen among those that fit.
pub enum Choice<'a> {
    Random(&'a mut Rng),
    /// The next one behind the last that any thread took.
    Shared,
    /// The next one behind the last that this thread took.
    Own(&'a mut u32),
    Index(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picked {
    Slot(u32),
    /// There are some, and other threads work on all of them.
    Busy,
    /// There is none.
    Exhausted,
}

#[derive(Debug)]
pub struct Slots {
    states: Box<[AtomicU32]>,
    /// Where the next search for an existing and for a missing one begins.
    rotors: [AtomicU32; 2],
}

impl Slots {
    pub fn new(count: u32) -> Self {
        Self { states: (0..count).map(|_| AtomicU32::new(0)).collect(), rotors: Default::default() }
    }

    pub fn count(&self) -> u32 {
        self.states.len() as u32
    }

    pub fn existing(&self) -> u64 {
        self.states.iter().filter(|state| state.load(Ordering::Relaxed) & EXISTS != 0).count() as u64
    }

    pub fn exists(&self, slot: u32) -> bool {
        self.states[slot as usize].load(Ordering::Relaxed) & EXISTS != 0
    }

    /// Says that a file exists; before the threads start.
    pub fn set_existing(&self, slot: u32) {
        self.states[slot as usize].store(EXISTS, Ordering::Relaxed);
    }

    /// Takes a slot. Each pick is followed by [`Self::release`], [`Self::created`] or [`Self::deleted`].
    pub fn pick(&self, want: Want, choice: Choice<'_>) -> Picked {
        let count = self.count();
        if count == 0 {
            return Picked::Exhausted;
        }
        match choice {
            Choice::Random(rng) => {
                for _ in 0..TRIES {
                    let slot = rng.u32(0..count);
                    if self.take(slot, want) == Some(true) {
                        return Picked::Slot(slot);
                    }
                }
                // One direction for all threads: what is behind them was taken.
                self.search_in_turn(want)
            }
            Choice::Shared => self.search_in_turn(want),
            Choice::Own(rotor) => self.search(want, rotor),
            Choice::Index(index) => {
                // The next that fits, if the one of this index does not.
                self.search(want, &mut ((index % u64::from(count)) as u32))
            }
        }
    }

    fn rotor(&self, want: Want) -> &AtomicU32 {
        &self.rotors[usize::from(want == Want::Missing)]
    }

    /// Takes the next one behind the last that any thread took. No two threads get the same one, and a thread
    /// that was held up does not move the others back.
    fn search_in_turn(&self, want: Want) -> Picked {
        let rotor = self.rotor(want);
        loop {
            let begin = rotor.load(Ordering::Relaxed);
            let mut is_any_busy = false;
            let fits = |slot: &u32| match fit(self.state(*slot), want) {
                Fit::Takes(_) => true,
                Fit::Busy => {
                    is_any_busy = true;
                    false
                }
                Fit::Other => false,
            };
            let Some(slot) = self.from(begin).find(fits) else {
                return if is_any_busy { Picked::Busy } else { Picked::Exhausted };
            };
            let next = (slot + 1) % self.count();
            let is_first = rotor.compare_exchange(begin, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if is_first && self.take(slot, want) == Some(true) {
                return Picked::Slot(slot);
            }
        }
    }

    /// Takes the next one behind the last that this thread took.
    fn search(&self, want: Want, rotor: &mut u32) -> Picked {
        let mut is_any_busy = false;
        for slot in self.from(*rotor) {
            match self.take(slot, want) {
                Some(true) => {
                    *rotor = (slot + 1) % self.count();
                    return Picked::Slot(slot);
                }
                Some(false) => is_any_busy = true,
                None => {}
            }
        }
        if is_any_busy { Picked::Busy } else { Picked::Exhausted }
    }

    /// All slots, each once.
    fn from(&self, begin: u32) -> impl Iterator<Item = u32> {
        (begin..self.count()).chain(0..begin.min(self.count()))
    }

    fn state(&self, slot: u32) -> u32 {
        self.states[slot as usize].load(Ordering::Relaxed)
    }

    /// Tries to take one: `None` if it is of the other kind, `Some(false)` if another thread has it.
    fn take(&self, slot: u32, want: Want) -> Option<bool> {
        loop {
            let seen = self.state(slot);
            let taken = match fit(seen, want) {
                Fit::Other => return None,
                Fit::Busy => return Some(false),
                Fit::Takes(taken) => taken,
            };
            let state = &self.states[slot as usize];
            if state.compare_exchange(seen, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(true);
            }
        }
    }

    /// Ends a use that [`Want::Existing`] or a creation began.
    pub fn release(&self, slot: u32) {
        self.states[slot as usize].fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends a creation: the thread goes on to use the file, or it could not be made.
    pub fn created(&self, slot: u32, is_made: bool) {
        self.states[slot as usize].store(if is_made { EXISTS | 1 } else { 0 }, Ordering::Release);
    }

    /// From the only use of a file to its deletion; `false` if others use it, too.
    pub fn begin_deletion(&self, slot: u32) -> bool {
        let state = &self.states[slot as usize];
        state.compare_exchange(EXISTS | 1, EXISTS | BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends a deletion.
    pub fn deleted(&self, slot: u32, is_gone: bool) {
        self.states[slot as usize].store(if is_gone { 0 } else { EXISTS }, Ordering::Release);
    }
}

/// Whether a slot can be taken.
enum Fit {
    /// It becomes this.
    Takes(u32),
    /// Another thread has it.
    Busy,
    /// It is of the other kind.
    Other,
}

fn fit(seen: u32, want: Want) -> Fit {
    let is_existing = seen & EXISTS != 0;
    match want {
        Want::Missing if is_existing => Fit::Other,
        // One that is being created will exist.
        Want::Existing | Want::Unused if !is_existing && seen & BUSY != 0 => Fit::Busy,
        Want::Existing | Want::Unused if !is_existing => Fit::Other,
        Want::Missing if seen == 0 => Fit::Takes(BUSY),
        Want::Existing if seen & BUSY == 0 => Fit::Takes(seen + 1),
        Want::Unused if seen == EXISTS => Fit::Takes(EXISTS | BUSY),
        _ => Fit::Busy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(existing: &[u32], count: u32) -> Slots {
        let slots = Slots::new(count);
        existing.iter().for_each(|slot| slots.set_existing(*slot));
        slots
    }

    #[test]
    fn rotor_takes_one_after_the_other_and_skips_what_does_not_fit() {
        let slots = slots(&[0, 2, 3], 5);
        let picks: Vec<Picked> = (0..4)
            .map(|_| {
                let picked = slots.pick(Want::Existing, Choice::Shared);
                if let Picked::Slot(slot) = picked {
                    slots.release(slot);
                }
                picked
            })
            .collect();
        assert_eq!(picks, [0, 2, 3, 0].map(Picked::Slot));
        assert_eq!(slots.pick(Want::Missing, Choice::Shared), Picked::Slot(1));
        assert_eq!(slots.pick(Want::Missing, Choice::Shared), Picked::Slot(4));
        assert_eq!(slots.pick(Want::Missing, Choice::Shared), Picked::Busy, "both are being created");
        slots.created(1, true);
        slots.created(4, false);
        assert_eq!((slots.existing(), slots.pick(Want::Missing, Choice::Index(9))), (4, Picked::Slot(4)));
    }

    #[test]
    fn file_in_use_is_not_deleted() {
        let slots = slots(&[0], 1);
        assert_eq!(slots.pick(Want::Existing, Choice::Index(0)), Picked::Slot(0));
        assert_eq!(slots.pick(Want::Unused, Choice::Index(0)), Picked::Busy);
        assert_eq!(slots.pick(Want::Existing, Choice::Index(0)), Picked::Slot(0), "two may use it");
        assert!(!slots.begin_deletion(0));
        slots.release(0);
        assert!(slots.begin_deletion(0));
        assert_eq!(slots.pick(Want::Existing, Choice::Index(0)), Picked::Busy);
        slots.deleted(0, true);
        let mut rng = Rng::with_seed(1);
        assert_eq!(slots.pick(Want::Existing, Choice::Random(&mut rng)), Picked::Exhausted);
    }

    #[test]
    fn threads_never_share_a_slot_for_creation() {
        let slots = Slots::new(1000);
        let taken = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|seed| {
                    let slots = &slots;
                    scope.spawn(move || {
                        let mut rng = Rng::with_seed(seed);
                        let pick = || match slots.pick(Want::Missing, Choice::Random(&mut rng)) {
                            Picked::Slot(slot) => Some(slot),
                            _ => None,
                        };
                        std::iter::from_fn(pick).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<u32>>()
        });
        let distinct: std::collections::BTreeSet<u32> = taken.iter().copied().collect();
        assert_eq!((taken.len(), distinct.len()), (1000, 1000));
    }

    #[test]
    fn threads_in_turn_get_each_file_as_often() {
        const ROUNDS: u32 = 200;
        let slots = slots(&(0..100).collect::<Vec<_>>(), 100);
        let counts: Vec<AtomicU32> = (0..100).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS * 10 {
                        let picked = slots.pick(Want::Existing, Choice::Shared);
                        let Picked::Slot(slot) = picked else { panic!("{picked:?}") };
                        counts[slot as usize].fetch_add(1, Ordering::Relaxed);
                        // Where a thread that was held up would move the others back.
                        std::thread::yield_now();
                        slots.release(slot);
                    }
                });
            }
        });
        let counts: Vec<u32> = counts.into_iter().map(AtomicU32::into_inner).collect();
        assert_eq!(counts, [ROUNDS; 100]);
    }
}
