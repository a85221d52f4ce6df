//! The numbers of a stream trial.

use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use super::report::{StreamReport, ThreadReport, ViewerReport};

/// Every number of a trial: the players' own, and what the samplers add on the host and for the server.
pub const METRICS: &[MetricSpec] = &[
    metric("stalls", "", Lower, "times that a picture stood still in the judged time, over all streams"),
    metric("stall_first_s", "s", Higher, "when the first picture stood still, into the judged time"),
    metric("streams_stalled", "", Lower, "streams whose picture stood still at least once"),
    metric("rebuffer_ratio", "", Lower, "share of the viewers' time in which the picture stood still"),
    metric("frames_played", "", Higher, "frames shown in the judged time, over all streams"),
    metric("frames_expected", "", Neither, "frames that undisturbed players would have shown"),
    metric("slack_min_s", "s", Higher, "least time left until the first missing frame was due"),
    metric("slack_slope_s_per_s", "s/s", Higher, "trend of the streams' mean slack; below 0 buffers drain"),
    metric("startup_max_s", "s", Lower, "longest time from connecting to the first picture"),
    metric("content_bit_per_s", "bit/s", Neither, "mean rate of the content, which every player plays"),
    metric("received_bit_per_s", "bit/s", Neither, "content received by all players together"),
    metric(
        "throughput_ratio_min",
        "",
        Neither,
        "received divided by needed bytes, the least of all 5 s windows of all streams",
    ),
    metric("receive_gap_max_s", "s", Lower, "longest time without a byte for a player that wanted some"),
    metric("streams_broken", "", Lower, "streams whose connection failed or whose answer made no sense"),
    metric("sync_errors", "", Lower, "losses of transport stream sync, seen by the parsing players"),
    metric("continuity_errors", "", Lower, "jumps of continuity counters, seen by the parsing players"),
    metric("hash_errors", "", Lower, "groups of pictures whose bytes differ from the index's hash"),
    metric("streams_parsed", "", Neither, "players that checked every packet"),
    metric("player_cpu_percent", "%", Lower, "CPU of the busiest player thread, in % of its core"),
    metric("tick_late_max_ms", "ms", Lower, "how much later than intended a player read, at most"),
    metric("retransmits", "", Lower, "segments sent again by the players' own side"),
    metric("server_cpu_percent", "%", Lower, "CPU of the server, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of the server's processes, added up"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the device that holds the content"),
    metric(
        "network_bit_per_s",
        "bit/s",
        Neither,
        "carried between server and players; over loopback, what players received",
    ),
];

/// The players' own numbers of a trial. What needs a hold is unknown without one.
pub fn of(report: &ViewerReport) -> Metrics {
    let streams = &report.streams;
    let is_held = report.hold_s.is_some_and(|(from, to)| to > from);
    let held = |value: f64| is_held.then_some(value);
    let sum = |of: fn(&StreamReport) -> f64| streams.iter().map(of).sum::<f64>();
    let count = |is: fn(&StreamReport) -> bool| streams.iter().filter(|stream| is(stream)).count() as f64;
    let least = |of: fn(&StreamReport) -> Option<f64>| streams.iter().filter_map(of).min_by(f64::total_cmp);
    let most = |of: fn(&StreamReport) -> Option<f64>| streams.iter().filter_map(of).max_by(f64::total_cmp);
    let parsed = count(|stream| stream.checks.is_some());
    let checks = |of: fn(&super::report::ChecksReport) -> u64| {
        let found = streams.iter().filter_map(|stream| stream.checks.as_ref());
        (parsed > 0.0).then(|| found.map(of).sum::<u64>() as f64)
    };
    let first_stall = least(|stream| stream.stalls.iter().map(|stall| stall.at_s).min_by(f64::total_cmp));
    let threads = &report.threads;
    let late = threads.iter().map(|thread| thread.late_ms_max).max_by(f64::total_cmp);
    // A group whose verdict was certain held for less time than the others.
    let per_s = |stream: &StreamReport, of: f64| {
        stream.held_s.filter(|held| *held > 0.0).map_or(0.0, |held| of / held)
    };
    let received = |stream: &StreamReport| per_s(stream, stream.received_bytes as f64 * 8.0);
    let watched_s: f64 = streams.iter().filter_map(|stream| stream.held_s).sum();
    let pairs = [
        ("stalls", held(sum(|stream| stream.stall_count as f64))),
        ("stall_first_s", first_stall.map(|at| at.max(0.0))),
        ("streams_stalled", held(count(|stream| stream.stall_count > 0))),
        ("rebuffer_ratio", held(sum(|stream| stream.stalled_s) / watched_s)),
        ("frames_played", held(sum(|stream| stream.frames_played as f64))),
        ("frames_expected", held(sum(|stream| stream.frames_expected as f64))),
        ("slack_min_s", least(|stream| stream.slack_min_s)),
        ("slack_slope_s_per_s", report.slack_trend().map(|trend| trend.slope_s_per_s)),
        ("startup_max_s", most(|stream| stream.startup_s)),
        ("content_bit_per_s", Some(report.content_bit_per_s)),
        ("received_bit_per_s", held(streams.iter().map(received).sum())),
        ("throughput_ratio_min", least(|stream| stream.throughput_ratio_worst)),
        ("receive_gap_max_s", held(most(|stream| Some(stream.receive_gap_max_s)).unwrap_or(0.0))),
        ("streams_broken", Some(count(|stream| stream.broken.is_some()))),
        ("sync_errors", checks(|found| found.sync_errors)),
        ("continuity_errors", checks(|found| found.continuity_errors + found.damaged)),
        ("hash_errors", checks(|found| found.hash_errors)),
        ("streams_parsed", Some(parsed)),
        ("player_cpu_percent", busiest(report).map(|(percent, _)| percent)),
        ("tick_late_max_ms", late.and_then(held)),
        ("retransmits", report.retransmits.map(|n| n as f64)),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The busiest thread, and its CPU in % of its core.
pub fn busiest(report: &ViewerReport) -> Option<(f64, &ThreadReport)> {
    busiest_by(report, |thread| thread.cpu_percent)
}

pub(super) fn busiest_by(
    report: &ViewerReport,
    of: fn(&ThreadReport) -> Option<f64>,
) -> Option<(f64, &ThreadReport)> {
    let known = report.threads.iter().filter_map(|thread| Some((of(thread)?, thread)));
    known.max_by(|a, b| a.0.total_cmp(&b.0))
}
