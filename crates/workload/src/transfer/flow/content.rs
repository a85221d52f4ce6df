//! What flows carry: one block of random bytes, over and over. It does not compress, and its pages can be handed to the
//! kernel again and again.

use std::io::IoSlice;
use std::sync::OnceLock;

use super::order::Stamp;

/// Length of the block. It stays in a core's own cache, so that sending costs what the network costs.
pub(in crate::transfer) const BLOCK_BYTES: usize = 128 << 10;

/// The most slices that one call is given; longer messages take several calls.
pub(super) const SLICES_MAX: usize = 16;

/// Any number would do; the same one makes the same content everywhere.
const SEED: u64 = 0x6b61_6769_7269;

/// The block.
pub(in crate::transfer) fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Box<[u8]>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut bytes = vec![0; BLOCK_BYTES].into_boxed_slice();
        fastrand::Rng::with_seed(SEED).fill(&mut bytes);
        bytes
    })
}

/// Fills `buffer` with the block, over and over.
pub(in crate::transfer) fn fill(buffer: &mut [u8]) {
    for part in buffer.chunks_mut(BLOCK_BYTES) {
        part.copy_from_slice(&block()[..part.len()]);
    }
}

/// Up to `bytes` of content from position `at`, in slices of the block.
pub(super) fn slices(at: usize, bytes: usize) -> ([IoSlice<'static>; SLICES_MAX], usize) {
    let block = block();
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let (mut from, mut left, mut used) = (at % BLOCK_BYTES, bytes, 0);
    while left > 0 && used < SLICES_MAX {
        let part = left.min(BLOCK_BYTES - from);
        slices[used] = IoSlice::new(&block[from..from + part]);
        (from, left, used) = (0, left - part, used + 1);
    }
    (slices, used)
}

/// What a datagram's header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The sender's clock when it left, us.
    pub(super) sent_us: u64,
    /// Its number, from 1.
    pub(super) count: u64,
}

impl Stamp {
    /// The header's length, bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Counted32 => 12,
            Self::Counted64 => 16,
        }
    }

    /// Writes the header at the start of a datagram that has room for it. Of a 32-bit count the low bits are kept.
    pub(super) fn write(self, datagram: &mut [u8], header: Header) {
        if self == Self::None {
            return;
        }
        // Seconds wrap in 136 years of up-time.
        let seconds = (header.sent_us / 1_000_000) as u32;
        let micros = (header.sent_us % 1_000_000) as u32;
        datagram[..4].copy_from_slice(&seconds.to_be_bytes());
        datagram[4..8].copy_from_slice(&micros.to_be_bytes());
        match self {
            Self::Counted32 => datagram[8..12].copy_from_slice(&(header.count as u32).to_be_bytes()),
            _ => datagram[8..16].copy_from_slice(&header.count.to_be_bytes()),
        }
    }

    /// Reads the header of a datagram; `None` if it has none or is too short. `near`: a count that the datagram's is
    /// near to, which tells how often 32 bits have wrapped.
    pub(super) fn read(self, datagram: &[u8], near: u64) -> Option<Header> {
        let word = |at: usize| Some(u32::from_be_bytes(datagram.get(at..at + 4)?.try_into().ok()?));
        let count = match self {
            Self::None => return None,
            Self::Counted32 => unwrap_count(word(8)?, near),
            Self::Counted64 => u64::from_be_bytes(datagram.get(8..16)?.try_into().ok()?),
        };
        let sent_us = u64::from(word(0)?) * 1_000_000 + u64::from(word(4)?);
        Some(Header { sent_us, count })
    }
}

/// The count whose low 32 bits are `low` and that is nearest to `near`.
fn unwrap_count(low: u32, near: u64) -> u64 {
    let ahead = low.wrapping_sub(near as u32).cast_signed();
    near.checked_add_signed(i64::from(ahead)).unwrap_or_else(|| u64::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_that_of_iperf3() {
        let header = Header { sent_us: 0x0102_0304 * 1_000_000 + 0x0005_0607, count: 0x1122_3344_5566_7788 };
        let mut long = [0xff; 17];
        Stamp::Counted64.write(&mut long, header);
        assert_eq!(long, *b"\x01\x02\x03\x04\x00\x05\x06\x07\x11\x22\x33\x44\x55\x66\x77\x88\xff");
        let mut short = [0xff; 13];
        Stamp::Counted32.write(&mut short, header);
        assert_eq!(short, *b"\x01\x02\x03\x04\x00\x05\x06\x07\x55\x66\x77\x88\xff");
        let mut none = [0xff; 2];
        Stamp::None.write(&mut none, header);
        assert_eq!(none, [0xff; 2]);
    }

    proptest! {
        #[test]
        fn headers_go_there_and_back(sent_us in 0..u64::from(u32::MAX) * 1_000_000, count: u64, off in -1000_i64..1000) {
            let mut datagram = [0; 16];
            for stamp in [Stamp::Counted32, Stamp::Counted64] {
                stamp.write(&mut datagram, Header { sent_us, count });
                let near = count.saturating_add_signed(off);
                prop_assert_eq!(stamp.read(&datagram, near), Some(Header { sent_us, count }));
                prop_assert_eq!(stamp.read(&datagram[..stamp.bytes() - 1], near), None);
            }
        }

        #[test]
        fn slices_are_the_block_over_and_over(at in 0..3 * BLOCK_BYTES, bytes in 0..3 * BLOCK_BYTES) {
            let (slices, used) = slices(at, bytes);
            let sent: Vec<u8> = slices[..used].iter().flat_map(|s| s.iter().copied()).collect();
            prop_assert_eq!(sent.len(), bytes);
            let expected = block().iter().cycle().skip(at % BLOCK_BYTES).take(bytes);
            prop_assert!(sent.iter().eq(expected));
        }
    }
}
