//! Why a lab could not be made, reached or taken down.

use std::io;
use std::path::PathBuf;

/// The result of a call that concerns labs.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a lab could not be made, reached or taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The lab file is wrong.
    #[error("{}:{} {}", path.display(), problem.line.map(|line| format!("{line}:")).unwrap_or_default(), problem.problem)]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line.
        problem: base::plan::PlanError,
    },
    /// Something in a lab's description cannot be, that only shows when all is put together.
    #[error("{0}")]
    Layout(String),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file it was done to.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The machine could not be changed.
    #[error(transparent)]
    Sys(#[from] sys::Error),
    /// The request cannot be met.
    #[error("{0}")]
    Refused(String),
    /// The keeper said why it failed.
    #[error("lab {name}: {reason}")]
    Keeper {
        /// The lab.
        name: String,
        /// In the keeper's words.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    /// Whether the user's words are at fault, not the machine.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Layout(_))
    }
}
