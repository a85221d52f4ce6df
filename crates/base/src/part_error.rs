//! Why a part could not do its work.

use serde::{Deserialize, Serialize};

/// Why a part could not do its work; the message says what happened, to what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct PartError {
    pub message: String,
    /// Whether the user's settings were at fault (exit code 2) rather than the world (1).
    pub usage: bool,
}

impl PartError {
    /// The world did not play along.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), usage: false }
    }
    /// The settings cannot be right.
    pub fn usage(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), usage: true }
    }
}
