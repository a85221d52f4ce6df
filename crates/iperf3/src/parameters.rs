//! What a client asks for: the JSON of the parameter exchange, read with bounds and written.

use serde_json::{Map, Value};

use super::ServerError;
use super::json::{Number, Object, text, whole};

/// Bytes a call over TCP unless asked for otherwise, as in iperf3.
pub const TCP_BLOCK_BYTES: u32 = 128 << 10;
/// Bytes a datagram unless asked for otherwise, as in iperf3 where it cannot ask the path.
pub const UDP_BLOCK_BYTES: u32 = 1460;
/// A datagram holds two times of four bytes and a count of four or eight.
pub const UDP_BLOCK_BYTES_MIN: u32 = 16;
/// What UDP over IPv4 can carry (RFC 768, RFC 791).
pub const UDP_BLOCK_BYTES_MAX: u32 = 65_507;
/// More streams than iperf3 takes (128) and fewer than a host has ports.
pub const STREAMS_MAX: u32 = 20_000;

/// Duration of a test unless asked for otherwise, as in iperf3.
const SECONDS: u32 = 10;
const BLOCK_BYTES_MAX: u64 = 1 << 20;
const DURATION_MAX_S: u64 = 86_400;
const OMIT_MAX_S: u64 = 600;
const WINDOW_BYTES_MAX: u64 = 512 << 20;
const SEGMENT_BYTES_MAX: u64 = 32 * 1024 - 1;
const TITLE_CHARS_MAX: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A connection for each stream.
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Forward,
    /// From the server to the client (`-R`).
    Reverse,
    /// Both at once, in streams of their own (`--bidir`).
    Bidirectional,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// After this time, s (`-t`).
    Seconds(u32),
    /// After this number of bytes over all streams of one direction (`-n`).
    Bytes(u64),
    /// After this number of blocks over all streams of one direction (`-k`).
    Blocks(u64),
    /// When the client is stopped (`-t 0`).
    Endless,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    pub protocol: Protocol,
    /// Which way data flows; [`Direction::Bidirectional`] takes `streams` of each.
    pub direction: Direction,
    pub length: Length,
    /// What passes in the first seconds does not count.
    pub omit_s: u32,
    /// Data streams in each direction.
    pub streams: u32,
    /// Bytes a call, or a datagram.
    pub block_bytes: u32,
    /// Rate of each stream, bits of payload per second; flat out if absent.
    pub rate_bit_per_s: Option<u64>,
    /// Rate at which the kernel shall pace each stream (`SO_MAX_PACING_RATE`).
    pub pacing_bit_per_s: Option<u64>,
    /// Size of each socket's buffers.
    pub window_bytes: Option<u64>,
    pub congestion: Option<String>,
    /// Whether datagrams carry 64-bit counts.
    pub wide_counts: bool,
    pub nodelay: bool,
    pub segment_bytes: Option<u32>,
    /// IPv4's type of service, or IPv6's traffic class.
    pub service: Option<u8>,
    pub flow_label: Option<u32>,
    pub dont_fragment: bool,
    /// What the client calls this test.
    pub title: Option<String>,
    /// What the client wants to find in its own output.
    pub extra_data: Option<String>,
    pub wants_output: bool,
    pub client_version: Option<String>,
}

/// What a server assumes of a client that sends no parameter.
impl Default for Parameters {
    fn default() -> Self {
        Self::read(&Object::default()).expect("no parameter is required")
    }
}

/// Parameters that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: i32,
    pub message: String,
}

impl Refusal {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The object that is read, for short.
struct Asked<'a>(&'a Object);

impl Asked<'_> {
    /// A whole number between the bounds; `None` if it is not there.
    fn number(&self, key: &str, bounds: (u64, u64), code: i32) -> Result<Option<u64>, Refusal> {
        let (least, most) = bounds;
        let value = match whole(self.0, key) {
            Number::Absent => return Ok(None),
            Number::Whole(value) if (least..=most).contains(&value) => return Ok(Some(value)),
            Number::Whole(value) => value.to_string(),
            Number::Negative => "below zero".to_owned(),
            Number::Nonsense => "not a number of 64 bits".to_owned(),
        };
        Err(Refusal::new(code, format!("the parameter '{key}' is {value}; {least} to {most} is taken")))
    }

    /// The same, where zero stands for «not given».
    fn some(&self, key: &str, most: u64, code: i32) -> Result<Option<u64>, Refusal> {
        Ok(self.number(key, (0, most), code)?.filter(|&value| value > 0))
    }

    fn flag(&self, key: &str) -> bool {
        self.0.flag(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        text(self.0, key, TITLE_CHARS_MAX)
    }

    fn protocol(&self) -> Result<Protocol, Refusal> {
        if self.flag("sctp") {
            return Err(Refusal::new(ServerError::NO_SCTP, "SCTP is asked for; only TCP and UDP are spoken"));
        }
        Ok(if self.flag("udp") { Protocol::Udp } else { Protocol::Tcp })
    }

    fn direction(&self) -> Result<Direction, Refusal> {
        match (self.flag("reverse"), self.flag("bidirectional")) {
            (true, true) => {
                Err(Refusal::new(ServerError::DIRECTIONS, "both 'reverse' and 'bidirectional' are asked for"))
            }
            (true, false) => Ok(Direction::Reverse),
            (false, true) => Ok(Direction::Bidirectional),
            (false, false) => Ok(Direction::Forward),
        }
    }

    fn length(&self) -> Result<Length, Refusal> {
        let count_max = u64::MAX >> 1;
        if let Some(bytes) = self.some("num", count_max, ServerError::PARAMETERS)? {
            return Ok(Length::Bytes(bytes));
        }
        if let Some(blocks) = self.some("blockcount", count_max, ServerError::PARAMETERS)? {
            return Ok(Length::Blocks(blocks));
        }
        Ok(match self.number("time", (0, DURATION_MAX_S), ServerError::DURATION)? {
            None => Length::Seconds(SECONDS),
            Some(0) => Length::Endless,
            Some(seconds) => Length::Seconds(seconds as u32),
        })
    }

    fn block_bytes(&self, protocol: Protocol) -> Result<u32, Refusal> {
        let (bounds, code, usual) = match protocol {
            Protocol::Tcp => ((1, BLOCK_BYTES_MAX), ServerError::BLOCK, TCP_BLOCK_BYTES),
            Protocol::Udp => {
                let bounds = (UDP_BLOCK_BYTES_MIN.into(), UDP_BLOCK_BYTES_MAX.into());
                (bounds, ServerError::DATAGRAM, UDP_BLOCK_BYTES)
            }
        };
        let given =
            if whole(self.0, "len") == Number::Whole(0) { None } else { self.number("len", bounds, code)? };
        Ok(given.map_or(usual, |bytes| bytes as u32))
    }
}

impl Parameters {
    /// Reads what a client sent. What is not known is passed over, as new versions bring new parameters.
    pub fn read(object: &Object) -> Result<Self, Refusal> {
        let asked = Asked(object);
        if object.contains_key("authtoken") {
            let message =
                "the client sends a user's name and password; this server knows no users, leave them out";
            return Err(Refusal::new(ServerError::AUTHORISATION, message));
        }
        let protocol = asked.protocol()?;
        let rate_max = u64::MAX >> 1;
        Ok(Self {
            protocol,
            direction: asked.direction()?,
            length: asked.length()?,
            omit_s: asked.number("omit", (0, OMIT_MAX_S), ServerError::OMIT)?.unwrap_or(0) as u32,
            streams: asked.number("parallel", (1, STREAMS_MAX.into()), ServerError::STREAMS)?.unwrap_or(1)
                as u32,
            block_bytes: asked.block_bytes(protocol)?,
            rate_bit_per_s: asked.some("bandwidth", rate_max, ServerError::PARAMETERS)?,
            pacing_bit_per_s: asked.some("fqrate", rate_max, ServerError::PARAMETERS)?,
            window_bytes: asked.some("window", WINDOW_BYTES_MAX, ServerError::BUFFER)?,
            congestion: asked.text("congestion").filter(|name| !name.is_empty()),
            wide_counts: asked.flag("udp_counters_64bit"),
            nodelay: asked.flag("nodelay"),
            segment_bytes: asked
                .some("MSS", SEGMENT_BYTES_MAX, ServerError::SEGMENT)?
                .map(|bytes| bytes as u32),
            service: asked.some("TOS", 255, ServerError::SERVICE)?.map(|class| class as u8),
            flow_label: asked.some("flowlabel", 0xf_ffff, ServerError::FLOW_LABEL)?.map(|label| label as u32),
            dont_fragment: asked.flag("dont_fragment"),
            title: asked.text("title"),
            extra_data: asked.text("extra_data"),
            wants_output: asked.flag("get_server_output"),
            client_version: asked.text("client_version"),
        })
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(key.to_owned(), value);
            }
        };
        let flag = |on: bool| on.then_some(Value::Bool(true));
        // `get_server_output` and the like are numbers to iperf3, and new versions insist on it.
        let one = |on: bool| on.then(|| Value::from(1));
        let (time, num, blocks) = match self.length {
            Length::Seconds(seconds) => (seconds, 0, 0),
            Length::Bytes(bytes) => (0, bytes, 0),
            Length::Blocks(blocks) => (0, 0, blocks),
            Length::Endless => (0, 0, 0),
        };
        put("tcp", flag(self.protocol == Protocol::Tcp));
        put("udp", flag(self.protocol == Protocol::Udp));
        put("omit", Some(self.omit_s.into()));
        put("time", Some(time.into()));
        put("num", Some(num.into()));
        put("blockcount", Some(blocks.into()));
        put("MSS", self.segment_bytes.map(Value::from));
        put("nodelay", flag(self.nodelay));
        put("parallel", Some(self.streams.into()));
        put("reverse", flag(self.direction == Direction::Reverse));
        put("bidirectional", flag(self.direction == Direction::Bidirectional));
        put("window", self.window_bytes.map(Value::from));
        put("len", Some(self.block_bytes.into()));
        put("bandwidth", self.rate_bit_per_s.map(Value::from));
        put("fqrate", self.pacing_bit_per_s.map(Value::from));
        put("pacing_timer", Some(1000.into()));
        put("TOS", self.service.map(Value::from));
        put("flowlabel", self.flow_label.map(Value::from));
        put("title", self.title.clone().map(Value::from));
        put("extra_data", self.extra_data.clone().map(Value::from));
        put("congestion", self.congestion.clone().map(Value::from));
        put("get_server_output", one(self.wants_output));
        put("udp_counters_64bit", one(self.wide_counts));
        put("dont_fragment", one(self.dont_fragment));
        put("client_version", self.client_version.clone().map(Value::from));
        object
    }

    /// The bytes after which a test by bytes or blocks is over, in each direction.
    pub fn bytes_asked(&self) -> Option<u64> {
        match self.length {
            Length::Bytes(bytes) => Some(bytes),
            Length::Blocks(blocks) => Some(blocks.saturating_mul(self.block_bytes.into())),
            Length::Seconds(_) | Length::Endless => None,
        }
    }

    /// Streams in both directions together.
    pub fn streams_total(&self) -> u32 {
        self.streams * if self.direction == Direction::Bidirectional { 2 } else { 1 }
    }
}

#[cfg(test)]
#[path = "parameters_tests.rs"]
mod tests;
