//! The bytes that are written.

use std::sync::Arc;

/// Buffers of direct I/O begin at a multiple of this.
pub(crate) const ALIGNMENT: usize = 4096;

/// What is written: aligned for direct I/O.
#[derive(Debug, Clone)]
pub struct Content {
    memory: Arc<[u8]>,
    start: usize,
}

impl Content {
    /// Random bytes, which no file system can compress, or zeros.
    pub fn new(bytes: usize, seed: Option<u64>) -> Self {
        let mut memory = vec![0; bytes + ALIGNMENT];
        if let Some(seed) = seed {
            fastrand::Rng::with_seed(seed).fill(&mut memory);
        }
        let memory: Arc<[u8]> = memory.into();
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { memory, start }
    }

    /// The first bytes.
    #[inline]
    pub fn bytes(&self, bytes: usize) -> &[u8] {
        &self.memory[self.start..self.start + bytes]
    }

    pub fn all(&self) -> &[u8] {
        self.bytes(self.memory.len() - ALIGNMENT)
    }
}
