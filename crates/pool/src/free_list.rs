//! Which segments are free, and which of them a file gets.

/// A run of segments: the first, and how many.
pub type Run = (u32, u32);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeList {
    used: Vec<bool>,
    free: u32,
}

impl FreeList {
    pub fn new(segments: u32) -> Self {
        Self { used: vec![false; segments as usize], free: segments }
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    /// Takes the segments of a run. `false`: one of them does not exist or is taken; nothing is changed.
    pub fn take(&mut self, (first, count): Run) -> bool {
        let range = first as usize..first as usize + count as usize;
        match self.used.get_mut(range) {
            Some(part) if part.iter().all(|used| !used) => {
                part.fill(true);
                self.free -= count;
                true
            }
            _ => false,
        }
    }

    /// Gives back the segments of a run that was taken.
    pub fn give_back(&mut self, (first, count): Run) {
        self.used[first as usize..first as usize + count as usize].fill(false);
        self.free += count;
    }

    /// Takes `count` segments, in as few runs as can be: after the segment `last` while they are free there,
    /// else in the shortest run that holds all, else in the longest ones. `None`: fewer are free.
    pub fn allocate(&mut self, mut count: u32, last: Option<u32>) -> Option<Vec<Run>> {
        if count > self.free {
            return None;
        }
        let mut taken = Vec::new();
        if let Some(next) = last.map(|last| last as usize + 1) {
            let behind = self.used.get(next..).unwrap_or_default();
            let here = behind.iter().take(count as usize).take_while(|used| !**used).count() as u32;
            if here > 0 {
                taken.push((next as u32, here));
                self.take((next as u32, here));
                count -= here;
            }
        }
        while count > 0 {
            let runs = self.free_runs();
            let fitting = runs.iter().filter(|run| run.1 >= count).min_by_key(|run| (run.1, run.0));
            let longest = || runs.iter().max_by_key(|run| (run.1, std::cmp::Reverse(run.0)));
            let &(first, len) = fitting.or_else(longest)?;
            let run = (first, len.min(count));
            self.take(run);
            taken.push(run);
            count -= run.1;
        }
        Some(taken)
    }

    fn free_runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, _) in self.used.iter().enumerate().filter(|(_, used)| !**used) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == at as u32 => *count += 1,
                _ => runs.push((at as u32, 1)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_allocated_in_few_runs() {
        let mut list = FreeList::new(10);
        assert_eq!(list.allocate(3, None), Some(vec![(0, 3)]));
        assert_eq!(list.allocate(2, None), Some(vec![(3, 2)]));
        list.give_back((0, 3));
        assert_eq!(list.allocate(2, None), Some(vec![(0, 2)]), "the shortest run that holds all");
        assert_eq!(list.allocate(2, Some(4)), Some(vec![(5, 2)]), "behind what the file has");
        assert_eq!(list.allocate(4, Some(1)), Some(vec![(2, 1), (7, 3)]), "the rest from the longest run");
        assert_eq!((list.free(), list.allocate(1, None)), (0, None));
    }

    #[test]
    fn taken_or_missing_segments_cannot_be_taken() {
        let mut list = FreeList::new(4);
        assert!(
            list.take((1, 2)) && !list.take((2, 2)) && !list.take((3, 2)) && !list.take((u32::MAX, u32::MAX))
        );
        assert!(list.take((0, 1)) && list.take((3, 1)));
        assert_eq!(list.free(), 0);
    }
}
