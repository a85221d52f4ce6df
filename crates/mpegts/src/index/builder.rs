//! Builds an index and checks the rules that every index keeps.

use super::{ContentIndex, Made};
use crate::error::IndexError;
use crate::spec::{Codec, ContentSpec, FrameRate};

/// A year, in ticks of 90 kHz: players' clocks count ns in 64 bits.
const DURATION_TICKS_MAX: u64 = 365 * 86_400 * 90_000;

/// Collects groups and frames in order.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    pub(super) frame_ends: Vec<u64>,
    pub(super) frame_dts_ticks: Vec<u64>,
    pub(super) gop_starts: Vec<u64>,
    pub(super) gop_first_frames: Vec<u32>,
    pub(super) gop_crcs: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentInfo {
    pub(crate) codec: Codec,
    pub(crate) frame_rate: FrameRate,
    pub(crate) video_pid: u16,
    pub(crate) total_bytes: u64,
    pub(crate) made: Option<Made>,
}

impl IndexBuilder {
    pub(crate) fn with_capacity(frames: usize, gops: usize) -> Self {
        Self {
            frame_ends: Vec::with_capacity(frames),
            frame_dts_ticks: Vec::with_capacity(frames),
            gop_starts: Vec::with_capacity(gops),
            gop_first_frames: Vec::with_capacity(gops),
            gop_crcs: Vec::with_capacity(gops),
        }
    }

    pub(crate) fn push_gop(&mut self, start: u64) {
        self.gop_starts.push(start);
        self.gop_first_frames.push(self.frame_ends.len() as u32);
    }

    /// The checksum of the oldest group that has none.
    pub(crate) fn push_gop_crc(&mut self, crc32c: u32) {
        self.gop_crcs.push(crc32c);
    }

    pub(crate) fn push_frame(&mut self, end: u64, dts_ticks: u64) {
        self.frame_ends.push(end);
        self.frame_dts_ticks.push(dts_ticks);
    }

    pub(crate) fn has_gop(&self) -> bool {
        !self.gop_starts.is_empty()
    }

    pub(crate) fn frames(&self) -> usize {
        self.frame_ends.len()
    }

    /// The time from the first frame to the last, 90 kHz.
    pub(crate) fn span_ticks(&self) -> u64 {
        self.frame_dts_ticks.last().copied().unwrap_or(0)
    }

    pub(crate) fn finish(self, info: ContentInfo) -> Result<ContentIndex, IndexError> {
        let index = ContentIndex {
            codec: info.codec,
            frame_rate: info.frame_rate,
            video_pid: info.video_pid,
            total_bytes: info.total_bytes,
            made: info.made,
            frame_ends: self.frame_ends,
            frame_dts_ticks: self.frame_dts_ticks,
            gop_starts: self.gop_starts,
            gop_first_frames: self.gop_first_frames,
            gop_crcs: self.gop_crcs,
        };
        index.check_info()?;
        index.check_frames()?;
        index.check_gops()?;
        Ok(index)
    }
}

impl ContentIndex {
    fn check_info(&self) -> Result<(), IndexError> {
        let field = |field, value| Err(IndexError::Field { field, value });
        if self.frame_rate.num == 0 || self.frame_rate.den == 0 {
            return field("frame rate", u64::from(self.frame_rate.num.min(self.frame_rate.den)));
        }
        if self.video_pid > 0x1FFE {
            return field("video PID", self.video_pid.into());
        }
        if self.frame_ends.is_empty() || self.frame_ends.len() > ContentSpec::FRAMES_MAX as usize {
            return field("frame count", self.frame_ends.len() as u64);
        }
        if self.gop_starts.is_empty() || self.gop_starts.len() > self.frame_ends.len() {
            return field("GOP count", self.gop_starts.len() as u64);
        }
        Ok(())
    }

    fn check_frames(&self) -> Result<(), IndexError> {
        let wrong = |at: usize, why| Err(IndexError::Table { table: "frame", at: at as u64, why });
        if self.frame_dts_ticks[0] != 0 {
            return wrong(0, "does not begin at time 0");
        }
        for (at, pair) in self.frame_ends.windows(2).enumerate() {
            if pair[0] >= pair[1] {
                return wrong(at + 1, "does not end after the one before");
            }
        }
        for (at, pair) in self.frame_dts_ticks.windows(2).enumerate() {
            if pair[0] >= pair[1] {
                return wrong(at + 1, "is not later than the one before");
            }
        }
        if self.frame_dts_ticks.last().is_some_and(|&dts| dts > DURATION_TICKS_MAX) {
            return wrong(self.frame_dts_ticks.len() - 1, "is more than a year after the first");
        }
        if self.frame_ends.last().is_some_and(|&end| end > self.total_bytes) {
            return wrong(self.frame_ends.len() - 1, "ends after the end of the content");
        }
        Ok(())
    }

    fn check_gops(&self) -> Result<(), IndexError> {
        let wrong = |at: usize, why| Err(IndexError::Table { table: "GOP", at: at as u64, why });
        let mut frame_before = None;
        for (at, (&start, &first)) in self.gop_starts.iter().zip(&self.gop_first_frames).enumerate() {
            let frame = first as usize;
            if at == 0 && frame != 0 {
                return wrong(0, "does not begin with frame 0");
            }
            if frame_before.is_some_and(|before| frame <= before) {
                return wrong(at, "does not begin after the one before");
            }
            frame_before = Some(frame);
            let Some(&end) = self.frame_ends.get(frame) else {
                return wrong(at, "begins with a frame that does not exist");
            };
            let earliest = frame.checked_sub(1).map_or(0, |before| self.frame_ends[before]);
            if start < earliest || start >= end {
                return wrong(at, "does not begin at its key frame");
            }
        }
        Ok(())
    }
}
