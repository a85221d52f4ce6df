//! Reports of undisturbed players.
#![allow(dead_code, reason = "each test program uses its part")]

use stream::report::{ChecksReport, SlackSum, StreamReport, ThreadReport, ViewerReport};
use stream::settings::Depth;

pub fn stream(number: u64) -> StreamReport {
    StreamReport {
        stream: number,
        host: None,
        held_s: Some(10.0),
        begins_at_s: 0.0,
        depth: Depth::Parse,
        startup_s: Some(0.2),
        waited_for: None,
        stall_count: 0,
        stalls: vec![],
        stalls_before: 0,
        stalled_s: 0.0,
        frames_played: 250,
        frames_expected: 250,
        slack_min_s: Some(1.9),
        received_bytes: 31_250_000,
        throughput_ratio_worst: Some(1.0),
        throughput_was_full: true,
        receive_gap_max_s: 0.04,
        checks: Some(ChecksReport {
            packets: 1000,
            frames: 250,
            sync_errors: 0,
            continuity_errors: 0,
            damaged: 0,
            hashes_checked: Some(20),
            hash_errors: 0,
        }),
        broken: None,
        p1203_stalling: vec![[0.0, 0.2]],
    }
}

/// Four undisturbed streams.
pub fn clean() -> ViewerReport {
    ViewerReport {
        url: "http://nas/film.ts".into(),
        content_s: 600.0,
        content_bit_per_s: 25e6,
        hold_s: Some((6.0, 16.0)),
        hold_wanted_s: 10.0,
        aborted: false,
        stopped: false,
        cap_s: 2.0,
        streams: (0..4).map(stream).collect(),
        threads: vec![ThreadReport {
            host: None,
            thread_id: 1,
            streams: 4,
            cpu_percent: Some(3.0),
            late_ms_max: 1.0,
            late_ms_p99: Some(0.5),
            late_before_ms_max: 2.0,
            cpu_before_percent_max: Some(20.0),
        }],
        samples: vec![],
        slack: falling(0),
        receive_buffer_bytes: Some(1 << 20),
        congestion_control: Some("reno".into()),
        retransmits: Some(0),
        index_made_by_reading: false,
        without_ranges: false,
        overlapping: None,
        calls: Vec::new(),
    }
}

/// Ten seconds of four streams' slack that begins at 1.9 s and falls by `ns_per_s` each second, with a
/// ripple.
pub fn falling(ns_per_s: u64) -> Vec<SlackSum> {
    let of_second = |second: u64| 1_900_000_000 - ns_per_s * second + second % 2 * 1_000_000;
    (0..10).map(|second| SlackSum { slack_ns: 4 * of_second(second), streams: 4 }).collect()
}
