//! Goodput over time.

use base::series::Series;

use super::report::TransferReport;

/// A series for each direction, from the end that counts what arrived.
pub fn of(report: &TransferReport) -> Vec<Series> {
    let mut series = Vec::new();
    for way in &report.directions {
        let Some(end) = way.receiver.as_ref().or(way.sender.as_ref()) else { continue };
        let mut goodput = Series::new(format!("goodput_{}_bit_per_s", way.direction.word()), "bit/s");
        for (from_s, to_s, bytes) in end.intervals.iter().filter(|(from_s, to_s, _)| to_s > from_s) {
            goodput.push(*to_s, Some(*bytes as f64 * 8.0 / (to_s - from_s)));
        }
        series.push(goodput);
    }
    series
}
