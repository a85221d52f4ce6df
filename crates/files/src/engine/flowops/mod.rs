//! What a thread does to its files: one function for each kind of flowop, and what all threads share.

pub(super) mod aio;
pub(super) mod content;
mod data_ops;
pub(super) mod fault;
pub(super) mod file_ops;
mod open_files;
pub(super) mod shared;
