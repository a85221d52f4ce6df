//! What the workers of one host report.

use base::histogram::Histogram;
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
    /// What control groups allow this program of the device, and what of that the device did.
    #[serde(default)]
    pub disk_quotas: Vec<DiskQuota>,
    /// What control groups allow this program of the CPUs, in % of one.
    #[serde(default)]
    pub cpu_quota_percent: Option<f64>,
}

/// A limit of a control group for a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskQuota {
    /// What the disk did: `read`.
    pub verb: String,
    /// `B/s` or `1/s`.
    pub unit: String,
    /// What the device did, per second, by its own counters: all programs together.
    pub used: f64,
    pub allowed: f64,
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
    /// Of an object store.
    #[serde(default)]
    pub objects: Option<ObjectsReport>,
}

/// Facts of requests to an object store.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectsReport {
    /// As it was given; without credentials.
    pub endpoint: String,
    /// Requests of the workers that were sent, also outside the judged time and failed ones.
    pub requests: u64,
    /// Requests of the judged time that failed.
    pub failed: u64,
    /// Of those, the ones that the server refused because there were too many.
    pub slow_downs: u64,
    /// Until the head of the answer to a GET.
    pub first_byte: Histogram,
    /// Time that the workers waited for answers within the judged time, added up.
    pub waited_s: f64,
    /// Requests that were sent again while the objects were made.
    pub retries: u64,
    /// What the network device toward the server carried within the judged time, and the most that it
    /// carries.
    pub network_bit_per_s: Option<f64>,
    pub link_bit_per_s: Option<f64>,
    pub network_device: Option<String>,
}
