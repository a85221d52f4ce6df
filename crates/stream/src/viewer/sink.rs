//! What a player does with received bytes, by its [`Depth`].

use mpegts::{TsChecker, TsCounts};

use crate::content::Content;
use crate::report::ChecksReport;
use crate::settings::Depth;

#[derive(Debug)]
pub struct Sink {
    depth: Depth,
    checker: Option<TsChecker>,
    hashes: Option<HashChecker>,
}

/// Compares the checksum of each group of pictures with the index.
#[derive(Debug)]
struct HashChecker {
    gop: usize,
    left_bytes: u64,
    crc32c: u32,
    checked: u64,
    wrong: u64,
}

impl Sink {
    /// For a player that begins at `gop`.
    pub fn new(depth: Depth, check_hashes: bool, content: &Content, gop: usize) -> Self {
        Self {
            depth,
            checker: (depth == Depth::Parse).then(|| TsChecker::new(content.video_pid)),
            hashes: check_hashes.then(|| HashChecker {
                gop,
                left_bytes: gop_bytes(content, gop),
                crc32c: 0,
                checked: 0,
                wrong: 0,
            }),
        }
    }

    /// Whether bytes are dropped in the kernel.
    #[inline]
    pub fn discards(&self) -> bool {
        self.depth == Depth::Discard && self.hashes.is_none()
    }

    #[inline]
    pub fn feed(&mut self, content: &Content, bytes: &[u8]) {
        if let Some(checker) = &mut self.checker {
            checker.feed(bytes);
        }
        if let Some(hashes) = &mut self.hashes {
            hashes.feed(content, bytes);
        }
    }

    /// The player continues at the content's beginning.
    pub fn wrap(&mut self) {
        if let Some(checker) = &mut self.checker {
            checker.restart();
        }
    }

    /// `None` for a player that does not parse.
    pub fn counts(&self) -> Option<ChecksReport> {
        let TsCounts { packets, frames, sync_errors, continuity_errors, damaged, .. } =
            self.checker.as_ref()?.counts();
        let hashes_checked = self.hashes.as_ref().map(|hashes| hashes.checked);
        let hash_errors = self.hashes.as_ref().map_or(0, |hashes| hashes.wrong);
        Some(ChecksReport {
            packets,
            frames,
            sync_errors,
            continuity_errors,
            damaged,
            hashes_checked,
            hash_errors,
        })
    }
}

fn gop_bytes(content: &Content, gop: usize) -> u64 {
    content.timeline.gop_end_bytes(gop) - content.timeline.gops()[gop].start_bytes
}

impl HashChecker {
    fn feed(&mut self, content: &Content, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
            self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..now]);
            self.left_bytes -= now as u64;
            bytes = &bytes[now..];
            if self.left_bytes == 0 {
                self.finish_gop(content);
            }
        }
    }

    fn finish_gop(&mut self, content: &Content) {
        let gops = content.timeline.gops();
        if let Some(expected) = gops[self.gop].crc32c {
            self.checked += 1;
            self.wrong += u64::from(expected != self.crc32c);
        }
        self.crc32c = 0;
        self.gop = (self.gop + 1) % gops.len();
        self.left_bytes = gop_bytes(content, self.gop);
    }
}
