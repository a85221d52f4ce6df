//! Resolves directories: symbolic links and `..`.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Whether a resolved path is `directory` or below it, by components: `/srv-x` is not below `/srv`.
pub(super) fn is_below(path: &Path, directory: &Path) -> bool {
    let plain =
        |path: &Path| path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    path.is_absolute() && plain(path) && path.starts_with(directory)
}

/// Resolves the existing part of a path and appends the rest.
///
/// Fails for a relative path, for `..` behind a missing component, and for a dangling symbolic link (whose
/// creator decides later where it leads).
pub(super) fn resolve(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err("it is not absolute".into());
    }
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(resolved) => return Ok(missing.iter().rev().fold(resolved, |path, part| path.join(part))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{}: {error}", existing.display())),
        }
        if existing.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return Err(format!("{} is a symbolic link that leads nowhere", existing.display()));
        }
        // `file_name` is `None` for a path that ends in `..`.
        let (Some(name), Some(parent)) = (existing.file_name(), existing.parent()) else {
            return Err(format!("'..' in it leads out of what does not exist: {}", existing.display()));
        };
        missing.push(name);
        existing = parent;
    }
}
