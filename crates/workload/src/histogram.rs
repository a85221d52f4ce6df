//! Histograms of times as marks of a figure with a logarithmic axis.

use base::histogram::Histogram;
use base::outcome::{Layer, Marks, Tone};

/// Bins for each tenfold of the time.
const BINS_PER_DECADE: f64 = 10.0;
/// Values that stand for a distribution: a bin is right within a thousandth of all.
const VALUES_MAX: u64 = 1000;

/// The outline of a histogram: the lower edge of each bin, in units of `ns_per_unit`, and its share of all
/// times, %. It ends with the upper edge of the last bin. Empty without a time.
#[must_use]
pub fn outline(times: &Histogram, ns_per_unit: f64) -> Vec<(f64, Option<f64>)> {
    let values = times.count().min(VALUES_MAX);
    let bin = |ns: u64| ((ns.max(1) as f64 / ns_per_unit).log10() * BINS_PER_DECADE + 1e-9).floor() as i32;
    let edge = |bin: i32| 10f64.powf(f64::from(bin) / BINS_PER_DECADE);
    let value = |at: u64| times.percentile_ns(100.0 * (at as f64 + 0.5) / values as f64).map(bin);
    let bins: Vec<i32> = (0..values).filter_map(value).collect();
    let Some((&first, &last)) = bins.first().zip(bins.last()) else { return Vec::new() };
    let mut counts = vec![0_u32; usize::try_from(last - first).unwrap_or(0) + 1];
    bins.iter().for_each(|bin| counts[usize::try_from(bin - first).unwrap_or(0)] += 1);
    let share = |count: u32| Some(100.0 * f64::from(count) / bins.len() as f64);
    let shares = (first..).zip(counts).map(|(bin, count)| (edge(bin), share(count)));
    std::iter::once((edge(first), Some(0.0))).chain(shares).chain([(edge(last + 1), Some(0.0))]).collect()
}

/// A histogram as a filled outline; `None` without a time.
#[must_use]
pub fn layers(name: &str, tone: Tone, times: &Histogram, ns_per_unit: f64) -> Option<[Layer; 2]> {
    let outline = outline(times, ns_per_unit);
    let steps = outline.windows(2).flat_map(|pair| {
        let share = pair[0].1.unwrap_or(0.0);
        [[pair[0].0, 0.0, share], [pair[1].0, 0.0, share]]
    });
    let area = Layer::new("", tone, Marks::Band { at: steps.collect() });
    let line = Layer::new(name, tone, Marks::Steps { at: outline });
    (times.count() > 0).then_some([area, line])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_bins_add_up_to_all_times() {
        let mut times = Histogram::default();
        times.record_ns_times(1_500_000, 30);
        times.record_ns_times(40_000_000, 10);
        let outline = outline(&times, 1e6);
        let seen: Vec<_> = outline.iter().filter(|(_, share)| *share > Some(0.0)).collect();
        let edges: Vec<_> = seen.iter().map(|(edge, share)| (edge.log10() * 10.0, share.unwrap())).collect();
        assert_eq!(edges.len(), 2, "{outline:?}");
        assert!((edges[0].0 - 1.0).abs() < 1e-6 && (edges[0].1 - 75.0).abs() < 1e-9, "{edges:?}");
        assert!((edges[1].0 - 16.0).abs() < 1e-6 && (edges[1].1 - 25.0).abs() < 1e-9, "{edges:?}");
        assert_eq!((outline[0].1, outline[outline.len() - 1].1), (Some(0.0), Some(0.0)));
        assert!(outline.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{outline:?}");
    }

    #[test]
    fn nothing_is_drawn_without_a_time() {
        assert_eq!(layers("a", Tone::First, &Histogram::default(), 1e6), None);
        let mut times = Histogram::default();
        times.record_ns(0);
        assert_eq!(outline(&times, 1e6).len(), 3, "a time of zero has the least bin");
    }
}
