//! iperf3's error numbers.

use std::fmt;

/// What follows [`State::ServerError`](super::State::ServerError): iperf3's number, and the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerError {
    /// iperf3's own number (`iperf_api.h`).
    pub code: i32,
    /// `errno(3)` on the server, 0 if the kernel had no part in it.
    pub errno: i32,
}

impl ServerError {
    pub const BYTES: usize = 8;

    /// A test of 0 to 86,400 seconds was expected.
    pub const DURATION: i32 = 5;
    pub const STREAMS: i32 = 6;
    pub const BLOCK: i32 = 7;
    pub const BUFFER: i32 = 8;
    pub const SEGMENT: i32 = 10;
    pub const OMIT: i32 = 12;
    pub const NO_SCTP: i32 = 18;
    /// A datagram is too short or too long.
    pub const DATAGRAM: i32 = 20;
    pub const SERVICE: i32 = 21;
    /// Not both of reverse and bidirectional.
    pub const DIRECTIONS: i32 = 25;
    /// A message that does not belong here.
    pub const MESSAGE: i32 = 110;
    pub const PARAMETERS: i32 = 114;
    pub const RESULTS: i32 = 117;
    pub const FLOW_LABEL: i32 = 127;
    pub const CONGESTION: i32 = 134;
    pub const AUTHORISATION: i32 = 142;
    /// Nothing came for too long.
    pub const SILENCE: i32 = 144;
    /// The test lasted longer than the server allows.
    pub const EXPIRED: i32 = 160;
    pub const STREAM_ACCEPT: i32 = 204;
    pub const STREAM_BROKE: i32 = 206;

    pub fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.code.to_be_bytes());
        bytes[4..].copy_from_slice(&self.errno.to_be_bytes());
        bytes
    }

    /// What eight bytes say.
    pub fn read(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self { code: i32::from_be_bytes([a, b, c, d]), errno: i32::from_be_bytes([e, f, g, h]) }
    }

    fn reason(self) -> &'static str {
        match self.code {
            Self::DURATION | 37 => "it does not run a test of that duration",
            Self::STREAMS => "it does not take that many streams",
            Self::BLOCK => "it does not take blocks of that length",
            Self::BUFFER | 125 | 141 => "it cannot have socket buffers of that size",
            Self::SEGMENT | 123 => "it cannot have that segment size",
            Self::OMIT => "it does not omit a time of that length",
            Self::NO_SCTP => "it does not speak SCTP",
            Self::DATAGRAM => "it does not take datagrams of that length",
            Self::SERVICE | 124 | 126 => "it cannot have that type of service",
            Self::DIRECTIONS => "it does not go in these directions",
            27 => "the rate asked for is above its limit",
            Self::MESSAGE => "it was sent a message that it does not know",
            Self::PARAMETERS => "it cannot read the parameters",
            Self::RESULTS => "it cannot read the results",
            Self::FLOW_LABEL => "it cannot have that flow label",
            Self::CONGESTION => "it does not have that congestion control",
            Self::AUTHORISATION => "it wants other credentials",
            Self::SILENCE => "nothing reached it for too long",
            Self::EXPIRED => "the test lasted longer than it allows",
            119 => "it was told that the client stops",
            132 => "it cannot run on the CPU asked for",
            200..=208 => "its data streams failed",
            _ => "it gives no reason known here",
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (iperf3 error {})", self.reason(), self.code)?;
        if self.errno > 0 {
            write!(f, ": {}", std::io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_error_round_trips_and_has_a_text() {
        for server_error in [ServerError { code: 142, errno: 0 }, ServerError { code: -1, errno: i32::MIN }] {
            assert_eq!(ServerError::read(server_error.bytes()), server_error);
        }
        assert_eq!(
            ServerError { code: ServerError::CONGESTION, errno: 2 }.to_string(),
            "it does not have that congestion control (iperf3 error 134): No such file or directory \
             (os error 2)"
        );
        assert!(ServerError { code: 9999, errno: 0 }.to_string().contains("9999"));
    }
}
