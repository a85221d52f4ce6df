//! A host's disk: an image with a file system, mounted, and the host's limits on it.

use std::path::Path;

use sys::cgroup::Cgroup;
use sys::journal::Journal;

use super::Program;
use crate::disk::{self, DiskSpec};
use crate::error::{Error, Result};
use crate::file::Disk;

/// A mounted disk. Dropping it takes it away, with all that is on it.
#[derive(Debug)]
pub(super) struct HostDisk {
    disk: disk::Disk,
}

impl HostDisk {
    /// Makes `host`'s disk in folder `data`.
    pub(super) fn make(
        journal: &Journal,
        host: &str,
        disk: &Disk,
        data: &Path,
        program: &Program,
    ) -> Result<Self> {
        let spec = DiskSpec {
            image: data.join(format!("{host}.img")),
            size_bytes: disk.size.bytes(),
            file_system: disk.file_system,
            model: disk.model.clone(),
            target: data.join(format!("{host}-disk")),
        };
        let disk = disk::Disk::create(journal, &spec, program)
            .map_err(|error| Error::Refused(format!("the disk of host {host}: {error}")))?;
        Ok(Self { disk })
    }

    /// Where it is mounted.
    pub(super) fn target(&self) -> &Path {
        self.disk.target()
    }

    /// Holds the programs in `group` to the disk's limits.
    pub(super) fn limit(&self, group: &Cgroup, disk: &Disk) -> Result<()> {
        let device = self.disk.block_device();
        if let Some(limit) = disk.read_limit {
            group.set_read_limit(device, limit.byte_per_s())?;
        }
        if let Some(limit) = disk.write_limit {
            group.set_write_limit(device, limit.byte_per_s())?;
        }
        Ok(())
    }
}
