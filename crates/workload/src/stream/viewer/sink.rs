//! What a player does with the bytes it receives.

use super::film::Film;
use crate::stream::content::{TsChecker, TsCounts};
use crate::stream::settings::Depth;

/// Looks at a stream's bytes as deeply as it was told.
#[derive(Debug)]
pub struct Sink {
    depth: Depth,
    checker: Option<TsChecker>,
    hashes: Option<Hashes>,
}

/// Sums up group after group and compares with the index.
#[derive(Debug)]
struct Hashes {
    gop: usize,
    left_bytes: u64,
    crc32c: u32,
    checked: u64,
    wrong: u64,
}

/// What a parsing player found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Of the packets' headers.
    pub packets: TsCounts,
    /// Groups whose bytes were compared with the index; `None` for a player that does not.
    pub hashes_checked: Option<u64>,
    /// Groups whose bytes were wrong.
    pub hashes_wrong: u64,
}

impl Sink {
    /// For a player that begins at `gop`.
    #[must_use]
    pub fn new(depth: Depth, hashes: bool, film: &Film, gop: usize) -> Self {
        Self {
            depth,
            checker: (depth == Depth::Parse).then(|| TsChecker::new(film.video_pid)),
            hashes: hashes.then(|| Hashes {
                gop,
                left_bytes: gop_bytes(film, gop),
                crc32c: 0,
                checked: 0,
                wrong: 0,
            }),
        }
    }

    /// Whether the bytes need not leave the kernel.
    #[inline]
    #[must_use]
    pub fn discards(&self) -> bool {
        self.depth == Depth::Discard && self.hashes.is_none()
    }

    /// Take the next bytes of the stream.
    #[inline]
    pub fn take(&mut self, film: &Film, bytes: &[u8]) {
        if let Some(checker) = &mut self.checker {
            checker.feed(bytes);
        }
        if let Some(hashes) = &mut self.hashes {
            hashes.take(film, bytes);
        }
    }

    /// The player goes on at the content's beginning.
    pub fn wrap(&mut self) {
        if let Some(checker) = &mut self.checker {
            checker.restart();
        }
    }

    /// What was found; `None` for a player that does not look.
    #[must_use]
    pub fn found(&self) -> Option<Found> {
        let packets = self.checker.as_ref().map(TsChecker::counts)?;
        Some(Found {
            packets,
            hashes_checked: self.hashes.as_ref().map(|hashes| hashes.checked),
            hashes_wrong: self.hashes.as_ref().map_or(0, |hashes| hashes.wrong),
        })
    }
}

fn gop_bytes(film: &Film, gop: usize) -> u64 {
    film.timeline.gop_end_bytes(gop) - film.timeline.gops()[gop].start_bytes
}

impl Hashes {
    fn take(&mut self, film: &Film, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let now = bytes.len().min(usize::try_from(self.left_bytes).unwrap_or(usize::MAX));
            self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..now]);
            self.left_bytes -= now as u64;
            bytes = &bytes[now..];
            if self.left_bytes == 0 {
                self.next(film);
            }
        }
    }

    fn next(&mut self, film: &Film) {
        let gops = film.timeline.gops();
        if let Some(expected) = gops[self.gop].crc32c {
            self.checked += 1;
            self.wrong += u64::from(expected != self.crc32c);
        }
        self.crc32c = 0;
        self.gop = (self.gop + 1) % gops.len();
        self.left_bytes = gop_bytes(film, self.gop);
    }
}
