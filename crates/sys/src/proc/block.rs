//! Block devices: the device of a file, and its counters. Documentation/block/stat.rst.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ProcFile;
use super::mounts::{mount_of, mounts};
use super::parse::{decimal, words};
use super::proc_file::{malformed, with_path};

/// Sectors of `/sys/block/X/stat` are 512 bytes whatever the device's own are.
const SECTOR_BYTES: u64 = 512;
const NS_PER_MS: u64 = 1_000_000;

/// A block device, a whole disk or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    pub major: u32,
    pub minor: u32,
    /// The kernel's name: `vda`, `nvme0n1p2`, `loop0`.
    pub name: String,
    /// Its folder below `/sys/dev/block`.
    folder: PathBuf,
}

impl BlockDevice {
    /// The device with these numbers; `None` when the kernel has none such.
    pub fn from_numbers(root: &Path, major: u32, minor: u32) -> Option<Self> {
        let folder = root.join("sys/dev/block").join(format!("{major}:{minor}"));
        let real = folder.canonicalize().ok()?;
        let name = real.file_name()?.to_str()?.to_owned();
        Some(Self { major, minor, name, folder })
    }

    /// The device that the special file `path` (such as `/dev/vda1`) stands for.
    pub fn from_special_file(root: &Path, path: &Path) -> io::Result<Option<Self>> {
        let meta = std::fs::metadata(path).map_err(|error| with_path(path, &error))?;
        if !meta.file_type().is_block_device() {
            return Ok(None);
        }
        Ok(Self::from_numbers(root, libc::major(meta.rdev()), libc::minor(meta.rdev())))
    }

    /// The disk this is a part of; the device itself when it is a whole disk. Limits and queues belong to the
    /// disk.
    pub fn whole_disk(&self, root: &Path) -> Self {
        let of_part = || {
            self.folder.join("partition").exists().then_some(())?;
            Self::from_folder(root, self.folder.canonicalize().ok()?.parent()?)
        };
        of_part().unwrap_or_else(|| self.clone())
    }

    /// The device of a folder of `/sys` that has its numbers.
    fn from_folder(root: &Path, folder: &Path) -> Option<Self> {
        let numbers = std::fs::read_to_string(folder.join("dev")).ok()?;
        let (major, minor) = numbers.trim().split_once(':')?;
        Self::from_numbers(root, major.parse().ok()?, minor.parse().ok()?)
    }

    /// The file behind a loop device; `None` for any other device.
    pub fn backing_file(&self) -> Option<PathBuf> {
        let text = std::fs::read_to_string(self.folder.join("loop/backing_file")).ok()?;
        Some(PathBuf::from(text.trim_end_matches('\n')))
    }

    /// Whether it is a spinning disk; `None` when the kernel does not say.
    pub fn rotational(&self, root: &Path) -> Option<bool> {
        let path = self.whole_disk(root).folder.join("queue/rotational");
        match std::fs::read_to_string(path).ok()?.trim() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }
    }

    /// Whether it is flash. `None`: what is beneath is unknown. The kernel's word on a virtual disk (virtio,
    /// Xen, nbd, a loop device whose file is on no disk) is a guess. For LVM, RAID and encryption it is the
    /// word on the disks beneath, for a loop device that on the disk of its file.
    pub fn is_flash(&self, root: &Path) -> Option<bool> {
        let disk = self.whole_disk(root);
        if let Some(backing) = disk.backing_file() {
            // A loop device on a file that is on a loop device ends: each is made after the one beneath.
            return block_device_of_path(root, &backing).ok().flatten()?.is_flash(root);
        }
        let real = disk.folder.canonicalize().ok()?;
        let beneath: Vec<_> =
            std::fs::read_dir(real.join("slaves")).into_iter().flatten().flatten().collect();
        if !beneath.is_empty() {
            let beneath: Option<Vec<bool>> = beneath
                .into_iter()
                .map(|entry| Self::from_folder(root, &entry.path().canonicalize().ok()?)?.is_flash(root))
                .collect();
            return beneath.map(|all| all.into_iter().all(|is_flash| is_flash));
        }
        let is_virtual = |part: &std::ffi::OsStr| {
            let name = part.as_encoded_bytes();
            name == b"virtual" || name.starts_with(b"virtio") || name.starts_with(b"vbd-")
        };
        // NVMe with several paths also has its disks in devices/virtual.
        let is_nvme = disk.name.starts_with("nvme");
        if real.iter().any(is_virtual) && !is_nvme {
            return None;
        }
        self.rotational(root).map(|rotational| !rotational)
    }

    /// `major:minor`, as cgroups and the kernel write it.
    pub fn numbers(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }
}

/// The block device under the file or folder `path`; `None` when its file system has none (tmpfs, NFS,
/// overlay).
pub fn block_device_of_path(root: &Path, path: &Path) -> io::Result<Option<BlockDevice>> {
    let real = path.canonicalize().map_err(|error| with_path(path, &error))?;
    let number = std::fs::metadata(&real).map_err(|error| with_path(path, &error))?.dev();
    if let Some(device) = BlockDevice::from_numbers(root, libc::major(number), libc::minor(number)) {
        return Ok(Some(device));
    }
    // btrfs gives every subvolume its own number: use the source of the mount.
    let mounts = mounts(root)?;
    match mount_of(&mounts, &real) {
        Some(mount) if mount.source.is_absolute() => {
            BlockDevice::from_special_file(root, &mount.source).or(Ok(None))
        }
        _ => Ok(None),
    }
}

/// A block device's counters since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockReading {
    pub reads: u64,
    pub read_bytes: u64,
    /// Time all reads took together, from request to completion, nanoseconds.
    pub read_time_ns: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Time all writes took together, nanoseconds.
    pub write_time_ns: u64,
    pub in_flight: u64,
    /// Time with at least one request in flight, nanoseconds.
    pub busy_ns: u64,
    /// Total time of all requests in flight, nanoseconds: its growth per second is the mean queue length.
    pub queue_time_ns: u64,
}

/// Reads one block device (`/sys/dev/block/M:N/stat`).
#[derive(Debug)]
pub struct BlockDeviceReader {
    file: ProcFile,
}

impl BlockDeviceReader {
    pub fn open(device: &BlockDevice) -> io::Result<Self> {
        Ok(Self { file: ProcFile::open_path(device.folder.join("stat"))? })
    }

    /// Reads them now. Errors: those of reading (`NotFound` when the device has gone) and `InvalidData`.
    pub fn read(&mut self) -> io::Result<BlockReading> {
        let reading = parse(self.file.read_once()?);
        reading.ok_or_else(|| malformed(self.file.path(), "at least 11 numbers"))
    }
}

pub(super) fn parse(text: &[u8]) -> Option<BlockReading> {
    let mut fields = [0u64; 11];
    let mut words = words(text);
    for field in &mut fields {
        *field = decimal(words.next()?)?;
    }
    // Field 2 (from 0) is sectors READ, field 6 sectors written.
    let [reads, _, read_sectors, read_ms, rest @ ..] = fields;
    let [writes, _, written_sectors, write_ms, in_flight, busy_ms, queue_ms] = rest;
    Some(BlockReading {
        reads,
        read_bytes: read_sectors.saturating_mul(SECTOR_BYTES),
        read_time_ns: read_ms.saturating_mul(NS_PER_MS),
        writes,
        written_bytes: written_sectors.saturating_mul(SECTOR_BYTES),
        write_time_ns: write_ms.saturating_mul(NS_PER_MS),
        in_flight,
        busy_ns: busy_ms.saturating_mul(NS_PER_MS),
        queue_time_ns: queue_ms.saturating_mul(NS_PER_MS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const SAMPLE: &str = "   54593     9964  3976578    28866    42428    19011  4171968    12938        \
        2    17604    43167    11301       73  1067848     1027     6956      334\n";

    #[test]
    fn real_sample_and_old_format_are_parsed() {
        let reading = parse(SAMPLE.as_bytes()).unwrap();
        assert_eq!((reading.reads, reading.read_bytes), (54_593, 3_976_578 * 512));
        assert_eq!((reading.writes, reading.written_bytes), (42_428, 4_171_968 * 512));
        assert_eq!((reading.in_flight, reading.busy_ns), (2, 17_604_000_000));
        assert_eq!(reading.queue_time_ns, 43_167_000_000);
        // Before Linux 4.18 there were 11 numbers.
        assert!(parse(b"1 2 3 4 5 6 7 8 9 10 11").is_some());
        assert_eq!(parse(b"1 2 3 4 5 6 7 8 9 10"), None);
    }

    #[test]
    fn whole_disk_of_partition_is_found() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let disk = root.join("sys/devices/pci/block/sda");
        std::fs::create_dir_all(disk.join("sda1")).unwrap();
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        std::fs::write(disk.join("dev"), "8:0\n").unwrap();
        std::fs::write(disk.join("queue/rotational"), "1\n").unwrap();
        std::fs::write(disk.join("sda1/partition"), "1\n").unwrap();
        std::fs::write(disk.join("sda1/stat"), SAMPLE).unwrap();
        symlink(&disk, root.join("sys/dev/block/8:0")).unwrap();
        symlink(disk.join("sda1"), root.join("sys/dev/block/8:1")).unwrap();

        let part = BlockDevice::from_numbers(root, 8, 1).unwrap();
        assert_eq!((part.name.as_str(), part.numbers().as_str()), ("sda1", "8:1"));
        assert_eq!(part.whole_disk(root).name, "sda");
        assert_eq!(part.whole_disk(root).whole_disk(root).name, "sda");
        assert_eq!(part.rotational(root), Some(true));
        assert_eq!(part.backing_file(), None);
        assert_eq!(BlockDeviceReader::open(&part).unwrap().read().unwrap().reads, 54_593);
        assert_eq!(BlockDevice::from_numbers(root, 8, 2), None);
    }

    #[test]
    fn flash_is_known_where_the_kernel_knows_the_disk() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        std::fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        let disk = |folder: &str, minor: u32, rotational: u32, beneath: &[&str]| {
            let folder = root.join("sys/devices").join(folder);
            std::fs::create_dir_all(folder.join("queue")).unwrap();
            std::fs::create_dir_all(folder.join("slaves")).unwrap();
            std::fs::write(folder.join("dev"), format!("8:{minor}\n")).unwrap();
            std::fs::write(folder.join("queue/rotational"), format!("{rotational}\n")).unwrap();
            for (number, other) in beneath.iter().enumerate() {
                let link = folder.join("slaves").join(number.to_string());
                symlink(root.join("sys/devices").join(other), link).unwrap();
            }
            symlink(&folder, root.join(format!("sys/dev/block/8:{minor}"))).unwrap();
            BlockDevice::from_numbers(root, 8, minor).unwrap().is_flash(root)
        };
        assert_eq!(disk("pci0/ata1/block/sda", 0, 1, &[]), Some(false));
        assert_eq!(disk("pci0/nvme/nvme0/nvme0n1", 1, 0, &[]), Some(true));
        assert_eq!(disk("virtual/nvme-subsystem/nvme1n1", 2, 0, &[]), Some(true));
        assert_eq!(disk("pci0/virtio1/block/vda", 3, 1, &[]), None);
        assert_eq!(disk("vbd-768/block/xvda", 4, 0, &[]), None);
        assert_eq!(disk("virtual/block/zram0", 5, 0, &[]), None);
        let (rotating, flash) = ("pci0/ata1/block/sda", "pci0/nvme/nvme0/nvme0n1");
        assert_eq!(disk("virtual/block/dm-0", 6, 0, &[flash]), Some(true));
        assert_eq!(disk("virtual/block/md0", 7, 1, &[flash, rotating]), Some(false));
        assert_eq!(disk("virtual/block/dm-1", 8, 1, &["pci0/virtio1/block/vda"]), None);
    }

    #[test]
    fn block_device_of_real_files_is_found() {
        let root = Path::new("/");
        assert_eq!(block_device_of_path(root, Path::new("/proc/self/stat")).unwrap(), None);
        assert!(block_device_of_path(root, Path::new("/nowhere")).is_err());
        assert_eq!(BlockDevice::from_special_file(root, Path::new("/dev/null")).unwrap(), None);
        let here = std::env::current_exe().unwrap();
        if let Some(device) = block_device_of_path(root, &here).unwrap() {
            assert!(BlockDeviceReader::open(&device).unwrap().read().unwrap().reads > 0);
        }
    }
}
