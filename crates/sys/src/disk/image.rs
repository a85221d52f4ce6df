//! A file system on a disk made of a file: mounted, with counters and limits of its own.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};

use super::{LoopDevice, space};
use crate::journal::{EntryId, Journal, Undo};
use crate::proc::BlockDevice;
use crate::tool::Tool;
use crate::{Error, Result};

/// Making a file system on a large sparse file takes seconds at most.
const MKFS_FOR: Duration = Duration::from_secs(120);

/// A file system that can be made and mounted here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext3: journal, no extents.
    Ext3,
    /// ext4.
    Ext4,
    /// XFS; at least 300 MiB.
    Xfs,
    /// btrfs; at least 109 MiB.
    Btrfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ext3, Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The name that `mount` and `mkfs` know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    fn tool(self) -> Tool {
        let (program, package) = match self {
            Self::Ext3 => ("mkfs.ext3", "e2fsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        };
        Tool { program, package, purpose: "make a file system" }
    }

    /// Quiet, and without work left over: ext normally clears its tables in the background after mounting, which would
    /// be measured as somebody's disk traffic.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Ext3 | Self::Ext4 => &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Makes it on `device`, whatever was there. Errors: the program is missing (which package has it) or refuses.
    pub fn make_on(self, device: &LoopDevice) -> Result<()> {
        let path = device.path().to_string_lossy();
        let mut arguments = self.arguments().to_vec();
        arguments.push(&path);
        self.tool().run(&arguments, None, MKFS_FOR).map(drop)
    }
}

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpec {
    /// The file that becomes the disk; must not exist. Put it where direct I/O works (not on tmpfs).
    pub image: PathBuf,
    /// Its size in bytes. The file is sparse: it takes space as it is written to.
    pub size_bytes: u64,
    /// The file system on it.
    pub file_system: FileSystem,
    /// Where to mount it; made if it does not exist.
    pub target: PathBuf,
}

/// A mounted disk image. Dropping it unmounts it and removes the file.
#[derive(Debug)]
pub struct DiskImage {
    journal: Journal,
    mounted: Option<EntryId>,
    device: Option<LoopDevice>,
    /// The file and the folder, newest last.
    made: Vec<EntryId>,
    target: PathBuf,
    file_system: FileSystem,
    block: Option<BlockDevice>,
    direct_io: bool,
}

impl DiskImage {
    /// Makes the file, the device and the file system, and mounts it (`noatime`, so that reading does not write).
    ///
    /// Errors: no rights, the image exists, a program is missing, no space. Whatever was already made is undone.
    pub fn create(journal: &Journal, spec: &ImageSpec) -> Result<Self> {
        let mut this = Self {
            journal: journal.clone(),
            mounted: None,
            device: None,
            made: Vec::new(),
            target: spec.target.clone(),
            file_system: spec.file_system,
            block: None,
            direct_io: false,
        };
        this.make_file(spec)?;
        this.make_target(&spec.target)?;
        let mut device = LoopDevice::attach(journal, &spec.image)?;
        spec.file_system.make_on(&device)?;
        this.block = Some(device.block_device().clone());
        this.direct_io = device.direct_io();
        this.mount(&device)?;
        device.release();
        this.device = Some(device);
        Ok(this)
    }

    fn make_file(&mut self, spec: &ImageSpec) -> Result<()> {
        let path = absolute(&spec.image)?;
        if path.symlink_metadata().is_ok() {
            return Err(Error::Refused(format!("{} exists already; name a new file", path.display())));
        }
        let room = space(path.parent().unwrap_or(Path::new("/")))?;
        if room.total_bytes < spec.size_bytes {
            return Err(Error::Refused(format!(
                "a disk of {} B does not fit on the file system of {} ({} B)",
                spec.size_bytes,
                path.display(),
                room.total_bytes
            )));
        }
        self.made.push(self.journal.record(Undo::RemoveFile { path: path.clone() })?);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| Error::file("create", &path, error))?;
        file.set_len(spec.size_bytes).map_err(|error| Error::file("size", &path, error))
    }

    fn make_target(&mut self, target: &Path) -> Result<()> {
        let path = absolute(target)?;
        if !path.exists() {
            self.made.push(self.journal.record(Undo::RemoveFolder { path: path.clone() })?);
            std::fs::create_dir(&path).map_err(|error| Error::file("create", &path, error))?;
        }
        self.target = super::real(&path)?;
        Ok(())
    }

    fn mount(&mut self, device: &LoopDevice) -> Result<()> {
        let undo = Undo::Unmount { target: self.target.clone(), source: device.path().to_path_buf() };
        let entry = self.journal.record(undo)?;
        let flags = MsFlags::MS_NOATIME | MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        let name = Some(self.file_system.name());
        match mount(Some(device.path()), &self.target, name, flags, None::<&str>) {
            Ok(()) => {
                self.mounted = Some(entry);
                Ok(())
            }
            Err(nix::errno::Errno::ENODEV) => {
                self.journal.done(entry)?;
                Err(Error::Refused(format!("this kernel has no {} file system", self.file_system.name())))
            }
            Err(error) => {
                self.journal.done(entry)?;
                Err(Error::file("mount", &self.target, error))
            }
        }
    }

    /// Where it is mounted.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The file system on it.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Its block device, for counters and limits.
    pub fn block_device(&self) -> Option<&BlockDevice> {
        self.block.as_ref()
    }

    /// Whether the image is read past the page cache, see [`LoopDevice::direct_io`].
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        // Newest first. What cannot be undone stays in the journal, which reports it.
        if let Some(entry) = self.mounted.take() {
            self.journal.undo(entry);
        }
        drop(self.device.take());
        for entry in self.made.drain(..).rev() {
            self.journal.undo(entry);
        }
    }
}

/// `path` made absolute, through its folder, because it may not exist yet.
fn absolute(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::Refused(format!("{} names no file", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(super::real(folder)?.join(name))
}
