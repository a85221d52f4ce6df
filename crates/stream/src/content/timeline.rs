//! Which byte of the content is due when. The content repeats: after its end a player goes on at its
//! beginning.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimelineError {
    #[error("the content's index holds no frame that can be played; index the content again")]
    Empty,
    #[error(
        "frame {frame} of the content's index ends or is due before its predecessor; index the content again"
    )]
    Disorder { frame: usize },
    #[error("group {gop} of the content's index begins outside of the frames; index the content again")]
    Gop { gop: usize },
    /// Shorter than [`LAP_NS_MIN`].
    #[error("the content plays for less than 100 ms; make or choose content that plays for some seconds")]
    Short,
    /// A mean rate above [`RATE_BIT_PER_S_MAX`].
    #[error("the content's index asks for more than 1 Tbit/s; index the content again")]
    Fast,
}

/// Shortest content. Bounds how many laps a player can make.
const LAP_NS_MIN: u64 = 100_000_000;
/// Highest mean rate. Keeps the bytes of a year of playing within 64 bits.
const RATE_BIT_PER_S_MAX: f64 = 1e12;

/// A frame: it must have been received up to `end_bytes` by `due_ns` after the content's first frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Offset behind its last byte, from the file's start.
    pub end_bytes: u64,
    /// Decoding time after the first frame.
    pub due_ns: u64,
}

/// A group of pictures. Players begin at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gop {
    /// Offset of its first byte, from the file's start.
    pub start_bytes: u64,
    pub first_frame: usize,
    /// CRC32C of its bytes (up to the next group or the content's end), where the index has one.
    pub crc32c: Option<u32>,
}

/// The frames of a content as a player needs them. Bytes before the first group are never asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    frames: Vec<Frame>,
    gops: Vec<Gop>,
    total_bytes: u64,
    lap_bytes: u64,
    lap_ns: u64,
}

impl Timeline {
    /// From the frames and groups of an index and the content's length.
    /// Errors: [`TimelineError`]: no frames, or an order that no player could follow.
    pub fn new(mut frames: Vec<Frame>, gops: Vec<Gop>, total_bytes: u64) -> Result<Self, TimelineError> {
        let first = gops.first().ok_or(TimelineError::Empty)?.first_frame;
        if frames.is_empty() {
            return Err(TimelineError::Empty);
        }
        let outside = |gop: &Gop| gop.first_frame >= frames.len() || gop.start_bytes >= total_bytes;
        if let Some(gop) = gops.iter().position(outside) {
            return Err(TimelineError::Gop { gop });
        }
        if let Some(gop) = gops.windows(2).position(|pair| {
            pair[0].start_bytes >= pair[1].start_bytes || pair[0].first_frame >= pair[1].first_frame
        }) {
            return Err(TimelineError::Gop { gop: gop + 1 });
        }
        // What lies before the first group cannot be decoded, so players leave it out.
        frames.drain(..first);
        let (base_bytes, base_ns) = (gops[0].start_bytes, frames[0].due_ns);
        let mut before = Frame { end_bytes: base_bytes, due_ns: base_ns };
        for (at, frame) in frames.iter().enumerate() {
            if frame.end_bytes <= before.end_bytes || frame.due_ns < before.due_ns {
                return Err(TimelineError::Disorder { frame: at + first });
            }
            before = *frame;
        }
        // Packets after the last frame (stuffing, tables) belong to it: a lap ends with the content.
        let last = frames.len() - 1;
        if frames[last].end_bytes > total_bytes {
            return Err(TimelineError::Disorder { frame: last + first });
        }
        frames[last].end_bytes = total_bytes;
        for frame in &mut frames {
            frame.end_bytes -= base_bytes;
            frame.due_ns -= base_ns;
        }
        // The last frame lasts as long as the mean one.
        let per_frame_ns = (frames[last].due_ns / (last as u64).max(1)).max(1);
        let lap_ns = frames[last].due_ns + per_frame_ns;
        let gops = gops.into_iter().map(|gop| Gop { first_frame: gop.first_frame - first, ..gop }).collect();
        if lap_ns < LAP_NS_MIN {
            return Err(TimelineError::Short);
        }
        let timeline = Self { frames, gops, total_bytes, lap_bytes: total_bytes - base_bytes, lap_ns };
        if timeline.mean_bit_per_s() > RATE_BIT_PER_S_MAX {
            return Err(TimelineError::Fast);
        }
        Ok(timeline)
    }

    pub fn gops(&self) -> &[Gop] {
        &self.gops
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The first byte that can be decoded; a player goes on there after the end.
    pub fn base_bytes(&self) -> u64 {
        self.total_bytes - self.lap_bytes
    }

    pub fn lap_ns(&self) -> u64 {
        self.lap_ns
    }

    /// When a group is due after the content's first frame.
    pub fn gop_due_ns(&self, gop: usize) -> u64 {
        self.frames[self.gops[gop].first_frame].due_ns
    }

    /// Offset behind the last byte of a group.
    pub fn gop_end_bytes(&self, gop: usize) -> u64 {
        self.gops.get(gop + 1).map_or(self.total_bytes, |next| next.start_bytes)
    }

    pub fn mean_bit_per_s(&self) -> f64 {
        self.lap_bytes as f64 * 8.0 / (self.lap_ns as f64 / 1e9)
    }

    /// How many frames are due within the first `ns` of a player that begins at `gop` (frame 0 at 0
    /// included).
    pub fn frames_until(&self, gop: usize, ns: u64) -> u64 {
        let first = self.gops[gop].first_frame as u64;
        let absolute = ns + self.gop_due_ns(gop);
        let (laps, within) = (absolute / self.lap_ns, absolute % self.lap_ns);
        let in_lap = self.frames.partition_point(|frame| frame.due_ns <= within) as u64;
        laps * self.frames.len() as u64 + in_lap - first
    }

    /// How many bytes a player that began at `gop` needs in order to have content up to `ns`, a frame's bytes
    /// being spread evenly over the time since the frame before.
    pub fn bytes_until(&self, gop: usize, ns: u64) -> u64 {
        let absolute = ns + self.gop_due_ns(gop);
        let (laps, within) = (absolute / self.lap_ns, absolute % self.lap_ns);
        let next = self.frames.partition_point(|frame| frame.due_ns <= within);
        // `partition_point` is at least 1: the first frame is due at 0.
        let before = self.frames[next - 1];
        let after = self
            .frames
            .get(next)
            .copied()
            .unwrap_or(Frame { end_bytes: self.lap_bytes + self.frames[0].end_bytes, due_ns: self.lap_ns });
        let share = (within - before.due_ns) as f64 / (after.due_ns - before.due_ns).max(1) as f64;
        let part = (share * (after.end_bytes - before.end_bytes) as f64) as u64;
        let start = self.gops[gop].start_bytes - self.base_bytes();
        laps * self.lap_bytes + before.end_bytes + part - start
    }
}

/// A position in the content, lap after lap, counted from a player's own first byte and frame.
///
/// It only moves forward: a step costs one addition, where a binary search would read memory that other
/// streams have evicted from the CPU cache.
#[derive(Debug, Clone)]
pub struct Cursor {
    frame: usize,
    /// Added, wrapping, to a frame's values ("minus the start" in the first lap).
    lap_ns: u64,
    lap_bytes: u64,
    /// How many frames lie before this one.
    pub number: u64,
    pub due_ns: u64,
    /// How many bytes must have been received by then.
    pub end_bytes: u64,
    previous_ns: u64,
    previous_bytes: u64,
}

impl Cursor {
    /// At the first frame of a group.
    pub fn new(timeline: &Timeline, gop: usize) -> Self {
        let Gop { start_bytes, first_frame, .. } = timeline.gops[gop];
        let frame = timeline.frames[first_frame];
        let start = start_bytes - timeline.base_bytes();
        Self {
            frame: first_frame,
            lap_ns: 0_u64.wrapping_sub(frame.due_ns),
            lap_bytes: 0_u64.wrapping_sub(start),
            number: 0,
            due_ns: 0,
            end_bytes: frame.end_bytes - start,
            previous_ns: 0,
            previous_bytes: 0,
        }
    }

    #[inline]
    pub fn step(&mut self, timeline: &Timeline) {
        self.frame += 1;
        if self.frame == timeline.frames.len() {
            self.frame = 0;
            self.lap_ns = self.lap_ns.wrapping_add(timeline.lap_ns);
            self.lap_bytes = self.lap_bytes.wrapping_add(timeline.lap_bytes);
        }
        let frame = timeline.frames[self.frame];
        (self.previous_ns, self.previous_bytes) = (self.due_ns, self.end_bytes);
        self.due_ns = self.lap_ns.wrapping_add(frame.due_ns);
        self.end_bytes = self.lap_bytes.wrapping_add(frame.end_bytes);
        self.number += 1;
    }

    /// The bytes needed for content up to `ns`, which lies between the frame before and this one.
    #[inline]
    pub fn bytes_at(&self, ns: u64) -> u64 {
        let span = self.due_ns.saturating_sub(self.previous_ns);
        if span == 0 {
            return self.end_bytes;
        }
        let share = ns.saturating_sub(self.previous_ns) as f64 / span as f64;
        self.previous_bytes + (share.min(1.0) * (self.end_bytes - self.previous_bytes) as f64) as u64
    }

    /// Up to which time `bytes`, which end within this frame, carry content.
    #[inline]
    pub fn time_at(&self, bytes: u64) -> u64 {
        let span = (self.end_bytes - self.previous_bytes).max(1);
        let share = bytes.saturating_sub(self.previous_bytes) as f64 / span as f64;
        self.previous_ns + (share.min(1.0) * (self.due_ns - self.previous_ns) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Six frames of 100, 10, 10, 100, 10, 10 bytes every 40 ms, after 7 bytes of leading junk; groups of
    /// three.
    fn small() -> Timeline {
        let ends = [107, 117, 127, 227, 237, 247];
        let frames = ends.iter().zip(0_u64..).map(|(&end_bytes, i)| Frame { end_bytes, due_ns: i * 40 * MS });
        let gops = [(7, 0), (127, 3)].map(|(start_bytes, first_frame)| Gop {
            start_bytes,
            first_frame,
            crc32c: None,
        });
        Timeline::new(frames.collect(), gops.to_vec(), 250).unwrap()
    }

    #[test]
    fn cursor_wraps_to_the_first_group() {
        let timeline = small();
        let mut cursor = Cursor::new(&timeline, 1);
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push((cursor.due_ns / MS, cursor.end_bytes));
            cursor.step(&timeline);
        }
        // The last frame of the content takes the 3 bytes behind it along.
        let expected = [(0, 100), (40, 110), (80, 123), (120, 223), (160, 233), (200, 243), (240, 343)];
        assert_eq!(seen, expected);
        assert_eq!(timeline.lap_ns(), 240 * MS);
        assert_eq!(timeline.base_bytes(), 7);
    }

    #[test]
    fn binary_search_agrees_with_cursor_steps() {
        let timeline = small();
        for gop in 0..2 {
            let mut cursor = Cursor::new(&timeline, gop);
            for number in 0..40 {
                assert_eq!(timeline.bytes_until(gop, cursor.due_ns), cursor.end_bytes, "{gop} {number}");
                assert_eq!(timeline.frames_until(gop, cursor.due_ns), number + 1);
                assert_eq!(cursor.time_at(cursor.end_bytes), cursor.due_ns);
                cursor.step(&timeline);
                let between = cursor.due_ns - 20 * MS;
                assert_eq!(timeline.bytes_until(gop, between), cursor.bytes_at(between), "{gop} {number}");
                assert_eq!(timeline.frames_until(gop, between), number + 1);
            }
        }
    }

    #[test]
    fn timeline_rejects_unplayable_index() {
        let frame = |end_bytes, due_ns| Frame { end_bytes, due_ns };
        let gop = |start_bytes, first_frame| Gop { start_bytes, first_frame, crc32c: None };
        for (frames, gops, total, error) in [
            (vec![], vec![gop(0, 0)], 10, TimelineError::Empty),
            (vec![frame(5, 0)], vec![], 10, TimelineError::Empty),
            (vec![frame(5, 0)], vec![gop(0, 1)], 10, TimelineError::Gop { gop: 0 }),
            (vec![frame(5, 0), frame(9, 1)], vec![gop(0, 1), gop(5, 0)], 10, TimelineError::Gop { gop: 1 }),
            (vec![frame(5, 0), frame(5, 1)], vec![gop(0, 0)], 10, TimelineError::Disorder { frame: 1 }),
            (vec![frame(5, 9), frame(9, 1)], vec![gop(0, 0)], 10, TimelineError::Disorder { frame: 1 }),
            (vec![frame(5, 0), frame(11, 1)], vec![gop(0, 0)], 10, TimelineError::Disorder { frame: 1 }),
            (vec![frame(5, 0)], vec![gop(0, 0)], 10, TimelineError::Short),
            (vec![frame(5, 0), frame(9, 40 * MS)], vec![gop(0, 0)], 10, TimelineError::Short),
            (vec![frame(5, 0), frame(9, 80 * MS)], vec![gop(0, 0)], u64::MAX, TimelineError::Fast),
        ] {
            assert_eq!(Timeline::new(frames, gops, total), Err(error));
        }
    }
}
