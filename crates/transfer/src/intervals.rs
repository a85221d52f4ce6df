//! How many bytes passed in each interval.

/// Intervals to keep: beyond, each two become one.
const MOST: usize = 2000;

/// How many bytes passed in each interval: those of finished ones survive whatever happens after.
#[derive(Debug, Clone)]
pub(super) struct Intervals {
    start_ns: u64,
    every_ns: u64,
    /// When to call `look` next, monotonic ns.
    pub(super) next_ns: u64,
    last: (u64, u64),
    done: Vec<(f64, f64, u64)>,
}

impl Intervals {
    /// Intervals of `every_ns` from `start_ns` on.
    pub(super) fn new(start_ns: u64, every_ns: u64) -> Self {
        let every_ns = every_ns.max(1);
        let next_ns = start_ns.saturating_add(every_ns);
        Self { start_ns, every_ns, next_ns, last: (start_ns, 0), done: Vec::new() }
    }

    /// `bytes` have passed at `now_ns`. An interval ends at the call, not when it was due: its length is as
    /// measured. Returns whether one has ended.
    pub(super) fn look(&mut self, now_ns: u64, bytes: u64) -> bool {
        let is_due = now_ns >= self.next_ns;
        if is_due {
            self.close(now_ns, bytes);
            let whole = (now_ns - self.start_ns) / self.every_ns + 1;
            self.next_ns = self.start_ns.saturating_add(whole.saturating_mul(self.every_ns));
        }
        is_due
    }

    /// All of them, the last one to `now_ns`. Where it is known when bytes `moved` first and last, the time
    /// before and after is no part of any: what began late or ended early would look slow.
    pub(super) fn finish(
        mut self,
        now_ns: u64,
        bytes: u64,
        moved: Option<(u64, u64)>,
    ) -> Vec<(f64, f64, u64)> {
        if bytes > self.last.1 {
            self.close(now_ns, bytes);
        }
        let s = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let (from_s, to_s) =
            moved.map_or((0.0, f64::INFINITY), |(first_ns, last_ns)| (s(first_ns), s(last_ns)));
        let mut whole: Vec<(f64, f64, u64)> = Vec::new();
        for (begin_s, end_s, bytes) in self.done {
            match whole.last_mut() {
                // A look comes a moment after what it sees.
                Some(last) if begin_s >= to_s => last.2 += bytes,
                None if end_s <= from_s && bytes == 0 => {}
                _ => whole.push((begin_s.max(from_s).min(end_s), end_s.min(to_s), bytes)),
            }
        }
        // A sliver at either end would show the noise of a few calls as a rate.
        let is_sliver = |one: &(f64, f64, u64)| (one.1 - one.0) * 4e9 < self.every_ns as f64;
        if let [.., before, last] = &mut whole[..]
            && is_sliver(last)
        {
            (before.1, before.2) = (last.1, before.2 + last.2);
            whole.pop();
        }
        if let [first, second, ..] = &mut whole[..]
            && is_sliver(first)
        {
            (second.0, second.2) = (first.0, first.2 + second.2);
            whole.remove(0);
        }
        whole
    }

    fn close(&mut self, now_ns: u64, bytes: u64) {
        let s = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        self.done.push((s(self.last.0), s(now_ns), bytes.saturating_sub(self.last.1)));
        self.last = (now_ns, bytes);
        if self.done.len() >= MOST {
            let two =
                |two: &[(f64, f64, u64)]| (two[0].0, two[two.len() - 1].1, two.iter().map(|one| one.2).sum());
            self.done = self.done.chunks(2).map(two).collect();
            self.every_ns = self.every_ns.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_interval() {
        let mut intervals = Intervals::new(1_000, 100);
        for (now_ns, bytes) in [(1_050, 5), (1_101, 10), (1_150, 12), (1_350, 20)] {
            intervals.look(now_ns, bytes);
        }
        assert_eq!(intervals.next_ns, 1_400);
        let whole = intervals.clone().finish(1_390, 25, None);
        let sum: u64 = whole.iter().map(|(_, _, bytes)| bytes).sum();
        assert_eq!((whole.len(), sum), (3, 25));
        assert_eq!(whole[1], (101e-9, 350e-9, 10));
        let sliver = intervals.finish(1_355, 21, None);
        assert_eq!(sliver.iter().map(|(_, _, bytes)| bytes).sum::<u64>(), 21);
        assert_eq!(sliver.len(), 2);
    }

    #[test]
    fn idle_time_at_both_ends_is_excluded() {
        let mut intervals = Intervals::new(0, 100);
        for (now_ns, bytes) in [(100, 0), (200, 50), (300, 150), (400, 210), (500, 210), (600, 210)] {
            intervals.look(now_ns, bytes);
        }
        let whole = intervals.clone().finish(650, 210, Some((150, 360)));
        let expected = [(150e-9, 200e-9, 50), (200e-9, 300e-9, 100), (300e-9, 360e-9, 60)];
        assert_eq!(whole, expected, "all at one rate");
        // What begins or ends with a sliver is part of its neighbour.
        let whole = intervals.finish(650, 210, Some((190, 310)));
        assert_eq!(whole, [(190e-9, 310e-9, 210)]);
    }

    #[test]
    fn intervals_are_bounded_in_number() {
        let mut intervals = Intervals::new(0, 100);
        for n in 1..=10 * MOST as u64 {
            intervals.look(n * 100, n);
        }
        let whole = intervals.finish(MOST as u64 * 1000, 10 * MOST as u64, None);
        assert!((MOST / 2..MOST).contains(&whole.len()), "{}", whole.len());
        assert_eq!(whole.iter().map(|(_, _, bytes)| bytes).sum::<u64>(), 10 * MOST as u64);
        assert!(whole.windows(2).all(|two| two[0].1 == two[1].0), "one after the other");
    }
}
