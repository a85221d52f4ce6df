//! A host's disk: image, file system, mount, and the host's limits on it.

use std::path::Path;

use sys::cgroup::Cgroup;
use sys::disk::ImageSpec;
use sys::journal::Journal;
use sys::proc::{BlockDeviceReader, BlockReading};

use super::Program;
use crate::disk::{self, DiskSpec};
use crate::error::{Error, Result};
use crate::file::Disk;
use crate::state::DiskCounters;

/// Dropping it removes the disk with its content.
#[derive(Debug)]
pub(super) struct HostDisk {
    host: String,
    disk: disk::Disk,
    reader: BlockDeviceReader,
    /// Counters at its creation: loop devices are reused and keep counting.
    before: BlockReading,
}

impl HostDisk {
    pub(super) fn make(
        journal: &Journal,
        host: &str,
        disk: &Disk,
        data: &Path,
        program: &Program,
    ) -> Result<Self> {
        let image = ImageSpec {
            image: data.join(format!("{host}.img")),
            size_bytes: disk.size.bytes(),
            file_system: disk.file_system,
            target: data.join(format!("{host}-disk")),
        };
        let spec = DiskSpec { image, model: disk.model.clone() };
        let disk = disk::Disk::create(journal, &spec, program)
            .map_err(|error| Error::Refused(format!("the disk of host {host}: {error}")))?;
        let counted = BlockDeviceReader::open(disk.block_device())
            .and_then(|mut reader| reader.read().map(|before| (reader, before)));
        let (reader, before) =
            counted.map_err(|error| Error::io("read the counters of", disk.device_path(), error))?;
        Ok(Self { host: host.to_owned(), disk, reader, before })
    }

    pub(super) fn count(&mut self) -> Option<DiskCounters> {
        let (now, before) = (self.reader.read().ok()?, &self.before);
        Some(DiskCounters {
            host: self.host.clone(),
            reads: now.reads.saturating_sub(before.reads),
            read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
            writes: now.writes.saturating_sub(before.writes),
            written_bytes: now.written_bytes.saturating_sub(before.written_bytes),
            busy_ns: now.busy_ns.saturating_sub(before.busy_ns),
            model: self.disk.counters().ok().flatten(),
        })
    }

    pub(super) fn target(&self) -> &Path {
        self.disk.target()
    }

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
