//! What a source says of itself when it connects.

use super::{WireError, put};

/// Bytes of a [`Hello`] as written here; a longer one is read, and what follows is skipped.
pub const HELLO_BYTES: usize = 64;

/// The builder's number in the header of a hello whose source was told an address and no number.
pub const WHOEVER_LISTENS: u16 = u16::MAX;

/// The payload of a message of kind `Hello`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Sources of one number share one clock and one ear for orders: a process, mostly. 0 stands for nobody.
    pub group: u64,
    /// Tells hosts that share one kernel, and so one clock, from others; zeros: unknown.
    pub boot: [u8; 16],
    /// The UDP port at which the group answers clock questions, hears orders that are meant for it alone and, with UDP, is
    /// asked to send again; 0: there is none, and both come over this connection.
    pub udp_port: u16,
    /// How many connections of the group are to come for this builder; 0: unknown.
    pub sources: u32,
    /// Tells whether both ends were told the same; 0: unknown.
    pub configuration: u64,
    /// The congestion control of this connection, ASCII, at most 16 bytes; empty: not TCP, or unknown.
    pub congestion_control: String,
}

impl Hello {
    /// The payload as it goes over the network.
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

    /// Reads the payload.
    ///
    /// # Errors
    /// [`WireError::Short`].
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let bytes = payload.first_chunk::<HELLO_BYTES>().ok_or(WireError::Short)?;
        let name = &bytes[40..56];
        let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
        // It ends up on somebody's screen.
        let congestion_control =
            name.iter().filter(|byte| byte.is_ascii_graphic()).map(|&byte| char::from(byte));
        Ok(Self {
            group: super::at(bytes, 0, u64::from_be_bytes),
            boot: super::at(bytes, 8, |boot: [u8; 16]| boot),
            udp_port: super::at(bytes, 24, u16::from_be_bytes),
            sources: super::at(bytes, 28, u32::from_be_bytes),
            configuration: super::at(bytes, 32, u64::from_be_bytes),
            congestion_control: congestion_control.collect(),
        })
    }
}
