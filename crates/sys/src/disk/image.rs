//! A file system on a disk made of a file: mounted, with counters and limits of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use serde::{Deserialize, Serialize};

use super::{ImageFile, LoopDevice, absolute};
use crate::journal::{EntryId, Journal, Undo};
use crate::proc::BlockDevice;
use crate::process::HelperCommand;
use crate::{Error, Result};

/// Making a file system on a large sparse file takes seconds at most.
const MKFS_FOR: Duration = Duration::from_secs(120);

/// Runs `$0` with the arguments where only live mounts are, in a mount namespace of its own.
///
/// mkfs.btrfs looks at what is behind every mount of the machine, and gives up at a file of a FUSE mount
/// whose server is dead, also of another user.
const AMONG_LIVE_MOUNTS: &str = r#"
while read -r source target rest; do
  file=$source
  case $source in
    /dev/loop*) read -r file < "/sys/block/${source#/dev/}/loop/backing_file" || continue ;;
    /*) ;;
    *) continue ;;
  esac
  [ "$target" = / ] || stat "$file" > /dev/null 2>&1 || umount --lazy "$target"
done < /proc/self/mounts
PATH=$PATH:/usr/sbin:/sbin exec "$0" "$@""#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext3: journal, no extents.
    Ext3,
    Ext4,
    /// XFS; at least 300 MiB.
    Xfs,
    /// btrfs; at least 109 MiB.
    Btrfs,
}

impl FileSystem {
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

    fn tool(self) -> HelperCommand {
        let (program, package) = match self {
            Self::Ext3 => ("mkfs.ext3", "e2fsprogs"),
            Self::Ext4 => ("mkfs.ext4", "e2fsprogs"),
            Self::Xfs => ("mkfs.xfs", "xfsprogs"),
            Self::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
        };
        HelperCommand { program, package, purpose: "make a file system" }
    }

    /// Quiet, and without work left over: ext normally clears its tables in the background after mounting,
    /// which would be measured as disk traffic of a program.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Ext3 | Self::Ext4 => &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            Self::Xfs | Self::Btrfs => &["-q", "-f"],
        }
    }

    /// Makes it on `device`, whatever was there. Errors: the program is missing (which package has it) or
    /// refuses.
    pub fn make_on(self, device: &LoopDevice) -> Result<()> {
        let path = device.path().to_string_lossy();
        let mut arguments = self.arguments().to_vec();
        arguments.push(&path);
        match self.tool().run(&arguments, None, MKFS_FOR) {
            Err(error) if error.to_string().contains("cannot check mount status") => {
                let tool = self.tool();
                let mut among_live = vec!["--mount", "sh", "-c", AMONG_LIVE_MOUNTS, tool.program];
                among_live.extend(arguments);
                HelperCommand { program: "unshare", package: "util-linux", ..tool }
                    .run(&among_live, None, MKFS_FOR)
                    .map(drop)
            }
            other => other.map(drop),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpec {
    /// The file that becomes the disk; must not exist. Put it where direct I/O works (not on tmpfs).
    pub image: PathBuf,
    /// Its size in bytes. The file is sparse: it takes space as it is written to.
    pub size_bytes: u64,
    pub file_system: FileSystem,
    /// Where to mount it; made if it does not exist.
    pub target: PathBuf,
}

/// A mounted disk image. Dropping it unmounts it and removes the file.
#[derive(Debug)]
pub struct DiskImage {
    // Dropped in this order.
    mount: Mounted,
    device: LoopDevice,
    _image: Option<ImageFile>,
    file_system: FileSystem,
}

impl DiskImage {
    /// Makes the file, the device and the file system, and mounts it (`noatime`, so that reading does not
    /// write).
    /// Errors: no rights, the image exists, a program is missing, no space. Whatever was already made is
    /// undone.
    pub fn create(journal: &Journal, spec: &ImageSpec) -> Result<Self> {
        let image = ImageFile::create(journal, &spec.image, spec.size_bytes)?;
        let device = LoopDevice::attach(journal, image.path())?;
        let this = Self::make_on(journal, device, spec.file_system, &spec.target)?;
        Ok(Self { _image: Some(image), ..this })
    }

    /// Makes a file system on `device` and mounts it at `target`, which is made if it does not exist.
    /// Errors: as [`DiskImage::create`].
    pub fn make_on(
        journal: &Journal,
        mut device: LoopDevice,
        file_system: FileSystem,
        target: &Path,
    ) -> Result<Self> {
        file_system.make_on(&device)?;
        let mount = Mounted::new(journal, &device, file_system, target)?;
        device.release();
        Ok(Self { mount, device, _image: None, file_system })
    }

    pub fn target(&self) -> &Path {
        &self.mount.target
    }

    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    pub fn block_device(&self) -> &BlockDevice {
        self.device.block_device()
    }

    /// The block device's special file, `/dev/loop3`.
    pub fn device_path(&self) -> &Path {
        self.device.path()
    }

    /// Whether the image is read past the page cache, see [`LoopDevice::direct_io`].
    pub fn direct_io(&self) -> bool {
        self.device.direct_io()
    }
}

/// A mount and the folder it is on. Dropping it unmounts it, and removes the folder if it was made for it.
#[derive(Debug)]
struct Mounted {
    journal: Journal,
    target: PathBuf,
    /// The folder and the mount, newest last.
    entries: Vec<EntryId>,
}

impl Mounted {
    fn new(journal: &Journal, device: &LoopDevice, file_system: FileSystem, target: &Path) -> Result<Self> {
        let target = absolute(target)?;
        let mut this = Self { journal: journal.clone(), target: target.clone(), entries: Vec::new() };
        if !target.exists() {
            this.entries.push(journal.record(Undo::RemoveFolder { path: target.clone() })?);
            std::fs::create_dir(&target).map_err(|error| Error::file("create", &target, error))?;
        }
        this.target = super::real(&target)?;
        let undo = Undo::Unmount { target: this.target.clone(), source: device.path().to_path_buf() };
        let entry = journal.record(undo)?;
        let flags = MsFlags::MS_NOATIME | MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
        let mounted = mount(Some(device.path()), &this.target, Some(file_system.name()), flags, None::<&str>);
        let Err(error) = mounted else {
            this.entries.push(entry);
            return Ok(this);
        };
        journal.done(entry)?;
        Err(match error {
            nix::errno::Errno::ENODEV => {
                Error::Refused(format!("this kernel has no {} file system", file_system.name()))
            }
            error => Error::file("mount", &this.target, error),
        })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for entry in self.entries.drain(..).rev() {
            // What cannot be undone stays in the journal, which reports it.
            self.journal.undo(entry);
        }
    }
}
