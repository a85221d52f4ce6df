//! The space of a pool: the file of segments and who has which of them.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::free_list::{FreeList, Run};
use crate::{PoolError, Result};

/// Written at once where space cannot be reserved.
const ZEROS_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct Segments {
    /// Locked (flock(2)) while it is open, so that a pool is open once.
    pub file: File,
    pub path: PathBuf,
    pub segment_bytes: u64,
    pub count: u32,
    free: Mutex<FreeList>,
    /// Whether the index is unknown: then no segment becomes free, because it may be a file's.
    broken: AtomicBool,
    /// Held while content is put on the disk: the kernel reports a loss to one of those who wait only.
    sync: Mutex<()>,
}

/// The file of a pool in `folder` in which all content is.
pub fn segments_path(folder: &Path) -> PathBuf {
    folder.join("segments")
}

/// The file of segments before all of its space is reserved.
pub fn draft_path(folder: &Path) -> PathBuf {
    folder.join("segments.new")
}

/// Opens the file of segments and locks it.
pub fn open_locked(folder: &Path) -> Result<File> {
    let path = segments_path(folder);
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(PoolError::Missing { path: folder.to_path_buf() });
        }
        opened => opened.map_err(PoolError::io("open", &path))?,
    };
    lock(file, folder, &path)
}

/// Makes the draft of the file of segments, empty and locked. One that an interrupted creation left is
/// emptied, so that its space is free.
pub fn create_draft(folder: &Path) -> Result<File> {
    let path = draft_path(folder);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(PoolError::io("create", &path))?;
    let file = lock(file, folder, &path)?;
    let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let own = file.metadata().map(place).map_err(PoolError::io("look at", &path))?;
    // Before this process had the lock, another one may have completed or removed this draft.
    if std::fs::metadata(&path).map(place).ok() != Some(own) {
        return Err(PoolError::Busy { path: folder.to_path_buf() });
    }
    file.set_len(0).map_err(PoolError::io("empty", &path))?;
    Ok(file)
}

fn lock(file: File, folder: &Path, path: &Path) -> Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(PoolError::Busy { path: folder.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(PoolError::io("lock", path)(error)),
    }
}

/// Takes the space of every segment of the empty `file` at `path`, each in one request, so that each is
/// contiguous while the disk is fresh.
/// Errors: [`PoolError::CopyOnWrite`], or the disk's.
pub fn reserve_all(file: &File, path: &Path, segment_bytes: u64, count: u32) -> Result<()> {
    let is_kept = sys::file::rewrite_in_place(file);
    if !is_kept.map_err(PoolError::io("turn off the copy-on-write of", path))? {
        return Err(PoolError::CopyOnWrite { path: path.to_path_buf() });
    }
    reserve_each(file, segment_bytes, count).map_err(PoolError::io("reserve the space of", path))
}

fn reserve_each(file: &File, segment_bytes: u64, count: u32) -> io::Result<()> {
    for at in 0..u64::from(count) {
        if !sys::file::reserve(file, at * segment_bytes, segment_bytes, true)? {
            return write_all(file, segment_bytes * u64::from(count));
        }
    }
    file.sync_all()
}

/// As [`reserve_each`] where the file system cannot reserve (ext3): writes everything in order.
fn write_all(file: &File, total_bytes: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    // The allocator goes by the length of the file: into a short one it puts the first blocks one by one.
    file.set_len(total_bytes)?;
    let mut at = 0;
    while at < total_bytes {
        let piece = (total_bytes - at).min(ZEROS_BYTES as u64);
        file.write_all_at(&zeros[..piece as usize], at)?;
        at += piece;
    }
    file.sync_all()
}

impl Segments {
    pub fn new(file: File, path: PathBuf, segment_bytes: u64, free: FreeList, count: u32) -> Self {
        let (free, broken, sync) = (Mutex::new(free), AtomicBool::new(false), Mutex::new(()));
        Self { file, path, segment_bytes, count, free, broken, sync }
    }

    /// Opens the file once more: the kernel keeps its read-ahead per open file.
    pub fn reader(&self) -> io::Result<File> {
        File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    pub fn free_bytes(&self) -> u64 {
        u64::from(self.free().free()) * self.segment_bytes
    }

    pub fn set_broken(&self) {
        self.broken.store(true, Ordering::SeqCst);
    }

    /// Puts all content on the disk. `Ok(false)`: it is unknown what is there since an earlier error.
    /// Errors: the disk's; every later call returns `Ok(false)`.
    pub fn sync(&self) -> io::Result<bool> {
        let _turn = self.sync.lock().unwrap_or_else(PoisonError::into_inner);
        if self.broken.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.file.sync_data().inspect_err(|_| self.set_broken())?;
        Ok(true)
    }

    fn free(&self) -> MutexGuard<'_, FreeList> {
        // The list is never left half changed: a run is taken or given back by calls that cannot fail.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Segments in use by a file or by an upload. Dropping it makes them free.
#[derive(Debug)]
pub struct Held {
    pub segments: Arc<Segments>,
    /// Their numbers, in the order of the content.
    pub numbers: Vec<u32>,
}

impl Held {
    pub fn none(segments: Arc<Segments>) -> Self {
        Self { segments, numbers: Vec::new() }
    }

    /// Those of a file that the index knows; they are taken already.
    pub fn of_runs(segments: Arc<Segments>, runs: &[Run]) -> Self {
        let numbers = runs.iter().flat_map(|&(first, count)| first..first + count).collect();
        Self { segments, numbers }
    }

    /// Takes `count` more. Errors: [`PoolError::Full`].
    pub fn extend(&mut self, count: u32) -> Result<()> {
        let mut free = self.segments.free();
        let runs = free.allocate(count, self.numbers.last().copied()).ok_or_else(|| PoolError::Full {
            wanted_bytes: u64::from(count) * self.segments.segment_bytes,
            free_bytes: u64::from(free.free()) * self.segments.segment_bytes,
        })?;
        self.numbers.extend(runs.into_iter().flat_map(|(first, count)| first..first + count));
        Ok(())
    }

    /// Gives back all but the first `count`.
    pub fn shorten(&mut self, count: usize) {
        let mut free = self.segments.free();
        for number in self.numbers.drain(count..) {
            free.give_back((number, 1));
        }
    }

    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &number in &self.numbers {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == number => *count += 1,
                _ => runs.push((number, 1)),
            }
        }
        runs
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.segments.broken.load(Ordering::SeqCst) {
            self.shorten(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn sync_during_a_failing_sync_is_no_success() {
        // It cannot be synced: EINVAL.
        let path = PathBuf::from("/dev/null");
        let lost = Segments::new(File::open(&path).unwrap(), path, 4096, FreeList::new(1), 1);
        assert!(lost.sync().is_err());
        assert!(!lost.sync().unwrap());

        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_path_buf();
        let segments = Segments::new(file.reopen().unwrap(), path, 4096, FreeList::new(1), 1);
        assert!(segments.sync().unwrap());
        std::thread::scope(|scope| {
            // As one whose fsync has taken the error and who has not said so yet.
            let turn = segments.sync.lock().unwrap();
            let (begun, begins) = mpsc::channel();
            let (ended, ends) = mpsc::channel();
            let other = &segments;
            scope.spawn(move || {
                begun.send(()).unwrap();
                ended.send(other.sync().unwrap()).unwrap();
            });
            begins.recv().unwrap();
            assert!(ends.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
            segments.set_broken();
            drop(turn);
            assert!(!ends.recv().unwrap());
        });
    }
}
