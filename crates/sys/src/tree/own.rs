//! Which entries of a folder are this program's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Least number of digits of a name that is a number.
const DIGITS_MIN: usize = 8;
const HASH_DIGITS: usize = 16;
/// What network and FUSE file systems make of a removed file that is still open.
const NAMES_OF_REMOVED_OPEN_FILES: [&[u8]; 2] = [b".nfs", b".fuse_hidden"];

/// The paths in a folder that this program makes: only these are removed. Besides those that are listed,
/// names of eight digits and more are its own everywhere but in the folder itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPaths(BTreeSet<PathBuf>);

/// Entries of a folder that are not this program's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Foreign {
    pub count: u64,
    /// The first of them, relative to the folder.
    pub first: Vec<PathBuf>,
}

impl OwnPaths {
    /// Paths relative to the folder, and all directories above them. A first component that ends in `*`
    /// stands for all names that begin so and go on with 16 hexadecimal digits.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut all = BTreeSet::new();
        for path in paths {
            let above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
            all.extend(above.map(Path::to_path_buf));
        }
        Self(all)
    }

    /// Whether the entry `name` of the directory `above`, which is this program's, is so, too. Both are
    /// relative to the folder; `above` is empty for the folder itself.
    pub fn has(&self, above: &Path, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        let is_number = bytes.len() >= DIGITS_MIN && bytes.iter().all(u8::is_ascii_digit);
        if !above.as_os_str().is_empty()
            && (is_number || NAMES_OF_REMOVED_OPEN_FILES.iter().any(|prefix| bytes.starts_with(prefix)))
        {
            return true;
        }
        let path = above.join(name);
        self.0.contains(&path) || self.0.contains(&with_star(&path))
    }
}

/// The path with a first component `NAME*` in place of `NAME` and a hash.
fn with_star(path: &Path) -> PathBuf {
    let mut components = path.components();
    let first = components.next().map(|first| first.as_os_str().to_string_lossy().into_owned());
    let first = first.unwrap_or_default();
    let Some((prefix, hash)) =
        first.len().checked_sub(HASH_DIGITS).and_then(|split| first.split_at_checked(split))
    else {
        return path.to_path_buf();
    };
    match hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => PathBuf::from(format!("{prefix}*")).join(components.as_path()),
        false => path.to_path_buf(),
    }
}

impl Foreign {
    const FIRST_MAX: usize = 5;

    pub(super) fn add(&mut self, path: PathBuf) {
        self.count += 1;
        if self.first.len() < Self::FIRST_MAX {
            self.first.push(path);
        }
    }
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.first.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&names.join(", "))?;
        match self.count - names.len() as u64 {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_paths_are_those_listed_and_numbers_below_them() {
        let own = OwnPaths::new(["tree-*/tmp/set".into(), "aged/pool/index".into()]);
        let has = |above: &str, name: &str| own.has(Path::new(above), OsStr::new(name));
        let tree = "tree-0123456789abcdef";
        for (above, name) in [
            ("", tree),
            (tree, "tmp"),
            ("tree-0123456789abcdef/tmp", "set"),
            ("tree-0123456789abcdef/tmp/set", "00000001"),
            ("tree-0123456789abcdef/tmp/set/00000001", "4294967295"),
            ("tree-0123456789abcdef/tmp/set", ".nfs000000001"),
            ("", "aged"),
            ("aged/pool", "index"),
        ] {
            assert!(has(above, name), "{above}/{name}");
        }
        for (above, name) in [
            ("", "00000001"),
            ("", "tree-"),
            ("", "tree-0123456789abcdeg"),
            ("", "tree-mine"),
            ("", "éééééééééé"),
            (tree, "set"),
            (tree, "notes.txt"),
            ("tree-0123456789abcdef/tmp/set", "1"),
            ("aged", "index"),
            ("", ".nfs1"),
        ] {
            assert!(!has(above, name), "{above}/{name}");
        }
    }
}
