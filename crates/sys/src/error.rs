//! The errors of this crate: what happened, to what, and what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of a call that changes or inspects the machine.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the machine could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{action} {path}: {source}{}", advice(source))]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{action}: {source}{}", advice(source))]
    Call { action: String, source: io::Error },
    #[error("program `{program}` was not found; install {package} (needed to {purpose})")]
    MissingProgram { program: String, package: &'static str, purpose: String },
    #[error("`{command}` failed ({status}): {stderr}")]
    Command { command: String, status: String, stderr: String },
    #[error("{what} did not happen within {:.1} s{detail}", within.as_secs_f64())]
    Deadline { what: String, within: Duration, detail: String },
    /// The request cannot be met on this machine, or must not be.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// A failed call on `path`.
    pub(crate) fn file(action: &'static str, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::File { action, path: path.as_ref().to_path_buf(), source: source.into() }
    }

    /// A failed call on something that is not a file.
    pub(crate) fn call(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Call { action: action.into(), source: source.into() }
    }
}

/// What to do about the common kernel answers.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            " (this user may not do it: leave out what needs it, or run as root)"
        }
        io::ErrorKind::StorageFull => " (free some space or choose another directory)",
        io::ErrorKind::ResourceBusy => " (something still uses it)",
        _ => "",
    }
}
