//! Writing single bits, most significant first, as MPEG-2 and H.264 want them.

/// Collects bits into bytes, most significant bit first.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// The bits that do not fill a byte yet, right-aligned.
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    /// Appends the low `count` bits of `value`; `count` may be 0 to 32.
    pub(super) fn put(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32 && (count == 32 || u64::from(value) < 1 << count));
        self.held = (self.held << count) | u64::from(value);
        self.held_bits += count;
        while self.held_bits >= 8 {
            self.held_bits -= 8;
            self.bytes.push((self.held >> self.held_bits) as u8);
        }
    }

    /// Appends a code from a table: its value and its length in bits.
    pub(super) fn code(&mut self, (value, count): (u32, u32)) {
        self.put(value, count);
    }

    /// Appends `value` as an unsigned Exp-Golomb code (H.264, 9.1).
    pub(super) fn ue(&mut self, value: u32) {
        let coded = value + 1;
        let bits = 32 - coded.leading_zeros();
        self.put(0, bits - 1);
        self.put(coded, bits);
    }

    /// Appends `value` as a signed Exp-Golomb code (H.264, 9.1.1).
    pub(super) fn se(&mut self, value: i32) {
        let magnitude = value.unsigned_abs();
        self.ue(if value > 0 { 2 * magnitude - 1 } else { 2 * magnitude });
    }

    /// Fills the last byte with zero bits (MPEG-2, before a start code).
    pub(super) fn align(&mut self) {
        if self.held_bits > 0 {
            self.put(0, 8 - self.held_bits);
        }
    }

    /// Ends an H.264 payload: a one bit, then zero bits to the byte (7.3.2.11).
    pub(super) fn trailing(&mut self) {
        self.put(1, 1);
        self.align();
    }

    /// Appends an MPEG-2 start code; the writer must be at a byte boundary.
    pub(super) fn start_code(&mut self, code: u8) {
        debug_assert_eq!(self.held_bits, 0);
        self.bytes.extend_from_slice(&[0, 0, 1, code]);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Starts again, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.held = 0;
        self.held_bits = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_written_most_significant_first() {
        let mut w = BitWriter::default();
        w.put(0b101, 3);
        w.put(0, 0);
        w.put(0b1_1111, 5);
        w.put(0xDEAD_BEEF, 32);
        assert_eq!(w.bytes(), [0b1011_1111, 0xDE, 0xAD, 0xBE, 0xEF]);
    }

    #[test]
    fn exp_golomb_codes_match_the_standard() {
        // H.264 table 9-2 and 9-3.
        for (value, text) in [(0, "1"), (1, "010"), (2, "011"), (3, "00100"), (7, "0001000")] {
            assert_eq!(bits_of(|w| w.ue(value)), text);
        }
        for (value, text) in [(0, "1"), (1, "010"), (-1, "011"), (2, "00100"), (-2, "00101")] {
            assert_eq!(bits_of(|w| w.se(value)), text);
        }
    }

    fn bits_of(write: impl Fn(&mut BitWriter)) -> String {
        let mut w = BitWriter::default();
        write(&mut w);
        let length = w.bytes.len() * 8 + w.held_bits as usize;
        w.align();
        let all: String = w.bytes().iter().map(|b| format!("{b:08b}")).collect();
        all[..length].to_owned()
    }

    #[test]
    fn trailing_bits_align_to_a_byte() {
        let mut w = BitWriter::default();
        w.trailing();
        w.put(1, 7);
        w.trailing();
        assert_eq!(w.bytes(), [0x80, 0x03]);
    }
}
