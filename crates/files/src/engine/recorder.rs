//! What one thread counts. Nothing of it is shared while the thread runs.

use std::collections::BTreeMap;

use base::histogram::Histogram;

/// Buckets per doubling, as a power of two: percentiles within 0.8 %.
const PART_BITS: u32 = 6;
const PARTS: usize = 1 << PART_BITS;
/// The last doubling ends at 2^42 ns, more than an hour.
const DOUBLINGS: usize = 37;

/// Times of one kind. A doubling takes memory once a time falls into it: many threads have many of these.
#[derive(Debug, Clone)]
pub(crate) struct Times {
    doublings: [Option<Box<[u32; PARTS]>>; DOUBLINGS],
}

impl Default for Times {
    fn default() -> Self {
        Self { doublings: [const { None }; DOUBLINGS] }
    }
}

impl Times {
    #[inline]
    pub(crate) fn count(&mut self, ns: u64) {
        let (doubling, part) = bucket(ns);
        let parts = self.doublings[doubling].get_or_insert_with(|| Box::new([0; PARTS]));
        parts[part] = parts[part].saturating_add(1);
    }

    pub(crate) fn add_to(&self, all: &mut Histogram) {
        for (doubling, parts) in self.doublings.iter().enumerate() {
            let counts = parts.iter().flat_map(|parts| parts.iter().enumerate());
            for (part, count) in counts.filter(|(_, count)| **count > 0) {
                all.record_ns_times(middle_ns(doubling, part), u64::from(*count));
            }
        }
    }
}

#[inline]
fn bucket(ns: u64) -> (usize, usize) {
    if ns < PARTS as u64 {
        return (0, ns as usize);
    }
    let shift = ns.ilog2() - PART_BITS;
    let doubling = shift as usize + 1;
    if doubling >= DOUBLINGS {
        return (DOUBLINGS - 1, PARTS - 1);
    }
    (doubling, (ns >> shift) as usize & (PARTS - 1))
}

fn middle_ns(doubling: usize, part: usize) -> u64 {
    match doubling.checked_sub(1) {
        None => part as u64,
        Some(shift) => (((PARTS + part) as u64) << shift) + (1 << shift) / 2,
    }
}

/// The counts of one flowop in one thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct RowCounts {
    /// Within the judged time.
    pub count: u64,
    pub bytes: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
    pub times: Times,
    /// From the start on, also before the judged time.
    pub all_count: u64,
    pub all_bytes: u64,
    /// Failed calls since the last that did not.
    pub failures: u64,
    /// Failed calls, by their message.
    pub errors: BTreeMap<String, u64>,
}

impl RowCounts {
    #[inline]
    pub(crate) fn count(&mut self, ns: u64, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
        self.times.count(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_within_one_percent_of_its_bucket() {
        for ns in (0..200).chain((0..42).map(|bit| 1 << bit)).chain([777, 123_456, 9_876_543_210]) {
            let (doubling, part) = bucket(ns);
            let middle = middle_ns(doubling, part);
            assert!(middle.abs_diff(ns) as f64 <= ns as f64 * 0.008, "{ns}: {middle}");
        }
        assert_eq!(bucket(u64::MAX), (DOUBLINGS - 1, PARTS - 1));
    }

    #[test]
    fn counts_become_percentiles() {
        let mut counts = RowCounts::default();
        (1..=1000).for_each(|us| counts.count(us * 1000, 10));
        let mut all = Histogram::default();
        counts.times.add_to(&mut all);
        assert_eq!((all.count(), counts.count, counts.bytes, counts.max_ns), (1000, 1000, 10_000, 1_000_000));
        let p99 = all.percentile_ns(99.0).unwrap() as f64;
        assert!((p99 / 990_000.0 - 1.0).abs() < 0.01, "{p99}");
    }
}
