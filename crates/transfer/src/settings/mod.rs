//! The settings of `transfer`, as they stand in a plan's `[transfer]` table and on the command line.

pub(super) mod check;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::flow::{Direction, Engine, Mode, Protocol};

/// The port that `kagiri transfer --serve` listens on by default: iperf3's, whose clients it serves too.
pub const PORT: u16 = 5201;
/// The port of classic `ttcp`.
pub const TTCP_PORT: u16 = 5001;
/// Payload of a datagram unless given: what fills an Ethernet frame of 1500 bytes, IPv4 and UDP headers
/// deducted.
pub const DATAGRAM_BYTES: u64 = 1472;
/// Bytes of one call to the kernel towards iperf3 unless given.
pub const CALL_BYTES: u64 = 128 << 10;
/// Bytes that a stream of QUIC is given at once unless said otherwise.
pub const QUIC_BYTES: u64 = 64 << 10;

/// Whose server the client talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// A server of kagiri or of iperf3, detected from its first response.
    #[default]
    Auto,
    /// A server of kagiri.
    Kagiri,
    /// A server of iperf3.
    Iperf3,
    /// A classic `ttcp -r` (up) or `ttcp -t` (down).
    Ttcp,
}

/// Requests per second beside a load unless given: enough for percentiles over time, too few to be a load.
const REQUESTS_UNDER_LOAD_PER_S: f64 = 200.0;

/// How a requester waits for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// Sleep in the kernel, as most programs do.
    #[default]
    Block,
    /// Poll the socket without a pause: lowest latency, at the cost of one core at each end.
    Spin,
}

/// Requests and responses instead of a stream of bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RequestSettings {
    /// Measure response times: send requests of SIZE (1B if omitted), each after the previous response unless
    /// --requests-per-s is set.
    #[schemars(extend("x-min" = "1B", "x-max" = "16MiB",
        "x-flag" = {"name": "rr", "aliases": ["requests"], "missing": "1B"}))]
    pub size: ByteSize,
    /// Size of a response.
    #[schemars(extend("x-min" = "1B", "x-max" = "16MiB", "x-unset" = "the size of a request",
        "x-flag" = {"name": "response-size", "aliases": ["answer-size"], "requires": "requests.size"}))]
    pub answer_size: Option<ByteSize>,
    /// How both ends wait for a message.
    #[schemars(extend("x-flag" = {"name": "waiting", "value": "HOW", "requires": "requests.size",
        "switches": {"spin": "spin"}}))]
    pub waiting: Waiting,
    /// Requests per second of each flow, sent without waiting for responses (open loop); latency counts from
    /// the intended send time.
    #[schemars(range(min = 0.01, max = 10_000_000.0), extend(
        "x-unset" = "each request waits for the previous response",
        "x-flag" = {"name": "requests-per-s", "requires": "requests.size"}))]
    pub rate_per_s: Option<f64>,
}

impl Default for RequestSettings {
    fn default() -> Self {
        Self { size: ByteSize::from_bytes(1), answer_size: None, waiting: Waiting::Block, rate_per_s: None }
    }
}

/// The search for the highest rate of datagrams within the accepted loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateSearch {
    /// Search for the highest rate of datagrams (sum of all flows) at which no more is lost than --loss-max,
    /// up to RATE (100Gbit/s if omitted).
    #[schemars(extend("x-min" = "1Mbit/s", "x-max" = "10Tbit/s",
        "x-flag" = {"name": "search", "missing": "100Gbit/s"}))]
    pub max: BitRate,
    /// Accepted loss, in % of the datagrams.
    #[schemars(range(min = 0.0, max = 50.0),
        extend("x-flag" = {"name": "loss-max", "requires": "search.max"}))]
    pub loss_percent_max: f64,
    /// End the search when the passing and the failing rate differ by at most PERCENT.
    #[schemars(range(min = 0.1, max = 50.0),
        extend("x-flag" = {"name": "resolution", "requires": "search.max", "rare": true}))]
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
    /// Server to measure against, HOST or HOST:PORT, which runs 'kagiri transfer --serve', 'iperf3 -s', or
    /// ttcp (with --peer ttcp). Without HOST, both ends run on this machine.
    #[schemars(extend("x-flag" = {"positional": true, "value": "HOST"}))]
    pub host: Option<String>,
    /// Kind of server on HOST.
    #[schemars(extend("x-flag" = {"value": "KIND"}))]
    pub peer: Peer,
    /// Transport protocol; quic needs kagiri at both ends.
    #[schemars(extend("x-flag" = {"value": "PROTOCOL", "aliases": ["proto"], "switches": {"u": "udp"}}))]
    pub protocol: Protocol,
    /// Direction of the bytes, as the client sees it.
    #[schemars(extend("x-flag" = {"value": "WAY", "switches": {"R": "down"}}))]
    pub direction: Direction,
    /// Flows in each direction.
    #[schemars(range(min = 1, max = 60_000),
        extend("x-flag" = {"short": "P", "aliases": ["streams", "parallel"]}))]
    pub flows: u64,
    /// Duration of the transfer.
    #[schemars(extend("x-min" = "100ms", "x-max" = "24h", "x-flag" = {"short": "t"}))]
    pub time: Span,
    /// Stop after this many bytes (sum of all flows in a direction) instead of after --time.
    #[schemars(extend("x-min" = "1B", "x-max" = "1048576TiB",
        "x-flag" = {"short": "n", "conflicts": ["time"], "iperf3": true}))]
    pub bytes: Option<ByteSize>,
    /// Warm-up before --time begins, which the results leave out.
    #[schemars(extend("x-max" = "1h", "x-min" = "0s", "x-flag" = {"short": "O"}))]
    pub omit: Span,
    /// Length of a reporting interval, each printed when it ends; the tables join them to show at most ten.
    #[schemars(extend("x-min" = "100ms", "x-max" = "1h",
        "x-unset" = "a fiftieth of the test, between 100ms and 1s",
        "x-flag" = {"short": "i", "iperf3": true}))]
    pub interval: Option<Span>,
    /// What the receiver does with received bytes.
    #[schemars(extend("x-flag" = {"value": "MODE"}))]
    pub mode: Mode,
    /// Bytes per send call; for UDP, payload per datagram.
    #[schemars(extend("x-min" = "1B", "x-max" = "64MiB",
        "x-unset" = "TCP: kagiri chooses, 128KiB to iperf3; UDP: 1472B; QUIC: 64KiB",
        "x-flag" = {"short": "l", "aliases": ["length"], "iperf3": true}))]
    pub size: Option<ByteSize>,
    /// Rate of each flow.
    #[schemars(extend("x-min" = "1kbit/s", "x-max" = "10Tbit/s", "x-unset" = "as fast as possible",
        "x-flag" = {"short": "b", "iperf3": true}))]
    pub rate: Option<BitRate>,
    /// How TCP senders pass bytes to the kernel.
    #[schemars(extend("x-unset" = "the one that costs less CPU time in a short probe",
        "x-flag" = {"value": "ENGINE", "switches": {"Z": "splice"}}))]
    pub engine: Option<Engine>,
    /// Threads that carry the flows at each end.
    #[schemars(range(max = 1024), extend(
        "x-unset" = "one per flow; with many flows, one per CPU"))]
    pub threads: u32,
    /// Congestion control of TCP, e.g. cubic.
    #[schemars(extend("x-unset" = "the default of each host",
        "x-flag" = {"short": "C", "aliases": ["congestion"]}))]
    pub congestion_control: Option<String>,
    /// Line rate of the path's slowest link, to compute the maximum goodput.
    #[schemars(extend("x-unset" = "the rate of the slower end's network device, if known"))]
    pub link: Option<BitRate>,
    /// Socket buffers at both ends; for QUIC, its flow-control windows.
    #[schemars(extend("x-min" = "1KiB", "x-max" = "1GiB", "x-unset" = "the kernel's automatic buffers",
        "x-flag" = {"short": "w", "iperf3": true}))]
    pub window: Option<ByteSize>,
    /// Socket buffer of senders (SO_SNDBUF).
    #[schemars(extend("x-min" = "1KiB", "x-max" = "1GiB", "x-unset" = "--window"))]
    pub send_buffer: Option<ByteSize>,
    /// Socket buffer of receivers (SO_RCVBUF), which limits TCP's window.
    #[schemars(extend("x-min" = "1KiB", "x-max" = "1GiB", "x-unset" = "--window"))]
    pub receive_buffer: Option<ByteSize>,
    /// Send segments before they are full (TCP_NODELAY).
    #[schemars(extend("x-flag" = {"short": "N"}))]
    pub no_delay: bool,
    /// Requests and responses instead of streams of bytes.
    #[schemars(extend("x-flag" = {"group": "Requests"}))]
    pub requests: Option<RequestSettings>,
    /// Measure response times under load: send requests on the idle path for IDLE (2s if omitted), and then
    /// beside the flows for --time. Without --requests-per-s, 200 requests are sent per second.
    #[schemars(extend("x-min" = "100ms", "x-max" = "30s",
        "x-unset" = "either requests or flows, and not both",
        "x-flag" = {"value": "IDLE", "missing": "2s", "group": "Requests"}))]
    pub under_load: Option<Span>,
    /// Time the system calls at both ends, and show where the time went.
    pub calls: bool,
    /// The search for the highest rate of datagrams within the accepted loss.
    #[schemars(extend("x-flag" = {"group": "Search"}))]
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
            interval: None,
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
            under_load: None,
            calls: false,
            search: None,
        }
    }
}

impl TransferSettings {
    /// Read settings and check every range.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        workload::settings::read(&settings)
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
        self.protocol == Protocol::Tcp && !self.is_requests_only() && self.engine.is_none()
    }

    /// Whether requests take the place of the flows of bytes.
    pub(super) fn is_requests_only(&self) -> bool {
        self.requests.is_some() && self.under_load.is_none()
    }

    /// The requests beside a load: an open loop, so that a long response time delays no further request.
    pub(super) fn requests_under_load(&self) -> RequestSettings {
        let given = self.requests.clone().unwrap_or_default();
        RequestSettings { rate_per_s: given.rate_per_s.or(Some(REQUESTS_UNDER_LOAD_PER_S)), ..given }
    }

    /// How long the path stays idle before the flows begin.
    pub(super) fn idle(&self) -> Span {
        self.under_load.unwrap_or(Span::from_ms(0))
    }

    /// The length of an interval, ns: unless given about fifty in all, between a tenth of a second and one.
    pub fn interval_ns(&self) -> u64 {
        if let Some(interval) = self.interval {
            return interval.ns();
        }
        let whole = self.time.duration() + self.omit.duration();
        u64::try_from(whole.as_nanos() / 50).unwrap_or(u64::MAX).clamp(100_000_000, 1_000_000_000)
    }

    /// The highest rate of all flows together, for the host's policy.
    pub(super) fn rate_max_bit_per_s(&self) -> u64 {
        let each = self.rate.map_or(u64::MAX, |rate| rate.bit_per_s());
        each.saturating_mul(self.flows)
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
