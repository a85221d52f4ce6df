//! Content and indexes as files, written atomically.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{ContentError, IndexError};
use super::index::{ContentIndex, FILE_BYTES_MAX, index_path};
use super::scan::scan;
use super::spec::ContentSpec;
use crate::mux::{ProgressCallback, write_content};

/// Attempts to lock the temporary file while others publish theirs.
const RACES_MAX: usize = 16;

/// Makes content at `path` and its index beside it.
///
/// Both are written under a temporary name (`path` plus `.part`) and renamed when complete; previous content
/// stays until then. The temporary file is removed on every error; after a `kill -9` it stays, and the next
/// call overwrites it. No fsync.
/// Errors: Those of [`write_content`], [`ContentError::DiskFull`], [`ContentError::Busy`] and
/// [`ContentError::File`].
pub fn make_file(
    spec: &ContentSpec,
    path: &Path,
    on_progress: &mut ProgressCallback<'_>,
) -> Result<ContentIndex, ContentError> {
    spec.validate()?;
    let mut part = TempFile::create(path)?;
    let index =
        write_content(spec, &mut part, on_progress).map_err(|e| part.with_file(e, spec.total_bytes()))?;
    // The index of older content must not be used for the new one.
    remove_if_there(&index_path(path))?;
    part.publish()?;
    save_index(&index, path)?;
    Ok(index)
}

/// Indexes the transport stream at `path` and saves the index beside it.
/// Errors: Those of [`scan`](fn@scan), [`ContentError::DiskFull`], [`ContentError::Busy`] and
/// [`ContentError::File`].
pub fn index_file(path: &Path, on_progress: &mut ProgressCallback<'_>) -> Result<ContentIndex, ContentError> {
    let failed = |action, source| ContentError::File { action, path: path.to_owned(), source };
    let mut file = File::open(path).map_err(|e| failed("open", e))?;
    let bytes = file.metadata().map_err(|e| failed("read the size of", e))?.len();
    let index = scan(&mut file, Some(bytes), on_progress).map_err(|e| match e {
        ContentError::Io { source, .. } => failed("read", source),
        other => other,
    })?;
    save_index(&index, path)?;
    Ok(index)
}

/// Saves `index` beside the content at `content_path`, whole or not at all.
/// Errors: [`ContentError::Index`] when it does not fit the format, else as for [`make_file`].
pub fn save_index(index: &ContentIndex, content_path: &Path) -> Result<(), ContentError> {
    let bytes = index.to_bytes()?;
    let mut part = TempFile::create(&index_path(content_path))?;
    part.write_all(&bytes)
        .map_err(|source| part.with_file(ContentError::Io { action: "write", source }, bytes.len() as u64))?;
    part.publish()
}

/// Reads the index that lies beside the content at `content_path`, and checks that it is this content's (by
/// size).
/// Errors: [`ContentError::File`] when either cannot be read (a missing index has the kind `NotFound`),
/// [`ContentError::Index`] and [`ContentError::Stale`] when the index cannot be used.
pub fn load_index(content_path: &Path) -> Result<ContentIndex, ContentError> {
    let failed =
        |e| ContentError::File { action: "read the size of", path: content_path.to_owned(), source: e };
    // A missing index is reported before missing content.
    let index = read_index(content_path)?;
    let file_bytes = fs::metadata(content_path).map_err(failed)?.len();
    check_size(index, content_path, file_bytes)
}

/// The same for content of `bytes` that does not lie at `content_path` itself, but in a segment pool.
pub fn load_index_of(content_path: &Path, bytes: u64) -> Result<ContentIndex, ContentError> {
    check_size(read_index(content_path)?, content_path, bytes)
}

fn check_size(
    index: ContentIndex,
    content_path: &Path,
    file_bytes: u64,
) -> Result<ContentIndex, ContentError> {
    if file_bytes != index.total_bytes() {
        let index_bytes = index.total_bytes();
        return Err(ContentError::Stale { path: content_path.to_owned(), file_bytes, index_bytes });
    }
    Ok(index)
}

fn read_index(content_path: &Path) -> Result<ContentIndex, ContentError> {
    let path = index_path(content_path);
    let failed = |action, path: &Path, source| ContentError::File { action, path: path.to_owned(), source };
    let file = File::open(&path).map_err(|e| failed("open the index", &path, e))?;
    let mut bytes = Vec::new();
    // One byte more than the maximum shows that it is too long.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| failed("read the index", &path, e))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(IndexError::Length { found: bytes.len() as u64, expected: FILE_BYTES_MAX }.into());
    }
    Ok(ContentIndex::read(&bytes)?)
}

/// Removes abandoned temporary files in `folder`; files that another process writes stay.
pub fn clear_parts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_part = path.extension().is_some_and(|extension| extension == "part");
        if is_part && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // Dropping removes the file; `create` fails where another process has locked it.
            drop(TempFile::create(&path.with_extension("")));
        }
    }
}

fn remove_if_there(path: &Path) -> Result<(), ContentError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ContentError::File { action: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Whether `path` still names `file`.
fn is_same_file(path: &Path, file: &File) -> io::Result<bool> {
    let opened = file.metadata()?;
    let is_same = |named: fs::Metadata| (named.dev(), named.ino()) == (opened.dev(), opened.ino());
    Ok(fs::metadata(path).is_ok_and(is_same))
}

/// A temporary file, removed on drop unless published.
struct TempFile {
    file: File,
    part_path: PathBuf,
    final_path: PathBuf,
    written_bytes: u64,
    published: bool,
}

impl TempFile {
    fn create(final_path: &Path) -> Result<Self, ContentError> {
        let mut name = final_path.as_os_str().to_owned();
        name.push(".part");
        let part_path = PathBuf::from(name);
        let failed = |action, source| ContentError::File { action, path: part_path.clone(), source };
        for _ in 0..RACES_MAX {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&part_path);
            let file = file.map_err(|e| failed("create", e))?;
            // Only the owner of the lock may truncate the file.
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(ContentError::Busy { path: part_path }),
                Err(TryLockError::Error(e)) => return Err(failed("lock", e)),
            }
            // The previous owner of the lock may have published the file meanwhile.
            if is_same_file(&part_path, &file).map_err(|e| failed("look at", e))? {
                file.set_len(0).map_err(|e| failed("empty", e))?;
                let (final_path, written_bytes) = (final_path.to_owned(), 0);
                return Ok(Self { file, part_path, final_path, written_bytes, published: false });
            }
        }
        Err(ContentError::Busy { path: part_path })
    }

    /// Adds the file to the error of a failed write.
    fn with_file(&self, error: ContentError, total_bytes: u64) -> ContentError {
        match error {
            ContentError::Io { source, .. }
                if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                let (path, written_bytes) = (self.final_path.clone(), self.written_bytes);
                ContentError::DiskFull { path, written_bytes, total_bytes }
            }
            ContentError::Io { action, source } => {
                ContentError::File { action, path: self.part_path.clone(), source }
            }
            other => other,
        }
    }

    fn publish(mut self) -> Result<(), ContentError> {
        fs::rename(&self.part_path, &self.final_path).map_err(|source| ContentError::File {
            action: "rename to its final name",
            path: self.part_path.clone(),
            source,
        })?;
        self.published = true;
        Ok(())
    }
}

impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written_bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.published {
            // The error that led here is reported already.
            let _ = fs::remove_file(&self.part_path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_file_is_not_the_temporary_one() {
        let directory = tempfile::tempdir().unwrap();
        let (part, whole) = (directory.path().join("a.part"), directory.path().join("a"));
        let file = File::create(&part).unwrap();
        assert!(is_same_file(&part, &file).unwrap());
        fs::rename(&part, &whole).unwrap();
        assert!(!is_same_file(&part, &file).unwrap() && is_same_file(&whole, &file).unwrap());
        let another = File::create(&part).unwrap();
        assert!(!is_same_file(&part, &file).unwrap() && is_same_file(&part, &another).unwrap());
    }
}
