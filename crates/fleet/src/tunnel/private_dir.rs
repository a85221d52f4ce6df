//! Folders for sockets that only this user can enter.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

const PREFIX: &str = "kagiri-bus-";
/// Another process may take a folder that is not locked yet for a leftover.
const ATTEMPTS: usize = 3;

/// Removed when dropped. A killed process leaves its folder, unlocked; the next process removes it.
pub(super) struct PrivateDir {
    dir: TempDir,
    _lock: Flock<File>,
}

impl PrivateDir {
    pub fn create() -> io::Result<Self> {
        static CLEAN: Once = Once::new();
        let parent = std::env::temp_dir();
        CLEAN.call_once(|| remove_leftovers(&parent));
        for _ in 0..ATTEMPTS {
            // With mode 0700.
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
            match lock(dir.path()) {
                Some(lock) if dir.path().exists() => return Ok(Self { dir, _lock: lock }),
                _ => {}
            }
        }
        Err(io::Error::other(format!("cannot make a private folder in {}", parent.display())))
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn lock(dir: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(dir).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

fn remove_leftovers(parent: &Path) {
    let own = nix::unistd::geteuid().as_raw();
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Of the entry itself: no link is followed.
        let is_own = || entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own);
        if is_named && is_own() && lock(&entry.path()).is_some() {
            // A leftover does no harm.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_folders_are_removed_and_used_ones_kept() {
        let parent = tempfile::tempdir().unwrap();
        let [left, used, other] =
            ["kagiri-bus-left", "kagiri-bus-used", "other"].map(|name| parent.path().join(name));
        [&left, &used, &other].iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        std::fs::write(left.join("bus.sock"), "").unwrap();
        let _lock = lock(&used).unwrap();
        remove_leftovers(parent.path());
        assert_eq!([&left, &used, &other].map(|dir| dir.exists()), [false, true, true]);
    }
}
