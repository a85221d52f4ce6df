//! A small histogram of times: three buckets per doubling, percentiles within 12 %.

/// The last bucket holds all times above 8 s.
const BUCKETS: usize = 64;
/// The first bucket holds all times below 2^12 ns.
const LEAST_BITS: u32 = 12;
/// The bounds within a doubling, in 1/1024.
const THIRDS: [u64; 2] = [1290, 1625];

#[derive(Debug, Clone)]
pub(crate) struct LogHistogram {
    counts: [u32; BUCKETS],
    pub(crate) all: u64,
}

impl Default for LogHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], all: 0 }
    }
}

impl LogHistogram {
    pub(crate) const fn count(&mut self, ns: u64) {
        let bucket = &mut self.counts[bucket_of(ns)];
        *bucket = bucket.saturating_add(1);
        self.all += 1;
    }

    /// The percentile within 12 %, ns; `None`: empty.
    pub(crate) fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = ((self.all as f64 * percent / 100.0).ceil() as u64).clamp(1, self.all.max(1));
        let mut below = 0;
        let at = self.counts.iter().position(|&count| {
            below += u64::from(count);
            below >= rank
        })?;
        Some(middle_ns(at))
    }
}

const fn bucket_of(ns: u64) -> usize {
    let Some(doublings) = (u64::BITS - ns.leading_zeros()).checked_sub(LEAST_BITS + 1) else { return 0 };
    let thousandths = if doublings + LEAST_BITS >= 10 { ns >> (doublings + LEAST_BITS - 10) } else { 1024 };
    let third = (thousandths >= THIRDS[0]) as usize + (thousandths >= THIRDS[1]) as usize;
    let at = 1 + doublings as usize * 3 + third;
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// The value with equal relative distances from the bucket's bounds.
fn middle_ns(at: usize) -> u64 {
    let Some(step) = at.checked_sub(1) else { return 1 << (LEAST_BITS - 1) };
    let lower_ns = f64::from(1_u32 << LEAST_BITS) * (step as f64 / 3.0).exp2();
    let ratio = (1.0_f64 / 3.0).exp2();
    (lower_ns * 2.0 * ratio / (1.0 + ratio)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_histogram_has_no_percentile() {
        assert_eq!(LogHistogram::default().percentile_ns(99.0), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_within_an_eighth(
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
                prop_assert!((seen / right - 1.0).abs() < 0.121, "{seen} for {right}");
            }
        }

        #[test]
        fn any_time_has_a_bucket(ns in any::<u64>()) {
            LogHistogram::default().count(ns);
        }
    }
}
