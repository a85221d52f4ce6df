//! From what the threads saw to the report.

use base::series::Series;

use super::group::GroupRecord;
use super::place;
use super::player::Player;
use super::report::{Broken, ChecksReport, StallReport, StreamReport, ThreadReport, ViewerReport};
use super::slack::{self, Context};
use super::timeline::Timeline;
use super::viewer::{Mark, Viewer};
use super::worker::{SAMPLE_SLOTS, SLOT_NS, Sample, ThreadRecord};

const S: f64 = 1e9;

/// The report of a group.
#[must_use]
pub fn report(record: &GroupRecord, ranges: bool) -> ViewerReport {
    let shared = &record.shared;
    let (timeline, plan) = (&shared.film.timeline, &shared.plan);
    let mut viewers: Vec<&Viewer> = record.threads.iter().flat_map(|thread| &thread.viewers).collect();
    viewers.sort_by_key(|viewer| viewer.role.stream);
    let begun = viewers.iter().filter_map(|viewer| viewer.from).map(|mark| mark.at_ns).min();
    let ended = viewers.iter().filter_map(|viewer| viewer.to).map(|mark| mark.at_ns).max();
    let after_start = |ns: u64| ns.saturating_sub(shared.start_ns) as f64 / S;
    let hold_s = begun.zip(ended).map(|(from, to)| (after_start(from), after_start(to)));
    let hold_from_ns = shared.hold().from_ns;
    let streams: Vec<_> = viewers.iter().map(|viewer| stream(viewer, timeline, hold_from_ns)).collect();
    let slack_per_s = slack_per_s(&record.threads);
    let content_s = timeline.lap_ns() as f64 / S;
    let supply = hold_s.map(|(from, to)| {
        let received: u64 = streams.iter().map(|stream| stream.received_bytes).sum();
        received as f64 * 8.0 / ((to - from) * timeline.mean_bit_per_s() * viewers.len() as f64)
    });
    let remaining_s = content_s - hold_s.map_or(0.0, |(_, to)| to);
    let context = Context { remaining_s: remaining_s.max(0.0), supply };
    let socket = || viewers.iter().find_map(|viewer| viewer.link.socket());
    let read_ns = hold_s.map_or(0.0, |(_, to)| to * S) as u64 + plan.cap.ns();
    let gops: Vec<_> = viewers.iter().map(|viewer| viewer.role.gop).collect();
    ViewerReport {
        url: shared.source.url.to_string(),
        content_s,
        content_bit_per_s: timeline.mean_bit_per_s(),
        hold_s,
        hold_wanted_s: plan.hold.s(),
        aborted: record.aborted,
        stopped: record.stopped,
        cap_s: plan.cap.s(),
        slack_trend: slack::judge(&slack_per_s, context),
        slack_per_s,
        streams,
        threads: record.threads.iter().map(thread).collect(),
        series: series(&record.threads),
        receive_buffer_bytes: socket().and_then(|socket| socket.receive_buffer().ok()),
        congestion_control: socket().and_then(|socket| socket.congestion().ok()),
        retransmits: retransmits(&viewers),
        index_made_by_reading: shared.film.made_by_reading,
        without_ranges: !ranges,
        overlapping: plan.cold.then(|| place::overlapping(timeline, &gops, read_ns)),
    }
}

fn stream(viewer: &Viewer, timeline: &Timeline, hold_from_ns: u64) -> StreamReport {
    let player = &viewer.player;
    let (from, to) = (viewer.from, viewer.to);
    let hold = from.zip(to);
    let started = player.started_ns();
    let worst = viewer.steady.worst();
    let stalls_before = from.map_or(player.stall_count(), |from| from.stalls - u64::from(from.in_stall));
    let signed_s = |ns: u64| (ns as f64 - hold_from_ns as f64) / S;
    StreamReport {
        stream: viewer.role.stream,
        begins_at_s: timeline.gop_due_ns(viewer.role.gop) as f64 / S,
        depth: viewer.role.depth,
        startup_s: started.map(|ns| ns.saturating_sub(viewer.role.connect_ns) as f64 / S),
        waited_for: started.is_none().then(|| viewer.link.waiting_for().to_owned()),
        stall_count: hold.map_or(0, |(_, to)| to.stalls - stalls_before),
        stalls: hold.map_or(Vec::new(), |(from, to)| stalls(player, from, to)),
        stalls_before,
        stalled_s: hold.map_or(0.0, |(from, to)| (to.stalled_ns - from.stalled_ns) as f64 / S),
        frames_played: hold.map_or(0, |(from, to)| to.frames - from.frames),
        frames_expected: hold.map_or(0, |(from, to)| expected(timeline, viewer.role.gop, from, to)),
        slack_min_s: viewer.slack_min_ns.map(|ns| ns as f64 / S),
        received_bytes: hold.map_or(0, |(from, to)| to.received_bytes - from.received_bytes),
        throughput_ratio_worst: worst.map(|ratio| ratio.value),
        throughput_was_full: worst.is_some_and(|ratio| ratio.was_full),
        receive_gap_max_s: viewer.steady.gap_max_ns() as f64 / S,
        checks: viewer.sink.found().map(|found| ChecksReport {
            packets: found.packets.packets,
            frames: found.packets.frames,
            sync_errors: found.packets.sync_errors,
            continuity_errors: found.packets.continuity_errors,
            damaged: found.packets.damaged,
            hashes_checked: found.hashes_checked,
            hash_errors: found.hashes_wrong,
        }),
        broken: viewer
            .error
            .as_ref()
            .map(|(at, error)| Broken { at_s: signed_s(*at), message: error.to_string() }),
        p1203_stalling: p1203(viewer, to),
    }
}

/// Frames that an undisturbed player would have shown in the hold: those due in as much film from where it was.
fn expected(timeline: &Timeline, gop: usize, from: Mark, to: Mark) -> u64 {
    let until_ns = from.position_ns + (to.at_ns - from.at_ns);
    let shown_by_then = timeline.frames_until(gop, until_ns);
    // A player that has not begun has shown nothing, one that stands still has not shown the missing frame.
    shown_by_then.saturating_sub(from.frames)
}

fn stalls(player: &Player, from: Mark, to: Mark) -> Vec<StallReport> {
    let within = player
        .stalls()
        .iter()
        .filter(|stall| stall.began_ns <= to.at_ns && stall.ended_ns.is_none_or(|ended| ended > from.at_ns));
    let report = within.map(|stall| StallReport {
        at_s: (stall.began_ns as f64 - from.at_ns as f64) / S,
        length_s: stall.ended_ns.unwrap_or(to.at_ns).min(to.at_ns).saturating_sub(stall.began_ns) as f64 / S,
        ended: stall.ended_ns.is_some_and(|ended| ended <= to.at_ns),
    });
    report.collect()
}

fn p1203(viewer: &Viewer, to: Option<Mark>) -> Vec<[f64; 2]> {
    let Some(started) = viewer.player.started_ns() else { return Vec::new() };
    let mut pairs = vec![[0.0, started.saturating_sub(viewer.role.connect_ns) as f64 / S]];
    let mut stalled_ns = 0;
    for stall in viewer.player.stalls() {
        let ended = stall.ended_ns.or(to.map(|to| to.at_ns)).unwrap_or(stall.began_ns);
        let length = ended.saturating_sub(stall.began_ns);
        let media = stall.began_ns.saturating_sub(started + stalled_ns);
        pairs.push([media as f64 / S, length as f64 / S]);
        stalled_ns += length;
    }
    pairs
}

fn thread(record: &ThreadRecord) -> ThreadReport {
    ThreadReport {
        thread_id: record.thread_id,
        streams: record.viewers.len() as u64,
        cpu_percent: (record.wall_ns > 0).then(|| record.cpu_ns as f64 * 100.0 / record.wall_ns as f64),
        late_ms_max: record.late_ns_max as f64 / 1e6,
        late_ms_p99: record.late.percentile_ns(99.0).map(|ns| ns as f64 / 1e6),
        late_before_ms_max: record.late_before_ns_max as f64 / 1e6,
    }
}

fn slack_per_s(threads: &[ThreadRecord]) -> Vec<(f64, f64)> {
    let seconds = threads.iter().map(|thread| thread.seconds.len()).min().unwrap_or(0);
    let mean = |second: usize| {
        let all = threads.iter().map(|thread| thread.seconds[second]);
        let (sum, n) = all.fold((0, 0), |(sum, n), (s, k)| (sum + s, n + k));
        (n > 0).then(|| (second as f64 + 0.5, sum as f64 / f64::from(n) / S))
    };
    (0..seconds).filter_map(mean).collect()
}

fn series(threads: &[ThreadRecord]) -> Vec<Series> {
    let mut playing = Series::new("streams_playing", "");
    let mut slack = Series::new("slack_s", "s");
    let mut rate = Series::new("received_bit_per_s", "bit/s");
    let mut buffered = Series::new("buffered_s", "s");
    let step_s = (SLOT_NS * SAMPLE_SLOTS) as f64 / S;
    let count = threads.iter().map(|thread| thread.samples.len()).min().unwrap_or(0);
    let mut before = 0;
    for at in 0..count {
        let all = || threads.iter().map(move |thread| &thread.samples[at]);
        let at_s = at as f64 * step_s;
        let (moving, received): (u32, u64) =
            (all().map(|s| s.playing).sum(), all().map(|s| s.received_bytes).sum());
        playing.push(at_s, Some(f64::from(moving)));
        slack.push(at_s, all().filter_map(|s| s.slack_min_ns).min().map(|ns| ns as f64 / S));
        rate.push(at_s, (at > 0).then(|| (received - before) as f64 * 8.0 / step_s));
        let sum = |of: fn(&Sample) -> u64| all().map(of).sum::<u64>() as f64;
        let begun = sum(|s| u64::from(s.begun));
        buffered.push(at_s, (begun > 0.0).then(|| sum(|s| s.buffered_ns) / begun / S));
        before = received;
    }
    vec![playing, slack, rate, buffered]
}

fn retransmits(viewers: &[&Viewer]) -> Option<u64> {
    let infos = viewers.iter().filter_map(|viewer| viewer.link.socket()?.info().ok());
    let known: Vec<_> = infos.filter_map(|info| info.retransmits_total).collect();
    (!known.is_empty()).then(|| known.iter().map(|&n| u64::from(n)).sum())
}
