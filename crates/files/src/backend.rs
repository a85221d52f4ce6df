//! Whether the object store behind a mount holds what was written to the mount.
//!
//! A write-back cache answers before its backend has anything. The backend's own listing is the proof: every
//! file of the tree is there with its size, and no file that was deleted.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

use crate::engine::report::Durable;
use crate::engine::sync_file_system;
use crate::objects::access::address::Address;
use crate::objects::access::client::Client;
use crate::objects::access::failure::Failure;

const PAGE: usize = 1000;
const PAUSE: Duration = Duration::from_millis(50);

/// A mount's backend.
#[derive(Clone)]
pub(crate) struct Backend {
    pub client: Client,
    /// What of the backend is the measured directory.
    pub at: Address,
    /// The measured directory.
    pub dir: PathBuf,
}

/// Sizes by key.
type Sizes = BTreeMap<String, u64>;

impl Backend {
    /// Whether it answers.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let listed = runtime.block_on(self.client.list(&self.at.prefix, 1, None));
        listed
            .map(drop)
            .map_err(|failure| failure.sentence(&format!("{} on {}", self.at, self.client.endpoint())))
    }

    /// Waits until it holds all files of the tree at `tree`, and no other, at most `within` and until `stop`.
    pub(crate) fn wait(
        &self,
        fd: &OwnedFd,
        tree: &Path,
        began: Instant,
        within: Duration,
        stop: &Arc<AtomicBool>,
    ) -> Durable {
        if let failed @ Durable::Failed { .. } = sync_file_system(fd, began) {
            return failed;
        }
        let failed = |why: String| Durable::Failed { why };
        let Ok(below) = tree.strip_prefix(&self.dir) else {
            return failed(format!("{} is not below {}", tree.display(), self.dir.display()));
        };
        let prefix = self.at.below(&below.to_string_lossy()).prefix;
        let mut wanted = Sizes::new();
        if let Err(error) = files_below(tree, &prefix, &mut wanted) {
            return failed(format!("{}: {error}", tree.display()));
        }
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(format!("cannot start a runtime: {error}")),
        };
        let mut left = None;
        while began.elapsed() < within && !stop.load(Ordering::Relaxed) {
            let listing_began = Instant::now();
            match runtime.block_on(self.list(&prefix)) {
                Ok(found) => match difference(&wanted, &found) {
                    None => return Durable::After { s: began.elapsed().as_secs_f64() },
                    different => {
                        left = different;
                        look_again(tree, &prefix, &mut wanted, &found);
                    }
                },
                Err(failure) if failure.is_final => return failed(failure.sentence(&self.at.to_string())),
                Err(failure) => left = Some(failure.sentence(&self.at.to_string())),
            }
            // Listing takes at most half of the time, so that it slows the upload down little.
            let pause = PAUSE.max(listing_began.elapsed());
            std::thread::sleep(pause.min(within.saturating_sub(began.elapsed())));
        }
        Durable::NotWithin { s: within.as_secs_f64(), left }
    }

    async fn list(&self, prefix: &str) -> Result<Sizes, Failure> {
        let (mut found, mut next) = (Sizes::new(), None);
        loop {
            let page = self.client.list(&format!("{prefix}/"), PAGE, next).await?;
            found.extend(page.objects);
            next = page.next;
            if next.is_none() {
                return Ok(found);
            }
        }
    }
}

fn files_below(dir: &Path, key: &str, files: &mut Sizes) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let key = format!("{key}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files_below(&entry.path(), &key, files)?;
        } else {
            files.insert(key, entry.metadata()?.len());
        }
    }
    Ok(())
}

/// Asks the mount once more for the sizes of files that it said are smaller than the backend has them: after
/// threads used a file at the same time, s3fs says an old size for a while. A file is never taken for smaller
/// than the mount has said, so that nothing which the backend lacks is forgotten.
fn look_again(tree: &Path, prefix: &str, wanted: &mut Sizes, found: &Sizes) {
    let is_larger_there = |key: &String, size: u64| found.get(key).is_some_and(|there| *there > size);
    for (key, size) in wanted.iter_mut().filter(|(key, size)| is_larger_there(key, **size)) {
        let below = key.strip_prefix(prefix).map(|path| path.trim_start_matches('/'));
        if let Some(Ok(file)) = below.map(|path| std::fs::symlink_metadata(tree.join(path))) {
            *size = (*size).max(file.len());
        }
    }
}

/// What the backend does not hold yet, in words; `None`: it holds everything.
fn difference(wanted: &Sizes, found: &Sizes) -> Option<String> {
    let missing: Vec<_> = wanted.iter().filter(|(key, size)| found.get(*key) != Some(size)).collect();
    // Markers of directories are empty.
    let deleted = |(key, size): &(&String, &u64)| **size > 0 && !wanted.contains_key(*key);
    let extra = found.iter().filter(deleted).count();
    match (missing.first(), extra) {
        (Some((key, size)), _) => {
            let there =
                found.get(*key).map_or_else(|| "not at all".to_owned(), |size| format!("with {size}"));
            Some(format!(
                "{} of {} files are not there with their size, among them {key}: {size} B by the mount, \
                 and there {there}",
                missing.len(),
                wanted.len()
            ))
        }
        (None, 0) => None,
        (None, extra) => Some(format!("{extra} deleted files are still there")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(all: &[(&str, u64)]) -> Sizes {
        all.iter().map(|(key, size)| ((*key).to_owned(), *size)).collect()
    }

    #[test]
    fn difference_names_missing_short_and_deleted_files() {
        let wanted = sizes(&[("p/a", 3), ("p/d/b", 0)]);
        assert_eq!(difference(&wanted, &sizes(&[("p/a", 3), ("p/d", 0), ("p/d/b", 0)])), None);
        let words = |found| difference(&wanted, &sizes(found)).unwrap();
        assert!(words(&[("p/a", 3)]).contains("1 of 2 files") && words(&[("p/a", 3)]).contains("p/d/b"));
        assert!(words(&[("p/a", 2), ("p/d/b", 0)]).contains("p/a: 3 B by the mount, and there with 2"));
        assert!(words(&[("p/a", 3), ("p/d/b", 0), ("p/c", 1)]).contains("1 deleted"));
    }

    #[test]
    fn only_a_size_that_the_backend_exceeds_is_asked_for_again_and_never_shrinks() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("stale"), "abc").unwrap();
        std::fs::write(tree.path().join("lost"), "a").unwrap();
        std::fs::write(tree.path().join("shrunk"), "a").unwrap();
        let mut wanted = sizes(&[("p/stale", 0), ("p/lost", 3), ("p/shrunk", 2), ("p/missing", 7)]);
        look_again(tree.path(), "p", &mut wanted, &sizes(&[("p/stale", 3), ("p/lost", 1), ("p/shrunk", 4)]));
        assert_eq!(wanted, sizes(&[("p/stale", 3), ("p/lost", 3), ("p/shrunk", 2), ("p/missing", 7)]));
    }
}
