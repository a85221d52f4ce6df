//! What crosses a connection between kagiri's clients and kagiri's server. Numbers are big-endian.
//!
//! A connection begins with a [`Hello`]. A message is a header of 24 bytes (its whole size, the size of the
//! wanted reply, its number) and payload. Its reply is a header of 24 bytes (its whole size, the number of
//! the message, the server's processing time) and payload. Replies come in the order of their messages.

/// Bytes of the header of a message, and of a reply.
pub const HEADER_BYTES: u32 = 24;
/// The largest message or reply.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 32;
/// Bytes at the start of a background datagram: trial and key.
pub const DATAGRAM_HEADER_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"KAGIRIX1";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Messages and replies.
    Messages,
    /// Stands for as long as the clients of one host take part in a trial.
    Attend,
    /// Bytes of background load.
    Background,
    /// Waits for the end of a trial, and then brings what arrived of its background load.
    Count,
}

impl Purpose {
    const ALL: [Self; 4] = [Self::Messages, Self::Attend, Self::Background, Self::Count];
}

/// The first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    pub purpose: Purpose,
    /// Which trial of all that the server serves.
    pub trial: u64,
    /// Lets the client in.
    pub key: u64,
}

impl Hello {
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = Purpose::ALL.iter().position(|one| *one == self.purpose).unwrap_or(0) as u8;
        bytes[16..24].copy_from_slice(&self.trial.to_be_bytes());
        bytes[24..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// `None`: the peer speaks something else.
    pub fn from_bytes(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let purpose = *Purpose::ALL.get(usize::from(bytes[8]))?;
        let hello = Self { purpose, trial: u64_at(bytes, 16), key: u64_at(bytes, 24) };
        (bytes[..8] == MAGIC).then_some(hello)
    }
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHeader {
    /// The whole message with its header.
    pub bytes: u64,
    /// The whole reply with its header.
    pub reply_bytes: u64,
    pub number: u64,
}

impl MessageHeader {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        joined(self.bytes, self.reply_bytes, self.number)
    }

    /// `None`: a size is out of range.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let header =
            Self { bytes: u64_at(bytes, 0), reply_bytes: u64_at(bytes, 8), number: u64_at(bytes, 16) };
        (is_size(header.bytes) && is_size(header.reply_bytes)).then_some(header)
    }
}

/// The header of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The whole reply with its header.
    pub bytes: u64,
    pub number: u64,
    /// From the last byte of the message to the first byte of the reply, ns.
    pub server_ns: u64,
}

impl ReplyHeader {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES as usize] {
        joined(self.bytes, self.number, self.server_ns)
    }

    /// `None`: the size is out of range.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let header = Self { bytes: u64_at(bytes, 0), number: u64_at(bytes, 8), server_ns: u64_at(bytes, 16) };
        is_size(header.bytes).then_some(header)
    }
}

fn is_size(bytes: u64) -> bool {
    (u64::from(HEADER_BYTES)..=MESSAGE_BYTES_MAX).contains(&bytes)
}

fn joined(a: u64, b: u64, c: u64) -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    for (at, value) in [a, b, c].into_iter().enumerate() {
        bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// The number at `at`, which lies within `bytes`.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_and_headers_round_trip() {
        for purpose in Purpose::ALL {
            let hello = Hello { purpose, trial: 7, key: u64::MAX };
            assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        }
        let message = MessageHeader { bytes: 250_000, reply_bytes: 24, number: 3 };
        assert_eq!(MessageHeader::from_bytes(&message.to_bytes()), Some(message));
        let reply = ReplyHeader { bytes: 24, number: 3, server_ns: 1 };
        assert_eq!(ReplyHeader::from_bytes(&reply.to_bytes()), Some(reply));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(Hello::from_bytes(b"GET / HTTP/1.1\r\nHost: example\r\n\r"), None);
        let short = MessageHeader { bytes: 23, reply_bytes: 24, number: 0 };
        let huge = MessageHeader { bytes: 24, reply_bytes: MESSAGE_BYTES_MAX + 1, number: 0 };
        assert!([short, huge].iter().all(|header| MessageHeader::from_bytes(&header.to_bytes()).is_none()));
    }
}
