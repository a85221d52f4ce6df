//! Renames that replace nothing.

use std::os::fd::AsFd;

use nix::NixPath;
use nix::errno::Errno;
use rustix::fs::RenameFlags;

/// Gives what is called `from` in a folder the name `to` there, unless that is taken (`EEXIST`). nix has this
/// call for glibc only.
pub fn rename_to_new(
    folder: impl AsFd,
    from: &(impl NixPath + ?Sized),
    to: &(impl NixPath + ?Sized),
) -> Result<(), Errno> {
    let folder = folder.as_fd();
    let renamed = from.with_nix_path(|from| {
        to.with_nix_path(|to| rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE))
    })??;
    renamed.map_err(|error| Errno::from_raw(error.raw_os_error()))
}
