//! Names in the root that are not the clients'.

use std::ffi::OsStr;
use std::path::Path;

/// The directory of names that are the server's own.
pub const DIRECTORY: &str = ".kagiri";

/// Whether a name in the root is the pool's folder, also where the file system ignores case.
pub fn is_pool_folder(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(pool::FOLDER)
}

/// Whether a path is the pool's folder or in it.
pub fn is_in_pool_folder(path: &Path) -> bool {
    path.iter().next().is_some_and(is_pool_folder)
}
