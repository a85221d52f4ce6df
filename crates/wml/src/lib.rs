//! WML, the workload language of filebench: from a text to the files, threads and operations that it
//! describes.
//!
//! Both dialects are read: that of version 1.5, and the older one of the prompt of 1.4.9 (`load`, `usage`,
//! `run 300`). [`syntax::parse`] reads a text; [`Program::evaluate`] executes its commands, with overridden
//! variables, and yields the model that a workload runs. Nothing here touches files or clocks.

mod attributes;
mod distribution;
mod error;
mod evaluate;
mod expand;
mod lexer;
mod model;
pub mod syntax;
mod variables;

pub use distribution::{Distribution, Law};
pub use error::WmlError;
pub use evaluate::{Evaluation, Override};
pub use model::{Fileset, Flowop, Kind, Number, Operation, Process, Program, Quit, Thread};

/// The longest text that is read.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
