//! Disks and files: a disk made of a file, the page cache, the extents and the placement of files,
//! and space.

mod cache;
mod direct;
mod extents;
mod image;
mod image_file;
mod layout;
mod loop_device;

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

use crate::{Error, Result};

pub use cache::{drop_file_cache, resident_bytes};
pub use direct::DirectFile;
pub use extents::{Extent, extents, extents_of, extents_of_pieces, merge_extents};
pub use image::{DiskImage, FileSystem, ImageSpec};
pub use image_file::ImageFile;
pub use layout::{free_pieces, set_extent_size_hint, start_writeback};
pub use loop_device::LoopDevice;

/// Disconnects a FUSE file system from its server, which may hang: pending requests fail at once (umount(2),
/// `MNT_FORCE`). A file system in use stays mounted until its undo.
pub fn cut_off(mount: &Path) {
    // It is usually busy, and one that is gone needs nothing.
    let _ = umount2(mount, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW);
}

/// As [`cut_off`], and takes the mount away; its last user releases it. One that is gone needs nothing.
pub fn detach_fuse(mount: &Path) {
    let _ = umount2(mount, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    /// Free, with what only root may use (ext4 reserves 5 %).
    pub free_bytes: u64,
    /// Free for users without special rights.
    pub available_bytes: u64,
}

impl Space {
    /// The share that is in use.
    pub fn used_share(&self) -> f64 {
        1.0 - self.free_bytes as f64 / self.total_bytes.max(1) as f64
    }
}

/// The space of the file system that holds `path` (statvfs(3)).
pub fn space(path: &Path) -> Result<Space> {
    let stat =
        nix::sys::statvfs::statvfs(path).map_err(|error| Error::file("look at the space of", path, error))?;
    Ok(space_of(&stat))
}

pub(crate) fn space_of(stat: &nix::sys::statvfs::Statvfs) -> Space {
    #[allow(clippy::unnecessary_cast)] // 32-bit on some targets
    let bytes = |blocks: libc::fsblkcnt_t| (blocks as u64).saturating_mul(stat.fragment_size() as u64);
    Space {
        total_bytes: bytes(stat.blocks()),
        free_bytes: bytes(stat.blocks_free()),
        available_bytes: bytes(stat.blocks_available()),
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
    fn space_that_is_reserved_for_root_is_not_in_use() {
        let space = Space { total_bytes: 1000, free_bytes: 750, available_bytes: 500 };
        assert_eq!(space.used_share(), 0.25);
    }

    #[test]
    fn file_system_space_is_plausible() {
        let space = space(Path::new("/")).unwrap();
        assert!(space.total_bytes > 0 && space.free_bytes <= space.total_bytes);
        assert!(space.available_bytes <= space.free_bytes);
        assert!(super::space(Path::new("/nowhere")).is_err());
    }
}
