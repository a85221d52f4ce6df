//! A complete file in a pool.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::index::Entry;
use crate::segments::Held;

/// A complete file. Its segments stay its own as long as it is open, also when it is removed or
/// replaced meanwhile.
#[derive(Debug)]
pub struct PoolFile {
    len_bytes: u64,
    mtime_ns: i64,
    version: u64,
    held: Held,
}

impl PoolFile {
    pub(crate) fn new(len_bytes: u64, mtime_ns: i64, version: u64, held: Held) -> Self {
        Self { len_bytes, mtime_ns, version, held }
    }

    pub(crate) fn entry(&self) -> Entry {
        let Self { len_bytes, mtime_ns, version, .. } = *self;
        Entry { len_bytes, mtime_ns, version, runs: self.held.runs() }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// When it was complete, in nanoseconds since 1970.
    pub fn mtime_ns(&self) -> i64 {
        self.mtime_ns
    }

    pub fn modified(&self) -> SystemTime {
        let distance = Duration::from_nanos(self.mtime_ns.unsigned_abs());
        if self.mtime_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    }

    /// Differs from that of every other content that the pool ever had.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The pieces of its content, one a segment: offset in the file of segments, and length, in bytes.
    pub fn segments(&self) -> impl Iterator<Item = (u64, u64)> {
        let segment_bytes = self.held.segments.segment_bytes;
        self.held.numbers.iter().zip(0_u64..).map(move |(&number, at)| {
            (u64::from(number) * segment_bytes, segment_bytes.min(self.len_bytes - at * segment_bytes))
        })
    }

    /// Where the content from `offset_bytes` is: offset in the file of segments, and how many bytes lie there
    /// one after the other. `None`: that is not within the file.
    pub fn piece_at(&self, offset_bytes: u64) -> Option<(u64, u64)> {
        if offset_bytes >= self.len_bytes {
            return None;
        }
        let segment_bytes = self.held.segments.segment_bytes;
        let first = usize::try_from(offset_bytes / segment_bytes).ok()?;
        let within = offset_bytes % segment_bytes;
        let number = self.held.numbers.get(first)?;
        let start = u64::from(*number) * segment_bytes + within;
        Some((start, (segment_bytes - within).min(self.len_bytes - offset_bytes)))
    }

    /// Reads content from `offset_bytes` on; returns how many bytes, 0 at the end.
    pub fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let Some((start, len)) = self.piece_at(offset_bytes) else { return Ok(0) };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        self.held.segments.file.read_at(&mut buffer[..len], start)
    }

    /// The file of segments, opened for one reader: the kernel keeps its read-ahead per open file.
    pub fn reader(&self) -> io::Result<File> {
        self.held.segments.reader()
    }
}
