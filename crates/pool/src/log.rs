//! The index on the disk: appending, and writing it anew.
//!
//! It is there twice: `index`, and `index.copy` with the same records. A change is answered when both have
//! its record, so that a record that one of them lost, or a damaged one, is taken from the other.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::index::{self, Change, Entry, Replayed};
use crate::{PoolError, Result};

/// Longest index that is read, in bytes; it takes about 150 bytes a file and change.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Space that an index keeps for itself, so that files can still be removed on a full disk.
const RESERVED_BYTES: u64 = 1 << 20;
/// An index is written anew when it has twice as many records as files, and so many more.
const STALE_RECORDS_MAX: u64 = 1024;

/// An open index, or its copy.
struct Opened {
    file: File,
    bytes: Vec<u8>,
    replayed: Replayed,
}

#[derive(Debug)]
pub struct Log {
    /// The index and its copy.
    files: [File; 2],
    folder: PathBuf,
    len_bytes: u64,
    next_sequence: u64,
    records: u64,
    segment_bytes: u64,
    segments: u32,
    /// Whether what is on the disk is unknown.
    broken: bool,
    /// What of the index or its copy was damaged when it was opened, and was written again from the other.
    repaired: Option<String>,
}

pub fn index_path(folder: &Path) -> PathBuf {
    folder.join("index")
}

fn copy_path(folder: &Path) -> PathBuf {
    folder.join("index.copy")
}

/// Whether a folder has an index, or its copy.
pub fn has_index(folder: &Path) -> bool {
    paths(folder).iter().any(|path| path.exists())
}

/// The index and its copy.
fn paths(folder: &Path) -> [PathBuf; 2] {
    [index_path(folder), copy_path(folder)]
}

fn draft_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

impl Log {
    /// The index of a new pool.
    pub fn create(folder: &Path, segment_bytes: u64, segments: u32) -> Result<Self> {
        let written = write_anew(folder, segment_bytes, segments, 0, &[]);
        let Written { files, records, len_bytes } = written.map_err(|error| error.error)?;
        sync_folder(folder)?;
        Ok(Self {
            files,
            folder: folder.to_path_buf(),
            len_bytes,
            next_sequence: records,
            records,
            segment_bytes,
            segments,
            broken: false,
            repaired: None,
        })
    }

    pub fn open(folder: &Path) -> Result<(Self, Replayed)> {
        let path = index_path(folder);
        let Best { replayed, files, repaired } = best(folder)?;
        let (segment_bytes, segments) = (replayed.segment_bytes, replayed.segments);
        let (files, records, len_bytes, next_sequence) = match files {
            Some(files) => {
                for file in &files {
                    let len = file.metadata().map_err(PoolError::io("look at", &path))?.len();
                    if replayed.whole_bytes < len {
                        // The record that was being written; it was never answered.
                        file.set_len(replayed.whole_bytes)
                            .and_then(|()| file.sync_all())
                            .map_err(PoolError::io("shorten", &path))?;
                    }
                }
                (files, replayed.records, replayed.whole_bytes, replayed.next_sequence)
            }
            None => {
                let (sequence, puts) = (replayed.next_sequence, puts_of(&replayed.files));
                let written = write_anew(folder, segment_bytes, segments, sequence, &puts);
                let Written { files, records, len_bytes } = written.map_err(|error| error.error)?;
                sync_folder(folder)?;
                (files, records, len_bytes, sequence + records)
            }
        };
        let folder = folder.to_path_buf();
        let broken = false;
        let log = Self {
            files,
            folder,
            len_bytes,
            next_sequence,
            records,
            segment_bytes,
            segments,
            broken,
            repaired,
        };
        Ok((log, replayed))
    }

    /// What of the index or its copy was damaged when it was opened, and was written again from the other.
    pub fn repaired(&self) -> Option<&str> {
        self.repaired.as_deref()
    }

    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn set_broken(&mut self) {
        self.broken = true;
    }

    pub fn check(&self) -> Result<()> {
        if self.broken { Err(PoolError::Broken { path: self.folder.clone() }) } else { Ok(()) }
    }

    /// Puts one record on the disk, into the index and its copy.
    /// Errors: it could not be written, for want of space or else, and both were cut back to their old
    /// length: as if it had never been tried. They could not be cut back, or not be put on the disk: what is
    /// there is unknown, and the log is broken.
    pub fn append(&mut self, changes: &[Change]) -> Result<()> {
        self.check()?;
        let path = index_path(&self.folder);
        let record = index::encode(self.next_sequence, changes).map_err(|error| PoolError::Io {
            action: "write a record of",
            path: path.clone(),
            source: error.into(),
        })?;
        // The copy follows when the index is on the disk: an index that ends before its copy has lost a
        // record.
        for file in &self.files {
            if let Err(error) = file.write_all_at(&record, self.len_bytes) {
                // A part of the record must not stay before the next one.
                let cut = |file: &File| file.set_len(self.len_bytes).and_then(|()| file.sync_data());
                self.broken = self.files.iter().any(|file| cut(file).is_err());
                return Err(PoolError::io("write", &path)(error));
            }
            if let Err(error) = file.sync_data() {
                self.broken = true;
                return Err(PoolError::io("put on the disk", &path)(error));
            }
        }
        self.len_bytes += record.len() as u64;
        self.next_sequence += 1;
        self.records += 1;
        Ok(())
    }

    /// Whether most records are of the past.
    pub fn is_stale(&self, files: usize) -> bool {
        self.records > 2 * files as u64 + STALE_RECORDS_MAX
    }

    /// Writes the index and its copy anew, with the pool and its files only.
    /// Errors: The old index stays in use, unless the new one took its name: then the log is broken.
    pub fn compact(&mut self, files: &BTreeMap<String, Entry>) -> Result<()> {
        self.check()?;
        let sequence = self.next_sequence;
        let written = write_anew(&self.folder, self.segment_bytes, self.segments, sequence, &puts_of(files));
        let written = written.map_err(|error| {
            self.broken = error.is_named;
            error.error
        })?;
        // The new index has the name and may have it on the disk.
        sync_folder(&self.folder).inspect_err(|_| self.broken = true)?;
        self.next_sequence += written.records;
        (self.files, self.records, self.len_bytes) = (written.files, written.records, written.len_bytes);
        Ok(())
    }
}

fn puts_of(files: &BTreeMap<String, Entry>) -> Vec<Change> {
    files.iter().map(|(name, file)| Change::Put { name: name.clone(), file: file.clone() }).collect()
}

/// The files of the pool in `folder`, which may be in use: nothing is locked or changed. A record that is
/// being written is left out.
/// Errors: [`PoolError::Missing`], [`PoolError::Damaged`], or the disk's.
pub fn look(folder: &Path) -> Result<Replayed> {
    best(folder).map(|best| best.replayed)
}

/// What the index and its copy say.
struct Best {
    replayed: Replayed,
    /// Both, if they have the same records; else they are to be written anew.
    files: Option<[File; 2]>,
    repaired: Option<String>,
}

impl Best {
    /// What one of the two says, from which both are written anew.
    fn of_one(opened: Opened, repaired: Option<String>) -> Self {
        Self { replayed: opened.replayed, files: None, repaired }
    }

    fn of_copy(copy: Opened, what: &str) -> Self {
        Self::of_one(copy, Some(format!("{what}; all files were recovered from the copy of the index")))
    }

    fn of_index(index: Opened, what: &str) -> Self {
        Self::of_one(index, Some(format!("{what}; no file was lost, and the copy was written again")))
    }

    /// The one that has more records, where neither is damaged.
    fn of_both(index: Opened, copy: Opened) -> Self {
        let (ours, theirs) = (index.replayed.next_sequence, copy.replayed.next_sequence);
        if index.whole() == copy.whole() {
            let files = Some([index.file, copy.file]);
            return Self { replayed: index.replayed, files, repaired: None };
        }
        if theirs > ours {
            return Self::of_copy(copy, &format!("the index ended after record {}", index.replayed.records));
        }
        // A program that ends between the two writes of a record leaves the copy without the last one.
        if theirs + 1 == ours && index.whole().starts_with(copy.whole()) {
            return Self::of_one(index, None);
        }
        let records = copy.replayed.records;
        Self::of_index(index, &format!("the copy of the index differed from it after record {records}"))
    }
}

/// The one of the index and its copy that has more; a damaged one is left out if the other is whole.
/// Errors: [`PoolError::Missing`], [`PoolError::Damaged`], or the disk's.
fn best(folder: &Path) -> Result<Best> {
    match paths(folder).map(|path| read(&path)).into() {
        (Ok(None), Ok(None)) => Err(PoolError::Missing { path: folder.to_path_buf() }),
        (Ok(Some(index)), Ok(Some(copy))) => Ok(Best::of_both(index, copy)),
        (Ok(Some(index)), Ok(None)) => Ok(Best::of_index(index, "the copy of the index was missing")),
        (Ok(None), Ok(Some(copy))) => Ok(Best::of_copy(copy, "the index was missing")),
        // What is behind the last whole record of the other one may be in the damaged one only.
        (Err(error), Ok(Some(copy))) if copy.is_whole() => {
            let damage = damage(&error).ok_or(error)?;
            Ok(Best::of_copy(copy, &format!("the index {damage}")))
        }
        (Ok(Some(index)), Err(error)) if index.is_whole() => {
            let damage = damage(&error).ok_or(error)?;
            Ok(Best::of_index(index, &format!("the copy of the index {damage}")))
        }
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// What is wrong with one of the two, if the other can replace it.
fn damage(error: &PoolError) -> Option<String> {
    match error {
        PoolError::Damaged { record, .. } => Some(format!("was damaged in record {record}")),
        PoolError::Io { source, .. } if source.raw_os_error() == Some(libc::EIO) => {
            Some("could not be read".to_owned())
        }
        _ => None,
    }
}

impl Opened {
    fn is_whole(&self) -> bool {
        self.replayed.whole_bytes == self.bytes.len() as u64
    }

    fn whole(&self) -> &[u8] {
        &self.bytes[..usize::try_from(self.replayed.whole_bytes).unwrap_or(usize::MAX)]
    }
}

/// An index; `None`: it is not there.
fn read(path: &Path) -> Result<Option<Opened>> {
    // Who only looks need not be able to write.
    let opened = OpenOptions::new().read(true).write(true).open(path).or_else(|_| File::open(path));
    let file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(PoolError::io("open", path))?,
    };
    let len = file.metadata().map_err(PoolError::io("look at", path))?.len();
    if len > INDEX_BYTES_MAX {
        let reason = format!("the index is longer than {INDEX_BYTES_MAX} bytes");
        return Err(PoolError::Damaged { path: path.to_path_buf(), record: 1, reason });
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(PoolError::io("read", path))?;
    let replayed = index::replay(&bytes).map_err(|damage| PoolError::Damaged {
        path: path.to_path_buf(),
        record: damage.record,
        reason: damage.reason,
    })?;
    Ok(Some(Opened { file, bytes, replayed }))
}

struct Written {
    files: [File; 2],
    records: u64,
    len_bytes: u64,
}

struct WriteError {
    error: PoolError,
    /// Whether a new index may have its name.
    is_named: bool,
}

/// Writes a whole index and its copy beside the old ones, and gives them their names when they are on the
/// disk; to put the names on the disk is left to the caller.
fn write_anew(
    folder: &Path,
    segment_bytes: u64,
    segments: u32,
    sequence: u64,
    puts: &[Change],
) -> std::result::Result<Written, WriteError> {
    let paths = paths(folder);
    let before = |error| {
        // The next attempt overwrites a draft that stays.
        for path in &paths {
            let _ = std::fs::remove_file(draft_path(path));
        }
        WriteError { error, is_named: false }
    };
    let mut text = Vec::new();
    let describe = [index::description(segment_bytes, segments)];
    let groups = std::iter::once(&describe[..]).chain(puts.chunks(1));
    let mut records = 0;
    for changes in groups {
        let record = index::encode(sequence + records, changes);
        let failed = PoolError::io("write a record of", &paths[0]);
        text.extend(record.map_err(|error| before(failed(error.into())))?);
        records += 1;
    }
    let index = write_draft(&draft_path(&paths[0]), &text).map_err(before)?;
    let copy = write_draft(&draft_path(&paths[1]), &text).map_err(before)?;
    for (number, path) in paths.iter().enumerate() {
        std::fs::rename(draft_path(path), path).map_err(|error| {
            let WriteError { error, .. } = before(PoolError::io("give its name to", path)(error));
            WriteError { error, is_named: number > 0 }
        })?;
    }
    Ok(Written { files: [index, copy], records, len_bytes: text.len() as u64 })
}

fn write_draft(draft: &Path, text: &[u8]) -> Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(draft).map_err(PoolError::io("create", draft))?;
    let written = file.write_all_at(text, 0).and_then(|()| {
        // A file system that cannot reserve has the space or not when it is needed.
        sys::file::reserve(&file, 0, text.len() as u64 + RESERVED_BYTES, false)?;
        file.sync_all()
    });
    written.map_err(PoolError::io("write", draft))?;
    Ok(file)
}

/// Puts the names in a folder on the disk.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let opened = File::open(folder).map_err(PoolError::io("open", folder))?;
    opened.sync_all().map_err(PoolError::io("put on the disk", folder))
}
