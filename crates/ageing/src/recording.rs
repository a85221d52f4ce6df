//! Files on the file system that ages: written, looked at, deleted.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use pool::{Pool, Writer};
use sys::disk::{Extent, extents, extents_of_pieces};

use crate::{AgeingError, Layout, POOL_FOLDER, Result};

/// Space that is reserved ahead, or placed in one piece.
pub(crate) const STEP_BYTES: u64 = pool::SEGMENT_BYTES;
/// The share of the free space that the pool takes.
pub(crate) const POOL_SHARE: f64 = 0.8;

/// The place of all files, each with a number as its name.
pub(crate) struct Place {
    dir: PathBuf,
    layout: Layout,
    pool: Option<Pool>,
    number: u64,
}

/// A file being written.
pub(crate) enum Writing {
    File { file: File, path: PathBuf, len_bytes: u64, reserved_bytes: Option<u64> },
    InPool { writer: Writer, name: String },
}

/// A complete file.
#[derive(Debug)]
pub(crate) enum Stored {
    File { path: PathBuf, len_bytes: u64 },
    InPool { name: String, len_bytes: u64 },
}

/// Where the content of a file is.
#[derive(Debug)]
pub(crate) struct Located {
    /// The pieces of files that hold it: the file, offset and length in bytes.
    pub(crate) spans: Vec<(PathBuf, u64, u64)>,
    /// Its extents, merged; offsets are those of the content.
    pub(crate) extents: Vec<Extent>,
}

/// Puts everything on the disk (syncfs(2)): only then is the space of what was deleted free.
pub(crate) fn sync(dir: &Path) -> Result<()> {
    let folder = File::open(dir).map_err(AgeingError::io("open", dir))?;
    nix::unistd::syncfs(&folder).map_err(|error| AgeingError::io("put on the disk", dir)(error.into()))
}

impl Place {
    /// Works below `dir`. A pool takes its space now: `capacity_bytes` are free.
    pub(crate) fn new(dir: &Path, layout: Layout, capacity_bytes: u64) -> Result<Self> {
        let pool = match layout {
            Layout::Pool => {
                let bytes = (capacity_bytes as f64 * POOL_SHARE) as u64;
                Some(Pool::create(&dir.join(POOL_FOLDER), bytes, pool::SEGMENT_BYTES)?)
            }
            _ => None,
        };
        Ok(Self { dir: dir.to_path_buf(), layout, pool, number: 0 })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The pool of recordings, if they do not take their space where other files do.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    pub(crate) fn begin(&mut self, is_recording: bool) -> Result<Writing> {
        let name = format!("{:08}", self.number);
        self.number += 1;
        if let Some(pool) = self.pool.as_ref().filter(|_| is_recording) {
            return Ok(Writing::InPool { writer: pool.begin()?, name });
        }
        let path = self.dir.join(name);
        let file = File::create_new(&path).map_err(AgeingError::io("create", &path))?;
        let mut reserved_bytes = None;
        match self.layout {
            Layout::ExtentSizeHint if is_recording => {
                let hinted = sys::disk::set_extent_size_hint(&file, STEP_BYTES as u32);
                if !hinted.map_err(AgeingError::io("set the extent size hint of", &path))? {
                    return Err(AgeingError::NoHint { path: self.dir.clone() });
                }
            }
            Layout::Fallocate if is_recording => reserved_bytes = Some(0),
            _ => {}
        }
        Ok(Writing::File { file, path, len_bytes: 0, reserved_bytes })
    }

    pub(crate) fn finish(&self, writing: Writing) -> Result<Stored> {
        match writing {
            Writing::InPool { writer, name } => {
                let len_bytes = writer.len_bytes();
                writer.commit(&name)?;
                Ok(Stored::InPool { name, len_bytes })
            }
            Writing::File { file, path, len_bytes, reserved_bytes } => {
                if reserved_bytes.is_some_and(|reserved| reserved > len_bytes) {
                    // Gives back what was reserved behind the end.
                    file.set_len(len_bytes).map_err(AgeingError::io("shorten", &path))?;
                }
                Ok(Stored::File { path, len_bytes })
            }
        }
    }

    pub(crate) fn remove(&self, stored: &Stored) -> Result<()> {
        match (stored, &self.pool) {
            (Stored::File { path, .. }, _) => {
                std::fs::remove_file(path).map_err(AgeingError::io("delete", path))
            }
            (Stored::InPool { name, .. }, Some(pool)) => Ok(pool.remove(name).map(drop)?),
            (Stored::InPool { .. }, None) => Ok(()),
        }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        sync(&self.dir)
    }

    pub(crate) fn locate(&self, stored: &Stored) -> Result<Located> {
        let unknown = || AgeingError::NoExtents { path: self.dir.clone() };
        match stored {
            Stored::File { path, len_bytes } => {
                let extents = extents(path)?.ok_or_else(unknown)?;
                Ok(Located { spans: vec![(path.clone(), 0, *len_bytes)], extents })
            }
            Stored::InPool { name, .. } => {
                let file = self.pool.as_ref().and_then(|pool| pool.file(name)).ok_or_else(unknown)?;
                let path = self.pool.as_ref().map(|pool| pool.segments_path().to_path_buf());
                let path = path.ok_or_else(unknown)?;
                let reader = file.reader().map_err(AgeingError::io("open", &path))?;
                let extents = extents_of_pieces(&reader, file.segments())
                    .map_err(AgeingError::io("look at the extents of", &path))?
                    .ok_or_else(unknown)?;
                let spans = file.segments().map(|(at, len)| (path.clone(), at, len)).collect();
                Ok(Located { spans, extents })
            }
        }
    }
}

impl Writing {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::File { len_bytes, .. } => *len_bytes,
            Self::InPool { writer, .. } => writer.len_bytes(),
        }
    }

    /// Appends `content`, and lets the file system place it now.
    pub(crate) fn append(&mut self, content: &[u8]) -> Result<()> {
        match self {
            Self::InPool { writer, .. } => Ok(writer.write_all(content)?),
            Self::File { file, path, len_bytes, reserved_bytes } => {
                let added = content.len() as u64;
                if let Some(reserved) = reserved_bytes
                    && *len_bytes + added > *reserved
                {
                    let could = sys::file::reserve(file, *reserved, STEP_BYTES, false)
                        .map_err(AgeingError::io("reserve space for", path))?;
                    if !could {
                        return Err(AgeingError::NoFallocate { path: path.clone() });
                    }
                    *reserved += STEP_BYTES;
                }
                file.write_all(content).map_err(AgeingError::io("write", path))?;
                sys::disk::start_writeback(file, *len_bytes, added)
                    .map_err(AgeingError::io("write", path))?;
                *len_bytes += added;
                Ok(())
            }
        }
    }
}

impl Stored {
    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Self::File { len_bytes, .. } | Self::InPool { len_bytes, .. } => *len_bytes,
        }
    }

    pub(crate) fn is_in_pool(&self) -> bool {
        matches!(self, Self::InPool { .. })
    }
}
