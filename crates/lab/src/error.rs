use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{}:{} {}",
        path.display(),
        problem.line.map(|line| format!("{line}:")).unwrap_or_default(),
        problem.problem
    )]
    File { path: PathBuf, problem: base::plan::PlanError },
    #[error(
        "cannot read the lab file {}: {source}; examples are in plans/labs/ of kagiri's sources",
        path.display()
    )]
    LabFile { path: PathBuf, source: io::Error },
    /// A combination of values that is impossible.
    #[error("{0}")]
    Layout(String),
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Sys(#[from] sys::Error),
    #[error("{0}")]
    Refused(String),
    #[error("lab {name}: {reason}")]
    Supervisor { name: String, reason: String },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.into(), source: source.into() }
    }

    pub fn is_usage(&self) -> bool {
        matches!(self, Self::File { .. } | Self::LabFile { .. } | Self::Layout(_))
    }
}
