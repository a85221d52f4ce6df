//! The content of fragments: a pattern of [`BLOCK_BYTES`] that repeats.

use crate::wire::HEADER_BYTES;

/// Length of the pattern; a fragment up to this size is sent by one write.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// The pattern, preceded by room for a header.
#[derive(Debug)]
pub(super) struct Payload {
    buffer: Vec<u8>,
    /// Length and checksum of the last request: mostly all fragments have the same size.
    last: Option<(u32, u32)>,
    has_checksum: bool,
}

impl Payload {
    /// The same pattern in every process.
    pub(super) fn new(has_checksum: bool) -> Self {
        let mut buffer = vec![0; HEADER_BYTES + BLOCK_BYTES];
        // Random bytes, which no network device can compress.
        fastrand::Rng::with_seed(0x6461_7100).fill(&mut buffer[HEADER_BYTES..]);
        Self { buffer, last: None, has_checksum }
    }

    /// CRC32C of the first `bytes` of a fragment; 0 if checksums are off.
    pub(super) fn checksum(&mut self, bytes: u32) -> u32 {
        match self.last {
            _ if !self.has_checksum => 0,
            Some((length, checksum)) if length == bytes => checksum,
            _ => {
                let checksum = self.checksum_of(0, bytes);
                self.last = Some((bytes, checksum));
                checksum
            }
        }
    }

    /// CRC32C of `bytes` of a fragment from `offset` on; 0 if checksums are off.
    pub(super) fn checksum_of(&self, offset: u32, bytes: u32) -> u32 {
        if !self.has_checksum {
            return 0;
        }
        let (mut at, mut left, mut checksum) = (offset as usize, bytes as usize, 0);
        while left > 0 {
            let run = self.contiguous(at, left);
            checksum = crc32c::crc32c_append(checksum, run);
            (at, left) = (at + run.len(), left - run.len());
        }
        checksum
    }

    /// The payload from `offset` on as far as it is contiguous, at most `most` bytes.
    pub(super) fn contiguous(&self, offset: usize, most: usize) -> &[u8] {
        let from = offset % BLOCK_BYTES;
        let length = most.min(BLOCK_BYTES - from);
        &self.buffer[HEADER_BYTES + from..][..length]
    }

    /// A header followed by the contiguous payload, at most `payload_bytes`, without the first `skip` bytes
    /// of the header.
    pub(super) fn with_header(
        &mut self,
        header: &[u8; HEADER_BYTES],
        skip: usize,
        payload_bytes: usize,
    ) -> &[u8] {
        self.buffer[..HEADER_BYTES].copy_from_slice(header);
        &self.buffer[skip.min(HEADER_BYTES)..HEADER_BYTES + payload_bytes.min(BLOCK_BYTES)]
    }

    /// Copies the payload from `offset` on to `to`.
    pub(super) fn copy(&self, offset: usize, to: &mut [u8]) {
        let mut done = 0;
        while done < to.len() {
            let run = self.contiguous(offset + done, to.len() - done);
            to[done..done + run.len()].copy_from_slice(run);
            done += run.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_parts_match_the_whole() {
        let mut payload = Payload::new(true);
        let bytes = BLOCK_BYTES as u32 * 2 + 100;
        let mut whole = vec![0; bytes as usize];
        payload.copy(0, &mut whole);
        assert_eq!(payload.checksum(bytes), crc32c::crc32c(&whole));
        assert_eq!(payload.checksum(10), crc32c::crc32c(&whole[..10]));
        let from = BLOCK_BYTES - 7;
        assert_eq!(payload.checksum_of(from as u32, 30), crc32c::crc32c(&whole[from..from + 30]));
        assert_eq!(payload.contiguous(from, 30), &whole[from..from + 7]);
        let header = [7; HEADER_BYTES];
        assert_eq!(payload.with_header(&header, 0, 5), [&header[..], &whole[..5]].concat());
        assert_eq!(payload.with_header(&header, 60, 1 << 30).len(), 4 + BLOCK_BYTES);
        assert_eq!(Payload::new(false).checksum(10), 0);
    }
}
