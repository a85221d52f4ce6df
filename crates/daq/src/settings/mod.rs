//! The settings of `daq`, as they stand in a plan's `[daq]` table and on the command line.

mod check;
mod fragment_sizes;
mod pattern;
mod size;
mod triggers;

use std::borrow::Cow;
use std::path::Path;

use base::part::{HostContext, PartError};
use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use fragment_sizes::FragmentSizes;
pub use pattern::Pattern;
pub use size::Size;
pub use triggers::{Due, Triggers};

/// Two million lines of sizes or times.
const TEXT_BYTES_MAX: u64 = 32 << 20;

/// The text of a file that a setting names.
pub(crate) fn text_of(path: &str, key: &str, host: &HostContext) -> Result<String, PartError> {
    let failed = |error: std::io::Error| PartError::usage(format!("{key}: cannot read '{path}': {error}"));
    let given = Path::new(path);
    // The policy is about the file itself, not about a link to it.
    let file = given.canonicalize().unwrap_or_else(|_| given.to_path_buf());
    host.permit.directory(file.parent().unwrap_or(Path::new("")))?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(failed(std::io::Error::other("it is not a regular file")));
    }
    sys::file::read_text(&file, TEXT_BYTES_MAX).map_err(failed)
}

/// How triggers reach the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Orders {
    /// One UDP multicast datagram for all sources.
    #[default]
    Multicast,
    /// A message over each source's connection.
    Tcp,
}

/// Transport protocol of the fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// A TCP connection for each source.
    #[default]
    Tcp,
    /// Datagrams; the builder requests lost ones again (NACK).
    Udp,
}

/// How events are assigned to builders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuilderChoice {
    /// Event number modulo number of builders. If the window of that builder is full, the trigger is vetoed.
    /// Always used with builders on several hosts.
    #[default]
    Modulo,
    /// The next builder in turn whose window is not full.
    RoundRobin,
    /// The builder with the fewest events in progress.
    LeastOutstanding,
}

/// What must hold for a load to pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Largest accepted number of incomplete events.
    #[schemars(extend("x-flag" = {"name": "incomplete-max"}))]
    pub incomplete_max: u64,
    /// Largest accepted 99th percentile of the completion latency.
    #[schemars(extend("x-unset" = "no limit", "x-flag" = {"name": "p99-max"}))]
    pub completion_p99_max: Option<Span>,
    /// Largest accepted share of vetoed triggers (dead time); required by --search rate.
    #[schemars(range(min = 0.0, max = 100.0), extend("x-unset" = "no limit",
        "x-flag" = {"name": "dead-time-max"}))]
    pub dead_time_percent_max: Option<f64>,
}

/// What a search varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Vary {
    /// The number of sources.
    #[default]
    Sources,
    /// The rate of triggers, per second.
    Rate,
    /// The size of fragments, in bytes.
    Size,
}

/// The largest load of a search: sources, triggers per second or bytes, or a fragment size such as `64KiB`.
/// Always written as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u64", untagged, expecting = "write a number such as 1000, or a size such as 64KiB")]
pub enum SearchMax {
    Count(u64),
    Size(ByteSize),
}

impl From<SearchMax> for u64 {
    fn from(max: SearchMax) -> Self {
        max.value()
    }
}

impl SearchMax {
    /// The number, in bytes for a size.
    pub const fn value(self) -> u64 {
        match self {
            Self::Count(value) => value,
            Self::Size(size) => size.bytes(),
        }
    }
}

impl JsonSchema for SearchMax {
    fn schema_name() -> Cow<'static, str> {
        "SearchMax".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1 })
    }
}

/// The search for the largest load that meets the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaqSearch {
    /// Search for the largest load that meets the objective. WHAT is varied, sources if omitted.
    #[schemars(extend("x-flag" = {"name": "search", "value": "WHAT", "missing": "sources"}))]
    pub vary: Vary,
    /// Largest load to try: a number of sources, triggers per second, or a fragment size (64KiB, or bytes).
    #[schemars(extend("x-flag" = {"name": "max", "value": "LOAD", "requires": "search.vary"}))]
    pub max: SearchMax,
    /// End the search when the passing and the failing load differ by at most PERCENT.
    #[schemars(range(min = 0.1, max = 50.0),
        extend("x-flag" = {"name": "resolution", "requires": "search.vary", "rare": true}))]
    pub resolution_percent: f64,
}

impl Default for DaqSearch {
    fn default() -> Self {
        Self { vary: Vary::Sources, max: SearchMax::Count(1000), resolution_percent: 5.0 }
    }
}

/// The settings of `daq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaqSettings {
    /// Number of sources, on all hosts together.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sources: u64,
    /// How many of the --sources are your own programs or devices, which connect to the builder at --listen
    /// (docs/daq-wire.md). They get the last source numbers.
    pub front_ends: u64,
    /// Payload of a fragment: 1KiB, 'uniform 1KiB..4KiB', 'lognormal 1KiB 0.5' (median, sigma) or 'file
    /// PATH' (one size per line, used in turn).
    #[schemars(extend("x-flag" = {"value": "SIZE"}))]
    pub size: Size,
    /// When events happen: max (as soon as the window allows), 60/s, 'poisson 60/s', 'bursts 10 6/s' (ten at
    /// once, six times a second) or 'file PATH' (one time in seconds per line).
    #[schemars(extend("x-flag" = {"value": "WHEN"}))]
    pub triggers: Triggers,
    /// Number of events to measure, instead of --time.
    #[schemars(range(min = 1, max = 1_099_511_627_776_u64), extend("x-flag" = {"conflicts": ["time"]}))]
    pub events: Option<u64>,
    /// Duration of the measurement.
    #[schemars(extend("x-min" = "1ns", "x-max" = "24h"))]
    pub time: Span,
    /// Warm-up before --time begins, which the results leave out.
    #[schemars(extend("x-min" = "0s", "x-max" = "1h"))]
    pub omit: Span,
    /// Maximum number of unfinished events per builder. A trigger beyond it is vetoed: no event is built.
    #[schemars(range(min = 1, max = 10_000))]
    pub window: u32,
    /// Who decides when a source sends.
    #[schemars(extend("x-flag" = {"value": "PATTERN", "group": "Event building"}))]
    pub pattern: Pattern,
    /// Maximum number of fragments on their way to a builder, with patterns grant and pull.
    #[schemars(range(min = 1, max = 1_000_000), extend("x-unset" = "found by a search before the trial",
        "x-flag" = {"group": "Event building"}))]
    pub credit: Option<u32>,
    /// With pattern push: source number n waits n x TIME before it sends.
    #[schemars(extend("x-min" = "0s", "x-max" = "1s", "x-unset" = "0s",
        "x-flag" = {"group": "Event building"}))]
    pub stagger: Option<Span>,
    /// How the builder's orders (triggers and grants) reach the sources.
    #[schemars(extend("x-flag" = {"value": "WAY", "group": "Event building"}))]
    pub orders: Orders,
    /// Transport protocol of the fragments.
    #[schemars(extend("x-flag" = {"value": "PROTOCOL", "aliases": ["proto"], "group": "Event building"}))]
    pub protocol: Carrier,
    /// Congestion control of the sources' TCP, e.g. cubic.
    #[schemars(extend("x-unset" = "the default of each host",
        "x-flag" = {"aliases": ["congestion"], "group": "Event building"}))]
    pub congestion_control: Option<String>,
    /// End an event as incomplete after TIME, and name the missing sources.
    #[schemars(extend("x-min" = "1ms", "x-max" = "10min", "x-flag" = {"group": "Event building"}))]
    pub timeout: Span,
    /// Number of builders on each host of the role builder.
    #[schemars(range(min = 1, max = 64), extend("x-flag" = {"group": "Event building"}))]
    pub builders: u32,
    /// How events are assigned to builders.
    #[schemars(extend("x-flag" = {"value": "CHOICE", "group": "Event building"}))]
    pub builder_choice: BuilderChoice,
    /// Line rate of the builder's network port, to compute the maximum event rate.
    #[schemars(extend("x-min" = "1bit/s", "x-unset" = "the rate of its network device, if known",
        "x-flag" = {"group": "Event building"}))]
    pub link: Option<BitRate>,
    /// Buffer of the switch's port towards the builder, to predict how many sources overflow it.
    #[schemars(extend("x-flag" = {"group": "Event building"}))]
    pub buffer: Option<ByteSize>,
    /// Protect the payload of each fragment with a checksum.
    #[schemars(extend("x-flag" = {"group": "Event building"}))]
    pub checksum: bool,
    /// Maximum memory for the fragments of a builder.
    #[schemars(extend("x-min" = "64KiB", "x-max" = "1TiB", "x-flag" = {"group": "Event building"}))]
    pub memory: ByteSize,
    /// Let the sources ignore PERCENT of the order datagrams, at random, to test retransmission.
    #[schemars(range(min = 0.0, max = 90.0),
        extend("x-flag" = {"name": "drop-orders", "group": "Event building"}))]
    pub drop_orders_percent: f64,
    /// Threads that run the sources of a host.
    #[schemars(range(max = 1024), extend("x-unset" = "one per 250 sources, at most two per CPU",
        "x-flag" = {"group": "Event building"}))]
    pub threads: u32,
    /// ADDR:PORT at which the builder listens for front ends.
    #[schemars(extend("x-unset" = "a free port", "x-flag" = {"value": "ADDR:PORT", "shared": true}))]
    pub listen: Option<String>,
    /// What must hold for a load to pass.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub objective: Objective,
    /// The search for the largest load that meets the objective.
    #[schemars(extend("x-flag" = {"group": "Objective"}))]
    pub search: Option<DaqSearch>,
}

impl Default for DaqSettings {
    fn default() -> Self {
        Self {
            sources: 100,
            front_ends: 0,
            size: Size::Fixed(ByteSize::from_bytes(1024)),
            triggers: Triggers::Max,
            events: None,
            time: Span::from_s(5),
            omit: Span::from_ms(500),
            window: 1,
            pattern: Pattern::Push,
            credit: None,
            stagger: None,
            orders: Orders::Multicast,
            protocol: Carrier::Tcp,
            congestion_control: None,
            timeout: Span::from_s(1),
            builders: 1,
            builder_choice: BuilderChoice::Modulo,
            link: None,
            buffer: None,
            checksum: true,
            memory: ByteSize::from_bytes(1 << 30),
            drop_orders_percent: 0.0,
            threads: 0,
            listen: None,
            objective: Objective::default(),
            search: None,
        }
    }
}

const TOGETHER_MAX: u32 = 4;

impl DaqSettings {
    /// Read settings and check every range; files of sizes and times are read later, by the part that needs
    /// them.
    ///
    /// # Errors
    /// An unknown key, a wrong unit or an impossible range, with the key named.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        workload::settings::read(&settings)
    }

    /// The settings of one trial: of a search, with `load` in place of what it varies.
    #[must_use]
    pub fn at_load(&self, load: u64) -> Self {
        let mut settings = self.clone();
        match self.search.as_ref().map(|search| search.vary) {
            None => {}
            Some(Vary::Sources) => settings.sources = load,
            Some(Vary::Rate) => settings.triggers = self.triggers.at_rate(load as f64),
            Some(Vary::Size) => settings.size = Size::Fixed(ByteSize::from_bytes(load)),
        }
        settings
    }

    /// The most fragments that a source sends in one write. Half the window: while the builder works on one
    /// half, the other is in flight. Datagrams and staggered fragments are sent one by one.
    pub fn together_max(&self) -> u32 {
        match (self.protocol, self.stagger) {
            (Carrier::Tcp, None) => (self.window / 2).clamp(1, TOGETHER_MAX),
            _ => 1,
        }
    }

    pub fn load_plan(&self) -> LoadPlan {
        let search = self.search.clone();
        LoadPlan {
            load_first: search.as_ref().map_or(1, |search| (search.max.value() / 8).max(1)),
            load_max: search.as_ref().map_or(self.sources, |search| search.max.value()),
            fixed: search.is_none().then_some(self.sources),
            hold: self.time,
            search_hold: self.time,
            confirmations: 2,
            ramp_down: false,
            resolution: search.map_or(0.05, |search| search.resolution_percent / 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::sync::Arc;

    use base::permit::{Permit, SystemChange};

    use super::*;

    /// Permits one directory.
    struct Only(PathBuf);

    impl Permit for Only {
        fn peer(&self, _: SocketAddr) -> Result<(), PartError> {
            Ok(())
        }
        fn rate(&self, _: u64) -> Result<(), PartError> {
            Ok(())
        }
        fn directory(&self, path: &Path) -> Result<(), PartError> {
            if path == self.0 { Ok(()) } else { Err(PartError::new("refused")) }
        }
        fn system_change(&self, _: SystemChange) -> Result<(), PartError> {
            Ok(())
        }
        fn program(&self, _: &str) -> Result<(), PartError> {
            Ok(())
        }
    }

    #[test]
    fn link_in_a_permitted_directory_to_a_file_elsewhere_is_refused() {
        let (allowed, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (file, secret) = (allowed.path().join("sizes"), other.path().join("secret"));
        std::fs::write(&file, "1KiB\n").unwrap();
        std::fs::write(&secret, "secret\n").unwrap();
        let link = allowed.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        let permit = Arc::new(Only(allowed.path().canonicalize().unwrap()));
        let context =
            HostContext { permit, ..HostContext::here("/tmp".into(), "/tmp".into(), "unused".into()) };
        let read = |path: &Path| text_of(path.to_str().unwrap(), "daq.size", &context);
        assert_eq!(read(&file).unwrap(), "1KiB\n");
        assert_eq!(read(&link).unwrap_err().message, "refused");
    }

    #[test]
    fn endless_file_is_refused() {
        let context = HostContext::here("/tmp".into(), "/tmp".into(), "unused".into());
        let error = text_of("/dev/zero", "daq.size", &context).unwrap_err().message;
        assert!(error.contains("not a regular file"), "{error}");
    }
}
