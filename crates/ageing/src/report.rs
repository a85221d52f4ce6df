//! What ageing found, as plain data.

use serde::{Deserialize, Serialize};

use crate::readout::Rates;

/// The recordings of one time, fresh or aged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Aged {
    /// Pieces in which they lie on the disk, counted by the file system (FIEMAP).
    pub extents: u64,
    pub bytes: u64,
    /// By the model of a rotating disk.
    pub modelled: Rates,
    /// Read from this disk, past the page cache; `None`: it has no direct I/O.
    pub measured: Option<Rates>,
}

impl Aged {
    pub fn extents_per_mib(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.extents as f64 / (self.bytes as f64 / f64::from(1 << 20)))
    }
}

/// How the layout changed while files were written and deleted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    pub written_bytes: u64,
    pub took_s: f64,
    /// How often the space was written until then, and the extents per MiB of all files.
    pub pieces_per_mib: Vec<(f64, f64)>,
    /// Whether the number of extents had stopped changing.
    pub is_steady: bool,
}

/// Free space by the length of its pieces, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct FreeSpace {
    pub pieces: u64,
    pub bytes: u64,
    pub largest_bytes: u64,
    /// In pieces of less than 1 MiB.
    pub below_1_mib_bytes: u64,
    /// In pieces of at least 16 MiB.
    pub from_16_mib_bytes: u64,
}

impl FreeSpace {
    pub(crate) fn of(pieces: &[u64]) -> Self {
        let sum = |keep: &dyn Fn(u64) -> bool| pieces.iter().copied().filter(|len| keep(*len)).sum();
        Self {
            pieces: pieces.len() as u64,
            bytes: sum(&|_| true),
            largest_bytes: pieces.iter().copied().max().unwrap_or(0),
            below_1_mib_bytes: sum(&|len| len < 1 << 20),
            from_16_mib_bytes: sum(&|len| len >= 16 << 20),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgeingReport {
    /// Free when it began.
    pub capacity_bytes: u64,
    /// Share of the file system that was in use when it began.
    pub used_before: f64,
    pub fresh: Aged,
    pub aged: Aged,
    pub growth: Growth,
    /// What was there when the ageing was over.
    pub files: u64,
    pub data_bytes: u64,
    pub deleted_files: u64,
    /// `None`: the file system does not say (`FS_IOC_GETFSMAP`).
    pub free_space: Option<FreeSpace>,
}
