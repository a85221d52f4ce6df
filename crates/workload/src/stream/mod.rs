//! The `stream` workload: how many viewers of a constant-deadline video does a content server carry?

pub mod content;
pub mod server;
