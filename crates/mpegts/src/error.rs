use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("content cannot be made: {what}; {advice}")]
    Spec { what: String, advice: String },
    #[error(
        "content cannot be made: {rate_bit_per_s} bit/s is too little for {width}x{height} pictures; \
         ask for at least {least_bit_per_s} bit/s or for smaller pictures"
    )]
    RateTooLow { rate_bit_per_s: u64, least_bit_per_s: u64, width: u32, height: u32 },
    #[error("stopped before the end; nothing was left behind")]
    Stopped,
    #[error(
        "no space left for {path} after {written_bytes} of {total_bytes} bytes; \
         free some space, choose another directory or ask for less duration; nothing was left behind"
    )]
    DiskFull { path: PathBuf, written_bytes: u64, total_bytes: u64 },
    #[error("{path} is being written by another process; wait for it or choose another name")]
    Busy { path: PathBuf },
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot {action} the content: {source}")]
    Io { action: &'static str, source: io::Error },
    #[error(
        "this is not an MPEG transport stream of 188-byte packets ({why}); \
         convert it with: ffmpeg -i FILE -c copy -f mpegts OUT.ts"
    )]
    NotTs { why: &'static str },
    #[error("the transport stream has no MPEG-2, H.264 or HEVC video ({why}); choose another file")]
    NoVideo { why: &'static str },
    #[error(
        "none of the {frames} frames is a key frame, so no player could begin; \
         choose a file that holds at least one"
    )]
    NoKeyFrame { frames: u64 },
    #[error("the content ends inside a packet ({over_bytes} of 188 bytes at the end); copy it again, whole")]
    Truncated { over_bytes: usize },
    #[error("the content's index is unusable: {0}")]
    Index(#[from] IndexError),
    #[error(
        "{path} has {file_bytes} bytes, but its index was made for {index_bytes}; \
         make the index again with: kagiri content index {path}"
    )]
    Stale { path: PathBuf, file_bytes: u64, index_bytes: u64 },
}

impl ContentError {
    /// The message, with the file unless it names it itself.
    pub fn about(&self, file: &Path) -> String {
        let message = self.to_string();
        let file = file.display().to_string();
        if message.contains(&file) { message } else { format!("{file}: {message}") }
    }

    /// Whether the request itself is wrong: an impossible specification, or a file that is missing or no
    /// content (exit code 2).
    pub fn is_usage(&self) -> bool {
        use io::ErrorKind::{InvalidFilename, IsADirectory, NotADirectory, NotFound};
        match self {
            Self::Spec { .. } | Self::RateTooLow { .. } => true,
            Self::NotTs { .. } | Self::NoVideo { .. } | Self::NoKeyFrame { .. } | Self::Truncated { .. } => {
                true
            }
            Self::File { source, .. } | Self::Io { source, .. } => {
                matches!(source.kind(), NotFound | IsADirectory | NotADirectory | InvalidFilename)
            }
            _ => false,
        }
    }
}

/// Why an index cannot be used. Indexing the content again helps in each case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    #[error("it is no kagiri index (wrong first bytes); make it again with `kagiri content index`")]
    Magic,
    #[error(
        "its format is version {found}, this kagiri reads {known}; update kagiri or make the index again"
    )]
    Newer { found: u16, known: u16 },
    #[error("it is {found} bytes long where {expected} were expected (cut off?); make it again")]
    Length { found: u64, expected: u64 },
    #[error("its checksum is wrong (damaged); make it again")]
    Checksum,
    #[error("its field `{field}` is {value}, which is invalid; make it again")]
    Field { field: &'static str, value: u64 },
    #[error("its {table} entry {at} {why}; make it again")]
    Table { table: &'static str, at: u64, why: &'static str },
}
