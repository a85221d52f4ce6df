//! The pool: its files, those on their way into it, and what changes them.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::index::{self, Change, Entry};
use crate::log::{Log, has_index, index_path, sync_folder};
use crate::segments::{Held, Segments, create_draft, draft_path, open_locked, reserve_all, segments_path};
use crate::{PoolError, PoolFile, Result};

/// An open pool; copies are the same pool. It is locked as long as one of them, or a file of it, is there.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Core>);

#[derive(Debug)]
struct Core {
    folder: PathBuf,
    segments: Arc<Segments>,
    /// Taken before `files`. Held while a change is put on the disk.
    log: Mutex<Log>,
    files: Mutex<BTreeMap<String, Arc<PoolFile>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Makes a pool in `folder`, whose parent exists, and takes all its space: as many whole segments as
    /// `total_bytes` hold. A creation that was interrupted is done anew. Where the file system cannot reserve
    /// space, all of it is written.
    /// Errors: [`PoolError::Exists`], [`PoolError::IndexMissing`], [`PoolError::Busy`], [`PoolError::Size`],
    /// [`PoolError::Full`] when the disk has less free, [`PoolError::CopyOnWrite`], or the disk's; nothing is
    /// left behind then.
    pub fn create(folder: &Path, total_bytes: u64, segment_bytes: u64) -> Result<Self> {
        let count = total_bytes.checked_div(segment_bytes).unwrap_or(0);
        index::check_sizes(segment_bytes, count).map_err(PoolError::Size)?;
        let count = u32::try_from(count).map_err(|error| PoolError::Size(error.to_string()))?;
        let is_new = match DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(PoolError::io("create", folder)(error)),
        };
        let made = Self::fill(folder, segment_bytes, count);
        if is_new && made.is_err() {
            // One that is not empty is another process's.
            let _ = std::fs::remove_dir(folder);
        }
        made
    }

    fn fill(folder: &Path, segment_bytes: u64, count: u32) -> Result<Self> {
        if has_index(folder) {
            return Err(PoolError::Exists { path: folder.to_path_buf() });
        }
        let file = create_draft(folder)?;
        let made =
            Self::check_vacant(folder).and_then(|()| Self::fill_draft(folder, file, segment_bytes, count));
        if made.is_err() {
            // This process still has the lock of it, or it has its name already.
            let _ = std::fs::remove_file(draft_path(folder));
        }
        made
    }

    /// Whether no pool is in `folder`: another process may have made one before this one had the lock.
    fn check_vacant(folder: &Path) -> Result<()> {
        let len = match open_locked(folder) {
            Err(PoolError::Missing { .. }) => 0,
            opened => opened?.metadata().map_err(PoolError::io("look at", segments_path(folder)))?.len(),
        };
        if has_index(folder) {
            return Err(PoolError::Exists { path: folder.to_path_buf() });
        }
        // A creation gives the file of segments its name when it is complete, so it may have been a pool's.
        if len > 0 {
            return Err(PoolError::IndexMissing { path: segments_path(folder) });
        }
        Ok(())
    }

    fn fill_draft(folder: &Path, file: File, segment_bytes: u64, count: u32) -> Result<Self> {
        let wanted_bytes = segment_bytes * u64::from(count);
        if let Ok(space) = sys::disk::space(folder)
            && space.total_bytes > 0
            && space.available_bytes < wanted_bytes
        {
            return Err(PoolError::Full { wanted_bytes, free_bytes: space.available_bytes });
        }
        reserve_all(&file, &draft_path(folder), segment_bytes, count)?;
        let path = segments_path(folder);
        std::fs::rename(draft_path(folder), &path).map_err(PoolError::io("give its name to", &path))?;
        let log = Log::create(folder, segment_bytes, count).inspect_err(|_| {
            // Without an index, the segments were refused from now on.
            if !has_index(folder) {
                let _ = std::fs::remove_file(&path);
            }
        })?;
        sync_folder(folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
        let free = crate::free_list::FreeList::new(count);
        let segments = Arc::new(Segments::new(file, path, segment_bytes, free, count));
        Ok(Self::assemble(folder, segments, log, BTreeMap::new()))
    }

    fn assemble(
        folder: &Path,
        segments: Arc<Segments>,
        log: Log,
        files: BTreeMap<String, Arc<PoolFile>>,
    ) -> Self {
        let (log, files) = (Mutex::new(log), Mutex::new(files));
        Self(Arc::new(Core { folder: folder.to_path_buf(), segments, log, files }))
    }

    /// Opens the pool in `folder`. What was being written when its last user ended is forgotten.
    /// Errors: [`PoolError::Missing`], [`PoolError::IndexMissing`], [`PoolError::SegmentsMissing`],
    /// [`PoolError::Busy`], [`PoolError::Damaged`], or the disk's.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = segments_path(folder);
        // Half a pool is no absent one: who serves it would say that its files do not exist.
        let file = open_locked(folder).map_err(|error| match error {
            PoolError::Missing { .. } if has_index(folder) => {
                PoolError::SegmentsMissing { path: path.clone() }
            }
            error => error,
        })?;
        let (log, replayed) = Log::open(folder).map_err(|error| match error {
            PoolError::Missing { .. } => PoolError::IndexMissing { path: path.clone() },
            error => error,
        })?;
        let len = file.metadata().map_err(PoolError::io("look at", &path))?.len();
        let due = replayed.segment_bytes * u64::from(replayed.segments);
        if len != due {
            let reason = format!("it announces {due} bytes of segments, and {} has {len}", path.display());
            return Err(PoolError::Damaged { path: index_path(folder), record: 1, reason });
        }
        let (segment_bytes, count) = (replayed.segment_bytes, replayed.segments);
        let segments = Arc::new(Segments::new(file, path, segment_bytes, replayed.free, count));
        let as_file = |entry: Entry| {
            let held = Held::of_runs(segments.clone(), &entry.runs);
            Arc::new(PoolFile::new(entry.len_bytes, entry.mtime_ns, entry.version, held))
        };
        let files = replayed.files.into_iter().map(|(name, entry)| (name, as_file(entry))).collect();
        let pool = Self::assemble(folder, segments, log, files);
        pool.tidy(&mut locked(&pool.0.log));
        Ok(pool)
    }

    /// [`Pool::open`], or [`Pool::create`] where there is none yet.
    /// Errors: also [`PoolError::Size`]: the pool has another size.
    pub fn open_or_create(folder: &Path, total_bytes: u64, segment_bytes: u64) -> Result<Self> {
        if !has_index(folder) {
            return Self::create(folder, total_bytes, segment_bytes);
        }
        let pool = Self::open(folder)?;
        if pool.total_bytes() != total_bytes / segment_bytes * segment_bytes {
            return Err(PoolError::Size(format!(
                "{} has {} bytes, not {total_bytes}; give its size, or remove it with the files in it",
                folder.display(),
                pool.total_bytes()
            )));
        }
        Ok(pool)
    }

    /// What of the index or its copy was damaged when the pool was opened, and was written again from the
    /// other; `None`: nothing.
    pub fn repaired(&self) -> Option<String> {
        locked(&self.0.log).repaired().map(str::to_owned)
    }

    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The file in which all content is.
    pub fn segments_path(&self) -> &Path {
        &self.0.segments.path
    }

    pub fn segment_bytes(&self) -> u64 {
        self.0.segments.segment_bytes
    }

    pub fn total_bytes(&self) -> u64 {
        u64::from(self.0.segments.count) * self.segment_bytes()
    }

    /// Free segments, in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.0.segments.free_bytes()
    }

    /// A new file. Errors: [`PoolError::Broken`].
    pub fn begin(&self) -> Result<Writer> {
        locked(&self.0.log).check()?;
        Ok(Writer { pool: self.clone(), held: Held::none(self.0.segments.clone()), len_bytes: 0 })
    }

    pub fn file(&self, name: &str) -> Option<Arc<PoolFile>> {
        locked(&self.0.files).get(name).cloned()
    }

    /// All files with their names, in the order of the names.
    pub fn list(&self) -> Vec<(String, Arc<PoolFile>)> {
        locked(&self.0.files).iter().map(|(name, file)| (name.clone(), file.clone())).collect()
    }

    /// The files directly in a folder (empty: the root), with the last part of their names; at most `max`.
    pub fn list_folder(&self, folder: &str, max: usize) -> Vec<(String, Arc<PoolFile>)> {
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let files = locked(&self.0.files);
        let behind = files.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
        let within = behind.map_while(|(name, file)| Some((name.strip_prefix(&start)?, file)));
        let direct = within.filter(|(name, _)| !name.contains('/'));
        direct.take(max).map(|(name, file)| (name.to_owned(), file.clone())).collect()
    }

    /// The names of the folders directly in a folder (empty: the root) that have files somewhere below; at
    /// most `max`. A pool has no empty folders.
    pub fn subfolders(&self, folder: &str, max: usize) -> Vec<String> {
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let files = locked(&self.0.files);
        let mut found: Vec<String> = Vec::new();
        let mut from = start.clone();
        while found.len() < max {
            let mut behind = files.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded));
            let within = behind.by_ref().map_while(|(name, _)| name.strip_prefix(&start));
            let Some((part, _)) = within.filter_map(|rest| rest.split_once('/')).next() else { break };
            // The character behind the slash: past everything in this folder.
            from = format!("{start}{part}0");
            found.push(part.to_owned());
        }
        found
    }

    /// Whether there are files somewhere below a folder.
    pub fn has_folder(&self, folder: &str) -> bool {
        let start = format!("{folder}/");
        let files = locked(&self.0.files);
        let mut behind = files.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
        behind.next().is_some_and(|(name, _)| name.starts_with(&start))
    }

    /// Removes a file; `false`: there is none. It is gone from the disk when this returns; who reads it now
    /// can go on.
    /// Errors: [`PoolError::Broken`], or the disk's.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let mut log = locked(&self.0.log);
        if !locked(&self.0.files).contains_key(name) {
            return Ok(false);
        }
        self.append(&mut log, &[Change::Remove { name: name.to_owned() }])?;
        // Only now may its segments become another file's.
        let gone = locked(&self.0.files).remove(name);
        self.tidy(&mut log);
        Ok(gone.is_some())
    }

    fn publish(&self, name: &str, len_bytes: u64, held: Held, may_replace: bool) -> Result<Committed> {
        if !index::is_name(name) {
            return Err(PoolError::Name(name.to_owned()));
        }
        // The content before its record.
        let segments = &self.0.segments;
        match segments.sync() {
            Ok(true) => {}
            Ok(false) => return Err(PoolError::Broken { path: self.0.folder.clone() }),
            Err(error) => {
                locked(&self.0.log).set_broken();
                return Err(PoolError::io("put on the disk", &segments.path)(error));
            }
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mtime_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        let mut log = locked(&self.0.log);
        if !may_replace && locked(&self.0.files).contains_key(name) {
            return Err(PoolError::NameTaken(name.to_owned()));
        }
        let file = Arc::new(PoolFile::new(len_bytes, mtime_ns, log.next_sequence(), held));
        self.append(&mut log, &[Change::Put { name: name.to_owned(), file: file.entry() }])?;
        let old = locked(&self.0.files).insert(name.to_owned(), file.clone());
        self.tidy(&mut log);
        Ok(Committed { file, replaced: old.is_some() })
    }

    fn append(&self, log: &mut Log, changes: &[Change]) -> Result<()> {
        let appended = log.append(changes);
        if log.is_broken() {
            self.0.segments.set_broken();
        }
        appended
    }

    /// Writes the index anew, with nothing in it of the past.
    pub fn compact(&self) -> Result<()> {
        self.compact_log(&mut locked(&self.0.log))
    }

    fn compact_log(&self, log: &mut Log) -> Result<()> {
        let files = locked(&self.0.files).iter().map(|(name, f)| (name.clone(), f.entry())).collect();
        let compacted = log.compact(&files);
        if log.is_broken() {
            self.0.segments.set_broken();
        }
        compacted
    }

    fn tidy(&self, log: &mut Log) {
        let files = locked(&self.0.files).len();
        if log.is_stale(files) {
            // The index that there is holds all the same; the next change tries again.
            let _ = self.compact_log(log);
        }
    }
}

/// A file being written, which is not listed yet. Dropping it makes its segments free.
#[derive(Debug)]
pub struct Writer {
    pool: Pool,
    held: Held,
    len_bytes: u64,
}

impl Writer {
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Takes the segments for a content of `total_bytes` at once, so that they are in few runs.
    /// Errors: [`PoolError::Full`].
    pub fn reserve(&mut self, total_bytes: u64) -> Result<()> {
        let wanted = total_bytes.div_ceil(self.held.segments.segment_bytes);
        let missing = wanted.saturating_sub(self.held.numbers.len() as u64);
        match u32::try_from(missing) {
            Ok(missing) => self.held.extend(missing),
            Err(_) => Err(PoolError::Full {
                wanted_bytes: total_bytes,
                free_bytes: self.held.segments.free_bytes(),
            }),
        }
    }

    /// Appends to the content. Errors: [`PoolError::Full`], or the disk's.
    pub fn write_all(&mut self, mut content: &[u8]) -> Result<()> {
        let segment_bytes = self.held.segments.segment_bytes;
        while !content.is_empty() {
            let (at, within) = (self.len_bytes / segment_bytes, self.len_bytes % segment_bytes);
            if at == self.held.numbers.len() as u64 {
                self.held.extend(1)?;
            }
            let number = self.held.numbers[at as usize];
            let room = usize::try_from(segment_bytes - within).unwrap_or(usize::MAX);
            let (piece, rest) = content.split_at(room.min(content.len()));
            let written =
                self.held.segments.file.write_all_at(piece, u64::from(number) * segment_bytes + within);
            written.map_err(PoolError::io("write", &self.held.segments.path))?;
            self.len_bytes += piece.len() as u64;
            content = rest;
        }
        Ok(())
    }

    /// Gives the content its name, in place of an older file of that name. When this returns, both are on the
    /// disk; before, there is the old file or none.
    /// Errors: [`PoolError::Name`], [`PoolError::Broken`], or the disk's.
    pub fn commit(mut self, name: &str) -> Result<Committed> {
        self.held.shorten(self.len_bytes.div_ceil(self.held.segments.segment_bytes) as usize);
        self.pool.publish(name, self.len_bytes, self.held, true)
    }

    /// As [`Writer::commit`], if no file has the name.
    /// Errors: also [`PoolError::NameTaken`].
    pub fn commit_new(mut self, name: &str) -> Result<Committed> {
        self.held.shorten(self.len_bytes.div_ceil(self.held.segments.segment_bytes) as usize);
        self.pool.publish(name, self.len_bytes, self.held, false)
    }
}

/// What a commit did.
#[derive(Debug)]
pub struct Committed {
    pub file: Arc<PoolFile>,
    /// Whether there was a file of that name.
    pub replaced: bool,
}
