//! Why a pool cannot be used or changed.

use std::io;
use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, PoolError>;

#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A record of the index, counted from 1, contradicts itself or another one.
    #[error(
        "{path} is damaged, and its copy does not help: record {record}: {reason}; restore it from a backup, \
         or remove the pool's folder (the files in it are lost)"
    )]
    Damaged { path: PathBuf, record: u64, reason: String },
    #[error("the segment pool has no room: {wanted_bytes} bytes are wanted, {free_bytes} are free")]
    Full { wanted_bytes: u64, free_bytes: u64 },
    #[error(
        "{path} is on a file system that puts elsewhere what is rewritten (copy-on-write), where a pool \
         would scatter; use a folder on ext4, XFS or btrfs"
    )]
    CopyOnWrite { path: PathBuf },
    #[error("{path} is used by another process; a pool has one server at a time")]
    Busy { path: PathBuf },
    #[error("{path} is a segment pool already; open it instead")]
    Exists { path: PathBuf },
    #[error("{path} is no segment pool: it has no index; create it first")]
    Missing { path: PathBuf },
    /// Whether there are files in the segments is unknown.
    #[error(
        "{path} holds the segments of a pool, and its index is missing; restore the index from a backup, or \
         remove the pool's folder (the files in it are lost)"
    )]
    IndexMissing { path: PathBuf },
    #[error(
        "{path}, the content of a segment pool, is missing, and its index is there; restore it from a \
         backup, or remove the pool's folder"
    )]
    SegmentsMissing { path: PathBuf },
    #[error("{0}")]
    Size(String),
    #[error("{0:?} is no name for a file in a pool")]
    Name(String),
    #[error("the pool has a file {0:?} already")]
    NameTaken(String),
    /// After a failed write the disk's content is unknown; what is known is read when the pool is opened.
    #[error(
        "{path} takes no changes since it could not be written; see to the disk, then start the server anew"
    )]
    Broken { path: PathBuf },
}

impl PoolError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    /// Whether only room is missing.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}
