//! What messages and replies are filled with: one block of random bytes, which does not compress.

use std::sync::OnceLock;

use bytes::Bytes;

/// Bytes of the block: it stays in a core's own cache.
pub(crate) const BLOCK_BYTES: usize = 128 << 10;

/// The same number makes the same payload everywhere.
const SEED: u64 = 0x6b61_6769_7269;

pub(crate) fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Box<[u8]>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut bytes = vec![0; BLOCK_BYTES].into_boxed_slice();
        fastrand::Rng::with_seed(SEED).fill(&mut bytes);
        bytes
    })
}

/// At most `left` bytes of the endless repetition of the block, from position `at`.
pub(crate) fn slice(at: u64, left: u64) -> &'static [u8] {
    let from = (at % BLOCK_BYTES as u64) as usize;
    let to = BLOCK_BYTES.min(from.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
    &block()[from..to]
}

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    File(Bytes),
    /// So much of the payload block.
    Payload(u64),
}

impl Body {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::File(bytes) => bytes.len() as u64,
            Self::Payload(bytes) => *bytes,
        }
    }

    /// At most `most` bytes from `at` on, without a copy.
    pub(crate) fn piece(&self, at: u64, most: usize) -> Bytes {
        match self {
            Self::File(bytes) => bytes.slice(at as usize..bytes.len().min(at as usize + most)),
            Self::Payload(bytes) => Bytes::from_static(slice(at, (bytes - at).min(most as u64))),
        }
    }
}
