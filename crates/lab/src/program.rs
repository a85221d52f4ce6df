use std::ffi::OsString;
use std::path::PathBuf;

/// How to start this program again: as supervisor, agent or delay lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// Arguments before the command; none for the program itself.
    pub arguments: Vec<OsString>,
}
