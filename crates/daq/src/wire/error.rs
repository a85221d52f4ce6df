//! Errors of decoding.

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("truncated header or payload")]
    Short,
    #[error("not this protocol: the magic number KGDQ is missing")]
    Magic,
    #[error("unsupported protocol version {0}; supported: 1")]
    Version(u8),
    #[error("unknown message kind {0}")]
    Kind(u8),
    #[error("a message kind that only the other side sends")]
    Side,
    #[error("header length {0} is out of range (64 to 1024)")]
    HeaderLength(u16),
    #[error("wrong header checksum")]
    HeaderChecksum,
    /// The length exceeds the limit, or contradicts the datagram's.
    #[error("invalid payload length {0}")]
    PayloadLength(u32),
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
