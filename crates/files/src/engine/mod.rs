//! The engine: threads that run the flowops of a program, each with its own files, memory and counts.

mod aio;
mod compile;
pub(crate) mod content;
mod data_ops;
pub mod durable;
mod events;
mod fault;
mod file_ops;
mod gate;
mod open_files;
mod priorities;
pub(crate) mod recorder;
pub mod report;
mod run;
mod shared;
mod storage_reads;
mod tally;
mod waits;
mod worker;

pub use compile::{Compiled, Row};
pub use content::Content;
pub use durable::sync_file_system;
pub use run::{Run, StartError, Watched};
pub use shared::RunSettings;
