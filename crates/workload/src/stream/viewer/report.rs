//! What a group of players says of its trial, as it crosses the bus and stands in the store.

use base::series::Series;
use serde::{Deserialize, Serialize};

use super::slack::SlackTrend;
use crate::stream::settings::Depth;

/// A time when a picture stood still.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StallReport {
    /// When it began, after the hold's beginning (below 0: before it).
    pub at_s: f64,
    /// How long it lasted, up to the hold's end at most.
    pub length_s: f64,
    /// Whether the picture moved again before the hold's end.
    pub ended: bool,
}

/// Why a stream broke.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// When, after the hold's beginning (below 0: before it).
    pub at_s: f64,
    /// Why.
    pub message: String,
}

/// What a parsing player found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksReport {
    /// Packets checked.
    pub packets: u64,
    /// Frames that began.
    pub frames: u64,
    /// Losses of sync.
    pub sync_errors: u64,
    /// Jumps of continuity counters.
    pub continuity_errors: u64,
    /// Packets marked as damaged.
    pub damaged: u64,
    /// Groups of pictures compared with the index's hashes; `None` for a player that does not.
    pub hashes_checked: Option<u64>,
    /// Groups whose bytes were wrong.
    pub hash_errors: u64,
}

/// One stream. All figures are those of the hold unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its number.
    pub stream: u64,
    /// Where in the content it began.
    pub begins_at_s: f64,
    /// How deeply it looked.
    pub depth: Depth,
    /// From connecting to the first picture; `None` if there never was one.
    pub startup_s: Option<f64>,
    /// What it was waiting for, if there never was a picture.
    pub waited_for: Option<String>,
    /// How often the picture stood still, one that stood still at the hold's beginning included.
    pub stall_count: u64,
    /// The stalls one by one, at most 256.
    pub stalls: Vec<StallReport>,
    /// Stalls that were over before the hold.
    pub stalls_before: u64,
    /// How long the picture stood still.
    pub stalled_s: f64,
    /// Frames shown.
    pub frames_played: u64,
    /// Frames that would have been shown without a stall.
    pub frames_expected: u64,
    /// Least time by which the next missing frame was ahead of its due time.
    pub slack_min_s: Option<f64>,
    /// Bytes received.
    pub received_bytes: u64,
    /// Received over demanded bytes of the 5 s window that was farthest off; `None` in a hold without a window.
    pub throughput_ratio_worst: Option<f64>,
    /// Whether that window began with a full buffer.
    pub throughput_was_full: bool,
    /// Longest time without a byte while it wanted some.
    pub receive_gap_max_s: f64,
    /// What it found in the packets, if it looked.
    pub checks: Option<ChecksReport>,
    /// Why it broke, if it did.
    pub broken: Option<Broken>,
    /// Input "I23" of ITU-T P.1203: initial loading and stalls of the whole session as [media time, length] in s.
    pub p1203_stalling: Vec<[f64; 2]>,
}

/// One thread of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Its kernel id.
    pub thread_id: i32,
    /// Streams that it carried.
    pub streams: u64,
    /// CPU time in % of one core.
    pub cpu_percent: Option<f64>,
    /// How late its reads came at most.
    pub late_ms_max: f64,
    /// How late 99 of 100 came at most.
    pub late_ms_p99: Option<f64>,
    /// How late its reads came at most before the hold.
    pub late_before_ms_max: f64,
}

/// The whole group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewerReport {
    /// What was played.
    pub url: String,
    /// How long it is.
    pub content_s: f64,
    /// Its mean rate.
    pub content_bit_per_s: f64,
    /// The hold, in s after the group's start; `None` if it never began.
    pub hold_s: Option<(f64, f64)>,
    /// How long it was meant to be.
    pub hold_wanted_s: f64,
    /// The hold was ended because the verdict was certain.
    pub aborted: bool,
    /// The group was told to stop before its time.
    pub stopped: bool,
    /// Buffered at most.
    pub cap_s: f64,
    /// The streams.
    pub streams: Vec<StreamReport>,
    /// The generator's threads.
    pub threads: Vec<ThreadReport>,
    /// Ten times a second, in s after the group's start.
    pub series: Vec<Series>,
    /// Least slack per second of the hold, mean over the streams: (s after the hold's beginning, s).
    pub slack_per_s: Vec<(f64, f64)>,
    /// Its trend.
    pub slack_trend: Option<SlackTrend>,
    /// The players' own socket receive buffer as the kernel granted it.
    pub receive_buffer_bytes: Option<u64>,
    /// Congestion control of the players' sockets. It is the server's that shapes the download; on one host both
    /// are the system's default.
    pub congestion_control: Option<String>,
    /// Segments that the players' side sent again (requests and their like), over all streams.
    pub retransmits: Option<u64>,
    /// The index was made by reading the content.
    pub index_made_by_reading: bool,
    /// The server does not know ranges, so all began at the content's start.
    pub without_ranges: bool,
    /// Of a cold trial: streams that read what another read too.
    pub overlapping: Option<u64>,
}
