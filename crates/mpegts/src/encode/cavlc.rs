//! The part of H.264's CAVLC (9.2) that DC-only macroblocks need.
//!
//! A macroblock without AC coefficients counts as zero for its neighbours, so the context of every luma DC
//! block is `0 <= nC < 2`.

use super::bits::BitWriter;

/// `coeff_token` for `0 <= nC < 2` by total coefficients (0 to 4) and trailing ones (0 to 3), table 9-5.
const COEFF_TOKEN: [[(u32, u32); 4]; 5] = [
    [(1, 1), (0, 0), (0, 0), (0, 0)],
    [(0b101, 6), (0b1, 2), (0, 0), (0, 0)],
    [(0b111, 8), (0b100, 6), (0b1, 3), (0, 0)],
    [(0b111, 9), (0b110, 8), (0b101, 7), (0b11, 5)],
    [(0b111, 10), (0b110, 9), (0b101, 8), (0b11, 6)],
];
/// `total_zeros` by total coefficients (1 to 4), table 9-7.
const TOTAL_ZEROS: [[(u32, u32); 5]; 4] = [
    [(1, 1), (0b11, 3), (0b10, 3), (0b11, 4), (0b10, 4)],
    [(0b111, 3), (0b110, 3), (0b101, 3), (0b100, 3), (0b011, 3)],
    [(0b0101, 4), (0b111, 3), (0b110, 3), (0b101, 3), (0b0100, 4)],
    [(0b00011, 5), (0b111, 3), (0b0101, 4), (0b0100, 4), (0b110, 3)],
];
/// `run_before` by zeros left (1 to 4), table 9-10.
const RUN_BEFORE: [[(u32, u32); 5]; 4] = [
    [(1, 1), (0, 1), (0, 0), (0, 0), (0, 0)],
    [(1, 1), (1, 2), (0, 2), (0, 0), (0, 0)],
    [(3, 2), (2, 2), (1, 2), (0, 2), (0, 0)],
    [(3, 2), (2, 2), (1, 2), (1, 3), (0, 3)],
];

/// A luma DC block whose only non-zero coefficients are among the first five of the zigzag, at most four of
/// them.
pub(super) fn luma_dc(w: &mut BitWriter, levels: &[i32; 5]) {
    let mut nonzero = [(0_usize, 0_i32); 5];
    let mut total = 0;
    // The highest frequency first, as they are sent.
    for (place, &level) in levels.iter().enumerate().rev().filter(|(_, l)| **l != 0) {
        nonzero[total] = (place, level);
        total += 1;
    }
    let nonzero = &nonzero[..total];
    let ones = nonzero.iter().take(3).take_while(|(_, level)| level.abs() == 1).count();
    w.code(COEFF_TOKEN[total][ones]);
    if total == 0 {
        return;
    }
    send_levels(w, nonzero.iter().map(|(_, level)| *level), ones);

    let mut zeros_left = nonzero[0].0 + 1 - total;
    w.code(TOTAL_ZEROS[total - 1][zeros_left]);
    for pair in nonzero.windows(2) {
        if zeros_left == 0 {
            break;
        }
        let run = pair[0].0 - pair[1].0 - 1;
        w.code(RUN_BEFORE[zeros_left - 1][run]);
        zeros_left -= run;
    }
}

/// A chroma DC block of which only the first coefficient may be other than zero (nC = -1, tables 9-5 and
/// 9-9).
pub(super) fn chroma_dc(w: &mut BitWriter, level: i32) {
    match level {
        0 => w.put(0b01, 2),
        1 | -1 => w.code((1, 1)),
        _ => w.put(0b000111, 6),
    }
    if level != 0 {
        send_levels(w, std::iter::once(level), usize::from(level.abs() == 1));
        // total_zeros = 0
        w.put(1, 1);
    }
}

/// Signs of the trailing ones, then prefix and suffix of the other levels (9.2.2).
fn send_levels(w: &mut BitWriter, levels: impl Iterator<Item = i32>, ones: usize) {
    let mut suffix_bits = 0;
    for (i, level) in levels.enumerate() {
        if i < ones {
            w.put(u32::from(level < 0), 1);
            continue;
        }
        let mut code = 2 * level.unsigned_abs() - if level > 0 { 2 } else { 1 };
        if i == ones && ones < 3 {
            // It cannot be a one here, or it would have been a trailing one.
            code -= 2;
        }
        send_level(w, code, suffix_bits);
        suffix_bits = suffix_bits.max(1);
        if level.unsigned_abs() > 3 << (suffix_bits - 1) && suffix_bits < 6 {
            suffix_bits += 1;
        }
    }
}

fn send_level(w: &mut BitWriter, code: u32, suffix_bits: u32) {
    // `prefix` zeros and a one.
    let prefix = |w: &mut BitWriter, zeros| w.put(1, zeros + 1);
    let escape_from = if suffix_bits == 0 { 30 } else { 15 << suffix_bits };
    if code >= escape_from {
        // A difference of colours is below 256: the 12 bits of the escape always hold it.
        prefix(w, 15);
        w.put(code - escape_from, 12);
    } else if suffix_bits > 0 {
        prefix(w, code >> suffix_bits);
        w.put(code & ((1 << suffix_bits) - 1), suffix_bits);
    } else if code < 14 {
        prefix(w, code);
    } else {
        prefix(w, 14);
        w.put(code - 14, 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(write: impl Fn(&mut BitWriter)) -> String {
        let mut w = BitWriter::default();
        write(&mut w);
        // A mark, so that the end is known after the alignment.
        w.trailing();
        let all: String = w.bytes().iter().map(|b| format!("{b:08b}")).collect();
        all.trim_end_matches('0').strip_suffix('1').expect("the mark").to_owned()
    }

    #[test]
    fn cavlc_blocks_match_worked_examples() {
        // Worked by hand from tables 9-5, 9-7 and 9-10.
        for (levels, text) in [
            ([0, 0, 0, 0, 0], "1"),
            // One trailing one, positive, no zeros.
            ([1, 0, 0, 0, 0], "01 0 1"),
            ([0, 0, 0, 0, -1], "01 1 0010"),
            // Level 2: code 0 after the correction, prefix 0.
            ([2, 0, 0, 0, 0], "000101 1 1"),
            // Three trailing ones, level 5 with a suffix of no bits: code 8.
            ([5, 1, -1, 0, 1], "000011 010 000000001 111 0"),
        ] {
            assert_eq!(bits(|w| luma_dc(w, &levels)), text.replace(' ', ""), "{levels:?}");
        }
        for (level, text) in [(0, "01"), (1, "1 0 1"), (-1, "1 1 1"), (3, "000111 001 1")] {
            assert_eq!(bits(|w| chroma_dc(w, level)), text.replace(' ', ""), "{level}");
        }
    }
}
