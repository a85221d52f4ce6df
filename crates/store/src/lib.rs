//! Layer 1: runs on disk.
//!
//! One SQLite file, `runs.sqlite`, in the results folder. A run is written as it happens: [`Store::begin`],
//! then [`Store::add_trial`] as soon as each trial ends, then [`Store::finish`]; whatever kills the writer,
//! the finished trials stay. Beside that: one JSON document per run to carry away ([`export`],
//! [`Store::import`]), and the pure comparison of runs ([`compare()`]).
//!
//! The tables are made for queries by hand: `run`, `trial`, `metric` (one row per number, NULL where it is
//! unknown) and `series` (columns of little-endian 64-bit floats, NaN where unknown); see `schema/1.sql`.

mod annotation;
pub mod compare;
mod document;
mod error;
mod id;
mod owner;
mod place;
mod read;
mod resolve;
mod schema;
mod series;
mod word;
mod write;

pub use annotation::Annotation;
pub use compare::compare;
pub use document::{IMPORT_BYTES_MAX, export, json_schema, printable_json, read_export, read_export_file};
pub use error::{StoreError, is_misnamed};
pub use id::new_run_id;
pub use place::Store;
pub use read::{Filter, RunSummary};
pub use resolve::resolve_among;
pub use write::Imported;
