//! What a group of players says of its trial, as it crosses the bus and stands in the store.

use base::part::PartError;
use base::series::Series;
use serde::{Deserialize, Serialize};

use super::calls::PlayerCalls;
use super::slack::{self, Context, SlackTrend};
use super::worker::{SAMPLE_SLOTS, SLOT_NS};
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
    /// Its number among all.
    pub stream: u64,
    /// Where it played; absent where all played on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How long its group held; `None` if the hold never began.
    pub held_s: Option<f64>,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// On which host; absent where all played on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
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
    /// CPU time in the busiest second before the hold, in % of one core.
    pub cpu_before_percent_max: Option<f64>,
}

/// What players have done up to one moment, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Streams whose picture moves.
    pub playing: u32,
    /// Streams that have begun and not ended.
    pub begun: u32,
    /// Least slack of those that have begun.
    pub slack_min_ns: Option<u64>,
    /// Bytes received so far by all.
    pub received_bytes: u64,
    /// Sum of what is buffered ahead.
    pub buffered_ns: u64,
}

/// The streams' least slacks within one second, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlackSum {
    /// Their sum.
    pub slack_ns: u64,
    /// How many streams had begun.
    pub streams: u32,
}

/// What can be added up over players that were seen at the same moments.
pub trait Together: Copy {
    /// The same for both.
    #[must_use]
    fn and(self, other: Self) -> Self;

    /// Several lists as one, for as long as there is something in each.
    fn of_all(lists: &[&[Self]]) -> Vec<Self> {
        let Some((first, others)) = lists.split_first() else { return Vec::new() };
        let common = others.iter().map(|list| list.len()).fold(first.len(), usize::min);
        let at = |at: usize| others.iter().fold(first[at], |sum, list| sum.and(list[at]));
        (0..common).map(at).collect()
    }
}

impl Together for Sample {
    fn and(self, other: Self) -> Self {
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

impl Together for SlackSum {
    fn and(self, other: Self) -> Self {
        Self {
            slack_ns: self.slack_ns.saturating_add(other.slack_ns),
            streams: self.streams.saturating_add(other.streams),
        }
    }
}

/// All players together: a group, or the groups on several hosts as one.
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
    /// Ten times a second from the start on.
    pub samples: Vec<Sample>,
    /// For each second of the hold.
    pub slack: Vec<SlackSum>,
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
    /// Where the players' time went, host by host, if it was to be recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<PlayerCalls>,
}

const NS_PER_S: f64 = 1e9;

impl ViewerReport {
    /// The samples over time, in s after the start.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        let mut playing = Series::new("streams_playing", "");
        let mut slack = Series::new("slack_s", "s");
        let mut rate = Series::new("received_bit_per_s", "bit/s");
        let mut buffered = Series::new("buffered_s", "s");
        let step_s = (SLOT_NS * SAMPLE_SLOTS) as f64 / NS_PER_S;
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
    #[must_use]
    pub fn slack_per_s(&self) -> Vec<(f64, f64)> {
        let mean = |(second, sum): (usize, &SlackSum)| {
            let mean_s = sum.slack_ns as f64 / f64::from(sum.streams) / NS_PER_S;
            (sum.streams > 0).then_some((second as f64 + 0.5, mean_s))
        };
        self.slack.iter().enumerate().filter_map(mean).collect()
    }

    /// Its trend.
    #[must_use]
    pub fn slack_trend(&self) -> Option<SlackTrend> {
        let demanded_bits = self.streams.iter().filter_map(|stream| stream.held_s).sum::<f64>();
        let demanded_bits = demanded_bits * self.content_bit_per_s;
        let received_bits: f64 = self.streams.iter().map(|stream| stream.received_bytes as f64 * 8.0).sum();
        let supply = (demanded_bits > 0.0).then(|| received_bits / demanded_bits);
        let remaining_s = self.content_s - self.hold_s.map_or(0.0, |(_, to)| to);
        slack::judge(&self.slack_per_s(), Context { remaining_s: remaining_s.max(0.0), supply })
    }

    /// When not one stream got any picture and all of them broke, the server is gone: nothing was measured.
    ///
    /// # Errors
    /// Why the first of them broke.
    pub fn something_measured(&self) -> Result<(), PartError> {
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
