//! A small histogram of times: up to 32 buckets per doubling, percentiles within 1.6 %.

/// The first bucket holds all times below 2^12 ns, the last one all from 2^33 ns (8.6 s) on.
const BITS: (u32, u32) = (12, 33);
/// Buckets per doubling, as a power of two: at most, and at least where there are many histograms.
const PARTS_BITS: (u32, u32) = (5, 1);
/// All histograms of a set together take at most so much memory, as long as [`PARTS_BITS`] allows.
const SET_BYTES_MAX: u64 = 40 << 20;

#[derive(Debug, Clone)]
pub(crate) struct LogHistogram {
    counts: Box<[u32]>,
    parts_bits: u32,
    pub(crate) all: u64,
    max_ns: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self::new(PARTS_BITS.0)
    }
}

const fn buckets(parts_bits: u32) -> usize {
    (((BITS.1 - BITS.0) as usize) << parts_bits) + 2
}

impl LogHistogram {
    fn new(parts_bits: u32) -> Self {
        Self { counts: vec![0; buckets(parts_bits)].into(), parts_bits, all: 0, max_ns: 0 }
    }

    /// So many histograms, with fewer buckets each if they are many: within 1.6 % up to 15,000 of them, 3.2 %
    /// up to 30,000, and so on up to 25 %.
    pub(crate) fn set(number: u32) -> impl Iterator<Item = Self> {
        let bytes = |parts_bits: &u32| u64::from(number) * buckets(*parts_bits) as u64 * 4;
        let parts_bits = (PARTS_BITS.1..=PARTS_BITS.0).rev().find(|bits| bytes(bits) <= SET_BYTES_MAX);
        let parts_bits = parts_bits.unwrap_or(PARTS_BITS.1);
        (0..number).map(move |_| Self::new(parts_bits))
    }

    pub(crate) fn count(&mut self, ns: u64) {
        let at = self.bucket_of(ns);
        self.counts[at] = self.counts[at].saturating_add(1);
        self.all += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The percentile, ns, at most the largest time; `None`: empty.
    pub(crate) fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = ((self.all as f64 * percent / 100.0).ceil() as u64).clamp(1, self.all.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        })?;
        Some(self.middle_ns(at).min(self.max_ns))
    }

    fn bucket_of(&self, ns: u64) -> usize {
        let doublings = ns.max(1).ilog2();
        if doublings < BITS.0 {
            return 0;
        }
        let part = (ns >> (doublings - self.parts_bits)) as usize & ((1 << self.parts_bits) - 1);
        let at = 1 + (((doublings - BITS.0) as usize) << self.parts_bits) + part;
        at.min(self.counts.len() - 1)
    }

    fn middle_ns(&self, at: usize) -> u64 {
        let Some(step) = at.checked_sub(1) else { return 1 << (BITS.0 - 1) };
        if at + 1 == self.counts.len() {
            return u64::MAX;
        }
        let (doublings, part) = (step >> self.parts_bits, step & ((1 << self.parts_bits) - 1));
        let width_ns = 1 << (BITS.0 + doublings as u32 - self.parts_bits);
        ((1 << self.parts_bits) + part as u64) * width_ns + width_ns / 2
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_histogram_has_no_percentile() {
        assert_eq!(LogHistogram::default().percentile_ns(99.0), None);
    }

    #[test]
    fn memory_of_many_histograms_is_bounded() {
        for (number, parts_bits) in [(4_000, 5), (10_000, 5), (20_000, 4), (100_000, 2), (1_000_000, 1)] {
            let one = LogHistogram::set(number).next().expect("at least one");
            assert_eq!(one.parts_bits, parts_bits, "{number}");
            assert_eq!(one.counts.len(), buckets(parts_bits));
        }
        assert!(4_000 * buckets(5) * 4 < 11_000_000);
    }

    proptest! {
        #[test]
        fn percentiles_are_within_two_percent_and_below_the_maximum(
            times in proptest::collection::vec(4_096..7_000_000_000_u64, 1..300),
        ) {
            let mut buckets = LogHistogram::default();
            for &ns in &times {
                buckets.count(ns);
            }
            let mut times = times;
            times.sort_unstable();
            prop_assert_eq!(buckets.all, times.len() as u64);
            for percent in [1.0, 50.0, 99.0, 100.0] {
                let rank = (times.len() as f64 * percent / 100.0).ceil().max(1.0) as usize;
                let (seen, right) = (buckets.percentile_ns(percent).unwrap() as f64, times[rank - 1] as f64);
                prop_assert!((seen / right - 1.0).abs() < 0.0162, "{seen} for {right}");
                prop_assert!(seen <= times[times.len() - 1] as f64);
            }
        }

        #[test]
        fn any_time_has_a_bucket(ns in any::<u64>()) {
            let mut one = LogHistogram::default();
            one.count(ns);
            prop_assert!(one.percentile_ns(99.0).unwrap() <= ns.max(1));
        }
    }
}
