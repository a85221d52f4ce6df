//! The engine: threads that run the flowops of a program, each with its own files, memory and counts.

mod compile;
mod events;
mod flowops;
mod gate;
mod priorities;
pub(crate) mod recorder;
pub mod report;
mod run;
mod tally;
mod watch;
mod worker;

pub use compile::{Compiled, Row};
pub use flowops::content::Content;
pub use flowops::shared::RunSettings;
pub use run::{Run, StartError, Watched};
pub use watch::durable::{self, sync_file_system};
