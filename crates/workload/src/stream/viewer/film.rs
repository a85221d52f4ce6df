//! What all players of a content share: its timeline, and where it came from.

use super::timeline::{Frame, Gop, Timeline, TimelineError};
use crate::stream::content::ContentIndex;

/// A content as players need it.
#[derive(Debug, PartialEq)]
pub struct Film {
    /// Which byte is due when.
    pub timeline: Timeline,
    /// The PID of its pictures.
    pub video_pid: u16,
    /// There was no index: the content was read once to make one.
    pub made_by_reading: bool,
}

impl Film {
    /// From an index.
    ///
    /// # Errors
    /// [`TimelineError`], should the index break its own promises.
    pub fn new(index: &ContentIndex, made_by_reading: bool) -> Result<Self, TimelineError> {
        let frames = (0..index.frame_count()).filter_map(|frame| {
            Some(Frame { end_bytes: index.end_offset(frame)?, due_ns: index.dts_ns(frame)? })
        });
        let gops = index.gops().map(|gop| Gop {
            start_bytes: gop.start_offset,
            first_frame: gop.first_frame,
            crc32c: Some(gop.crc32c),
        });
        let timeline = Timeline::new(frames.collect(), gops.collect(), index.total_bytes())?;
        Ok(Self { timeline, video_pid: index.video_pid(), made_by_reading })
    }
}
