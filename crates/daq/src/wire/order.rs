//! Messages from a builder to sources.

use super::{HEADER_BYTES, Kind, WireError, append_checksum, at, put, verify_checksum, write_common};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderFlags(pub u16);

impl OrderFlags {
    pub const AGAIN: u16 = 1;
    pub const LAST: u16 = 2;

    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag == flag
    }
}

/// A trigger, grant, pull, stop, clock probe or NACK; by UDP, or over a source's TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    pub kind: Kind,
    pub flags: OrderFlags,
    pub run: u32,
    pub builder: u16,
    /// Event number; in a clock probe the number of the probe.
    pub event: u64,
    /// When the trigger was due (or the probe was sent), by the builder's clock, ns.
    pub triggered_ns: u64,
    pub first_source: u32,
    pub sources: u32,
    /// Expected payload length; 0: the source knows. In a NACK, how many bytes were lost.
    pub fragment_bytes: u32,
    /// Bytes that all sources together may have under way (informative). In a NACK, the position of the lost
    /// bytes.
    pub credit_bytes: u32,
    /// The oldest event of this builder that is still wanted: a source sends every unsent event from it on,
    /// and forgets older ones.
    pub event_oldest: u64,
    /// Seed of random numbers that all share.
    pub seed: u32,
}

impl Order {
    /// An order for `sources` sources from source 0 on, whose other fields are 0.
    pub fn new(kind: Kind, run: u32, builder: u16, sources: u32) -> Self {
        Self { kind, run, builder, sources, ..Self::default() }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = write_common(self.kind, HEADER_BYTES as u16, self.run);
        put(&mut bytes, 12, self.flags.0.to_be_bytes());
        put(&mut bytes, 14, self.builder.to_be_bytes());
        put(&mut bytes, 16, self.event.to_be_bytes());
        put(&mut bytes, 24, self.triggered_ns.to_be_bytes());
        put(&mut bytes, 32, self.first_source.to_be_bytes());
        put(&mut bytes, 36, self.sources.to_be_bytes());
        put(&mut bytes, 40, self.fragment_bytes.to_be_bytes());
        put(&mut bytes, 44, self.credit_bytes.to_be_bytes());
        put(&mut bytes, 48, self.event_oldest.to_be_bytes());
        put(&mut bytes, 56, self.seed.to_be_bytes());
        append_checksum(bytes)
    }

    /// Decodes a header; returns it with its length.
    ///
    /// # Errors
    /// [`WireError`]; `Short`: more bytes are needed.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (head, known) = verify_checksum(bytes)?;
        if matches!(head.kind, Kind::Hello | Kind::Fragment) {
            return Err(WireError::Side);
        }
        let length = usize::from(head.header_bytes);
        if bytes.len() < length {
            return Err(WireError::Short);
        }
        let order = Self {
            kind: head.kind,
            flags: OrderFlags(at(known, 12, u16::from_be_bytes)),
            run: head.run,
            builder: at(known, 14, u16::from_be_bytes),
            event: at(known, 16, u64::from_be_bytes),
            triggered_ns: at(known, 24, u64::from_be_bytes),
            first_source: at(known, 32, u32::from_be_bytes),
            sources: at(known, 36, u32::from_be_bytes),
            fragment_bytes: at(known, 40, u32::from_be_bytes),
            credit_bytes: at(known, 44, u32::from_be_bytes),
            event_oldest: at(known, 48, u64::from_be_bytes),
            seed: at(known, 56, u32::from_be_bytes),
        };
        Ok((order, length))
    }

    pub const fn is_for(&self, source: u32) -> bool {
        source >= self.first_source && source - self.first_source < self.sources
    }
}
