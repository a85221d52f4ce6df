//! The service time of accesses: arrival in, completion out. Time is a number; there is no clock.

use super::flash::FlashDisk;
use super::mechanism::{Direction, MechanismStats};
use super::model::{DiskModel, ModelError};
use super::rotating::RotatingDisk;

/// A disk in simulated time. Accesses must be passed in the order of their arrival.
///
/// Only arrival times matter: the platter rotates and the head reads ahead while the host pauses. A host
/// with several accesses in progress gets exactly the model's throughput, however late it sees each
/// completion.
#[derive(Debug)]
pub struct ServiceTime {
    mechanism: Mechanism,
    size_bytes: u64,
}

#[derive(Debug)]
enum Mechanism {
    Rotating(RotatingDisk),
    Flash(FlashDisk),
}

impl ServiceTime {
    pub fn new(model: &DiskModel, size_bytes: u64) -> Result<Self, ModelError> {
        model.check()?;
        let mechanism = match model {
            DiskModel::Rotating(disk) => Mechanism::Rotating(RotatingDisk::new(disk, size_bytes)),
            DiskModel::Flash(disk) => Mechanism::Flash(FlashDisk::new(disk)),
        };
        Ok(Self { mechanism, size_bytes })
    }

    /// Completion time of an access that arrives at `now_ns`. Accesses behind the end take no time.
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

    /// Time at which everything written before `now_ns` is on the medium.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        match &mut self.mechanism {
            Mechanism::Rotating(disk) => disk.flush(now_ns),
            Mechanism::Flash(disk) => disk.flush(now_ns),
        }
    }

    pub fn effort(&self) -> MechanismStats {
        match &self.mechanism {
            Mechanism::Rotating(disk) => disk.effort,
            Mechanism::Flash(disk) => disk.effort,
        }
    }
}
