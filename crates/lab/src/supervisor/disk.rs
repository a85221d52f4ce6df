//! A host's disk: image, file system, mount, and the host's limits on it.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use ageing::{Monitor, Severity};
use pool::Pool;
use sys::cgroup::Cgroup;
use sys::disk::ImageSpec;
use sys::journal::Journal;
use sys::proc::{BlockDeviceReader, BlockReading};
use sys::stop::StopSignal;

use super::Program;
use crate::disk::{self, DiskSpec};
use crate::error::{Error, Result};
use crate::file::Disk;
use crate::state::DiskCounters;

/// Content that an agent makes, in its data folder.
const CONTENT_FOLDER: &str = "content";
/// Files that aged a disk.
const AGED_FOLDER: &str = ".kagiri-aged";
/// Share of an aged disk that is free in the end.
const FREE_SHARE: f64 = 0.5;

/// How disks are aged.
#[derive(Clone, Copy)]
pub(super) struct Ageing {
    pub(super) seed: u64,
    /// A signal ends it.
    pub(super) stop: StopSignal,
}

impl Ageing {
    /// Without modelled access times, which would take hours.
    fn age(self, disk: &disk::Disk, severity: Severity) -> Result<()> {
        disk.set_paced(false)?;
        let dir = disk.target().join(AGED_FOLDER);
        std::fs::create_dir(&dir).map_err(|error| Error::io("create", &dir, error))?;
        let monitor = Monitor {
            is_stopped: &|| self.stop.requested(),
            written_bytes: &AtomicU64::new(0),
            say: &|_| {},
        };
        let free_bytes = (sys::disk::space(&dir)?.available_bytes as f64 * FREE_SHARE) as u64;
        ageing::wear(&dir, severity, self.seed, free_bytes, &monitor)
            .map_err(|error| Error::Refused(format!("cannot age it: {error}")))?;
        disk.set_paced(true)
    }
}

/// Makes the pool where the host's agent makes content.
fn make_pool(disk: &disk::Disk, bytes: u64) -> Result<()> {
    let dir = disk.target().join(CONTENT_FOLDER);
    std::fs::create_dir(&dir).map_err(|error| Error::io("create", &dir, error))?;
    disk.set_paced(false)?;
    Pool::create(&dir.join(pool::FOLDER), bytes, pool::SEGMENT_BYTES)
        .map_err(|error| Error::Refused(format!("cannot make its pool: {error}")))?;
    disk.set_paced(true)
}

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
        ageing: Ageing,
    ) -> Result<Self> {
        let image = ImageSpec {
            image: data.join(format!("{host}.img")),
            size_bytes: disk.size.bytes(),
            file_system: disk.file_system,
            target: data.join(format!("{host}-disk")),
        };
        let spec = DiskSpec { image, model: disk.model.clone() };
        let made = disk::Disk::create(journal, &spec, program)
            .map_err(|error| Error::Refused(format!("the disk of host {host}: {error}")))?;
        if let Some(size) = disk.pool {
            make_pool(&made, size.bytes())
                .map_err(|error| Error::Refused(format!("the disk of host {host}: {error}")))?;
        }
        if let Some(severity) = disk.age {
            ageing
                .age(&made, severity)
                .map_err(|error| Error::Refused(format!("the disk of host {host}: {error}")))?;
        }
        let counted = BlockDeviceReader::open(made.block_device())
            .and_then(|mut reader| reader.read().map(|before| (reader, before)));
        let (reader, before) =
            counted.map_err(|error| Error::io("read the counters of", made.device_path(), error))?;
        Ok(Self { host: host.to_owned(), disk: made, reader, before })
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
