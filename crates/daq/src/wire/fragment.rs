//! Messages from a source to a builder.

use super::{
    HEADER_BYTES, Kind, PAYLOAD_BYTES_MAX, WireError, append_checksum, at, put, verify_checksum, write_common,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentFlags(pub u16);

impl FragmentFlags {
    /// The source has no data of this event.
    pub const EMPTY: u16 = 1;
    /// Sent because a later trigger revealed a missed one.
    pub const CATCHUP: u16 = 2;
    /// The payload is shorter than expected.
    pub const TRUNCATED: u16 = 4;
    /// The source's clock is not synchronised.
    pub const UNSYNCED: u16 = 8;

    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag == flag
    }
}

/// Header of a fragment, a hello or the answer to a clock probe; the payload follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentHeader {
    /// [`Kind::Fragment`], [`Kind::Hello`] or [`Kind::Sync`].
    pub kind: Kind,
    pub flags: FragmentFlags,
    pub run: u32,
    /// Number of the receiving builder.
    pub builder: u16,
    /// Event number; in an answer the number of the probe.
    pub event: u64,
    pub source: u32,
    pub payload_bytes: u32,
    /// When the order (or probe) arrived, by the source's clock, ns.
    pub order_received_ns: u64,
    /// When it was sent, by the source's clock, read before the first write, ns.
    pub sent_ns: u64,
    /// Error bound of the source's clock, ns; 0: unknown.
    pub clock_error_ns: u32,
    /// Counts the source's fragments to this builder from 0.
    pub sequence: u32,
    pub payload_crc: u32,
}

impl FragmentHeader {
    /// A header whose other fields are 0.
    pub fn new(kind: Kind, run: u32, builder: u16, source: u32) -> Self {
        Self { kind, run, builder, source, ..Self::default() }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        self.header(HEADER_BYTES as u16)
    }

    fn header(&self, header_bytes: u16) -> [u8; HEADER_BYTES] {
        let mut bytes = write_common(self.kind, header_bytes, self.run);
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
        append_checksum(bytes)
    }

    /// Decodes a header; returns it with its length.
    ///
    /// # Errors
    /// [`WireError`]; `Short`: more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (head, known) = verify_checksum(bytes)?;
        if !matches!(head.kind, Kind::Hello | Kind::Fragment | Kind::Sync) {
            return Err(WireError::Side);
        }
        let payload_bytes = at(known, 28, u32::from_be_bytes);
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(WireError::PayloadLength(payload_bytes));
        }
        let length = usize::from(head.header_bytes);
        if bytes.len() < length {
            return Err(WireError::Short);
        }
        let header = Self {
            kind: head.kind,
            flags: FragmentFlags(at(known, 12, u16::from_be_bytes)),
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
        Ok((header, length))
    }

    /// Whether the payload has the right checksum, or the header carries none.
    pub fn payload_matches(&self, payload: &[u8]) -> bool {
        self.payload_crc == 0 || crc32c::crc32c(payload) == self.payload_crc
    }
}

pub const DATAGRAM_HEADER_BYTES: usize = HEADER_BYTES + 8;

/// Header of a part of a fragment in a datagram: in `fragment`, `payload_bytes` and `payload_crc` are those
/// of this datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    pub fragment: FragmentHeader,
    /// Position of these bytes in the fragment's payload.
    pub offset: u32,
    /// Payload length of the whole fragment.
    pub whole_bytes: u32,
}

impl DatagramHeader {
    pub fn encode(&self) -> [u8; DATAGRAM_HEADER_BYTES] {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.fragment.header(DATAGRAM_HEADER_BYTES as u16));
        put(&mut bytes, HEADER_BYTES, self.offset.to_be_bytes());
        put(&mut bytes, HEADER_BYTES + 4, self.whole_bytes.to_be_bytes());
        bytes
    }

    /// Decodes a datagram; returns header and payload. With a plain [`FragmentHeader`] it is a whole
    /// fragment.
    pub fn decode(datagram: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, length) = FragmentHeader::decode(datagram)?;
        let payload = &datagram[length..];
        if payload.len() != header.payload_bytes as usize {
            return Err(WireError::PayloadLength(header.payload_bytes));
        }
        let number = |from: usize| {
            let bytes = datagram[..length].get(from..from + 4)?;
            Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        let offset = number(HEADER_BYTES).unwrap_or(0);
        let whole_bytes = number(HEADER_BYTES + 4).unwrap_or(header.payload_bytes);
        let fits = offset.checked_add(header.payload_bytes).is_some_and(|end| end <= whole_bytes);
        if !fits || whole_bytes > PAYLOAD_BYTES_MAX {
            return Err(WireError::PayloadLength(whole_bytes));
        }
        if !header.payload_matches(payload) {
            return Err(WireError::PayloadChecksum);
        }
        Ok((Self { fragment: header, offset, whole_bytes }, payload))
    }
}

/// Length of an encoded [`Hello`]; longer ones are accepted, the rest is ignored.
pub const HELLO_BYTES: usize = 64;

/// Builder number in a hello whose source knows only the address.
pub const ANY_BUILDER: u16 = u16::MAX;

/// What a source reports when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Sources with the same number share a clock and a multicast receiver, usually a process; never 0.
    pub group: u64,
    /// Boot id of the kernel: processes with the same id share a clock; zeros: unknown.
    pub boot: [u8; 16],
    /// UDP port of the group for clock probes, unicast orders and requests for lost bytes; 0: none, all go
    /// over this connection.
    pub udp_port: u16,
    /// Connections of the group to this builder; 0: unknown.
    pub sources: u32,
    /// Hash of the settings; 0: unknown.
    pub configuration: u64,
    /// Congestion control of this connection, ASCII, at most 16 bytes; empty: unknown.
    pub congestion_control: String,
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        put(&mut bytes, 0, self.group.to_be_bytes());
        put(&mut bytes, 8, self.boot);
        put(&mut bytes, 24, self.udp_port.to_be_bytes());
        put(&mut bytes, 28, self.sources.to_be_bytes());
        put(&mut bytes, 32, self.configuration.to_be_bytes());
        let name = self.congestion_control.as_bytes();
        let length = name.len().min(16);
        bytes[40..40 + length].copy_from_slice(&name[..length]);
        bytes
    }

    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let bytes = payload.first_chunk::<HELLO_BYTES>().ok_or(WireError::Short)?;
        let name = &bytes[40..56];
        let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
        // Printable characters only: it appears in reports.
        let congestion_control =
            name.iter().filter(|byte| byte.is_ascii_graphic()).map(|&byte| char::from(byte));
        Ok(Self {
            group: at(bytes, 0, u64::from_be_bytes),
            boot: at(bytes, 8, |boot: [u8; 16]| boot),
            udp_port: at(bytes, 24, u16::from_be_bytes),
            sources: at(bytes, 28, u32::from_be_bytes),
            configuration: at(bytes, 32, u64::from_be_bytes),
            congestion_control: congestion_control.collect(),
        })
    }
}
