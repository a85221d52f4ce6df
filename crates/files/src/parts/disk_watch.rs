//! What the device below a folder does within a run, and what control groups allow this program of it and of
//! the CPUs.

use std::path::Path;

use sys::cgroup::{GroupLimits, limits_of};
use sys::clock::monotonic_ns;
use sys::proc::{BlockDeviceReader, BlockReading, block_device_of_path};

use crate::report::{DiskQuota, Surroundings};

pub(super) struct DiskWatch {
    /// `None`: the folder is on no device.
    reader: Option<BlockDeviceReader>,
    limits: GroupLimits,
    began: Option<(BlockReading, u64)>,
}

impl DiskWatch {
    pub(super) fn open(folder: &Path) -> Self {
        let root = Path::new("/");
        let device = block_device_of_path(root, folder).ok().flatten();
        let reader = device.as_ref().and_then(|device| BlockDeviceReader::open(device).ok());
        let disk = device.map(|device| device.whole_disk(root));
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let limits = limits_of(root, own, disk.as_ref()).unwrap_or_default();
        Self { reader, limits, began: None }
    }

    pub(super) fn has_device(&self) -> bool {
        self.reader.is_some()
    }

    pub(super) fn begin(&mut self) {
        self.began = self.read();
    }

    fn read(&mut self) -> Option<(BlockReading, u64)> {
        let reading = self.reader.as_mut()?.read().ok()?;
        Some((reading, monotonic_ns()))
    }

    /// Notes what the device did since [`Self::begin`].
    pub(super) fn end(mut self, found: &mut Surroundings) {
        found.cpu_quota_percent = self.limits.cpu_quota_percent;
        let Some(((before, from_ns), (after, to_ns))) = self.began.zip(self.read()) else { return };
        let ns = to_ns.saturating_sub(from_ns).max(1) as f64;
        let busy_ns = after.busy_ns.saturating_sub(before.busy_ns) as f64;
        found.disk_busy_percent = Some((100.0 * busy_ns / ns).min(100.0));
        let used = |of: fn(&BlockReading) -> u64| of(&after).saturating_sub(of(&before)) as f64 * 1e9 / ns;
        let limits = &self.limits;
        let quotas = [
            ("read", "B/s", limits.read_bytes_per_s, used(|reading| reading.read_bytes)),
            ("wrote", "B/s", limits.write_bytes_per_s, used(|reading| reading.written_bytes)),
            ("did reads", "1/s", limits.reads_per_s, used(|reading| reading.reads)),
            ("did writes", "1/s", limits.writes_per_s, used(|reading| reading.writes)),
        ];
        let quota = |(verb, unit, allowed, used): (&str, &str, Option<u64>, f64)| {
            let (verb, unit) = (verb.to_owned(), unit.to_owned());
            Some(DiskQuota { verb, unit, used, allowed: allowed? as f64 })
        };
        found.disk_quotas = quotas.into_iter().filter_map(quota).collect();
    }
}
