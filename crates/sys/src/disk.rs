//! Disks and files: a disk made of a file, the page cache of one file, and space.

mod cache;
mod direct;
mod image;
mod image_file;
mod loop_device;

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use crate::{Error, Result};

pub use cache::{drop_file_cache, resident_bytes};
pub use direct::DirectFile;
pub use image::{DiskImage, FileSystem, ImageSpec};
pub use image_file::ImageFile;
pub use loop_device::LoopDevice;

/// Cuts a file system in user space off from its server: whoever waits for it gets an error at once, though
/// the server may hang, or be in the middle of its end (umount(2), `MNT_FORCE`: the kernel does this first,
/// busy or not). Where it is in use it stays mounted; taking it away is left to its undoing.
pub fn cut_off(mount: &Path) {
    // Busy is what it is as a rule, and one that has gone needs no cutting off.
    let _ = umount2(mount, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW);
}

/// Room in a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// Free for users without special rights.
    pub available_bytes: u64,
}

/// The room in the file system that holds `path` (statvfs(3)).
pub fn space(path: &Path) -> Result<Space> {
    let stat =
        nix::sys::statvfs::statvfs(path).map_err(|error| Error::file("look at the space of", path, error))?;
    #[allow(clippy::unnecessary_cast)] // 32-bit on some targets
    let bytes = |blocks: libc::fsblkcnt_t| (blocks as u64).saturating_mul(stat.fragment_size() as u64);
    Ok(Space { total_bytes: bytes(stat.blocks()), available_bytes: bytes(stat.blocks_available()) })
}

/// Reserves `bytes` for `file` without changing its length (fallocate(2), `FALLOC_FL_KEEP_SIZE`): what is
/// written later cannot fail for lack of space, and lies together on the disk.
///
/// `path` is for the message only. Returns `false` where the file system cannot do it. Errors: no space, no
/// rights.
pub fn preallocate(file: &std::fs::File, path: &Path, bytes: u64) -> Result<bool> {
    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};
    let length = libc::off_t::try_from(bytes)
        .map_err(|_| Error::Refused(format!("{bytes} B are more than a file can have")))?;
    if length == 0 {
        return Ok(true);
    }
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
        Ok(()) => Ok(true),
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(false),
        Err(error) => Err(Error::file("reserve space for", path, error)),
    }
}

/// A path as the kernel shows it in `/proc` and `/sys`: absolute and without links.
fn real(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Error::file("find", path, error))
}

/// `path` made absolute, through its folder, because it may not exist yet.
fn absolute(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| Error::Refused(format!("{} names no file", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(real(folder)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_sensible() {
        let space = space(Path::new("/")).unwrap();
        assert!(space.total_bytes > 0 && space.available_bytes <= space.total_bytes);
        assert!(super::space(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn reserved_space_does_not_change_the_length() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        if preallocate(file.as_file(), file.path(), 1 << 20).unwrap() {
            let meta = file.as_file().metadata().unwrap();
            assert_eq!(meta.len(), 0);
            assert!(meta.blocks() * 512 >= 1 << 20);
        }
        assert!(preallocate(file.as_file(), file.path(), 0).unwrap());
        let too_much = preallocate(file.as_file(), file.path(), 1 << 62).unwrap_err();
        assert!(too_much.to_string().contains("reserve space"), "{too_much}");
        assert!(preallocate(file.as_file(), file.path(), u64::MAX).is_err());
    }
}
