//! What kagiri's two ends say to each other on the control connection: JSON objects, each with its length
//! before it.

use serde::{Deserialize, Serialize};

use crate::flow::{Direction, Engine, Mode, Protocol};
use crate::path_rate::Link;
use crate::quic::QuicFacts;
use crate::report::DirectionReport;
use crate::settings::RequestSettings;

/// The protocol's version; ends of different versions refuse each other by name.
pub const VERSION: u32 = 2;
/// The most that one message but a report may hold, bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The most that a report of so many flows may hold, bytes: 1000 for each, and what all of them share.
pub const fn report_bytes_max(flows: u32) -> usize {
    (2 << 20) + 1000 * flows as usize
}

/// What a client asks of a server, once, at the beginning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOrder {
    pub protocol_version: u32,
    /// The client's program, for the server's log: `kagiri 0.1.0`.
    pub program: String,
    /// What lets it in, where the server asks for that.
    pub key: Option<String>,
    pub protocol: Protocol,
    pub direction: Direction,
    /// How many flows go each way.
    pub flows: u32,
    /// How long senders send, ns after the start, the omitted time included; or until `bytes` are sent.
    pub time_ns: u64,
    /// Bytes that all flows of one direction carry together; `None`: as many as possible in the time.
    pub bytes: Option<u64>,
    pub omit_ns: u64,
    /// Where the server's receivers leave the bytes.
    pub mode: Mode,
    /// Bytes of one call, or of a datagram's payload.
    pub size_bytes: u32,
    /// The rate of each flow, bit/s; flat out without.
    pub rate_bit_per_s: Option<u64>,
    /// How the server's senders give bytes to the kernel; the server chooses without.
    pub engine: Option<Engine>,
    /// The server's threads; 0: the server chooses.
    pub threads: u32,
    pub congestion_control: Option<String>,
    pub send_buffer_bytes: Option<u64>,
    pub receive_buffer_bytes: Option<u64>,
    pub no_delay: bool,
    /// Requests and answers instead of streams of bytes.
    pub requests: Option<RequestSettings>,
    /// Whether each end times the calls of its threads.
    pub calls: bool,
    /// How often each end is to say how far it is, ns.
    pub beat_ns: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientMessage {
    Order(Box<SessionOrder>),
    Clock,
    Go,
    Beat,
    /// Its senders have ended; what they sent.
    Sent(Sent),
    /// It wants the end, and what was measured until now.
    Stop,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerMessage {
    /// The first word, before any order: it is kagiri's.
    Welcome {
        protocol_version: u32,
        /// Its program: `kagiri 0.1.0`.
        program: String,
    },
    /// It will; the flows may be opened.
    Ready {
        /// Its device towards the client, where its rate is known.
        link: Option<Link>,
        /// Where it waits for the QUIC connection, where that carries the flows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quic: Option<QuicFacts>,
    },
    Refused {
        why: String,
    },
    Connected,
    Clock {
        /// Its monotonic clock, ns.
        monotonic_ns: u64,
        /// Identifies its kernel, see `/proc/sys/kernel/random/boot_id`.
        boot: Option<String>,
    },
    Beat,
    Sent(Sent),
    /// All is over: its end of each way.
    Report {
        /// Its ends; the others are absent.
        #[serde(rename = "ways")]
        directions: Vec<DirectionReport>,
        /// How its flows were moved, by way.
        engines: Vec<(Direction, String)>,
    },
}

/// What senders came to, so that receivers know when all has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    pub bytes: u64,
    pub datagrams: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn read_never_panics(bytes: Vec<u8>) {
            let _ = serde_json::from_slice::<ClientMessage>(&bytes);
            let _ = serde_json::from_slice::<ServerMessage>(&bytes);
        }
    }
}
