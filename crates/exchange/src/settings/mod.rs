//! The settings of `exchange`, as they stand in a plan's `[exchange]` table and on the command line.

mod background;
mod check;
mod class;
mod size;

use std::io::Read;
use std::path::Path;

use base::part::HostContext;
use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use background::{BackgroundKind, BackgroundSettings};
pub(crate) use class::sum_bit_per_s;
pub use class::{Class, ClassSettings};
pub(crate) use size::exponential;
pub use size::{MessageSize, Sizes};

/// The port that `kagiri exchange --serve` listens on by default.
pub const PORT: u16 = 5202;
/// Size of a message unless given: a video frame of the robots that this workload comes from.
const SIZE_BYTES: u64 = 250_000;

/// When a client sends its next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// At the moments of its schedule, whatever the replies do. Response times count from those moments.
    Open,
    /// When it has the reply to the one before, and with --rate not before the next moment.
    Closed,
}

/// The moments of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Constant,
    /// At random: exponentially distributed intervals.
    Poisson,
}

/// How long a connection lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Connections {
    /// One connection per client for all its messages.
    #[default]
    Persistent,
    /// A new connection for each message; response times include the handshake.
    Fresh,
}

/// What must hold for a load to pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Least accepted share of messages whose reply comes within --target, in % (of each class with a
    /// target).
    #[schemars(range(min = 0.0, max = 100.0), extend("x-flag" = {"name": "in-time"}))]
    pub in_time_percent: f64,
    /// Largest accepted 99th percentile of the response time, of every class.
    #[schemars(extend("x-min" = "1us", "x-max" = "24h", "x-unset" = "no limit",
        "x-flag" = {"name": "p99-max"}))]
    pub p99_max: Option<Span>,
    /// Largest accepted share of messages that end in an error, in %.
    #[schemars(range(min = 0.0, max = 100.0), extend("x-flag" = {"name": "errors-max"}))]
    pub errors_percent_max: f64,
}

impl Default for Objective {
    fn default() -> Self {
        Self { in_time_percent: 99.0, p99_max: None, errors_percent_max: 0.0 }
    }
}

/// The search for the largest number of clients that meets the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeSearch {
    /// Search for the largest number of clients that meets the objective, up to N (1000 if omitted).
    #[schemars(range(min = 1, max = 100_000),
        extend("x-flag" = {"name": "search", "value": "N", "missing": "1000"}))]
    pub max: u64,
    /// Class whose number of clients is searched.
    #[schemars(extend("x-unset" = "the only one", "x-flag" = false))]
    pub class: Option<String>,
    /// End the search when the passing and the failing number differ by at most PERCENT.
    #[schemars(range(min = 0.1, max = 50.0),
        extend("x-flag" = {"name": "resolution", "requires": "search.max", "rare": true}))]
    pub resolution_percent: f64,
}

impl Default for ExchangeSearch {
    fn default() -> Self {
        Self { max: 1000, class: None, resolution_percent: 2.0 }
    }
}

/// The version of HTTP that requests use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum HttpVersion {
    /// HTTP/2 if an https:// server offers it (ALPN), else HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    V1,
    /// HTTP/2; over http:// with prior knowledge.
    #[serde(rename = "2")]
    V2,
}

/// Requests of a URL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Method of the HTTP requests.
    #[schemars(extend("x-unset" = "GET; with --size or --body POST", "x-flag" = {"name": "method"}))]
    pub method: Option<String>,
    /// Send this file as the body of each HTTP request.
    #[schemars(extend("x-flag" = {"name": "body", "value": "FILE", "file": true, "conflicts": ["size"]}))]
    pub body: Option<String>,
    /// Version of HTTP. With 'auto', an https:// server chooses between 2 and 1.1 (ALPN), and an http://
    /// server gets 1.1.
    #[schemars(extend("x-flag" = {"name": "http-version", "value": "VERSION", "switches": {"http2": "2"}}))]
    pub version: HttpVersion,
    /// Concurrent streams (requests) on each connection of HTTP/2, if the server allows so many. More than 1
    /// demands HTTP/2.
    #[schemars(range(min = 1, max = 10_000), extend("x-flag" = {"name": "streams", "value": "N"}))]
    pub streams: u64,
    /// Trust the certificate authorities in this PEM file instead of the system's.
    #[schemars(extend("x-unset" = "those of the system",
        "x-flag" = {"name": "ca", "value": "FILE", "file": true}))]
    pub ca: Option<String>,
    /// Further header fields, each as `Name: value`.
    #[schemars(extend("x-flag" = false))]
    pub headers: Vec<String>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            method: None,
            body: None,
            version: HttpVersion::Auto,
            streams: 1,
            ca: None,
            headers: Vec::new(),
        }
    }
}

impl HttpSettings {
    /// Whether the server must speak HTTP/2.
    pub fn demands_http2(&self) -> bool {
        self.version == HttpVersion::V2 || self.streams > 1
    }
}

/// The settings of `exchange`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExchangeSettings {
    /// Server to measure: HOST or HOST:PORT, which runs 'kagiri exchange --serve', or an http:// or https://
    /// URL. Without it, both ends run on this machine.
    #[schemars(extend("x-flag" = {"positional": true, "value": "HOST|URL"}))]
    pub host: Option<String>,
    /// Number of clients, on all hosts together; each has one message after the other, with --streams several
    /// at a time.
    #[schemars(range(min = 1, max = 100_000))]
    pub clients: u64,
    /// Size of a message: 250kB, 'uniform 1kB..250kB', 'exponential 250kB' (mean) or 'file PATH' (one size
    /// per line, used in turn).
    #[schemars(extend("x-unset" = "250kB; of a URL no body", "x-flag" = {"value": "SIZE"}))]
    pub size: Option<MessageSize>,
    /// Size of a reply.
    #[schemars(extend("x-min" = "24B", "x-max" = "1GiB"))]
    pub reply_size: ByteSize,
    /// Number of messages per client, instead of --time.
    #[schemars(range(min = 1, max = 1_000_000_000), extend("x-flag" = {"conflicts": ["time"]}))]
    pub count: Option<u64>,
    /// Messages per second of each client.
    #[schemars(range(min = 0.001, max = 1_000_000.0), extend(
        "x-unset" = "each message follows the reply to the one before", "x-flag" = {"name": "rate"}))]
    pub rate_per_s: Option<f64>,
    /// When a client sends its next message.
    #[serde(rename = "loop")]
    #[schemars(extend("x-unset" = "open with --rate, else closed", "x-flag" = {"value": "KIND"}))]
    pub loop_kind: Option<Loop>,
    /// Moments of the messages of --rate.
    #[schemars(extend("x-flag" = {"value": "KIND", "requires": "rate_per_s"}))]
    pub arrivals: Arrivals,
    /// How long a connection lasts.
    #[schemars(extend("x-flag" = {"value": "KIND", "switches": {"fresh": "fresh"}}))]
    pub connections: Connections,
    /// Target of the response time: from the moment at which a message is meant to be sent to the last byte
    /// of its reply.
    #[schemars(extend("x-min" = "1us", "x-max" = "24h", "x-unset" = "no target"))]
    pub target: Option<Span>,
    /// Duration of the measurement.
    #[schemars(extend("x-min" = "100ms", "x-max" = "24h", "x-aliases" = ["hold"],
        "x-flag" = {"short": "t", "aliases": ["hold"]}))]
    pub time: Span,
    /// Warm-up before --time begins, which the results leave out.
    #[schemars(extend("x-min" = "0s", "x-max" = "1h"))]
    pub omit: Span,
    /// A message without reply within TIME is an error.
    #[schemars(extend("x-min" = "1ms", "x-max" = "1h"))]
    pub timeout: Span,
    /// Send buffer of the clients (SO_SNDBUF).
    #[schemars(extend("x-min" = "1KiB", "x-max" = "1GiB", "x-unset" = "the kernel's automatic buffer",
        "x-flag" = {"group": "Connections"}))]
    pub send_buffer: Option<ByteSize>,
    /// Receive buffer of the clients and of kagiri's server (SO_RCVBUF).
    #[schemars(extend("x-min" = "1KiB", "x-max" = "1GiB", "x-unset" = "the kernel's automatic buffer",
        "x-flag" = {"group": "Connections"}))]
    pub receive_buffer: Option<ByteSize>,
    /// Congestion control of the clients' TCP, e.g. cubic.
    #[schemars(extend("x-unset" = "the default of each host",
        "x-flag" = {"aliases": ["congestion"], "group": "Connections"}))]
    pub congestion_control: Option<String>,
    /// Line rate of the path's slowest link, as evidence of a full link.
    #[schemars(extend("x-min" = "1kbit/s", "x-unset" = "not known", "x-flag" = {"group": "Connections"}))]
    pub link: Option<BitRate>,
    /// Let TCP hold back the end of a message until earlier data is acknowledged (Nagle's algorithm).
    #[schemars(extend("x-flag" = {"group": "Connections"}))]
    pub nagle: bool,
    /// Threads that run the clients of a host.
    #[schemars(range(max = 1024), extend("x-unset" = "one per 64 clients, at most one per CPU",
        "x-flag" = {"group": "Connections"}))]
    pub threads: u32,
    /// Time that kagiri's server waits before it replies, to simulate its work.
    #[schemars(extend("x-min" = "0s", "x-max" = "1h", "x-flag" = {"group": "Connections"}))]
    pub service: Span,
    /// Requests of a URL.
    #[schemars(extend("x-flag" = {"group": "HTTP"}))]
    pub http: HttpSettings,
    /// The load beside the messages.
    #[schemars(extend("x-flag" = {"group": "Background"}))]
    pub background: BackgroundSettings,
    /// What must hold for a load to pass.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub objective: Objective,
    /// The search for the largest number of clients.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub search: Option<ExchangeSearch>,
    /// Classes of clients, each with a name and a number of clients; their other keys replace those
    /// above: `size`, `reply_size`, `count`, `rate_per_s`, `loop`, `arrivals`, `target`, `send_buffer`,
    /// and `priority` (1 is the most urgent). `port` lets kagiri's server of the run listen on a port of
    /// its own for a class, by which a policy of `kagiri qos` can tell the classes apart.
    #[schemars(extend("x-unset" = "one class", "x-flag" = false))]
    pub class: Vec<ClassSettings>,
}

impl Default for ExchangeSettings {
    fn default() -> Self {
        Self {
            host: None,
            clients: 1,
            size: None,
            reply_size: ByteSize::from_bytes(crate::wire::HEADER_BYTES.into()),
            count: None,
            rate_per_s: None,
            loop_kind: None,
            arrivals: Arrivals::Constant,
            connections: Connections::Persistent,
            target: None,
            time: Span::from_s(10),
            omit: Span::from_ms(0),
            timeout: Span::from_s(10),
            send_buffer: None,
            receive_buffer: None,
            congestion_control: None,
            link: None,
            nagle: false,
            threads: 0,
            service: Span::from_ms(0),
            http: HttpSettings::default(),
            background: BackgroundSettings::default(),
            objective: Objective::default(),
            search: None,
            class: Vec::new(),
        }
    }
}

impl ExchangeSettings {
    /// Reads settings and checks every range.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        workload::settings::read(&settings)
    }

    /// The URL, if the server is one of HTTP.
    pub fn url(&self) -> Option<&str> {
        self.host.as_deref().filter(|host| host.contains("://"))
    }

    /// Whether a server of kagiri takes part: as the target, or to receive the background.
    pub fn has_own_server(&self) -> bool {
        self.host.is_none() || (self.url().is_some() && self.background.is_wanted())
    }

    /// The size of messages; `None`: requests of a URL without a body.
    pub fn message_size(&self) -> Option<MessageSize> {
        let usual = || MessageSize::Fixed(ByteSize::from_bytes(SIZE_BYTES));
        self.size.clone().or_else(|| self.url().is_none().then(usual))
    }

    /// Whether messages have a body; requests of a URL may have none.
    pub fn sends_bodies(&self) -> bool {
        let has_size = self.size.is_some() || self.class.iter().any(|class| class.size.is_some());
        self.url().is_none() || self.http.body.is_some() || has_size
    }

    pub fn load_plan(&self) -> LoadPlan {
        let search = self.search.as_ref();
        LoadPlan {
            load_first: 1,
            load_max: search.map_or_else(|| self.clients_all(), |search| search.max),
            fixed: search.is_none().then(|| self.clients_all()),
            hold: self.time,
            search_hold: self.time,
            confirmations: 2,
            ramp_down: false,
            resolution: search.map_or(0.02, |search| search.resolution_percent / 100.0),
        }
    }
}

/// The bytes of a regular file, at most `bytes_max`.
pub(crate) fn read_file(path: &str, bytes_max: u64, host: &HostContext) -> Result<Vec<u8>, String> {
    let given = Path::new(path);
    // The policy is about the file itself, not about a link to it.
    let file = given.canonicalize().map_err(|error| error.to_string())?;
    host.permit.directory(file.parent().unwrap_or(Path::new(""))).map_err(|error| error.message)?;
    let length = file.metadata().map_err(|error| error.to_string())?;
    if !length.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(&file).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("it is longer than {bytes_max} bytes"));
    }
    Ok(bytes)
}
