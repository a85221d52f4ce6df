//! The settings of `transfer`, as they stand in a plan's `[transfer]` table and on the command line.

pub(super) mod check;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::flow::{Direction, Engine, Mode, Protocol};
use crate::reading;

/// The port that `kagiri transfer --serve` listens on unless told otherwise: iperf3's, whose clients it serves too.
pub const PORT: u16 = 5201;
/// The port of classic `ttcp`.
pub const TTCP_PORT: u16 = 5001;
/// Payload of a datagram unless given: what fills an Ethernet frame of 1500 bytes, IPv4 and UDP headers deducted.
pub const DATAGRAM_BYTES: u64 = 1472;
/// Bytes of one call to the kernel towards iperf3 unless given.
pub const CALL_BYTES: u64 = 128 << 10;
/// Bytes that a stream of QUIC is given at once unless said otherwise.
pub const QUIC_BYTES: u64 = 64 << 10;

/// Whose server the client talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// kagiri's, or iperf3's: its first answer tells.
    #[default]
    Auto,
    /// kagiri's.
    Kagiri,
    /// iperf3's.
    Iperf3,
    /// A classic `ttcp -r` (up) or `ttcp -t` (down).
    Ttcp,
}

/// How a requester waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Asleep in the kernel, as most programs do.
    #[default]
    Block,
    /// Asking the socket again and again: the least latency, for a whole core.
    Spin,
}

/// Requests and answers instead of a stream of bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RequestSettings {
    /// Bytes of a request.
    pub size: ByteSize,
    /// Bytes of its answer; as many unless given.
    pub answer_size: Option<ByteSize>,
    /// How both ends wait.
    pub waiting: Waiting,
    /// Requests a second that each flow is to make, whether or not answers came (open loop: latency counts from the
    /// intended moment); one after the other unless given.
    pub rate_per_s: Option<f64>,
}

impl Default for RequestSettings {
    fn default() -> Self {
        Self { size: ByteSize::from_bytes(1), answer_size: None, waiting: Waiting::Block, rate_per_s: None }
    }
}

/// The search for the highest rate of datagrams that arrive without loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSearch {
    /// The largest rate to offer, all flows together.
    pub max: BitRate,
    /// Loss up to here counts as none, in % of the datagrams.
    pub loss_percent_max: f64,
    /// How finely rates are told apart, in %.
    pub resolution_percent: f64,
}

impl Default for RateSearch {
    fn default() -> Self {
        Self { max: BitRate::from_bit_per_s(100_000_000_000), loss_percent_max: 0.0, resolution_percent: 2.0 }
    }
}

/// The settings of `transfer`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransferSettings {
    /// A server that is already there, `HOST` or `HOST:PORT`; without it one is made.
    pub host: Option<String>,
    /// Whose server that is.
    pub peer: Peer,
    /// What carries the bytes.
    pub protocol: Protocol,
    /// Which way they go, as the client sees it.
    pub direction: Direction,
    /// How many flows there are; of `both`, each way.
    pub flows: u64,
    /// How long bytes move.
    pub time: Span,
    /// Move so many bytes instead, all flows of one direction together.
    pub bytes: Option<ByteSize>,
    /// What is left out at the beginning, while windows open: part of no rate, and of no count of bytes or datagrams.
    pub omit: Span,
    /// Where received bytes end.
    pub mode: Mode,
    /// Bytes of one call to the kernel, of UDP the payload of one datagram, of QUIC what a stream is given at once. Unless
    /// given: of TCP what is cheapest (towards iperf3 its own 128 KiB), 1472 B, 64 KiB.
    pub size: Option<ByteSize>,
    /// The rate of each flow; flat out unless given.
    pub rate: Option<BitRate>,
    /// How senders give bytes to the kernel; the quickest of this host unless given.
    pub engine: Option<Engine>,
    /// Threads that carry the flows at each end; unless given one for each of up to 16 flows (two a CPU, if that is more), of
    /// more flows one a CPU.
    pub threads: u32,
    /// Congestion control of TCP; each host's default unless given.
    pub congestion_control: Option<String>,
    /// The rate of the path's slowest link on the wire, for the arithmetic of what it can carry at best; unless given, that
    /// of the slower of the two ends' devices, as far as they are known.
    pub link: Option<BitRate>,
    /// Socket buffers at both ends, of QUIC its own windows; the kernel's automatic ones unless given.
    pub window: Option<ByteSize>,
    /// The senders' buffers (`SO_SNDBUF`), where they are to differ from `window`.
    pub send_buffer: Option<ByteSize>,
    /// The receivers' buffers (`SO_RCVBUF`), and with them TCP's window, where they are to differ from `window`.
    pub receive_buffer: Option<ByteSize>,
    /// Do not wait to fill segments (`TCP_NODELAY`).
    pub no_delay: bool,
    /// Requests and answers instead of streams of bytes.
    pub requests: Option<RequestSettings>,
    /// Time each call to the kernel at both ends, and show where the time went.
    pub calls: bool,
    /// Search the highest rate of datagrams without loss.
    pub search: Option<RateSearch>,
}

impl Default for TransferSettings {
    fn default() -> Self {
        Self {
            host: None,
            peer: Peer::Auto,
            protocol: Protocol::Tcp,
            direction: Direction::Up,
            flows: 1,
            time: Span::from_s(5),
            bytes: None,
            omit: Span::from_ms(0),
            mode: Mode::Copy,
            size: None,
            rate: None,
            engine: None,
            threads: 0,
            congestion_control: None,
            link: None,
            window: None,
            send_buffer: None,
            receive_buffer: None,
            no_delay: false,
            requests: None,
            calls: false,
            search: None,
        }
    }
}

impl TransferSettings {
    /// Read settings and check every range.
    ///
    /// # Errors
    /// An unknown key, a wrong unit or an impossible range, with the key named.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        let read: Self = reading::read(&settings, |_| None)?;
        read.check()?;
        Ok(read)
    }

    /// Bytes of one call, or of a datagram's payload.
    pub fn size_bytes(&self) -> u64 {
        let usual = match self.protocol {
            Protocol::Tcp => CALL_BYTES,
            Protocol::Udp => DATAGRAM_BYTES,
            Protocol::Quic => QUIC_BYTES,
        };
        self.size.map_or(usual, ByteSize::bytes)
    }

    /// Whether senders are to find out how to give their bytes to the kernel.
    pub(super) fn leaves_engine_open(&self) -> bool {
        self.protocol == Protocol::Tcp && self.requests.is_none() && self.engine.is_none()
    }

    /// The length of an interval, ns: about fifty in all, between a tenth of a second and one.
    pub fn interval_ns(&self) -> u64 {
        let whole = self.time.duration() + self.omit.duration();
        u64::try_from(whole.as_nanos() / 50).unwrap_or(u64::MAX).clamp(100_000_000, 1_000_000_000)
    }

    /// What one trial offers: of a search, `load` Mbit/s over all flows.
    #[must_use]
    pub fn at_load(&self, load: u64) -> Self {
        let rate = || BitRate::from_bit_per_s((load * 1_000_000 / self.flows.max(1)).max(1));
        match self.search {
            Some(_) => Self { rate: Some(rate()), ..self.clone() },
            None => self.clone(),
        }
    }

    /// How loads are to be searched: flows are offered once, rates of datagrams are searched in Mbit/s.
    pub fn load_plan(&self) -> LoadPlan {
        let search = self.search.clone();
        let mbit = |rate: BitRate| (rate.bit_per_s() / 1_000_000).max(1);
        LoadPlan {
            load_first: 1000.min(search.as_ref().map_or(1, |search| mbit(search.max))),
            load_max: search.as_ref().map_or(self.flows, |search| mbit(search.max)),
            fixed: search.is_none().then_some(self.flows),
            hold: self.time,
            search_hold: self.time,
            confirmations: 2,
            ramp_down: false,
            resolution: search.map_or(0.02, |search| search.resolution_percent / 100.0),
        }
    }
}
