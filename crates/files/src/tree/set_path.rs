//! Where the directory of a set is.

use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use wml::Fileset;

/// The directory of a set.
pub(super) struct SetPath {
    /// For messages.
    pub(super) path: PathBuf,
    /// Through the open folder.
    pub(super) place: PathBuf,
}

impl SetPath {
    pub(super) fn new(set: &Fileset, folder: &Path, opened: BorrowedFd<'_>) -> Self {
        let path = below(folder, set);
        let inside = path.strip_prefix(folder).unwrap_or(Path::new(""));
        let place = sys::tree::path_of_open(opened).join(inside);
        Self { path, place }
    }
}

/// The directory of a set, always below the folder: an absolute path is not followed.
pub(super) fn below(folder: &Path, set: &Fileset) -> PathBuf {
    let path = Path::new(&set.path);
    let path = path.strip_prefix(folder).unwrap_or(path);
    let plain = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let name = Path::new(&set.name).file_name();
    let own = folder.join(plain.collect::<PathBuf>());
    if set.is_single { own } else { own.join(name.unwrap_or_default()) }
}
