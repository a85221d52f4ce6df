//! Distributions of times that merge over threads and hosts without loss.

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// Largest recorded time, in ns: one hour. Anything above counts as one hour.
const NS_MAX: u64 = 3_600_000_000_000;

/// Times in ns with three significant digits (HdrHistogram, Gil Tene).
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(Hdr<u64>);

/// A stored histogram that cannot be read back.
#[derive(Debug, thiserror::Error)]
#[error("a stored histogram is damaged ({0}); measure again, or restore the results file from a copy")]
pub struct HistogramError(String);

impl Default for Histogram {
    fn default() -> Self {
        Self(Hdr::new_with_bounds(1, NS_MAX, 3).expect("constant bounds that the library accepts"))
    }
}

impl Histogram {
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Count one time that came so often.
    pub fn record_ns_times(&mut self, ns: u64, times: u64) {
        self.0.saturating_record_n(ns, times);
    }

    /// Add all of another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that `percent` of all are at or below, in ns; `None` while empty.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_percentile(percent))
    }

    /// Mean in ns; `None` while empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.mean())
    }

    /// Largest in ns; `None` while empty.
    pub fn max_ns(&self) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.max())
    }

    /// HdrHistogram's V2 encoding, readable by its other implementations.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.0, &mut bytes).expect("writing to memory does not fail");
        bytes
    }

    /// Read what [`Self::to_bytes`] wrote. Errors on damage.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HistogramError> {
        let read: Hdr<u64> =
            Deserializer::new().deserialize(&mut &bytes[..]).map_err(|e| HistogramError(e.to_string()))?;
        // Re-recorded into our own bounds, so that a foreign layout can always be merged.
        let mut own = Self::default();
        for value in read.iter_recorded() {
            own.0.saturating_record_n(value.value_iterated_to(), value.count_since_last_iteration());
        }
        Ok(own)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_bytes().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        Self::from_bytes(&bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_histogram_has_no_percentile() {
        let empty = Histogram::default();
        assert_eq!((empty.percentile_ns(99.0), empty.mean_ns(), empty.max_ns()), (None, None, None));
    }

    proptest! {
        #[test]
        fn merged_halves_equal_the_whole(times in proptest::collection::vec(1u64..10_000_000_000, 1..200)) {
            let mut whole = Histogram::default();
            let mut halves = [Histogram::default(), Histogram::default()];
            for (i, &ns) in times.iter().enumerate() {
                whole.record_ns(ns);
                halves[i % 2].record_ns(ns);
            }
            let [mut merged, second] = halves;
            merged.merge(&Histogram::from_bytes(&second.to_bytes()).unwrap());
            prop_assert_eq!(merged.count(), whole.count());
            for percent in [0.0, 50.0, 99.0, 100.0] {
                let (a, b) = (merged.percentile_ns(percent).unwrap(), whole.percentile_ns(percent).unwrap());
                prop_assert!(a.abs_diff(b) as f64 <= b as f64 * 2e-3 + 1.0);
            }
        }

        #[test]
        fn damaged_bytes_are_refused_and_never_panic(bytes in proptest::collection::vec(any::<u8>(),
            0..200)) {
            let _ = Histogram::from_bytes(&bytes);
        }
    }
}
