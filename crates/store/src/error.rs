//! What can go wrong with runs on disk, and what to do then.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why runs could not be stored, read, exported or imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(
        "there is no place for results: neither KAGIRI_DATA nor XDG_DATA_HOME nor HOME is set; \
         set KAGIRI_DATA to a folder"
    )]
    NoPlace,
    #[error("cannot use {} for results: {source}; make it writable, or set KAGIRI_DATA to another folder",
        path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "the results file {} has layout {found}, this kagiri knows layouts up to {known}; \
         use the newer kagiri that wrote it, or set KAGIRI_DATA to another folder (the file was left as it \
         is)",
        path.display()
    )]
    NewerLayout { path: PathBuf, found: i64, known: i64 },
    #[error(
        "the results file {} is damaged ({detail}) and was left as it is; restore it from a copy, try \
         'sqlite3 {} .recover', or move it away to begin a new one",
        path.display(), path.display()
    )]
    Damaged { path: PathBuf, detail: String },
    #[error("{} is a database, but not one of kagiri's; move it away, or set KAGIRI_DATA to another folder",
        path.display())]
    Foreign { path: PathBuf },
    #[error(
        "the disk is full: cannot write to {}; free some space there, or set KAGIRI_DATA to another folder \
         (what was stored before is kept)",
        path.display()
    )]
    Full { path: PathBuf },
    #[error("{} cannot be written (read-only); make it writable, or set KAGIRI_DATA to another folder",
        path.display())]
    ReadOnly { path: PathBuf },
    /// SQLite could not open it, or the two files that it keeps beside it.
    #[error(
        "cannot open {} for writing; make the file and its folder writable (is the disk mounted \
         read-only?), or set KAGIRI_DATA to another folder", path.display()
    )]
    NotOpened { path: PathBuf },
    #[error("{} is still in use by another process; try again when that one has finished", path.display())]
    Busy { path: PathBuf },
    /// Anything else that SQLite reports.
    #[error("cannot use the results file {}: {source}; check the disk it is on", path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    #[error("{what} cannot be stored: {problem}")]
    NotStorable { what: String, problem: String },
    #[error("'{id}' cannot be the id of a run; use up to 64 letters, digits, '-', '_' and '.'")]
    BadId { id: String },
    #[error("there is a run {run} already; begin the new one under another id")]
    Exists { run: String },
    #[error(
        "run {run} has a trial {number} already; number trials from 1 in the order in which they are made"
    )]
    TrialExists { run: String, number: u32 },
    #[error("there is no run '{text}'; list stored runs with 'kagiri runs list'")]
    NoRun { text: String },
    /// `last` counts only runs in which something was measured, and there are fewer.
    #[error(
        "there is no run '{text}': 'last' means the last run with at least one trial; list all runs with \
         'kagiri runs list --all'"
    )]
    NoneMeasured { text: String },
    /// The beginning of several ids.
    #[error("'{text}' could mean {candidates}; type more of the id")]
    Ambiguous { text: String, candidates: String },
    #[error("cannot read {}: {source}; check its name and permissions", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "a document of {bytes} bytes is too large to import (at most {bytes_max}); is it an exported run?"
    )]
    TooLarge { bytes: u64, bytes_max: u64 },
    #[error("this is not an exported run: {problem} at line {line}, column {column}; export the run again")]
    NotAnExport { problem: String, line: usize, column: usize },
    #[error(
        "the exported run has schema {found}, this kagiri reads schemas up to {known}; \
         use a newer kagiri to read it"
    )]
    NewerDocument { found: u64, known: u32 },
    #[error(
        "the store holds another run {run}, with other content; remove that one first ('kagiri runs rm \
         {run}'), or import into another KAGIRI_DATA"
    )]
    Conflict { run: String },
    #[error("process {pid} still measures run {run}; wait until it has ended, or stop it")]
    Measured { run: String, pid: u32 },
    #[error(
        "run {run} was measured to its end, so nothing is left of it to measure; repeat it with 'kagiri runs \
         show {run} --plan > plan.toml' and 'kagiri run plan.toml'"
    )]
    Ended { run: String },
}

impl StoreError {
    /// Whether the user named a run or a file that is not there or is of the wrong kind (exit code 2), rather
    /// than the store or its disk being at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoRun { .. }
            | Self::NoneMeasured { .. }
            | Self::Ambiguous { .. }
            | Self::Ended { .. }
            | Self::TooLarge { .. }
            | Self::NotAnExport { .. }
            | Self::NewerDocument { .. } => true,
            Self::File { source, .. } => is_misnamed(source),
            _ => false,
        }
    }

    /// SQLite's error in our words.
    pub(crate) fn from_sql(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match &error {
            rusqlite::Error::SqliteFailure(code, detail) => match code.code {
                ErrorCode::DiskFull => Self::Full { path },
                // A write-ahead log whose index cannot grow is a full disk too.
                _ if code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => Self::Full { path },
                ErrorCode::CannotOpen => Self::NotOpened { path },
                ErrorCode::ReadOnly => Self::ReadOnly { path },
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Busy { path },
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                    Self::Damaged { path, detail: detail.clone().unwrap_or_else(|| code.to_string()) }
                }
                _ => Self::Sql { path, source: error },
            },
            rusqlite::Error::FromSqlConversionFailure(_, _, problem) => {
                Self::Damaged { path, detail: problem.to_string() }
            }
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => Self::Damaged { path, detail: error.to_string() },
            _ => Self::Sql { path, source: error },
        }
    }
}

/// Whether an error says that a path which the user named does not exist or is of the wrong kind.
pub fn is_misnamed(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotFound | IsADirectory | NotADirectory | InvalidFilename)
}
