//! What was seen over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One quantity sampled over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Name with its unit last, such as `server_cpu_percent`.
    pub name: String,
    /// The unit as printed.
    pub unit: String,
    /// Seconds since the trial's start, ascending; the same length as `values`.
    pub at_s: Vec<f64>,
    /// The value seen at (or over the interval that ends at) each time; `None` where it could not be read.
    pub values: Vec<Option<f64>>,
}

impl Series {
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { name: name.into(), unit: unit.into(), at_s: Vec::new(), values: Vec::new() }
    }

    pub fn push(&mut self, at_s: f64, value: Option<f64>) {
        self.at_s.push(at_s);
        self.values.push(value);
    }

    /// The known values with their times within `[from_s, to_s]`.
    pub fn known(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        let pairs = self.at_s.iter().zip(&self.values);
        pairs.filter_map(move |(&at, &value)| (at >= from_s && at <= to_s).then_some((at, value?)))
    }

    /// Mean of the known values within `[from_s, to_s]`; `None` where there is none.
    pub fn mean(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let (sum, n) = self.known(from_s, to_s).fold((0.0, 0u32), |(sum, n), (_, v)| (sum + v, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    }

    /// Largest known value within `[from_s, to_s]`.
    pub fn max(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.known(from_s, to_s).map(|(_, v)| v).max_by(f64::total_cmp)
    }

    /// Smallest known value within `[from_s, to_s]`.
    pub fn min(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.known(from_s, to_s).map(|(_, v)| v).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_samples_are_ignored() {
        let mut series = Series::new("disk_bit_per_s", "bit/s");
        for (at, value) in [(0.0, Some(9.0)), (1.0, None), (2.0, Some(3.0)), (3.0, Some(5.0))] {
            series.push(at, value);
        }
        assert_eq!(series.mean(1.0, 3.0), Some(4.0));
        assert_eq!(series.min(0.0, 3.0), Some(3.0));
        assert_eq!(series.max(0.5, 3.0), Some(5.0));
        assert_eq!(series.mean(0.5, 1.5), None);
    }
}
