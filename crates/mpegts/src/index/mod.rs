//! The frame index of content: what a player needs to know without parsing video.

mod builder;
mod format;

pub(super) use builder::{ContentInfo, IndexBuilder};
pub(super) use format::FILE_BYTES_MAX;
pub use format::{INDEX_VERSION, index_path};

use super::spec::{Codec, FrameRate, RateMode};

/// The specification of content from `write_content`; unknown for scanned content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The rate of the whole stream, bit/s.
    pub rate_bit_per_s: u64,
    pub mode: RateMode,
    pub width: u32,
    pub height: u32,
    pub seed: u64,
}

/// A group of pictures. Players begin at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gop {
    /// Its first byte in the file: the tables before its key frame where there are some, else the key frame.
    pub start_offset: u64,
    /// The byte after its last: the start of the next group, or the end of the file.
    pub end_offset: u64,
    /// Its key frame, counted from 0.
    pub first_frame: usize,
    /// The frame after its last.
    pub end_frame: usize,
    /// CRC32C of its bytes.
    pub crc32c: u32,
}

/// Per frame the end offset and the DTS, per group of pictures its start and checksum.
///
/// Frames are counted from the first key frame; bytes before it are not indexed. Times are relative to frame
/// 0. Every index keeps these rules: there is a frame and a group; group 0 begins with frame 0; ends, times
/// and starts rise strictly; each group begins at or after the end of the frame before its key frame and
/// before the end of that one; nothing is past the end of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentIndex {
    codec: Codec,
    frame_rate: FrameRate,
    video_pid: u16,
    total_bytes: u64,
    made: Option<Made>,
    /// One entry a frame.
    frame_ends: Vec<u64>,
    /// One entry a frame, 90 kHz.
    frame_dts_ticks: Vec<u64>,
    /// One entry a group, in these three.
    gop_starts: Vec<u64>,
    gop_first_frames: Vec<u32>,
    gop_crcs: Vec<u32>,
}

impl ContentIndex {
    pub fn codec(&self) -> Codec {
        self.codec
    }

    pub fn frame_rate(&self) -> FrameRate {
        self.frame_rate
    }

    /// The PID of the pictures, for [`TsChecker`](super::TsChecker).
    pub fn video_pid(&self) -> u16 {
        self.video_pid
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// `None` for scanned content.
    pub fn made(&self) -> Option<Made> {
        self.made
    }

    /// How many frames there are; at least 1.
    pub fn frame_count(&self) -> usize {
        self.frame_ends.len()
    }

    /// How many groups of pictures there are; at least 1.
    pub fn gop_count(&self) -> usize {
        self.gop_starts.len()
    }

    /// The offset after the last byte of frame `frame`; `None` past the last frame.
    pub fn end_offset(&self, frame: usize) -> Option<u64> {
        self.frame_ends.get(frame).copied()
    }

    /// When frame `frame` is due after frame 0, ns; `None` past the last frame.
    pub fn dts_ns(&self, frame: usize) -> Option<u64> {
        self.frame_dts_ticks.get(frame).map(|&t| ticks_to_ns(t))
    }

    /// How long the content plays: the time of the last frame and one frame more, ns.
    pub fn duration_ns(&self) -> u64 {
        ticks_to_ns(self.duration_ticks())
    }

    fn duration_ticks(&self) -> u64 {
        let last = self.frame_dts_ticks.last().copied().unwrap_or(0);
        last.saturating_add(self.frame_rate.ticks(1).max(1))
    }

    /// The measured rate from the first key frame to the end of the file, bit/s.
    pub fn rate_bit_per_s(&self) -> u64 {
        let first = self.gop_starts.first().copied().unwrap_or(0);
        let bits = u128::from(self.total_bytes - first) * 8;
        u64::try_from(bits * 90_000 / u128::from(self.duration_ticks())).unwrap_or(u64::MAX)
    }

    /// Group `gop`; `None` past the last one.
    pub fn gop(&self, gop: usize) -> Option<Gop> {
        Some(Gop {
            start_offset: *self.gop_starts.get(gop)?,
            end_offset: self.gop_starts.get(gop + 1).copied().unwrap_or(self.total_bytes),
            first_frame: self.gop_first_frames[gop] as usize,
            end_frame: self.gop_first_frames.get(gop + 1).map_or(self.frame_count(), |&f| f as usize),
            crc32c: self.gop_crcs[gop],
        })
    }

    /// All groups, in order.
    pub fn gops(&self) -> impl ExactSizeIterator<Item = Gop> + '_ {
        (0..self.gop_count()).map(|g| self.gop(g).expect("counted"))
    }

    /// The group that frame `frame` belongs to (the last one for frames past the end).
    pub fn gop_of_frame(&self, frame: usize) -> usize {
        // Group 0 begins with frame 0, so the count is never 0.
        self.gop_first_frames.partition_point(|&first| first as usize <= frame) - 1
    }

    /// The group that holds the byte at `offset`: the last one that begins at or before it. The first one for
    /// bytes before the first key frame.
    pub fn gop_of_offset(&self, offset: u64) -> usize {
        self.gop_starts.partition_point(|&start| start <= offset).saturating_sub(1)
    }

    /// The number of frames that are complete in the bytes before `offset`.
    pub fn frames_complete(&self, offset: u64) -> usize {
        self.frame_ends.partition_point(|&end| end <= offset)
    }

    /// As [`frames_complete`](Self::frames_complete), for a player whose count was `known` and only grows:
    /// checks the next few frames first.
    pub fn frames_complete_from(&self, known: usize, offset: u64) -> usize {
        let rest = self.frame_ends.get(known..).unwrap_or_default();
        let near = rest.iter().take(8).take_while(|&&end| end <= offset).count();
        if near < 8 { known.min(self.frame_count()) + near } else { self.frames_complete(offset) }
    }

    /// The frames that are due up to and including `time_ns` after frame 0.
    pub fn frames_due(&self, time_ns: u64) -> usize {
        let ticks = ns_to_ticks(time_ns);
        self.frame_dts_ticks.partition_point(|&dts| dts <= ticks)
    }

    /// The offset up to which the file is needed by `time_ns` after frame 0: the end of the last frame due by
    /// then.
    pub fn bytes_until(&self, time_ns: u64) -> u64 {
        let due = self.frames_due(time_ns);
        // Frame 0 is due at 0, so there is always one.
        self.frame_ends[due - 1]
    }

    /// The memory that the tables take, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.frame_count() * 16 + self.gop_count() * 16
    }
}

/// 90 kHz to ns, rounded up, so that `ns_to_ticks` finds the tick again.
fn ticks_to_ns(ticks: u64) -> u64 {
    u64::try_from((u128::from(ticks) * 100_000).div_ceil(9)).unwrap_or(u64::MAX)
}

/// ns to 90 kHz, rounded down.
fn ns_to_ticks(ns: u64) -> u64 {
    (u128::from(ns) * 9 / 100_000) as u64
}

#[cfg(test)]
mod tests;
