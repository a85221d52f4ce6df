//! The segment pool of a directory with content: opened for a server, or looked at beside one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use base::format::plural;
use base::units::ByteSize;
use pool::{Pool, PoolError, SEGMENT_BYTES};
use sys::disk::{Extent, extents_of_pieces};

use crate::exit::Failure;
use crate::output;

/// Opens the pool of `dir`; `None`: it has none. With `size`, one of that size is made if there is none.
pub fn open(dir: &Path, size: Option<ByteSize>) -> Result<Option<Pool>, Failure> {
    let folder = dir.join(pool::FOLDER);
    let pool = match (Pool::open(&folder), size) {
        (Err(PoolError::Missing { .. }), None) => return Ok(None),
        (Err(PoolError::Missing { .. }), Some(size)) => return create(dir, &folder, size).map(Some),
        (opened, _) => opened.map_err(Failure::of_named)?,
    };
    if let Some(what) = pool.repaired() {
        output::say(&format!("{}: {what}; check the disk", folder.display()));
    }
    let is_other =
        |size: ByteSize| size.bytes() / pool.segment_bytes() != pool.total_bytes() / pool.segment_bytes();
    match size.filter(|&size| is_other(size)) {
        None => Ok(Some(pool)),
        Some(size) => Err(Failure::usage(format!(
            "{} is a pool of {}, and --pool says {size}; leave out --pool to use it as it is, or remove that \
             folder with the {} in it",
            folder.display(),
            ByteSize::from_bytes(pool.total_bytes()),
            plural(pool.list().len() as u64, "file")
        ))),
    }
}

fn create(dir: &Path, folder: &Path, size: ByteSize) -> Result<Pool, Failure> {
    if size.bytes() < SEGMENT_BYTES {
        return Err(Failure::usage(format!(
            "--pool {size} is less than one segment; give {} or more",
            ByteSize::from_bytes(SEGMENT_BYTES)
        )));
    }
    let most = SEGMENT_BYTES * u64::from(pool::index::SEGMENTS_MAX);
    if size.bytes() > most {
        let most = ByteSize::from_bytes(most);
        return Err(Failure::usage(format!(
            "--pool {size} is more than a pool can have; give {most} or less"
        )));
    }
    output::say(&format!("making a segment pool of {size}: {}", folder.display()));
    Pool::create(folder, size.bytes(), SEGMENT_BYTES).map_err(|error| match error {
        PoolError::Full { free_bytes, .. } => Failure::usage(format!(
            "--pool {size}: {} has only {} free; give less, or make room",
            dir.display(),
            ByteSize::from_bytes(free_bytes)
        )),
        PoolError::Size(_) | PoolError::CopyOnWrite { .. } => {
            Failure::usage(format!("--pool {size}: {error}"))
        }
        error => Failure::of_named(error),
    })
}

/// A file in a pool, and where it lies on the disk; `None`: the file system does not say.
pub struct PoolFileLayout {
    pub name: String,
    pub bytes: u64,
    pub extents: Option<Vec<Extent>>,
}

/// The files in the pool of `dir`, which a server may use meanwhile, that `is_wanted` by their names.
pub fn layouts(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PoolFileLayout>, Failure> {
    let folder = dir.join(pool::FOLDER);
    let seen = match pool::look(&folder) {
        Err(PoolError::Missing { .. }) => return Ok(Vec::new()),
        seen => seen.map_err(Failure::of_named)?,
    };
    let path = pool::segments_path(&folder);
    let problem = |error: io::Error| Failure::runtime(format!("cannot look at {}: {error}", path.display()));
    let segments = File::open(&path).map_err(problem)?;
    let wanted = seen.files.into_iter().filter(|(name, _)| is_wanted(name));
    let layout = |(name, entry): (String, pool::index::Entry)| {
        let extents = extents_of_pieces(&segments, entry.pieces(seen.segment_bytes)).map_err(problem)?;
        Ok(PoolFileLayout { name, bytes: entry.len_bytes, extents })
    };
    wanted.map(layout).collect()
}

/// The directory with a pool that `path` is in, also where only the pool knows `path`; and the name of `path`
/// there, empty for the directory itself.
pub fn directory_with_pool(path: &Path) -> Option<(PathBuf, String)> {
    let known = path.canonicalize().or_else(|_| std::path::absolute(path)).ok()?;
    let dir = known.ancestors().find(|dir| pool::has_index(&dir.join(pool::FOLDER)))?;
    let name = known.strip_prefix(dir).ok()?.to_str()?.to_owned();
    let is_within = name.split('/').next() == Some(pool::FOLDER);
    (!is_within).then(|| (dir.to_path_buf(), name))
}
