//! The payload of a hello.

use super::{WireError, put};

/// Length of an encoded [`Hello`]; longer ones are accepted, the rest is ignored.
pub const HELLO_BYTES: usize = 64;

/// Builder number in a hello whose source knows only the address.
pub const ANY_BUILDER: u16 = u16::MAX;

/// What a source reports when it connects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Sources with the same number share a clock and a multicast receiver, usually a process; never 0.
    pub group: u64,
    /// Boot id of the kernel, which tells hosts that share a clock; zeros: unknown.
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
            group: super::at(bytes, 0, u64::from_be_bytes),
            boot: super::at(bytes, 8, |boot: [u8; 16]| boot),
            udp_port: super::at(bytes, 24, u16::from_be_bytes),
            sources: super::at(bytes, 28, u32::from_be_bytes),
            configuration: super::at(bytes, 32, u64::from_be_bytes),
            congestion_control: congestion_control.collect(),
        })
    }
}
