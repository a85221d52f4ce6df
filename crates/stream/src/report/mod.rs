//! What a group of players measured, as sent over the bus and stored.

pub mod buffer_trend;
pub mod merge;

use base::part::PartError;
use base::series::Series;
use base::timeline::CallTimes;
use serde::{Deserialize, Serialize};

use crate::settings::Depth;
use buffer_trend::{BufferTrend, TrendContext};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StallReport {
    /// When it began, after the hold's beginning (below 0: before it).
    pub at_s: f64,
    /// Up to the hold's end at most.
    pub length_s: f64,
    /// Whether play resumed before the hold's end.
    pub ended: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Broken {
    /// When, after the hold's beginning (below 0: before it).
    pub at_s: f64,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksReport {
    pub packets: u64,
    pub frames: u64,
    pub sync_errors: u64,
    pub continuity_errors: u64,
    /// Packets with `transport_error_indicator`.
    pub damaged: u64,
    /// Groups of pictures compared with the index; `None` for a player that compares none.
    pub hashes_checked: Option<u64>,
    pub hash_errors: u64,
}

/// One stream. All figures are those of the hold unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// The stream's number among all of the trial.
    pub stream: u64,
    /// Absent where all played on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Length of the hold; `None` if it never began.
    pub held_s: Option<f64>,
    pub begins_at_s: f64,
    pub depth: Depth,
    /// From connecting to the first picture; `None` if there never was one.
    pub startup_s: Option<f64>,
    /// What the stream waited for, if there never was a picture.
    pub waited_for: Option<String>,
    /// Includes a stall that lasted at the hold's beginning.
    pub stall_count: u64,
    /// At most the first 256.
    pub stalls: Vec<StallReport>,
    /// Stalls that ended before the hold.
    pub stalls_before: u64,
    pub stalled_s: f64,
    pub frames_played: u64,
    /// Frames that an undisturbed player would have shown.
    pub frames_expected: u64,
    /// Least time by which the next missing frame was ahead of its due time.
    pub slack_min_s: Option<f64>,
    pub received_bytes: u64,
    /// Received over demanded bytes of the 5 s window that deviated most; `None` without a window.
    pub throughput_ratio_worst: Option<f64>,
    pub throughput_was_full: bool,
    /// Longest time without a byte while the player wanted some.
    pub receive_gap_max_s: f64,
    /// For a parsing player.
    pub checks: Option<ChecksReport>,
    pub broken: Option<Broken>,
    /// Input "I23" of ITU-T P.1203: initial loading and stalls of the session as [media time, length] in s.
    pub p1203_stalling: Vec<[f64; 2]>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Absent where all played on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub thread_id: i32,
    pub streams: u64,
    /// % of one core.
    pub cpu_percent: Option<f64>,
    /// Lateness of reads.
    pub late_ms_max: f64,
    pub late_ms_p99: Option<f64>,
    /// Lateness of reads before the hold.
    pub late_before_ms_max: f64,
    /// CPU in the busiest second before the hold, in % of one core.
    pub cpu_before_percent_max: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub playing: u32,
    /// Streams that have begun and not ended.
    pub begun: u32,
    /// Of the streams that have begun.
    pub slack_min_ns: Option<u64>,
    /// Since the start.
    pub received_bytes: u64,
    pub buffered_ns: u64,
}

/// Sum of the streams' least slacks within one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackSum {
    pub slack_ns: u64,
    /// Streams that had begun.
    pub streams: u32,
}

/// Values of the same moment that can be combined over players.
pub trait Combine: Copy {
    fn combine(self, other: Self) -> Self;

    /// Combine lists entry by entry, up to the shortest.
    fn combine_all(lists: &[&[Self]]) -> Vec<Self> {
        let Some((first, others)) = lists.split_first() else { return Vec::new() };
        let common = others.iter().map(|list| list.len()).fold(first.len(), usize::min);
        let at = |at: usize| others.iter().fold(first[at], |sum, list| sum.combine(list[at]));
        (0..common).map(at).collect()
    }
}

impl Combine for Sample {
    fn combine(self, other: Self) -> Self {
        let least = self.slack_min_ns.into_iter().chain(other.slack_min_ns).min();
        Self {
            playing: self.playing.saturating_add(other.playing),
            begun: self.begun.saturating_add(other.begun),
            slack_min_ns: least,
            received_bytes: self.received_bytes.saturating_add(other.received_bytes),
            buffered_ns: self.buffered_ns.saturating_add(other.buffered_ns),
        }
    }
}

impl Combine for SlackSum {
    fn combine(self, other: Self) -> Self {
        Self {
            slack_ns: self.slack_ns.saturating_add(other.slack_ns),
            streams: self.streams.saturating_add(other.streams),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlayerCalls {
    /// Absent where all played on one host.
    pub host: Option<String>,
    pub times: CallTimes,
}

/// All players together: a group, or the groups on several hosts as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewerReport {
    pub url: String,
    pub content_s: f64,
    pub content_bit_per_s: f64,
    /// From and to, in s after the group's start; `None` if the hold never began.
    pub hold_s: Option<(f64, f64)>,
    /// Intended length of the hold.
    pub hold_wanted_s: f64,
    /// The hold ended early because the verdict was certain.
    pub aborted: bool,
    /// The group was stopped before the hold's end.
    pub stopped: bool,
    pub cap_s: f64,
    pub streams: Vec<StreamReport>,
    pub threads: Vec<ThreadReport>,
    /// Every 100 ms from the start.
    pub samples: Vec<Sample>,
    /// Per second of the hold.
    pub slack: Vec<SlackSum>,
    /// The players' `SO_RCVBUF` as granted by the kernel.
    pub receive_buffer_bytes: Option<u64>,
    /// Of the players' sockets. The server's shapes the download; on one host both are the system's default.
    pub congestion_control: Option<String>,
    /// Segments retransmitted by the players' side.
    pub retransmits: Option<u64>,
    /// The index was made by reading the content.
    pub index_made_by_reading: bool,
    /// The server supports no ranges, so all streams began at the content's start.
    pub without_ranges: bool,
    /// In a cold trial: streams that read a region that another read too.
    pub overlapping: Option<u64>,
    /// The players' system calls by host, if recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PlayerCalls>,
}

pub const SAMPLE_NS: u64 = 100_000_000;
const NS_PER_S: f64 = 1e9;

impl ViewerReport {
    pub fn series(&self) -> Vec<Series> {
        let mut playing = Series::new("streams_playing", "");
        let mut slack = Series::new("slack_s", "s");
        let mut rate = Series::new("received_bit_per_s", "bit/s");
        let mut buffered = Series::new("buffered_s", "s");
        let step_s = SAMPLE_NS as f64 / NS_PER_S;
        let mut before = None;
        for (at, sample) in self.samples.iter().enumerate() {
            let at_s = at as f64 * step_s;
            playing.push(at_s, Some(f64::from(sample.playing)));
            slack.push(at_s, sample.slack_min_ns.map(|ns| ns as f64 / NS_PER_S));
            let received =
                before.map(|before| sample.received_bytes.saturating_sub(before) as f64 * 8.0 / step_s);
            rate.push(at_s, received);
            let mean = sample.buffered_ns as f64 / f64::from(sample.begun) / NS_PER_S;
            buffered.push(at_s, (sample.begun > 0).then_some(mean));
            before = Some(sample.received_bytes);
        }
        vec![playing, slack, rate, buffered]
    }

    /// Least slack per second of the hold, mean over the streams: (s after the hold's beginning, s).
    pub fn slack_per_s(&self) -> Vec<(f64, f64)> {
        let mean = |(second, sum): (usize, &SlackSum)| {
            let mean_s = sum.slack_ns as f64 / f64::from(sum.streams) / NS_PER_S;
            (sum.streams > 0).then_some((second as f64 + 0.5, mean_s))
        };
        self.slack.iter().enumerate().filter_map(mean).collect()
    }

    /// The trend of [`slack_per_s`](Self::slack_per_s).
    pub fn slack_trend(&self) -> Option<BufferTrend> {
        let demanded_bits = self.streams.iter().filter_map(|stream| stream.held_s).sum::<f64>();
        let demanded_bits = demanded_bits * self.content_bit_per_s;
        let received_bits: f64 = self.streams.iter().map(|stream| stream.received_bytes as f64 * 8.0).sum();
        let supply = (demanded_bits > 0.0).then(|| received_bits / demanded_bits);
        let remaining_s = self.content_s - self.hold_s.map_or(0.0, |(_, to)| to);
        buffer_trend::judge(&self.slack_per_s(), TrendContext { remaining_s: remaining_s.max(0.0), supply })
    }

    /// Errors: Every stream broke before its first picture: nothing was measured. The error of the first
    /// stream.
    pub fn check_measured(&self) -> Result<(), PartError> {
        let lost = |stream: &&StreamReport| stream.startup_s.is_none() && stream.broken.is_some();
        let mut broken = self.streams.iter().filter(lost);
        let Some(first) = broken.next() else { return Ok(()) };
        if broken.count() + 1 < self.streams.len() {
            return Ok(());
        }
        let why = first.broken.as_ref().map_or("", |broken| broken.message.as_str());
        Err(PartError::new(format!("{}: no stream showed a picture: {why}", self.url)))
    }
}
