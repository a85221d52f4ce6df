//! Parses packet headers, PES times and picture types.

use crate::mux::pes::read_timestamp;
use crate::mux::ts::PACKET_BYTES;
use crate::spec::Codec;

/// The fields of a packet that a scanner needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) pid: u16,
    pub(super) starts_unit: bool,
    pub(super) random_access: bool,
    pub(super) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet that begins with the sync byte. Payload that cannot be read (scrambled, or marked as
    /// damaged) is empty.
    pub(super) fn read(bytes: &'a [u8; PACKET_BYTES]) -> Self {
        let (damaged, scrambled) = (bytes[1] & 0x80 != 0, bytes[3] & 0xC0 != 0);
        let (has_field, has_payload) = (bytes[3] & 0x20 != 0, bytes[3] & 0x10 != 0);
        let field_bytes = if has_field { 1 + usize::from(bytes[4]) } else { 0 };
        let payload = if has_payload && !damaged && !scrambled {
            bytes.get(4 + field_bytes..).unwrap_or_default()
        } else {
            &[]
        };
        Self {
            pid: u16::from_be_bytes([bytes[1], bytes[2]]) & 0x1FFF,
            starts_unit: bytes[1] & 0x40 != 0 && has_payload,
            random_access: field_bytes > 1 && bytes[5] & 0x40 != 0,
            payload,
        }
    }
}

/// The DTS (the PTS where there is none) of a PES header, and where its data begins in `payload`.
pub(super) fn pes_header(payload: &[u8]) -> (Option<u64>, usize) {
    if payload.len() < 9 || payload[..3] != [0, 0, 1] || payload[6] & 0xC0 != 0x80 {
        return (None, 0);
    }
    let data = 9 + usize::from(payload[8]);
    let at = match payload[7] >> 6 {
        0b10 => 9,
        0b11 => 14,
        _ => return (None, data),
    };
    // A time outside of the header is ignored.
    let time = (at + 5 <= data).then(|| read_timestamp(payload.get(at..)?)).flatten();
    (time, data)
}

/// Whether the picture that `es` begins with is a key frame; `None` when `es` does not reach far enough.
pub(super) fn is_key(codec: Codec, es: &[u8]) -> Option<bool> {
    // Every match begins with the last zero of a start code's three bytes, at `i`.
    for (i, window) in es.windows(4).enumerate() {
        if window[..3] != [0, 0, 1] {
            continue;
        }
        let code = window[3];
        match codec {
            // picture_start_code, then temporal_reference (10 bits) and picture_coding_type (3): 1 is I.
            Codec::Mpeg2 if code == 0 => return es.get(i + 5).map(|b| b >> 3 & 7 == 1),
            Codec::H264 if matches!(code & 31, 1..=5) => return Some(code & 31 == 5),
            // Types 0 to 31 are slices, of which 16 to 23 allow random access.
            Codec::Hevc if code >> 1 & 63 < 32 => return Some(matches!(code >> 1 & 63, 16..=23)),
            _ => {}
        }
    }
    None
}

/// Turns 33-bit times into strictly rising times since the first frame.
#[derive(Debug, Default)]
pub(super) struct Clock {
    last: Option<(u64, u64)>,
    step: u64,
}

/// A jump of more than this is a cut, not a gap: 10 s of 90 kHz.
const JUMP_TICKS: u64 = 900_000;
/// The step before any is known: 25 frames per second.
const STEP_TICKS: u64 = 3600;

impl Clock {
    /// The time of the next frame, 90 kHz. Without a time, and where time stops, goes back or jumps, it is
    /// one last known step after the previous frame.
    pub(super) fn next(&mut self, raw: Option<u64>) -> u64 {
        const MASK: u64 = (1 << 33) - 1;
        let Some((last_raw, last)) = self.last else {
            self.last = Some((raw.unwrap_or(0), 0));
            self.step = STEP_TICKS;
            return 0;
        };
        let raw = raw.unwrap_or((last_raw + self.step) & MASK);
        let step = raw.wrapping_sub(last_raw) & MASK;
        if (1..=JUMP_TICKS).contains(&step) {
            self.step = step;
        }
        self.last = Some((raw, last + self.step));
        last + self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_clock_continues_over_wraps_cuts_and_gaps() {
        let mut clock = Clock::default();
        let wrap = 1_u64 << 33;
        let raw = [
            Some(wrap - 3600),
            Some(0),
            Some(3600),
            None,
            Some(10_800),
            Some(500),
            Some(4100),
            Some(9_000_000),
        ];
        let times = raw.map(|r| clock.next(r) / 3600);
        assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn key_frames_are_detected_from_the_picture() {
        for (codec, es, key) in [
            (Codec::Mpeg2, &[0, 0, 1, 0xB3, 0, 0, 1, 0, 0, 8][..], Some(true)),
            (Codec::Mpeg2, &[0, 0, 1, 0, 0xFF, 0x57], Some(false)),
            (Codec::Mpeg2, &[0, 0, 1, 0, 0], None),
            (Codec::H264, &[0, 0, 0, 1, 9, 0x10, 0, 0, 1, 0x65], Some(true)),
            (Codec::H264, &[0, 0, 1, 0x41], Some(false)),
            (Codec::H264, &[0, 0, 1, 0x67, 1, 2, 3], None),
            (Codec::Hevc, &[0, 0, 1, 0x40, 0, 0, 1, 0x26], Some(true)),
            (Codec::Hevc, &[0, 0, 1, 0x02], Some(false)),
            (Codec::Hevc, &[], None),
        ] {
            assert_eq!(is_key(codec, es), key, "{codec} {es:x?}");
        }
    }

    #[test]
    fn timestamps_are_read_only_from_the_header() {
        let pts = [0x21, 0, 1, 0, 9];
        let header = |flags, bytes| [&[0, 0, 1, 0xE0, 0, 0, 0x80, flags, bytes][..], &pts, &pts].concat();
        assert_eq!(pes_header(&header(0x80, 5)), (Some(4), 14));
        assert_eq!(pes_header(&header(0xC0, 10)), (Some(4), 19));
        assert_eq!(pes_header(&header(0xC0, 5)), (None, 14));
        assert_eq!(pes_header(&header(0x00, 0)), (None, 9));
        assert_eq!(pes_header(&[0, 0, 1]), (None, 0));
    }
}
