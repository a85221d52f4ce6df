//! Times of one kind, summed up as they come.

use super::{CallRow, CallState};
use crate::histogram::Histogram;

/// How long calls of one kind took.
#[derive(Debug, Clone, Default)]
pub struct Times {
    histogram: Histogram,
    count: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Times {
    pub fn add(&mut self, ns: u64) {
        self.histogram.record_ns(ns);
        self.count += 1;
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Many, as somebody else has counted them: durations in ns with how often there were such, and the exact
    /// sum and maximum of all.
    pub fn add_counted(&mut self, durations: &[(u64, u64)], total_ns: u64, max_ns: u64) {
        for &(ns, count) in durations {
            self.histogram.record_ns_times(ns, count);
            self.count += count;
        }
        self.total_ns += total_ns;
        self.max_ns = self.max_ns.max(max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that so many percent took at most, us.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        // The exact maximum bounds what the histogram's steps round up.
        self.histogram.percentile_ns(percent).unwrap_or(0).min(self.max_ns) as f64 / 1e3
    }

    /// Mean, us; 0 of none.
    pub fn mean_us(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64 / 1e3
    }

    /// Their time over the time watched.
    pub fn share_of(&self, wall_ns: u64) -> f64 {
        if wall_ns == 0 { 0.0 } else { self.total_ns as f64 / wall_ns as f64 }
    }

    /// As a row of the table; what they returned and how many were preempted is not known here.
    pub fn row(&self, name: String, state: CallState, wall_ns: u64) -> CallRow {
        CallRow {
            name,
            state,
            count: self.count,
            p50_us: self.percentile_us(50.0),
            mean_us: self.mean_us(),
            p99_us: self.percentile_us(99.0),
            max_us: self.max_ns as f64 / 1e3,
            wall_share: self.share_of(wall_ns),
            preempted: None,
            returned: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_counts_are_added_to_own() {
        let mut times = Times::default();
        times.add(1000);
        times.add_counted(&[(2000, 3)], 6010, 2010);
        assert_eq!((times.count(), times.mean_us()), (4, 7.01 / 4.0));
        let row = times.row("send".into(), CallState::Ready, 14_020);
        assert_eq!((row.max_us, row.wall_share, row.preempted), (2.01, 0.5, None));
        assert!(row.p50_us <= row.p99_us && row.p99_us <= row.max_us);
        assert_eq!(Times::default().share_of(0), 0.0);
    }
}
