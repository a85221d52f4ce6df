//! What a source says to a builder.

use super::{HEADER_BYTES, Head, Kind, PAYLOAD_BYTES_MAX, WireError, at, checked, frame, put, seal};

/// Flags of a [`Piece`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceFlags(pub u16);

impl PieceFlags {
    /// The source has nothing of this event.
    pub const EMPTY: u16 = 1;
    /// Sent because a later trigger told of an event that the source had missed.
    pub const CATCHUP: u16 = 2;
    /// The payload is shorter than it should be.
    pub const TRUNCATED: u16 = 4;
    /// The source's clock follows no other.
    pub const UNSYNCED: u16 = 8;

    /// Whether all bits of `flag` are set.
    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag == flag
    }
}

/// A fragment, a hello or the answer to a clock question; its payload follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of them: [`Kind::Fragment`], [`Kind::Hello`] or [`Kind::Sync`].
    pub kind: Kind,
    /// See [`PieceFlags`].
    pub flags: PieceFlags,
    /// The run.
    pub run: u32,
    /// The builder that it is for.
    pub builder: u16,
    /// The event; of an answer the question's number.
    pub event: u64,
    /// Who sends it.
    pub source: u32,
    /// Bytes that follow the header.
    pub payload_bytes: u32,
    /// When the order to send it arrived, ns of the source's clock; of an answer, when the question did.
    pub order_received_ns: u64,
    /// When it was sent, ns of the source's clock, read before the first write.
    pub sent_ns: u64,
    /// How far the source's clock may be off the one it follows, ns; 0: unknown.
    pub clock_error_ns: u32,
    /// Counts the source's fragments to this builder from 0.
    pub sequence: u32,
    /// CRC32C of the payload; 0: there is none.
    pub payload_crc: u32,
}

impl Piece {
    /// The header as it goes over the network.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        self.header(HEADER_BYTES as u16)
    }

    fn header(&self, header_bytes: u16) -> [u8; HEADER_BYTES] {
        let mut bytes = frame(self.kind, header_bytes, self.run);
        put(&mut bytes, 12, self.flags.0.to_be_bytes());
        put(&mut bytes, 14, self.builder.to_be_bytes());
        put(&mut bytes, 16, self.event.to_be_bytes());
        put(&mut bytes, 24, self.source.to_be_bytes());
        put(&mut bytes, 28, self.payload_bytes.to_be_bytes());
        put(&mut bytes, 32, self.order_received_ns.to_be_bytes());
        put(&mut bytes, 40, self.sent_ns.to_be_bytes());
        put(&mut bytes, 48, self.clock_error_ns.to_be_bytes());
        put(&mut bytes, 52, self.sequence.to_be_bytes());
        put(&mut bytes, 56, self.payload_crc.to_be_bytes());
        seal(bytes)
    }

    /// Reads a whole header; returns it with its length. The payload is not looked at.
    ///
    /// # Errors
    /// [`WireError`]; `Short` asks for more bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (head, known) = checked(bytes)?;
        Self::of(head, known, bytes.len())
    }

    fn of(head: Head, known: &[u8; HEADER_BYTES], available: usize) -> Result<(Self, usize), WireError> {
        if !matches!(head.kind, Kind::Hello | Kind::Fragment | Kind::Sync) {
            return Err(WireError::Side);
        }
        let payload_bytes = at(known, 28, u32::from_be_bytes);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(WireError::PayloadLength(payload_bytes));
        }
        let length = usize::from(head.header_bytes);
        if available < length {
            return Err(WireError::Short);
        }
        let piece = Self {
            kind: head.kind,
            flags: PieceFlags(at(known, 12, u16::from_be_bytes)),
            run: head.run,
            builder: at(known, 14, u16::from_be_bytes),
            event: at(known, 16, u64::from_be_bytes),
            source: at(known, 24, u32::from_be_bytes),
            payload_bytes,
            order_received_ns: at(known, 32, u64::from_be_bytes),
            sent_ns: at(known, 40, u64::from_be_bytes),
            clock_error_ns: at(known, 48, u32::from_be_bytes),
            sequence: at(known, 52, u32::from_be_bytes),
            payload_crc: at(known, 56, u32::from_be_bytes),
        };
        Ok((piece, length))
    }

    /// Whether `payload` is what the source had in mind; true as well where it sent no checksum.
    pub fn vouches_for(&self, payload: &[u8]) -> bool {
        self.payload_crc == 0 || crc32c::crc32c(payload) == self.payload_crc
    }
}

/// Bytes of the header of a [`Part`].
pub const PART_HEADER_BYTES: usize = HEADER_BYTES + 8;

/// A part of a fragment in a datagram: a [`Piece`] whose `payload_bytes` count this datagram's, and whose header goes on
/// with where they belong. `payload_crc` is that of these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The header that it begins with.
    pub piece: Piece,
    /// Where these bytes begin in the fragment's payload.
    pub offset: u32,
    /// Bytes of the whole fragment's payload.
    pub whole_bytes: u32,
}

impl Part {
    /// The header as it goes over the network.
    pub fn encode(&self) -> [u8; PART_HEADER_BYTES] {
        let mut bytes = [0; PART_HEADER_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.piece.header(PART_HEADER_BYTES as u16));
        put(&mut bytes, HEADER_BYTES, self.offset.to_be_bytes());
        put(&mut bytes, HEADER_BYTES + 4, self.whole_bytes.to_be_bytes());
        bytes
    }

    /// Reads a whole datagram: the header and its payload. One without the longer header is a whole fragment.
    ///
    /// # Errors
    /// [`WireError`]: nothing of the datagram is to be used.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (piece, length) = Piece::decode(datagram)?;
        let payload = &datagram[length..];
        if payload.len() != piece.payload_bytes as usize {
            return Err(WireError::PayloadLength(piece.payload_bytes));
        }
        let number = |from: usize| {
            let bytes = datagram[..length].get(from..from + 4)?;
            Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let offset = number(HEADER_BYTES).unwrap_or(0);
        let whole_bytes = number(HEADER_BYTES + 4).unwrap_or(piece.payload_bytes);
        let fits = offset.checked_add(piece.payload_bytes).is_some_and(|end| end <= whole_bytes);
        if !fits || whole_bytes > PAYLOAD_BYTES_MAX {
            return Err(WireError::PayloadLength(whole_bytes));
        }
        if !piece.vouches_for(payload) {
            return Err(WireError::PayloadChecksum);
        }
        Ok((Self { piece, offset, whole_bytes }, payload))
    }
}
