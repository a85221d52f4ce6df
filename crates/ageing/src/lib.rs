//! Ageing of a file system: years of recording and deleting in a minute, and what they do to the layout.
//!
//! A file system that is nearly full places new files in the gaps that deleted ones left, and a rotating disk
//! seeks from gap to gap. [`age`] brings a file system there: [`Severity`] says how recordings are made and
//! deleted, [`Layout`] how their space is taken. Before and after it, the same recordings are made and read
//! back ([`readout`]): how many pieces they lie in, and how fast a disk with a given seek time reads them.
//!
//! A flash disk has no seeks, but its write rate falls when it has no erased blocks left. [`flash`] brings it
//! there: [`Procedure`] says which of both is asked for.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by its panic"))]

mod age;
mod churn;
mod error;
pub mod flash;
mod layout;
mod procedure;
pub mod readout;
mod recording;
mod report;
mod severity;

use std::path::{Path, PathBuf};

pub use age::{Ageing, age, recording_bytes, wear};
pub use churn::Monitor;
pub use error::{AgeingError, Result};
pub use layout::Layout;
pub use procedure::Procedure;
pub use report::{Aged, AgeingReport, FreeSpace, Growth};
pub use severity::Severity;

/// The folder of the pool in the folder that is aged.
const POOL_FOLDER: &str = "pool";

/// Paths that are made in the folder that is aged, besides files with a number of eight digits as their name.
pub fn other_paths() -> Vec<PathBuf> {
    let pool = pool::FILE_NAMES.iter().map(|name| Path::new(POOL_FOLDER).join(name));
    pool.chain([PathBuf::from(flash::FILLER)]).collect()
}
