//! What builders and sources say to each other: headers of 64 bytes in network byte order, each guarded by a CRC32C.
//!
//! Documented with test vectors in `docs/daq-wire.md`, so that real front ends can speak it. Two layouts share their first
//! 24 bytes and their last four: [`Order`] (builder to sources) and [`Piece`] (source to builder). A header may be longer
//! than is known here: what follows the known part is skipped. Another version is refused.

mod error;
mod hello;
mod order;
mod piece;
#[cfg(test)]
mod tests;

pub use error::WireError;
pub use hello::{HELLO_BYTES, Hello, WHOEVER_LISTENS};
pub use order::{Order, OrderFlags};
pub use piece::{PART_HEADER_BYTES, Part, Piece, PieceFlags};

/// The first four bytes of every header.
pub const MAGIC: [u8; 4] = *b"KGDQ";
/// The version of the format.
pub const VERSION: u8 = 1;
/// Bytes of a header as written here.
pub const HEADER_BYTES: usize = 64;
/// The longest header that is read: what a later version may append to it is skipped.
pub const HEADER_BYTES_MAX: usize = 1024;
/// The largest payload of a fragment.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

/// What a header is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// To sources: an event happened; with push, send your fragment of it.
    Trigger = 1,
    /// To sources: those in the range may send.
    Grant = 2,
    /// To one source: send your fragment of this event.
    Pull = 3,
    /// To sources: the run is over.
    Stop = 4,
    /// To a builder: who the source is; followed by a [`Hello`].
    Hello = 5,
    /// To a builder: a fragment, followed by its payload.
    Fragment = 6,
    /// To a source, and its answer: what does your clock say?
    Sync = 7,
    /// To a source: of this event, these bytes did not arrive.
    Nack = 8,
}

impl Kind {
    /// The kind of that number.
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Trigger,
            2 => Self::Grant,
            3 => Self::Pull,
            4 => Self::Stop,
            5 => Self::Hello,
            6 => Self::Fragment,
            7 => Self::Sync,
            8 => Self::Nack,
            _ => return None,
        })
    }
}

/// What both layouts begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is about.
    pub kind: Kind,
    /// Bytes of the header; at least [`HEADER_BYTES`].
    pub header_bytes: u16,
    /// The run that it belongs to.
    pub run: u32,
}

impl Head {
    /// Reads and checks magic, version, kind and length, which is as much as is needed to know how many bytes to wait for.
    ///
    /// # Errors
    /// [`WireError`]: the stream cannot be followed from here on. `Short` asks for more bytes.
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
        let kind = Kind::of(kind).ok_or(WireError::Kind(kind))?;
        let header_bytes = u16::from_be_bytes([long, short]);
        if !(HEADER_BYTES..=HEADER_BYTES_MAX).contains(&usize::from(header_bytes)) {
            return Err(WireError::HeaderLength(header_bytes));
        }
        Ok(Self { kind, header_bytes, run: u32::from_be_bytes([r0, r1, r2, r3]) })
    }
}

/// Writes the parts that both layouts share.
fn frame(kind: Kind, header_bytes: u16, run: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC);
    (bytes[4], bytes[5]) = (VERSION, kind as u8);
    put(&mut bytes, 6, header_bytes.to_be_bytes());
    put(&mut bytes, 8, run.to_be_bytes());
    bytes
}

/// Ends a header with the CRC32C of its first 60 bytes.
fn seal(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    let crc = crc32c::crc32c(&bytes[..60]);
    put(&mut bytes, 60, crc.to_be_bytes());
    bytes
}

/// The known part of a whole header whose checksum is right.
fn checked(bytes: &[u8]) -> Result<(Head, &[u8; HEADER_BYTES]), WireError> {
    let head = Head::read(bytes)?;
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
