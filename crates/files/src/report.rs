//! What the workers of one host report.

use serde::{Deserialize, Serialize};

use crate::engine::report::RunReport;

/// What the run found on its host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// As mounted: `ext4`.
    pub file_system: Option<String>,
    pub memory_bytes: Option<u64>,
    /// Share of a sample of the files that was in the page cache before the run.
    pub cached_percent: Option<f64>,
    /// Written, and not yet on the disk, of the whole host at the end of the run.
    pub dirty_bytes: Option<u64>,
    /// Time of the device with requests under way within the run, if it has a device.
    pub disk_busy_percent: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkersReport {
    pub run: RunReport,
    pub files: u64,
    pub dirs: u64,
    pub data_bytes: u64,
    /// How long it took to make the files.
    pub populate_s: f64,
    pub surroundings: Surroundings,
    /// What of the program has no effect, and why.
    pub notes: Vec<String>,
}
