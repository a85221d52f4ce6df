//! Errors of decoding.

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// More bytes are needed.
    #[error("truncated header or payload")]
    Short,
    /// The magic number is missing.
    #[error("not this protocol: the magic number KGDQ is missing")]
    Magic,
    /// Unsupported version.
    #[error("unsupported protocol version {0}; supported: 1")]
    Version(u8),
    /// Unknown kind.
    #[error("unknown message kind {0}")]
    Kind(u8),
    /// A kind that only the other side sends.
    #[error("a message kind that only the other side sends")]
    Side,
    /// Out of range.
    #[error("header length {0} is out of range (64 to 1024)")]
    HeaderLength(u16),
    /// The header is corrupt.
    #[error("wrong header checksum")]
    HeaderChecksum,
    /// The length exceeds the limit, or contradicts the datagram's.
    #[error("invalid payload length {0}")]
    PayloadLength(u32),
    /// The payload is corrupt.
    #[error("wrong payload checksum")]
    PayloadChecksum,
}

impl WireError {
    /// The reason under which reports count the error.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Short | Self::Magic | Self::HeaderLength(_) => "bad_header",
            Self::Version(_) => "wrong_version",
            Self::Kind(_) | Self::Side => "wrong_kind",
            Self::HeaderChecksum => "header_checksum",
            Self::PayloadLength(_) => "payload_length",
            Self::PayloadChecksum => "payload_checksum",
        }
    }
}
