//! Builds the report from the records of a group's threads.

use super::group::GroupRecord;
use super::player::Player;
use super::stream::{Snapshot, ViewerStream};
use super::worker::ThreadRecord;
use crate::content::start_offsets;
use crate::content::timeline::Timeline;
use crate::report::{Broken, Combine, PlayerCalls, StallReport, StreamReport, ThreadReport, ViewerReport};

const S: f64 = 1e9;

pub fn build(record: &GroupRecord, ranges: bool) -> ViewerReport {
    let shared = &record.shared;
    let (timeline, plan) = (&shared.content.timeline, &shared.plan);
    let mut streams: Vec<&ViewerStream> = record.threads.iter().flat_map(|thread| &thread.streams).collect();
    streams.sort_by_key(|stream| stream.spec.number);
    let begun = streams.iter().filter_map(|stream| stream.from).map(|snapshot| snapshot.at_ns).min();
    let ended = streams.iter().filter_map(|stream| stream.to).map(|snapshot| snapshot.at_ns).max();
    let after_start = |ns: u64| ns.saturating_sub(shared.start_ns) as f64 / S;
    let hold_s = begun.zip(ended).map(|(from, to)| (after_start(from), after_start(to)));
    let hold_from_ns = shared.hold().from_ns;
    let held_s = hold_s.map(|(from, to)| to - from);
    let samples: Vec<_> = record.threads.iter().map(|thread| &*thread.samples).collect();
    let seconds: Vec<_> = record.threads.iter().map(|thread| &*thread.seconds).collect();
    let socket = || streams.iter().find_map(|stream| stream.connection.socket());
    let read_ns = hold_s.map_or(0.0, |(_, to)| to * S) as u64 + plan.cap.ns();
    let starts_ns = streams.iter().map(|stream| timeline.gop_due_ns(stream.spec.gop)).collect();
    ViewerReport {
        url: shared.source.url.to_string(),
        content_s: timeline.lap_ns() as f64 / S,
        content_bit_per_s: timeline.mean_bit_per_s(),
        hold_s,
        hold_wanted_s: plan.hold.s(),
        aborted: record.aborted,
        stopped: record.stopped,
        cap_s: plan.cap.s(),
        streams: streams
            .iter()
            .map(|stream| StreamReport { held_s, ..stream_report(stream, timeline, hold_from_ns) })
            .collect(),
        threads: record.threads.iter().map(thread_report).collect(),
        samples: Combine::combine_all(&samples),
        slack: Combine::combine_all(&seconds),
        receive_buffer_bytes: socket().and_then(|socket| socket.receive_buffer().ok()),
        congestion_control: socket().and_then(|socket| socket.congestion().ok()),
        retransmits: retransmits(&streams),
        index_made_by_reading: shared.content.made_by_reading,
        without_ranges: !ranges,
        calls: record.calls.iter().map(|times| PlayerCalls { host: None, times: times.clone() }).collect(),
        overlapping: plan.cold.then(|| start_offsets::overlapping(starts_ns, timeline.lap_ns(), read_ns)),
    }
}

fn stream_report(stream: &ViewerStream, timeline: &Timeline, hold_from_ns: u64) -> StreamReport {
    let player = &stream.player;
    let (from, to) = (stream.from, stream.to);
    let hold = from.zip(to);
    let started = player.started_ns();
    let worst = stream.throughput.worst();
    let stalls_before = from.map_or(player.stall_count(), |from| from.stalls - u64::from(from.in_stall));
    let signed_s = |ns: u64| (ns as f64 - hold_from_ns as f64) / S;
    StreamReport {
        stream: stream.spec.number,
        host: None,
        held_s: None,
        begins_at_s: timeline.gop_due_ns(stream.spec.gop) as f64 / S,
        depth: stream.spec.depth,
        startup_s: started.map(|ns| ns.saturating_sub(stream.spec.connect_ns) as f64 / S),
        waited_for: started.is_none().then(|| stream.connection.waiting_for().to_owned()),
        stall_count: hold.map_or(0, |(_, to)| to.stalls - stalls_before),
        stalls: hold.map_or(Vec::new(), |(from, to)| stalls(player, from, to)),
        stalls_before,
        stalled_s: hold.map_or(0.0, |(from, to)| (to.stalled_ns - from.stalled_ns) as f64 / S),
        frames_played: hold.map_or(0, |(from, to)| to.frames - from.frames),
        frames_expected: hold.map_or(0, |(from, to)| expected(timeline, stream.spec.gop, from, to)),
        slack_min_s: stream.slack_min_ns.map(|ns| ns as f64 / S),
        received_bytes: hold.map_or(0, |(from, to)| to.received_bytes - from.received_bytes),
        throughput_ratio_worst: worst.map(|ratio| ratio.value),
        throughput_was_full: worst.is_some_and(|ratio| ratio.was_full),
        receive_gap_max_s: stream.throughput.gap_max_ns() as f64 / S,
        checks: stream.sink.counts(),
        broken: stream
            .error
            .as_ref()
            .map(|(at, error)| Broken { at_s: signed_s(*at), message: error.to_string() }),
        p1203_stalling: p1203(stream, to),
    }
}

/// Frames that an undisturbed player would have shown in the hold: those due in its length from its first
/// position.
fn expected(timeline: &Timeline, gop: usize, from: Snapshot, to: Snapshot) -> u64 {
    let until_ns = from.position_ns + (to.at_ns - from.at_ns);
    let shown_by_then = timeline.frames_until(gop, until_ns);
    shown_by_then.saturating_sub(from.frames)
}

fn stalls(player: &Player, from: Snapshot, to: Snapshot) -> Vec<StallReport> {
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

fn p1203(stream: &ViewerStream, to: Option<Snapshot>) -> Vec<[f64; 2]> {
    let Some(started) = stream.player.started_ns() else { return Vec::new() };
    let mut pairs = vec![[0.0, started.saturating_sub(stream.spec.connect_ns) as f64 / S]];
    let mut stalled_ns = 0;
    for stall in stream.player.stalls() {
        let ended = stall.ended_ns.or(to.map(|to| to.at_ns)).unwrap_or(stall.began_ns);
        let length = ended.saturating_sub(stall.began_ns);
        let media = stall.began_ns.saturating_sub(started + stalled_ns);
        pairs.push([media as f64 / S, length as f64 / S]);
        stalled_ns += length;
    }
    pairs
}

fn thread_report(record: &ThreadRecord) -> ThreadReport {
    ThreadReport {
        host: None,
        thread_id: record.thread_id,
        streams: record.streams.len() as u64,
        cpu_percent: (record.wall_ns > 0).then(|| record.cpu_ns as f64 * 100.0 / record.wall_ns as f64),
        late_ms_max: record.late_ns_max as f64 / 1e6,
        late_ms_p99: record.late.percentile_ns(99.0).map(|ns| ns as f64 / 1e6),
        late_before_ms_max: record.late_before_ns_max as f64 / 1e6,
        cpu_before_percent_max: record.cpu_before_percent_max,
    }
}

fn retransmits(streams: &[&ViewerStream]) -> Option<u64> {
    let infos = streams.iter().filter_map(|stream| stream.connection.socket()?.info().ok());
    let known: Vec<_> = infos.filter_map(|info| info.retransmits_total).collect();
    (!known.is_empty()).then(|| known.iter().map(|&n| u64::from(n)).sum())
}
