//! Events and bytes over time.

use base::series::Series;

use super::report::Interval;
use super::trial_reports::TrialReports;

/// The comparable intervals: without the last if the end of the hold cut off more than half of it, because a
/// single event in it would be a spike.
pub(super) fn whole(intervals: &[Interval]) -> &[Interval] {
    let longest_s = intervals.iter().map(|interval| interval.length_s).fold(0.0, f64::max);
    match intervals.split_last() {
        Some((last, before)) if last.length_s < longest_s / 2.0 => before,
        _ => intervals,
    }
}

/// Series of all builders together: their intervals end at the same moments, or nearly so.
pub fn of(reports: &TrialReports) -> Vec<Series> {
    let builders = reports.builders();
    let rows = builders.iter().map(|builder| whole(&builder.intervals).len()).max().unwrap_or(0);
    let mut complete = Series::new("events_per_s", "1/s");
    let mut lost = Series::new("events_incomplete_per_s", "1/s");
    let mut vetoed = Series::new("events_vetoed_per_s", "1/s");
    let mut goodput = Series::new("goodput_bit_per_s", "bit/s");
    let mut slowest = Series::new("completion_max_ms", "ms");
    for row in 0..rows {
        let now: Vec<&Interval> = builders
            .iter()
            .filter_map(|b| whole(&b.intervals).get(row))
            .filter(|one| one.length_s > 0.0)
            .collect();
        let Some(end_s) = now.iter().map(|one| one.end_s).max_by(f64::total_cmp) else { continue };
        let per_s = |of: fn(&Interval) -> u64| now.iter().map(|one| of(one) as f64 / one.length_s).sum();
        complete.push(end_s, Some(per_s(|one| one.complete)));
        lost.push(end_s, Some(per_s(|one| one.incomplete)));
        vetoed.push(end_s, Some(per_s(|one| one.vetoed)));
        goodput.push(end_s, Some(8.0 * per_s(|one: &Interval| one.payload_bytes)));
        let any = now.iter().any(|one| one.complete > 0);
        let most_ns = now.iter().map(|one| one.completion_max_ns).max().filter(|_| any);
        slowest.push(end_s, most_ns.map(|ns| ns as f64 / 1e6));
    }
    let all = [complete, lost, vetoed, goodput, slowest];
    all.into_iter().filter(|series| !series.at_s.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::{BuilderReport, BuildersReport};
    use super::*;

    #[test]
    fn short_last_interval_is_left_out() {
        let of = |length_s| Interval { length_s, ..Interval::default() };
        let rows = |lengths: &[f64]| whole(&lengths.iter().copied().map(of).collect::<Vec<_>>()).len();
        assert_eq!(rows(&[0.1, 0.1, 0.003]), 2);
        assert_eq!(rows(&[0.1, 0.1, 0.06]), 3, "more than half");
        assert_eq!((rows(&[0.02]), rows(&[])), (1, 0));
        let intervals = vec![
            Interval { end_s: 1.0, length_s: 0.5, complete: 5, ..Interval::default() },
            Interval { end_s: 1.01, length_s: 0.01, complete: 1, ..Interval::default() },
        ];
        let builder = BuilderReport { intervals, ..BuilderReport::default() };
        let reports = TrialReports::of_one(builder, Vec::new());
        assert_eq!(super::of(&reports)[0].values, [Some(10.0)]);
    }

    #[test]
    fn series_sums_builders_and_lacks_maximum_without_events() {
        let interval = |complete| Interval {
            end_s: 1.0,
            length_s: 0.5,
            complete,
            completion_max_ns: complete * 1_000_000,
            ..Interval::default()
        };
        let builder = |complete| BuilderReport { intervals: vec![interval(complete)], ..Default::default() };
        let reports =
            |all: Vec<_>| TrialReports { hosts: vec![BuildersReport { builders: all }], sources: Vec::new() };
        let series = of(&reports(vec![builder(3), builder(1)]));
        assert_eq!((series[0].values[0], series[4].values[0]), (Some(8.0), Some(3.0)));
        assert_eq!(of(&reports(vec![builder(0)]))[4].values, [None]);
        assert!(of(&TrialReports::default()).is_empty());
    }
}
