//! H.264 pictures (ITU-T H.264, Constrained Baseline): Intra_16x16 macroblocks whose DC coefficients carry
//! the mosaic, and P pictures that skip what did not change.
//!
//! Every row of macroblocks is a slice of its own, so nothing above can be predicted from: a macroblock is
//! predicted from its left neighbour, or from 128 if it has none. Inter neighbours do not count
//! (`constrained_intra_pred_flag`), and no deblocking follows, so the encoder knows the decoder's picture
//! exactly without keeping one.
//!
//! At a quantiser of 28 the scaling of 8.5.10 makes a luma DC of `c` exactly `c` in the picture, and 8.5.11 a
//! chroma DC of `c` exactly `2c`. Four flat 8x8 blocks need four luma coefficients, each a quarter of a sum
//! of differences: whole numbers when luma values are multiples of 4. Nothing is lost.
#![allow(clippy::unusual_byte_groupings, reason = "a group of digits is a field of the standard")]

use super::bits::BitWriter;
use super::canvas::Macroblock;
use super::cavlc;
use super::scene::Scene;
use crate::spec::ContentSpec;

const NAL_SLICE: u8 = 0x61;
const NAL_IDR: u8 = 0x65;
const NAL_SPS: u8 = 0x67;
const NAL_PPS: u8 = 0x68;
const NAL_DELIMITER: u8 = 0x09;
/// Bits of `frame_num`: more than a group of pictures needs.
const FRAME_NUM_BITS: u32 = 8;

#[derive(Debug)]
pub(super) struct H264Encoder {
    bits: BitWriter,
    parameter_sets: Vec<u8>,
    /// The coded slice of each row that never changes, for key frames with an even and an odd `idr_pic_id`.
    still_rows: [Vec<Option<Vec<u8>>>; 2],
    keys: u32,
}

impl H264Encoder {
    pub(super) fn new(spec: &ContentSpec, scene: &Scene) -> Self {
        let mut bits = BitWriter::default();
        let mut parameter_sets = Vec::new();
        sequence_parameters(&mut bits, spec);
        nal(NAL_SPS, &mut bits, &mut parameter_sets);
        picture_parameters(&mut bits);
        nal(NAL_PPS, &mut bits, &mut parameter_sets);
        let mut rows = |idr_pic_id| {
            (0..scene.canvas().mb_rows())
                .map(|row| {
                    (!scene.is_live(row)).then(|| {
                        let mut coded = Vec::new();
                        intra_slice(&mut bits, row, scene.canvas().row(row), idr_pic_id, &mut coded);
                        coded
                    })
                })
                .collect()
        };
        let still_rows = [rows(0), rows(1)];
        Self { bits, parameter_sets, still_rows, keys: 0 }
    }

    /// Encodes the current scene as the `in_gop`-th frame of its group (0: the key frame).
    pub(super) fn encode(&mut self, scene: &Scene, in_gop: u32, out: &mut Vec<u8>) {
        let key = in_gop == 0;
        // primary_pic_type: I only, or I and P.
        self.bits.put(if key { 0 } else { 1 }, 3);
        self.bits.trailing();
        nal(NAL_DELIMITER, &mut self.bits, out);
        if key {
            out.extend_from_slice(&self.parameter_sets);
            self.keys = self.keys.wrapping_add(1);
        }
        let parity = self.keys % 2;
        for row in 0..scene.canvas().mb_rows() {
            let now = scene.canvas().row(row);
            match &self.still_rows[parity as usize][row] {
                Some(coded) if key => out.extend_from_slice(coded),
                _ if key => intra_slice(&mut self.bits, row, now, parity, out),
                _ => inter_slice(&mut self.bits, row, now, scene.before().row(row), in_gop, out),
            }
        }
    }
}

/// Ends the payload in `bits` as a NAL unit of the byte stream (annex B), with emulation prevention (7.4.1),
/// and clears it.
fn nal(header: u8, bits: &mut BitWriter, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0, 0, 1, header]);
    let mut zeros = 0;
    for &byte in bits.bytes() {
        if zeros == 2 && byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        out.push(byte);
        zeros = if byte == 0 { zeros + 1 } else { 0 };
    }
    bits.clear();
}

/// The least level (times ten) whose rate (Baseline) and picture rate fit, table A-1.
fn level(spec: &ContentSpec) -> u32 {
    let macroblocks = f64::from(spec.width.div_ceil(16) * spec.height.div_ceil(16));
    let per_s = macroblocks * spec.frame_rate.per_s();
    [
        (30, 1620.0, 40_500.0, 10),
        (40, 8192.0, 245_760.0, 20),
        (41, 8192.0, 245_760.0, 50),
        (42, 8704.0, 522_240.0, 50),
        (51, 36_864.0, 983_040.0, 240),
    ]
    .into_iter()
    .find(|&(_, frame, rate, mbit_per_s)| {
        macroblocks <= frame && per_s <= rate && spec.rate_bit_per_s <= mbit_per_s * 1_000_000
    })
    .map_or(52, |(level, ..)| level)
}

/// `seq_parameter_set_rbsp` (7.3.2.1) with the video usability information of annex E.
fn sequence_parameters(w: &mut BitWriter, spec: &ContentSpec) {
    let (mb_columns, mb_rows) = (spec.width.div_ceil(16), spec.height.div_ceil(16));
    w.put(66, 8);
    // constraint_set0 and 1: Constrained Baseline.
    w.put(0b1100_0000, 8);
    w.put(level(spec), 8);
    w.ue(0);
    w.ue(FRAME_NUM_BITS - 4);
    // Pictures are shown in the order they come; one reference frame; no gaps.
    w.ue(2);
    w.ue(1);
    w.put(0, 1);
    w.ue(mb_columns - 1);
    w.ue(mb_rows - 1);
    // Frames only, direct_8x8_inference, cropped to the true size (in units of two pixels).
    w.put(0b111, 3);
    w.ue(0);
    w.ue((mb_columns * 16 - spec.width) / 2);
    w.ue(0);
    w.ue((mb_rows * 16 - spec.height) / 2);

    w.put(1, 1);
    // Sample aspect ratio 4:3 for 1440x1080, else square.
    let aspect = if (spec.width, spec.height) == (1440, 1080) { 14 } else { 1 };
    w.put(1, 1);
    w.put(aspect, 8);
    w.put(0, 1);
    // Unspecified format, limited range, primaries, transfer and matrix of BT.709.
    w.put(0b1_101_0_1, 6);
    w.put(0x01_01_01, 24);
    w.put(0, 1);
    // Fixed frame rate; a tick is half a frame.
    w.put(1, 1);
    w.put(spec.frame_rate.den, 32);
    w.put(spec.frame_rate.num * 2, 32);
    w.put(1, 1);
    // No buffer models, no picture structure; restrictions: nothing is reordered, one frame is kept.
    w.put(0b000_1, 4);
    w.put(1, 1);
    for value in [0, 0, 9, 9, 0, 1] {
        w.ue(value);
    }
    w.trailing();
}

/// `pic_parameter_set_rbsp` (7.3.2.2).
fn picture_parameters(w: &mut BitWriter) {
    w.ue(0);
    w.ue(0);
    // CAVLC, no field order, one slice group, one reference, no weights.
    w.put(0, 2);
    w.ue(0);
    w.ue(0);
    w.ue(0);
    w.put(0, 3);
    // pic_init_qp 28 (see the module), chroma the same.
    w.se(2);
    w.se(0);
    w.se(0);
    // Deblocking under control, constrained intra prediction, no redundant pictures.
    w.put(0b110, 3);
    w.trailing();
}

fn intra_slice(w: &mut BitWriter, row: usize, mbs: &[Macroblock], idr_pic_id: u32, out: &mut Vec<u8>) {
    w.ue((row * mbs.len()) as u32);
    w.ue(7);
    w.ue(0);
    w.put(0, FRAME_NUM_BITS);
    w.ue(idr_pic_id);
    // Marking: keep prior pictures, not a long-term reference.
    w.put(0, 2);
    slice_tail(w);
    let mut left = None;
    for mb in mbs {
        intra_macroblock(w, 0, mb, left);
        left = Some(mb);
    }
    w.trailing();
    nal(NAL_IDR, w, out);
}

fn inter_slice(
    w: &mut BitWriter,
    row: usize,
    now: &[Macroblock],
    before: &[Macroblock],
    frame_num: u32,
    out: &mut Vec<u8>,
) {
    w.ue((row * now.len()) as u32);
    w.ue(5);
    w.ue(0);
    w.put(frame_num & ((1 << FRAME_NUM_BITS) - 1), FRAME_NUM_BITS);
    // No other number of references, no reordering, sliding window.
    w.put(0, 3);
    slice_tail(w);
    let mut left = None;
    let mut skipped = 0;
    for (mb, old) in now.iter().zip(before) {
        if mb == old {
            skipped += 1;
            left = None;
        } else {
            w.ue(skipped);
            skipped = 0;
            // Intra types follow the five inter types.
            intra_macroblock(w, 5, mb, left);
            left = Some(mb);
        }
    }
    if skipped > 0 {
        w.ue(skipped);
    }
    w.trailing();
    nal(NAL_SLICE, w, out);
}

/// The end of a slice header: `slice_qp_delta` 0, no deblocking.
fn slice_tail(w: &mut BitWriter) {
    w.se(0);
    w.ue(1);
}

/// An Intra_16x16 macroblock predicted by DC from `left` (7.3.5, 8.3.3.3, 8.3.4).
fn intra_macroblock(w: &mut BitWriter, first_type: u32, mb: &Macroblock, left: Option<&Macroblock>) {
    let (luma, cb, cr) = left.map_or((128, 128, 128), |l| {
        ((i32::from(l.luma[1]) + i32::from(l.luma[3]) + 1) >> 1, i32::from(l.cb), i32::from(l.cr))
    });
    let [a, b, c, d] = mb.luma.map(|v| i32::from(v) - luma);
    // The places of frequencies (0,0), (1,0), (0,1) and (1,1) in the zigzag are 0, 1, 2 and 4.
    let levels = [(a + b + c + d) / 4, (a - b + c - d) / 4, (a + b - c - d) / 4, 0, (a - b - c + d) / 4];
    let chroma = [(i32::from(mb.cb) - cb) / 2, (i32::from(mb.cr) - cr) / 2];
    let with_chroma = chroma != [0, 0];
    // I_16x16_<pred 2>_<chroma>_<0>: no AC coefficients.
    w.ue(first_type + 1 + 2 + if with_chroma { 4 } else { 0 });
    w.ue(0);
    w.se(0);
    cavlc::luma_dc(w, &levels);
    if with_chroma {
        cavlc::chroma_dc(w, chroma[0]);
        cavlc::chroma_dc(w, chroma[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_codes_are_escaped_inside_a_nal_unit() {
        let mut w = BitWriter::default();
        for byte in [0, 0, 0, 0, 0, 1, 7, 0, 0, 3, 0, 0, 4] {
            w.put(byte, 8);
        }
        let mut out = Vec::new();
        nal(NAL_SPS, &mut w, &mut out);
        assert_eq!(out[5..], [0, 0, 3, 0, 0, 3, 0, 1, 7, 0, 0, 3, 3, 0, 0, 4]);
    }

    #[test]
    fn levels_follow_size_and_rate() {
        let hd = ContentSpec::default();
        assert_eq!(level(&hd), 41);
        assert_eq!(level(&ContentSpec { rate_bit_per_s: 8_000_000, ..hd.clone() }), 40);
        assert_eq!(level(&ContentSpec { rate_bit_per_s: 100_000_000, ..hd.clone() }), 51);
        assert_eq!(level(&ContentSpec { width: 320, height: 180, rate_bit_per_s: 1_000_000, ..hd }), 30);
    }
}
