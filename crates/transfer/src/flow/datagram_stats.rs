//! Which datagrams came: lost, late, twice, and how steadily. Pure: the caller passes the time.

use crate::driver::{FlowCount, Transit};

/// How many datagrams are remembered, to distinguish late ones from duplicates. Older ones count as late.
const WINDOW: u64 = 1 << 14;
const WORD: u64 = 64;

#[derive(Debug)]
pub(super) struct DatagramStats {
    /// A bit for each of the last `WINDOW` counts: whether it came.
    came: Box<[u64]>,
    pub(super) highest: u64,
    lost: u64,
    reordered: u64,
    duplicated: u64,
    /// Jitter in 1/16 us (RFC 1889, A.8).
    jitter_16th_us: u64,
    last_transit_us: Option<i64>,
    transit: Option<Transit>,
    transit_sum_ns: i128,
    transits: u64,
}

impl Default for DatagramStats {
    fn default() -> Self {
        Self {
            came: vec![0; (WINDOW / WORD) as usize].into_boxed_slice(),
            highest: 0,
            lost: 0,
            reordered: 0,
            duplicated: 0,
            jitter_16th_us: 0,
            last_transit_us: None,
            transit: None,
            transit_sum_ns: 0,
            transits: 0,
        }
    }
}

impl DatagramStats {
    /// `number` datagrams came whose counts follow each other from `first`. Returns how many are newly
    /// missing.
    pub(super) fn came(&mut self, first: u64, number: u64) -> u64 {
        let Some(last) = first.checked_add(number.saturating_sub(1)) else { return 0 };
        if number == 0 {
            return 0;
        }
        if first > self.highest {
            let missing = first - self.highest - 1;
            self.forget(self.highest + 1, last);
            self.mark(first, last);
            self.highest = last;
            self.lost = self.lost.saturating_add(missing);
            return missing;
        }
        let late_last = last.min(self.highest);
        for count in first..=late_last {
            self.came_late(count);
        }
        if last > self.highest { self.came(self.highest + 1, last - self.highest) } else { 0 }
    }

    /// A datagram sent at `sent_us` of the sender's clock came at `came_ns` of ours.
    pub(super) fn timed(&mut self, sent_us: u64, came_ns: u64) {
        let came_us = (came_ns / 1000).cast_signed();
        let transit_us = came_us.wrapping_sub(sent_us.cast_signed());
        if let Some(last_us) = self.last_transit_us.replace(transit_us) {
            let difference_us = transit_us.wrapping_sub(last_us).unsigned_abs().min(u64::from(u32::MAX));
            self.jitter_16th_us = self.jitter_16th_us + difference_us - ((self.jitter_16th_us + 8) >> 4);
        }
        let transit_ns = came_ns.cast_signed().wrapping_sub((sent_us.cast_signed()).wrapping_mul(1000));
        self.transits += 1;
        self.transit_sum_ns += i128::from(transit_ns);
        let mean_ns = transit_ns;
        let transit = self.transit.get_or_insert(Transit { min_ns: transit_ns, mean_ns, max_ns: transit_ns });
        transit.min_ns = transit.min_ns.min(transit_ns);
        transit.max_ns = transit.max_ns.max(transit_ns);
    }

    pub(super) fn write_to(&self, count: &mut FlowCount) {
        count.lost = self.lost;
        count.reordered = self.reordered;
        count.duplicated = self.duplicated;
        count.jitter_ns = self.jitter_ns();
    }

    fn jitter_ns(&self) -> u64 {
        self.jitter_16th_us * 1000 / 16
    }

    /// Transit times so far, by the two hosts' clocks as they are.
    pub(super) fn transit(&self) -> Option<Transit> {
        let mean_ns = self.transit_sum_ns.checked_div(i128::from(self.transits))?;
        self.transit.map(|t| Transit { mean_ns: i64::try_from(mean_ns).unwrap_or(t.max_ns), ..t })
    }

    fn came_late(&mut self, count: u64) {
        let is_old = self.highest - count >= WINDOW;
        // Counts begin at 1: 0 is invalid.
        if count == 0 || (!is_old && self.has_come(count)) {
            self.duplicated += 1;
            return;
        }
        if !is_old {
            self.mark(count, count);
        }
        self.reordered += 1;
        // Whether an old one was missing is unknown; most likely it was.
        self.lost = self.lost.saturating_sub(1);
    }

    fn has_come(&self, count: u64) -> bool {
        self.came[word(count)] & 1 << (count % WORD) != 0
    }

    fn mark(&mut self, first: u64, last: u64) {
        self.each_word(first, last, |word, bits| *word |= bits);
    }

    fn forget(&mut self, first: u64, last: u64) {
        self.each_word(first, last, |word, bits| *word &= !bits);
    }

    fn each_word(&mut self, first: u64, last: u64, change: impl Fn(&mut u64, u64)) {
        let mut from = first.max(last.saturating_sub(WINDOW - 1));
        while from <= last {
            let bit = from % WORD;
            let length = (WORD - bit).min(last - from + 1);
            let bits = if length == WORD { u64::MAX } else { ((1 << length) - 1) << bit };
            change(&mut self.came[word(from)], bits);
            let Some(next) = from.checked_add(length) else { return };
            from = next;
        }
    }
}

fn word(count: u64) -> usize {
    (count % WINDOW / WORD) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn counts(stats: &DatagramStats) -> (u64, u64, u64) {
        (stats.lost, stats.reordered, stats.duplicated)
    }

    #[test]
    fn stats_count_reordered_duplicated_and_lost_datagrams() {
        for (came, counted) in [
            (&[(1, 3)][..], (0, 0, 0)),
            (&[(3, 1)], (2, 0, 0)),
            (&[(1, 1), (4, 1), (2, 1), (3, 1)], (0, 2, 0)),
            (&[(1, 2), (2, 1), (2, 1)], (0, 0, 2)),
            (&[(1, 1), (3, 1), (1, 5)], (0, 1, 2)),
            (&[(0, 1)], (0, 0, 1)),
            (&[(u64::MAX, 1)], (u64::MAX - 1, 0, 0)),
            (&[(u64::MAX, 2), (5, 0)], (0, 0, 0)),
            (&[(WINDOW * 3, 1), (1, 1)], (WINDOW * 3 - 2, 1, 0)),
        ] {
            let mut stats = DatagramStats::default();
            for &(first, number) in came {
                stats.came(first, number);
            }
            assert_eq!(counts(&stats), counted, "{came:?}");
        }
    }

    #[test]
    fn jitter_follows_rfc_1889() {
        let mut stats = DatagramStats::default();
        for n in 0..10_000_u64 {
            // Every other datagram takes 160 us longer.
            stats.timed(n * 1000, n * 1_000_000 + (n % 2) * 160_000 + 7_000_000);
        }
        assert!((155_000..=165_000).contains(&stats.jitter_ns()), "{}", stats.jitter_ns());
        let transit = stats.transit().unwrap();
        assert_eq!((transit.min_ns, transit.mean_ns, transit.max_ns), (7_000_000, 7_080_000, 7_160_000));
        assert_eq!(DatagramStats::default().transit(), None);
    }

    proptest! {
        /// Against a set of all that came, within the window.
        #[test]
        fn stats_match_a_model(runs in prop::collection::vec((1_u64..3000, 1_u64..100), 1..60)) {
            let mut stats = DatagramStats::default();
            let (mut seen, mut highest, mut late, mut twice) = (BTreeSet::new(), 0, 0, 0);
            for (first, number) in runs {
                stats.came(first, number);
                for count in first..first + number {
                    match (seen.insert(count), count < highest) {
                        (false, _) => twice += 1,
                        (true, true) => late += 1,
                        (true, false) => highest = count,
                    }
                }
            }
            prop_assert_eq!(counts(&stats), (highest - seen.len() as u64, late, twice));
        }
    }
}
