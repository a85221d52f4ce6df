//! MPEG-2 pictures (ISO/IEC 13818-2, Main profile): intra blocks with a DC coefficient only, and P pictures
//! that skip what did not change.
//!
//! Every row of macroblocks is a slice of its own. Slices begin with fresh predictions and at a byte, so the
//! rows that never change are coded once and copied.
#![allow(clippy::unusual_byte_groupings, reason = "a group of digits is a field of the standard")]

use super::bits::BitWriter;
use super::canvas::Macroblock;
use super::scene::{Scene, time_parts};
use crate::spec::{ContentSpec, FrameRate};

/// Code and length of `dct_dc_size_luminance` 0 to 8 (table B.12).
const LUMA_SIZE: [(u32, u32); 9] =
    [(0b100, 3), (0, 2), (1, 2), (0b101, 3), (0b110, 3), (0xE, 4), (0x1E, 5), (0x3E, 6), (0x7E, 7)];
/// Code and length of `dct_dc_size_chrominance` 0 to 8 (table B.13).
const CHROMA_SIZE: [(u32, u32); 9] =
    [(0, 2), (1, 2), (2, 2), (0b110, 3), (0xE, 4), (0x1E, 5), (0x3E, 6), (0x7E, 7), (0xFE, 8)];
/// Code and length of `macroblock_address_increment` 1 to 33 (table B.1).
#[rustfmt::skip]
const INCREMENT: [(u32, u32); 33] = [
    (1, 1), (3, 3), (2, 3), (3, 4), (2, 4), (3, 5), (2, 5), (7, 7), (6, 7), (11, 8), (10, 8), (9, 8), (8, 8),
    (7, 8), (6, 8), (23, 10), (22, 10), (21, 10), (20, 10), (19, 10), (18, 10), (35, 11), (34, 11), (33, 11),
    (32, 11), (31, 11), (30, 11), (29, 11), (28, 11), (27, 11), (26, 11), (25, 11), (24, 11),
];
const INCREMENT_ESCAPE: (u32, u32) = (0b000_0000_1000, 11);
/// `end_of_block` of table B.14.
const END_OF_BLOCK: (u32, u32) = (0b10, 2);
/// The DC prediction at the start of a slice and after a macroblock that is not intra, for 8-bit precision.
const DC_RESET: [i32; 3] = [128; 3];

#[derive(Debug)]
pub(super) struct Mpeg2Encoder {
    bits: BitWriter,
    sequence: Vec<u8>,
    frame_rate: FrameRate,
    /// The coded intra slice of each row that never changes.
    still_rows: Vec<Option<Vec<u8>>>,
}

impl Mpeg2Encoder {
    pub(super) fn new(spec: &ContentSpec, scene: &Scene) -> Self {
        let mut bits = BitWriter::default();
        sequence_headers(&mut bits, spec);
        let sequence = bits.bytes().to_vec();
        let still_rows = (0..scene.canvas().mb_rows())
            .map(|row| {
                (!scene.is_live(row)).then(|| {
                    bits.clear();
                    intra_slice(&mut bits, row, scene.canvas().row(row));
                    bits.bytes().to_vec()
                })
            })
            .collect();
        Self { bits, sequence, frame_rate: spec.frame_rate, still_rows }
    }

    /// Encodes the current scene as frame `frame`, the `in_gop`-th of its group (0: the key frame).
    pub(super) fn encode(&mut self, scene: &Scene, frame: u64, in_gop: u32, out: &mut Vec<u8>) {
        let key = in_gop == 0;
        self.bits.clear();
        if key {
            out.extend_from_slice(&self.sequence);
            group_header(&mut self.bits, frame, self.frame_rate);
        }
        picture_headers(&mut self.bits, in_gop, key);
        for row in 0..scene.canvas().mb_rows() {
            let now = scene.canvas().row(row);
            match &self.still_rows[row] {
                Some(coded) if key => {
                    out.extend_from_slice(self.bits.bytes());
                    self.bits.clear();
                    out.extend_from_slice(coded);
                }
                _ if key => intra_slice(&mut self.bits, row, now),
                _ => inter_slice(&mut self.bits, row, now, scene.before().row(row)),
            }
        }
        out.extend_from_slice(self.bits.bytes());
    }
}

/// `sequence_header`, `sequence_extension` and `sequence_display_extension` (6.2.2.1, 6.2.2.3, 6.2.2.4).
fn sequence_headers(w: &mut BitWriter, spec: &ContentSpec) {
    let code = FrameRate::NAMED.iter().position(|r| *r == spec.frame_rate).map_or(3, |i| i as u32 + 1);
    let wide = spec.width * 9 == spec.height * 16 || (spec.width, spec.height) == (1440, 1080);
    // The upper bound of the rate, in units of 400 bit/s; pictures of a variable rate are marked as such.
    let rate = spec.rate_bit_per_s.div_ceil(400).min((1 << 30) - 1) as u32;
    // VBV of the level, in units of 16,384 bits (table 8-14), and the level itself (table 8-3).
    let (level, vbv) = match (spec.width, spec.height) {
        (0..=720, 0..=576) => (0x48, 112),
        (0..=1440, _) => (0x46, 448),
        _ => (0x44, 597),
    };
    w.start_code(0xB3);
    w.put(spec.width, 12);
    w.put(spec.height, 12);
    w.put(if wide { 3 } else { 1 }, 4);
    w.put(code, 4);
    w.put(rate & 0x3FFFF, 18);
    w.put(1, 1);
    w.put(vbv, 10);
    w.put(0, 3);

    w.start_code(0xB5);
    w.put(1, 4);
    w.put(level, 8);
    // Progressive, 4:2:0, no high bits of the size.
    w.put(0b1_01_00_00, 7);
    w.put(rate >> 18, 12);
    w.put(1, 1);
    // No high bits of the VBV, not low delay, no fraction of the frame rate.
    w.put(0, 16);

    w.start_code(0xB5);
    w.put(2, 4);
    // Unspecified format, with a description: primaries, transfer and matrix of BT.709.
    w.put(0b101_1, 4);
    w.put(0x01_01_01, 24);
    w.put(spec.width, 14);
    w.put(1, 1);
    w.put(spec.height, 14);
    w.align();
}

/// `group_of_pictures_header` (6.2.2.6): closed, with the time of its first picture.
fn group_header(w: &mut BitWriter, frame: u64, rate: FrameRate) {
    let (h, m, s, f) = time_parts(frame, rate);
    w.start_code(0xB8);
    w.put(0, 1);
    w.put((h % 24) as u32, 5);
    w.put(m as u32, 6);
    w.put(1, 1);
    w.put(s as u32, 6);
    w.put(f as u32 & 63, 6);
    w.put(0b10, 2);
    w.align();
}

/// `picture_header` and `picture_coding_extension` (6.2.3, 6.2.3.1).
fn picture_headers(w: &mut BitWriter, temporal_reference: u32, key: bool) {
    w.start_code(0x00);
    w.put(temporal_reference & 0x3FF, 10);
    w.put(if key { 1 } else { 2 }, 3);
    // vbv_delay 0xFFFF: the decoder's buffer is filled by arrival, not by a constant rate.
    w.put(0xFFFF, 16);
    if !key {
        w.put(0b0_111, 4);
    }
    w.put(0, 1);
    w.align();

    w.start_code(0xB5);
    w.put(8, 4);
    w.put(if key { 0xFFFF } else { 0x11FF }, 16);
    // 8-bit DC, frame picture.
    w.put(0b00_11, 4);
    // Frame prediction and DCT only; progressive, 4:2:0.
    w.put(0b01_0000_0_110, 10);
    w.align();
}

fn slice_header(w: &mut BitWriter, row: usize) {
    // Rows 0 to 67 are slice codes 1 to 68: within 0x01 to 0xAF.
    w.start_code(row as u8 + 1);
    w.put(4, 5);
    w.put(0, 1);
}

fn intra_slice(w: &mut BitWriter, row: usize, macroblocks: &[Macroblock]) {
    slice_header(w, row);
    let mut dc = DC_RESET;
    for mb in macroblocks {
        w.code(INCREMENT[0]);
        w.put(1, 1);
        intra_blocks(w, mb, &mut dc);
    }
    w.align();
}

/// A slice of a P picture: what changed is intra, the rest is skipped; the first and the last macroblock may
/// not be skipped (6.3.16) and are copied with a motion of zero instead.
fn inter_slice(w: &mut BitWriter, row: usize, now: &[Macroblock], before: &[Macroblock]) {
    slice_header(w, row);
    let mut dc = DC_RESET;
    let mut increment = 1;
    for (column, (mb, old)) in now.iter().zip(before).enumerate() {
        let changed = mb != old;
        if !changed && column != 0 && column + 1 != now.len() {
            increment += 1;
            continue;
        }
        if increment > 1 {
            dc = DC_RESET;
        }
        while increment > INCREMENT.len() {
            w.code(INCREMENT_ESCAPE);
            increment -= INCREMENT.len();
        }
        w.code(INCREMENT[increment - 1]);
        increment = 1;
        if changed {
            w.put(0b00011, 5);
            intra_blocks(w, mb, &mut dc);
        } else {
            // Motion compensated, not coded; both motion codes zero.
            w.put(0b001_1_1, 5);
            dc = DC_RESET;
        }
    }
    w.align();
}

fn intra_blocks(w: &mut BitWriter, mb: &Macroblock, dc: &mut [i32; 3]) {
    for luma in mb.luma {
        dc_block(w, &LUMA_SIZE, luma.into(), &mut dc[0]);
    }
    dc_block(w, &CHROMA_SIZE, mb.cb.into(), &mut dc[1]);
    dc_block(w, &CHROMA_SIZE, mb.cr.into(), &mut dc[2]);
}

/// A block that is one DC coefficient: with 8-bit precision this is the colour itself.
fn dc_block(w: &mut BitWriter, sizes: &[(u32, u32); 9], value: i32, predicted: &mut i32) {
    let difference = value - *predicted;
    *predicted = value;
    let size = 32 - difference.unsigned_abs().leading_zeros();
    w.code(sizes[size as usize]);
    if size > 0 {
        let coded = if difference > 0 { difference } else { difference + (1 << size) - 1 };
        w.put(coded as u32, size);
    }
    w.code(END_OF_BLOCK);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increment_codes_are_prefix_free() {
        let all: Vec<_> = INCREMENT.iter().chain([&INCREMENT_ESCAPE]).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let (short, long) = if a.1 <= b.1 { (a, b) } else { (b, a) };
                assert_ne!(long.0 >> (long.1 - short.1), short.0, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn still_rows_cost_a_few_bytes() {
        let spec = ContentSpec::default();
        let scene = Scene::new(&spec);
        let mut encoder = Mpeg2Encoder::new(&spec, &scene);
        let mut key = Vec::new();
        encoder.encode(&scene, 0, 0, &mut key);
        assert!(key.starts_with(&[0, 0, 1, 0xB3]) && key.len() < 60_000, "{}", key.len());
        let mut still = BitWriter::default();
        inter_slice(&mut still, 3, scene.canvas().row(3), scene.canvas().row(3));
        assert!(still.bytes().len() < 14, "{:x?}", still.bytes());
    }
}
