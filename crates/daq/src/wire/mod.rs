//! The wire format between builders and sources: headers of 64 bytes in network byte order, each with a
//! CRC32C.
//!
//! `docs/daq-wire.md` specifies it with test vectors. Two layouts share their first 24 and last four bytes:
//! [`Order`] (builder to source) and [`FragmentHeader`] (source to builder). Headers may grow: unknown
//! trailing bytes are skipped. Other versions are refused.

mod fragment;
mod order;
#[cfg(test)]
mod tests;

pub use fragment::{
    ANY_BUILDER, DATAGRAM_HEADER_BYTES, DatagramHeader, FragmentFlags, FragmentHeader, HELLO_BYTES, Hello,
};
pub use order::{Order, OrderFlags};

pub const MAGIC: [u8; 4] = *b"KGDQ";
pub const VERSION: u8 = 1;
pub const HEADER_BYTES: usize = 64;
/// Longest accepted header, which leaves room for extensions.
pub const HEADER_BYTES_MAX: usize = 1024;
/// Largest payload of a fragment.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// To sources: an event happened; with push, send its fragment.
    #[default]
    Trigger = 1,
    /// To sources: those in the range may send.
    Grant = 2,
    /// To one source: send its fragment of this event.
    Pull = 3,
    /// To sources: the run is over.
    Stop = 4,
    /// To a builder: identifies the source; a [`Hello`] follows.
    Hello = 5,
    /// To a builder: a fragment; its payload follows.
    Fragment = 6,
    /// Clock probe to a source, and its answer.
    Sync = 7,
    /// To a source: request for lost bytes of a fragment.
    Nack = 8,
}

impl Kind {
    const ALL: [Self; 8] = {
        use Kind::{Fragment, Grant, Hello, Nack, Pull, Stop, Sync, Trigger};
        [Trigger, Grant, Pull, Stop, Hello, Fragment, Sync, Nack]
    };

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Why bytes could not be decoded.
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

/// The fields that both layouts begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    pub kind: Kind,
    /// Header length; at least [`HEADER_BYTES`].
    pub header_bytes: u16,
    pub run: u32,
}

impl CommonHeader {
    /// Decodes and checks magic, version, kind and length: enough to know how many bytes to read.
    ///
    /// # Errors
    /// [`WireError`]; `Short`: more bytes are needed.
    pub fn read(bytes: &[u8]) -> Result<Self, WireError> {
        let [a, b, c, d, version, kind, long, short, r0, r1, r2, r3, ..] = *bytes else {
            return Err(WireError::Short);
        };
        if [a, b, c, d] != MAGIC {
            return Err(WireError::Magic);
        }
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let kind = Kind::from_number(kind).ok_or(WireError::Kind(kind))?;
        let header_bytes = u16::from_be_bytes([long, short]);
        if !(HEADER_BYTES..=HEADER_BYTES_MAX).contains(&usize::from(header_bytes)) {
            return Err(WireError::HeaderLength(header_bytes));
        }
        Ok(Self { kind, header_bytes, run: u32::from_be_bytes([r0, r1, r2, r3]) })
    }
}

fn write_common(kind: Kind, header_bytes: u16, run: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    (bytes[4], bytes[5]) = (VERSION, kind as u8);
    put(&mut bytes, 6, header_bytes.to_be_bytes());
    put(&mut bytes, 8, run.to_be_bytes());
    bytes
}

fn append_checksum(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let crc = crc32c::crc32c(&bytes[..60]);
    put(&mut bytes, 60, crc.to_be_bytes());
    bytes
}

/// The known part of a header, if its checksum is right.
fn verify_checksum(bytes: &[u8]) -> Result<(CommonHeader, &[u8; HEADER_BYTES]), WireError> {
    let head = CommonHeader::read(bytes)?;
    let known = bytes.first_chunk::<HEADER_BYTES>().ok_or(WireError::Short)?;
    match crc32c::crc32c(&known[..60]) == at(known, 60, u32::from_be_bytes) {
        true => Ok((head, known)),
        false => Err(WireError::HeaderChecksum),
    }
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

fn at<const N: usize, T>(bytes: &[u8; HEADER_BYTES], at: usize, read: impl Fn([u8; N]) -> T) -> T {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    read(value)
}
