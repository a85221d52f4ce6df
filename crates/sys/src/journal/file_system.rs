//! On which file system a folder was made: it may not be mounted when the folder is to be removed.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;
use nix::sys::statvfs::fstatvfs;
use serde::{Deserialize, Serialize};

use super::ownership::OWNER_FILE;
use crate::proc::mounts::{mount_of, mounts};
use crate::tree::{open_above, place_of_open};

/// A file system, recognised after it was mounted anew. Device numbers (`st_dev`) can change by that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystem {
    /// `ext4`.
    fs_type: String,
    /// What is mounted: `/dev/loop3`.
    source: PathBuf,
    /// The file system's own number (`f_fsid`, statvfs(3)); 0: it has none, or one made of device numbers.
    #[serde(default)]
    number: u64,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.source.display(), self.fs_type)
    }
}

impl FileSystem {
    /// The file system that folders in `above` are kept on. `None`: a folder there ends with something else,
    /// namely with the memory of its file system or with another folder of this program.
    pub(crate) fn keeping(above: BorrowedFd<'_>) -> Option<Self> {
        let place = place_of_open(above).ok()?;
        if place.ancestors().any(|folder| folder.join(OWNER_FILE).exists()) {
            return None;
        }
        let all = mounts(Path::new("/")).ok()?;
        if mount_of(&all, &place)?.is_in_memory() {
            return None;
        }
        Self::of(above).ok().flatten()
    }

    fn of(directory: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let place = place_of_open(directory)?;
        let all = mounts(Path::new("/"))?;
        let Some(mount) = mount_of(&all, &place) else { return Ok(None) };
        // The kernel's new_encode_dev, which xfs, vfat and others take.
        let device = fstat(directory)?.st_dev;
        let (major, minor) = (libc::major(device), libc::minor(device));
        let of_device = u64::from((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12));
        let number = fstatvfs(directory)?.filesystem_id();
        let number = if number == of_device { 0 } else { number };
        Ok(Some(Self { fs_type: mount.fs_type.clone(), source: mount.source.clone(), number }))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.fs_type == other.fs_type
            && match self.number != 0 && other.number != 0 {
                true => self.number == other.number,
                false => self.source == other.source,
            }
    }

    /// Whether `path`, which does not exist, would be on this file system: what exists above it is.
    /// Errors: the file system does not answer.
    pub(super) fn would_hold(&self, path: &Path) -> io::Result<bool> {
        for above in path.ancestors().skip(1) {
            match open_above(above) {
                Ok(directory) => {
                    return Ok(Self::of(directory.as_fd())?.is_some_and(|found| self.is_same(&found)));
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_recognised_by_its_number_or_else_by_its_source() {
        let make = |fs_type: &str, source: &str, number| FileSystem {
            fs_type: fs_type.to_owned(),
            source: source.into(),
            number,
        };
        let ext4 = make("ext4", "/dev/loop0", 7);
        assert!(ext4.is_same(&make("ext4", "/dev/loop5", 7)), "mounted by another device");
        assert!(!ext4.is_same(&make("ext4", "/dev/loop0", 8)), "another one on that device");
        assert!(!ext4.is_same(&make("xfs", "/dev/loop0", 7)));
        let network = make("nfs4", "server:/a", 0);
        assert!(network.is_same(&network) && !network.is_same(&make("nfs4", "server:/b", 0)));
    }
}
