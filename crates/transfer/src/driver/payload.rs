//! The payload of flows: one block of random bytes, repeated. It does not compress, and the kernel can be
//! given its pages any number of times.

use std::io::IoSlice;
use std::sync::OnceLock;

/// The block stays in a core's own cache, so that sending costs what the network costs.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

/// Slices of one call at most; longer messages take several calls.
const SLICES_MAX: usize = 16;

/// Any number would do; the same one makes the same payload everywhere.
const SEED: u64 = 0x6b61_6769_7269;

pub(crate) fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Box<[u8]>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut bytes = vec![0; BLOCK_BYTES].into_boxed_slice();
        fastrand::Rng::with_seed(SEED).fill(&mut bytes);
        bytes
    })
}

pub(crate) fn fill(buffer: &mut [u8]) {
    for part in buffer.chunks_mut(BLOCK_BYTES) {
        part.copy_from_slice(&block()[..part.len()]);
    }
}

/// Up to `bytes` of payload from position `at`, in slices of the block.
pub(crate) fn slices(at: usize, bytes: usize) -> ([IoSlice<'static>; SLICES_MAX], usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_repeat_the_block(at in 0..3 * BLOCK_BYTES, bytes in 0..3 * BLOCK_BYTES) {
            let (slices, used) = slices(at, bytes);
            let sent: Vec<u8> = slices[..used].iter().flat_map(|s| s.iter().copied()).collect();
            prop_assert_eq!(sent.len(), bytes);
            let expected = block().iter().cycle().skip(at % BLOCK_BYTES).take(bytes);
            prop_assert!(sent.iter().eq(expected));
        }
    }
}
