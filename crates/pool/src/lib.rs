//! The segment pool: disk space that is reserved while the disk is fresh, and reused in place.
//!
//! A file system that records and deletes for years lays out new files in the gaps of old ones, and reading
//! them costs seeks. A pool takes its space once, in segments of 16 MiB that are contiguous on the disk, and
//! places files in whole segments for ever after: what is read from it costs one seek per segment at most,
//! whatever was recorded and deleted before.
//!
//! A pool is a folder of mode 0700 with three files. `segments` is the space. `index` is a log of changes
//! ([`index`]); the files and the free list follow from replaying it, and from nothing else. `index.copy` has
//! the same records: what one of them lost is taken from the other. A change is answered when its record is
//! on the disk in both (`fdatasync(2)`), and a file's content is on the disk before its record.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by its panic"))]

mod error;
mod file;
mod free_list;
pub mod index;
mod log;
mod pool;
mod segments;

pub use error::{PoolError, Result};
pub use file::PoolFile;
pub use log::{has_index, look};
pub use pool::{Committed, Pool, Writer};
pub use segments::segments_path;

/// Length of a segment unless another one is asked for.
pub const SEGMENT_BYTES: u64 = 16 << 20;
/// The files that a pool can have in its folder.
pub const FILE_NAMES: [&str; 6] =
    ["segments", "segments.new", "index", "index.new", "index.copy", "index.copy.new"];
/// The folder of a pool within a served directory.
pub const FOLDER: &str = ".kagiri-pool";
