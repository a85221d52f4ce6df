//! What a builder says to sources.

use super::{HEADER_BYTES, Kind, WireError, at, checked, frame, put, seal};

/// Flags of an [`Order`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderFlags(pub u16);

impl OrderFlags {
    /// The trigger was sent before.
    pub const AGAIN: u16 = 1;
    /// No trigger will follow.
    pub const LAST: u16 = 2;

    /// Whether all bits of `flag` are set.
    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag == flag
    }
}

/// A trigger, grant, pull, stop, clock question or request to send again; by UDP, or over a source's TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which of them.
    pub kind: Kind,
    /// See [`OrderFlags`].
    pub flags: OrderFlags,
    /// The run.
    pub run: u32,
    /// The builder that gives it.
    pub builder: u16,
    /// The event that it is about; of a clock question its number.
    pub event: u64,
    /// When the trigger was due, ns of the builder's clock; of a clock question when it was sent.
    pub triggered_ns: u64,
    /// The first source that it is meant for.
    pub first_source: u32,
    /// For how many sources it is meant.
    pub sources: u32,
    /// How long a fragment is to be; 0: the source knows. Of a NACK, how many bytes did not arrive.
    pub fragment_bytes: u32,
    /// How many bytes the sources together may have under way (for information). Of a NACK, from which byte on.
    pub credit_bytes: u32,
    /// The oldest event of this builder that is still wanted: a source sends every event from it on that it has not sent,
    /// and can forget what is older.
    pub event_oldest: u64,
    /// Seed of random numbers that all are to share.
    pub seed: u32,
}

#[cfg(test)]
impl Order {
    /// Of builder 0 to source 0; no earlier event is unwanted.
    pub(crate) fn of_event(kind: Kind, run: u32, event: u64) -> Self {
        Self {
            kind,
            flags: OrderFlags::default(),
            run,
            builder: 0,
            event,
            triggered_ns: 0,
            first_source: 0,
            sources: 1,
            fragment_bytes: 0,
            credit_bytes: 0,
            event_oldest: 0,
            seed: 0,
        }
    }
}

impl Order {
    /// The header as it goes over the network.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = frame(self.kind, HEADER_BYTES as u16, self.run);
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
        seal(bytes)
    }

    /// Reads a whole header; returns it with its length.
    ///
    /// # Errors
    /// [`WireError`]; `Short` asks for more bytes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let (head, known) = checked(bytes)?;
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

    /// Whether it is meant for that source.
    pub const fn is_for(&self, source: u32) -> bool {
        source >= self.first_source && source - self.first_source < self.sources
    }
}
