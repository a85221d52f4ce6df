//! The service function: an access and its arrival go in, its completion comes out. No clock: time is a number.

use serde::{Deserialize, Serialize};

use super::flash::FlashDisk;
use super::model::{DiskModel, ModelError};
use super::rotating::RotatingDisk;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Bytes come from the disk.
    Read,
    /// Bytes go to it.
    Write,
}

/// What the mechanism did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effort {
    /// How often the head left its track.
    pub seeks: u64,
    /// Accesses that a buffer or cache answered alone.
    pub hits: u64,
    /// Time for which the mechanism was seeking, waiting for its angle, or transferring, in nanoseconds.
    pub busy_ns: u64,
}

/// A disk in its own time. Accesses must be given in the order of their arrival.
///
/// Time that the host takes between an answer and its next access passes for the disk, too: the platter turns and the
/// head reads ahead. Only arrival times matter, so a host that keeps several accesses under way sees exactly the
/// model's throughput, however late it learns of each completion.
#[derive(Debug)]
pub struct Head {
    mechanism: Mechanism,
    size_bytes: u64,
}

#[derive(Debug)]
enum Mechanism {
    Rotating(RotatingDisk),
    Flash(FlashDisk),
}

impl Head {
    /// A disk of `size_bytes` at rest. Errors: see [`DiskModel::check`].
    pub fn new(model: &DiskModel, size_bytes: u64) -> Result<Self, ModelError> {
        model.check()?;
        let mechanism = match model {
            DiskModel::Rotating(disk) => Mechanism::Rotating(RotatingDisk::new(disk, size_bytes)),
            DiskModel::Flash(disk) => Mechanism::Flash(FlashDisk::new(disk)),
        };
        Ok(Self { mechanism, size_bytes })
    }

    /// When an access that arrives at `now_ns` is answered, on the same clock. What lies behind the end of the disk
    /// costs nothing.
    pub fn access(&mut self, now_ns: u64, direction: Direction, offset: u64, bytes: u64) -> u64 {
        let offset = offset.min(self.size_bytes);
        let bytes = bytes.min(self.size_bytes - offset);
        match (&mut self.mechanism, direction) {
            (_, _) if bytes == 0 => now_ns,
            (Mechanism::Rotating(disk), Direction::Read) => disk.read(now_ns, offset, bytes),
            (Mechanism::Rotating(disk), Direction::Write) => disk.write(now_ns, offset, bytes),
            (Mechanism::Flash(disk), direction) => disk.access(now_ns, direction, offset, bytes),
        }
    }

    /// When everything written before `now_ns` is on the medium.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        match &mut self.mechanism {
            Mechanism::Rotating(disk) => disk.flush(now_ns),
            Mechanism::Flash(disk) => disk.flush(now_ns),
        }
    }

    /// What the mechanism did so far.
    pub fn effort(&self) -> Effort {
        match &self.mechanism {
            Mechanism::Rotating(disk) => disk.effort,
            Mechanism::Flash(disk) => disk.effort,
        }
    }
}

/// How long `bytes` take at a rate, rounded up.
pub(super) fn transfer_ns(bytes: u64, byte_per_s: u64) -> u64 {
    let ns = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(byte_per_s.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}
