//! Layer 0: the vocabulary of measurement as plain data and pure functions.
//!
//! Nothing here reads a clock, a file or a socket. Every hand-over between the other floors is a type of this
//! crate that can be written to a file and read again, so that any stage can be replayed from a stored run.

pub mod clock;
pub mod doubt;
pub mod format;
pub mod histogram;
pub mod json_memory;
pub mod limit_rules;
pub mod metric;
pub mod names;
pub mod near;
pub mod objective;
pub mod outcome;
pub mod pace;
pub mod part;
mod part_error;
pub mod permit;
pub mod placement;
pub mod plan;
mod plan_error;
pub mod resource;
pub mod series;
pub mod statistics;
pub mod timeline;
pub mod units;
pub mod verdict;
pub mod workload;
