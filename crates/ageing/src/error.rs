//! Why a file system cannot be aged.

use std::io;
use std::path::{Path, PathBuf};

use pool::PoolError;

pub type Result<T> = std::result::Result<T, AgeingError>;

#[derive(Debug, thiserror::Error)]
pub enum AgeingError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Disk(#[from] sys::Error),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error("{path} has {free_mib} MiB free, and ageing needs {least_mib} MiB; use a larger file system")]
    TooSmall { path: PathBuf, free_mib: u64, least_mib: u64 },
    #[error(
        "{recordings} recordings do not fit on {path}, at most {most} do; give fewer, or use a larger file \
         system"
    )]
    TooMany { path: PathBuf, recordings: u32, most: u64 },
    #[error(
        "where files lie is unknown: the file system of {path} does not support FIEMAP; use ext3, ext4, xfs \
         or btrfs"
    )]
    NoExtents { path: PathBuf },
    #[error(
        "the file system of {path} takes no extent size hint; use xfs, or another layout than \
         extent-size-hint"
    )]
    NoHint { path: PathBuf },
    #[error("the file system of {path} cannot reserve space; use another layout than fallocate")]
    NoFallocate { path: PathBuf },
    #[error("{path} is full although all that ageing wrote was deleted; something else writes there")]
    Full { path: PathBuf },
    #[error(
        "{path} cannot be written past the page cache (O_DIRECT), so the disk's own rate is unknown; use a \
         file system on a disk, such as ext4 or xfs"
    )]
    NoDirect { path: PathBuf },
    #[error(
        "the file system of {path} became full while its file was written; something else writes there, or \
         the file system does not overwrite in place (btrfs): use ext4 or xfs"
    )]
    NoRoom { path: PathBuf },
    #[error("interrupted")]
    Stopped,
}

impl AgeingError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Whether there was no room for what was written.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Pool(error) => error.is_full(),
            _ => false,
        }
    }
}
