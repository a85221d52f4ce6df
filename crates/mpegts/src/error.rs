use std::io;
use std::path::{Path, PathBuf};

/// An error of making, indexing or reading content.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// An impossible specification.
    #[error("content cannot be made: {what}; {advice}")]
    Spec {
        /// What is wrong.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The pictures alone need more than the rate gives.
    #[error(
        "content cannot be made: {rate_bit_per_s} bit/s is too little for {width}x{height} pictures; \
         ask for at least {least_bit_per_s} bit/s or for smaller pictures"
    )]
    RateTooLow {
        /// The rate asked for, bit/s.
        rate_bit_per_s: u64,
        /// The least rate that works, bit/s.
        least_bit_per_s: u64,
        /// Picture width, pixels.
        width: u32,
        /// Picture height, pixels.
        height: u32,
    },
    /// The caller asked to stop.
    #[error("stopped before the end; nothing was left behind")]
    Stopped,
    /// The disk is full.
    #[error(
        "no space left for {path} after {written_bytes} of {total_bytes} bytes; \
         free some space, choose another directory or ask for less duration; nothing was left behind"
    )]
    DiskFull {
        /// The file that was being written.
        path: PathBuf,
        /// How far the writing came, bytes.
        written_bytes: u64,
        /// How much was to be written, bytes.
        total_bytes: u64,
    },
    /// Another process writes the same file.
    #[error("{path} is being written by another process; wait for it or choose another name")]
    Busy {
        /// The temporary file that is locked.
        path: PathBuf,
    },
    /// Another failure on a named file.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Reading or writing a stream without a name failed.
    #[error("cannot {action} the content: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The bytes are no transport stream.
    #[error(
        "this is not an MPEG transport stream of 188-byte packets ({why}); \
         convert it with: ffmpeg -i FILE -c copy -f mpegts OUT.ts"
    )]
    NotTs {
        /// What was seen instead.
        why: &'static str,
    },
    /// A transport stream without pictures that can be indexed.
    #[error("the transport stream has no MPEG-2, H.264 or HEVC video ({why}); choose another file")]
    NoVideo {
        /// What was seen instead.
        why: &'static str,
    },
    /// No frame at which a player could begin.
    #[error(
        "none of the {frames} frames is a key frame, so no player could begin; \
         choose a file that holds at least one"
    )]
    NoKeyFrame {
        /// Frames that were seen.
        frames: u64,
    },
    /// The stream ends inside a packet.
    #[error("the content ends inside a packet ({over_bytes} of 188 bytes at the end); copy it again, whole")]
    Truncated {
        /// Bytes of the broken packet.
        over_bytes: usize,
    },
    /// The index file cannot be used.
    #[error("the content's index is unusable: {0}")]
    Index(#[from] IndexError),
    /// The index does not belong to this content.
    #[error(
        "{path} has {file_bytes} bytes, but its index was made for {index_bytes}; \
         make the index again with: kagiri content index {path}"
    )]
    Stale {
        /// The content.
        path: PathBuf,
        /// Its size, bytes.
        file_bytes: u64,
        /// The size its index was made for, bytes.
        index_bytes: u64,
    },
}

impl ContentError {
    /// The message, with the file unless it names it itself.
    #[must_use]
    pub fn about(&self, file: &Path) -> String {
        let message = self.to_string();
        let file = file.display().to_string();
        if message.contains(&file) { message } else { format!("{file}: {message}") }
    }

    /// Whether the request itself is wrong: an impossible specification, or a file that is missing or no
    /// content (exit code 2).
    #[must_use]
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
    /// The first bytes are not those of an index.
    #[error("it is no kagiri index (wrong first bytes); make it again with `kagiri content index`")]
    Magic,
    /// Made by a newer kagiri.
    #[error(
        "its format is version {found}, this kagiri reads {known}; update kagiri or make the index again"
    )]
    Newer {
        /// The version in the file.
        found: u16,
        /// The newest version this program reads.
        known: u16,
    },
    /// Longer or shorter than its own header says.
    #[error("it is {found} bytes long where {expected} were expected (cut off?); make it again")]
    Length {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// The checksum does not match.
    #[error("its checksum is wrong (damaged); make it again")]
    Checksum,
    /// A field has an invalid value.
    #[error("its field `{field}` is {value}, which is invalid; make it again")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A table contradicts itself.
    #[error("its {table} entry {at} {why}; make it again")]
    Table {
        /// `frame` or `GOP`.
        table: &'static str,
        /// The entry, counted from 0.
        at: u64,
        /// What is wrong with it.
        why: &'static str,
    },
}
