//! Steady state of a flash disk, in the manner of SNIA's Solid State Storage Performance Test Specification.
//!
//! A flash disk writes into erased blocks. When none is left, it moves what is still valid out of others and
//! erases them, and its write rate falls. [`bring_to_steady_state`] writes a file over nearly all of the
//! space, so that all of the disk is in use, and overwrites it at random until the rate changes no more. The
//! disk stays in that state when the file is deleted, unless its space is discarded (TRIM).

mod steady;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sys::disk::{DirectFile, resident_bytes};

use crate::age::sufficient_space;
use crate::{AgeingError, Monitor, Result};

pub use steady::{DRIFT_MAX, RANGE_MAX, Steadiness, WINDOW};

/// The file takes this share of the free space.
const FILE_SHARE: f64 = 0.90;
pub const SEQUENTIAL_BYTES: u64 = 1 << 20;
pub const RANDOM_BYTES: u64 = 128 << 10;
/// Random writes under way at the same time. With one, a disk would have time to erase blocks between them.
pub const WRITERS: usize = 4;
/// A round writes this share of the space, unless it takes longer than [`ROUND_MAX`].
const ROUND_SHARE: f64 = 0.10;
const ROUND_MAX: Duration = Duration::from_secs(600);
const ROUNDS_MAX: usize = 30;
/// Written at least, in multiples of the space: before that, a disk with many spare blocks is steady because
/// it is still fresh.
pub const PASSES_MIN: f64 = 2.0;
/// Written at most, in multiples of the space.
pub const PASSES_MAX: f64 = FILE_SHARE + ROUNDS_MAX as f64 * ROUND_SHARE;
const BLOCK_BYTES: usize = 4096;

/// So much was written in so much time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Written {
    pub bytes: u64,
    /// Until it was on the medium (fdatasync).
    pub took_s: f64,
}

impl Written {
    pub fn bit_per_s(&self) -> f64 {
        if self.took_s > 0.0 { self.bytes as f64 * 8.0 / self.took_s } else { 0.0 }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlashReport {
    /// Free when it began.
    pub capacity_bytes: u64,
    /// The first pass over the file: in order, in requests of [`SEQUENTIAL_BYTES`].
    pub sequential: Written,
    /// At random offsets, in requests of [`RANDOM_BYTES`], [`WRITERS`] at the same time.
    pub rounds: Vec<Written>,
    /// Of the last rounds; `None`: too little was written.
    pub last: Option<Steadiness>,
    /// Whether the rate had stopped changing, and enough was written to trust it.
    pub is_steady: bool,
}

impl FlashReport {
    pub fn written_bytes(&self) -> u64 {
        self.sequential.bytes + self.rounds.iter().map(|round| round.bytes).sum::<u64>()
    }

    pub fn took_s(&self) -> f64 {
        self.sequential.took_s + self.rounds.iter().map(|round| round.took_s).sum::<f64>()
    }
}

/// Brings the disk below the folder `dir` to its steady state of random writes. Its file system is filled
/// nearly whole meanwhile; the file is deleted in the end, whatever that is. `seed` decides content and
/// offsets.
///
/// # Errors
/// The file system is too small, becomes full or cannot be written past the page cache; a call fails; the
/// monitor stopped it.
pub fn bring_to_steady_state(dir: &Path, seed: u64, monitor: &Monitor<'_>) -> Result<FlashReport> {
    let capacity_bytes = sufficient_space(dir)?.available_bytes;
    let file_bytes = (capacity_bytes as f64 * FILE_SHARE) as u64 / SEQUENTIAL_BYTES * SEQUENTIAL_BYTES;
    let mut random = fastrand::Rng::with_seed(seed);
    let filler = Filler::create(dir)?;

    (monitor.say)(&format!("writing a file of {} MiB in order", file_bytes >> 20));
    let sequential = filler.write_in_order(file_bytes, &mut random, monitor)?;
    let mut report = FlashReport { capacity_bytes, sequential, ..FlashReport::default() };

    let mut writers = (0..WRITERS)
        .map(|_| Writer::open(&filler.path, RANDOM_BYTES, &mut random))
        .collect::<Result<Vec<_>>>()?;
    let requests = (capacity_bytes as f64 * ROUND_SHARE) as u64 / RANDOM_BYTES;
    while !report.is_steady && report.rounds.len() < ROUNDS_MAX {
        let offsets = random_offsets(&mut random, file_bytes, requests);
        let round = overwrite(&mut writers, &offsets, monitor)?;
        report.rounds.push(round);
        let rates: Vec<f64> = report.rounds.iter().map(Written::bit_per_s).collect();
        let passes = report.written_bytes() as f64 / capacity_bytes as f64;
        report.last = Steadiness::from_rates(&rates);
        report.is_steady = passes >= PASSES_MIN && report.last.is_some_and(|last| last.is_steady());
        (monitor.say)(&format!(
            "round {}: {passes:.1} times the space written, {:.0} Mbit/s",
            rates.len(),
            round.bit_per_s() / 1e6
        ));
    }
    Ok(report)
}

/// Its name.
pub(crate) const FILLER: &str = "filler";

/// The file that fills the space; deleted when dropped.
struct Filler {
    path: PathBuf,
}

impl Filler {
    fn create(dir: &Path) -> Result<Self> {
        let path = dir.join(FILLER);
        File::create_new(&path).map_err(AgeingError::io("create", &path))?;
        Ok(Self { path })
    }

    fn write_in_order(
        &self,
        file_bytes: u64,
        random: &mut fastrand::Rng,
        monitor: &Monitor<'_>,
    ) -> Result<Written> {
        let mut writer = Writer::open(&self.path, SEQUENTIAL_BYTES, random)?;
        let began = Instant::now();
        for offset in (0..file_bytes).step_by(SEQUENTIAL_BYTES as usize) {
            if (monitor.is_stopped)() {
                return Err(AgeingError::Stopped);
            }
            writer.write(offset, monitor)?;
            // Some file systems accept O_DIRECT and use the page cache all the same (tmpfs).
            if offset == 0 && resident_bytes(&self.path)?.is_some_and(|bytes| bytes > 0) {
                return Err(AgeingError::NoDirect { path: self.path.clone() });
            }
        }
        writer.sync()?;
        Ok(Written { bytes: file_bytes, took_s: began.elapsed().as_secs_f64() })
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // What stays is removed with its folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Writes one file past the page cache, in requests of one size that neither compress nor repeat.
struct Writer {
    file: DirectFile,
    path: PathBuf,
    /// Blocks written so far: a number in each makes it differ from all others, because a disk or file system
    /// that finds the same content again does not write it.
    blocks: u64,
    request_bytes: u64,
}

impl Writer {
    fn open(path: &Path, request_bytes: u64, random: &mut fastrand::Rng) -> Result<Self> {
        let file = DirectFile::open(path, request_bytes as usize, true);
        let mut file = file.map_err(|error| explained(error, path))?;
        random.fill(file.request_mut());
        Ok(Self { file, path: path.to_path_buf(), blocks: 0, request_bytes })
    }

    fn write(&mut self, offset: u64, monitor: &Monitor<'_>) -> Result<()> {
        for block in self.file.request_mut().chunks_exact_mut(BLOCK_BYTES) {
            block[..8].copy_from_slice(&self.blocks.to_le_bytes());
            self.blocks += 1;
        }
        self.file.write_request_at(offset).map_err(|error| explained(error, &self.path))?;
        monitor.written_bytes.fetch_add(self.request_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync().map_err(|error| explained(error, &self.path))
    }
}

fn explained(error: sys::Error, path: &Path) -> AgeingError {
    let path = path.to_path_buf();
    match &error {
        sys::Error::File { source, .. } => match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AgeingError::NoRoom { path },
            // Of open(2), write(2) and fuse(4) without it.
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => AgeingError::NoDirect { path },
            _ => error.into(),
        },
        _ => error.into(),
    }
}

/// Offsets of this many random requests within the file, each a multiple of a request.
fn random_offsets(random: &mut fastrand::Rng, file_bytes: u64, requests: u64) -> Vec<u64> {
    let places = file_bytes / RANDOM_BYTES;
    (0..requests).map(|_| random.u64(..places) * RANDOM_BYTES).collect()
}

/// A round: the writers share out the offsets.
fn overwrite(writers: &mut [Writer], offsets: &[u64], monitor: &Monitor<'_>) -> Result<Written> {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let write = |writer: &mut Writer| -> Result<u64> {
        let mut bytes = 0;
        while began.elapsed() < ROUND_MAX
            && let Some(offset) = offsets.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if (monitor.is_stopped)() {
                return Err(AgeingError::Stopped);
            }
            // The others do not continue alone.
            writer.write(*offset, monitor).inspect_err(|_| next.store(offsets.len(), Ordering::Relaxed))?;
            bytes += RANDOM_BYTES;
        }
        Ok(bytes)
    };
    let results: Vec<Result<u64>> = std::thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(move || write(writer))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let bytes = results.into_iter().sum::<Result<u64>>()?;
    if let Some(writer) = writers.first() {
        writer.sync()?;
    }
    Ok(Written { bytes, took_s: began.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_the_same_for_a_seed_and_cover_the_file() {
        let file_bytes = 64 * SEQUENTIAL_BYTES;
        let draw = |seed| random_offsets(&mut fastrand::Rng::with_seed(seed), file_bytes, 5000);
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut offsets = draw(1);
        offsets.sort_unstable();
        offsets.dedup();
        let all: Vec<u64> = (0..file_bytes / RANDOM_BYTES).map(|place| place * RANDOM_BYTES).collect();
        assert_eq!(offsets, all, "5000 draws hit each of 512 places");
    }

    #[test]
    fn least_rounds_reach_what_is_written_at_least() {
        let rounds = ((PASSES_MIN - FILE_SHARE) / ROUND_SHARE).ceil() as usize;
        assert!((WINDOW..ROUNDS_MAX).contains(&rounds), "{rounds}");
    }
}
