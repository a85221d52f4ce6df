//! Merges the reports of players on several hosts into one, as if all had played on one host.
//!
//! All groups start and hold at the same moments, so their samples add up one by one.

use base::part::{HERE, PartError};

use super::{Combine, PlayerCalls, StreamReport, ThreadReport, ViewerReport};
use crate::content::start_offsets;

/// Merge reports by host (`None`: all played on one host).
pub fn merge(groups: Vec<(Option<&str>, ViewerReport)>) -> Result<ViewerReport, PartError> {
    let hosts: Vec<_> = groups.iter().map(|(host, _)| host.unwrap_or(HERE)).collect();
    let mut reports: Vec<_> = groups.into_iter().map(|(host, report)| with_host(host, report)).collect();
    if reports.len() <= 1 {
        return reports.pop().ok_or_else(|| PartError::new("the players left no report"));
    }
    if let Some(other) = reports.iter().position(|report| report.url != reports[0].url) {
        let (one, another) = (&reports[0].url, &reports[other].url);
        return Err(PartError::new(format!(
            "the players on {} were redirected to {one}, those on {} to {another}; \
             give the URL of one server",
            hosts[0], hosts[other]
        )));
    }
    let samples: Vec<_> = reports.iter().map(|report| report.samples.as_slice()).collect();
    let slack: Vec<_> = reports.iter().map(|report| report.slack.as_slice()).collect();
    let (samples, slack) = (Combine::combine_all(&samples), Combine::combine_all(&slack));
    let mut streams: Vec<_> = reports.iter_mut().flat_map(|report| report.streams.drain(..)).collect();
    streams.sort_by_key(|stream| stream.stream);
    let any = |is: fn(&ViewerReport) -> bool| reports.iter().any(is);
    let retransmits = reports.iter().filter_map(|report| report.retransmits);
    let mut merged = ViewerReport {
        streams,
        samples,
        slack,
        hold_s: common_hold(reports.iter().map(|report| report.hold_s)),
        aborted: any(|report| report.aborted),
        stopped: any(|report| report.stopped),
        index_made_by_reading: any(|report| report.index_made_by_reading),
        without_ranges: any(|report| report.without_ranges),
        receive_buffer_bytes: reports.iter().filter_map(|report| report.receive_buffer_bytes).max(),
        congestion_control: joined(reports.iter().filter_map(|report| report.congestion_control.as_deref())),
        retransmits: retransmits.reduce(u64::saturating_add),
        threads: reports.iter_mut().flat_map(|report| report.threads.drain(..)).collect(),
        calls: reports.iter_mut().flat_map(|report| report.calls.drain(..)).collect(),
        ..reports.swap_remove(0)
    };
    if merged.overlapping.is_some() {
        // Streams on different hosts may overlap too.
        merged.overlapping = Some(overlapping(&merged));
    }
    Ok(merged)
}

/// Set the host of each stream, thread and call table.
fn with_host(host: Option<&str>, mut report: ViewerReport) -> ViewerReport {
    let Some(host) = host else { return report };
    let name = |of: &mut Option<String>| *of = Some(host.to_owned());
    report.streams.iter_mut().for_each(|StreamReport { host, .. }| name(host));
    report.threads.iter_mut().for_each(|ThreadReport { host, .. }| name(host));
    report.calls.iter_mut().for_each(|PlayerCalls { host, .. }| name(host));
    report
}

/// The time in which all hosts held; `None` where there is none.
fn common_hold(mut holds: impl Iterator<Item = Option<(f64, f64)>>) -> Option<(f64, f64)> {
    let first = holds.next()??;
    let common = holds.try_fold(first, |(from, to), hold| hold.map(|(f, t)| (from.max(f), to.min(t))));
    common.filter(|(from, to)| from < to)
}

fn joined<'a>(all: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut names: Vec<_> = all.collect();
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Streams that read the same region, from the start to the hold's end and the cap ahead.
fn overlapping(report: &ViewerReport) -> u64 {
    let ns = |s: f64| (s * 1e9).round() as u64;
    let starts_ns = report.streams.iter().map(|stream| ns(stream.begins_at_s)).collect();
    let read_s = report.hold_s.map_or(0.0, |(_, to)| to) + report.cap_s;
    start_offsets::overlapping(starts_ns, ns(report.content_s), ns(read_s))
}
