//! Why bytes are no header of ours.

/// What is wrong with a header or a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// There is not enough of it yet.
    #[error("a header or payload ends early")]
    Short,
    /// It begins with something else.
    #[error("not a header of this protocol: it does not begin with KGDQ")]
    Magic,
    /// Another version.
    #[error("version {0} of the protocol is not spoken here, only version 1")]
    Version(u8),
    /// Nobody knows that kind.
    #[error("there is no message of kind {0}")]
    Kind(u8),
    /// A kind that the other side may say, and this one may not.
    #[error("a message of a kind that belongs to the other side")]
    Side,
    /// Shorter than a header can be, or longer than is read.
    #[error("a header of {0} bytes; 64 to 1024 are possible")]
    HeaderLength(u16),
    /// The header was altered on its way.
    #[error("the header's checksum is wrong")]
    HeaderChecksum,
    /// The payload is longer than any can be, or its parts contradict each other.
    #[error("a payload of {0} bytes cannot be")]
    PayloadLength(u32),
    /// The payload was altered on its way.
    #[error("the payload's checksum is wrong")]
    PayloadChecksum,
}
