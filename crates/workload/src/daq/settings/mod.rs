//! The settings of `daq`, as they stand in a plan's `[daq]` table and on the command line.

mod check;
mod draw;
mod size;
mod triggers;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reading;

pub use draw::Draw;
pub use size::Size;
pub use triggers::{Due, Triggers};

/// Who decides when a source sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each source, as soon as it hears of the event: all at once.
    #[default]
    Push,
    /// The builder, by multicast, for as many sources at a time as the port can take.
    Grant,
    /// The builder, source by source over its connection.
    Pull,
}

/// How triggers reach the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Orders {
    /// One UDP datagram for all.
    #[default]
    Multicast,
    /// Over each source's connection.
    Tcp,
}

/// What carries the fragments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// A connection a source.
    #[default]
    Tcp,
    /// Datagrams; what does not arrive is asked for again (NACK).
    Udp,
}

/// Which of several builders builds an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuilderChoice {
    /// The event's number modulo the number of builders: nobody needs to be asked, so that builders can stand on several
    /// hosts. An event whose builder is full is vetoed.
    #[default]
    Modulo,
    /// The next one in turn that has room.
    RoundRobin,
    /// The one with the fewest events under way.
    LeastOutstanding,
}

/// What must hold for a load to pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Objective {
    /// Incomplete events, at most.
    pub incomplete_max: u64,
    /// The 99th percentile of the completion latency, at most; not asked for unless given.
    pub completion_p99_max: Option<Span>,
    /// Vetoed triggers, % of those offered, at most; not asked for unless given.
    pub dead_time_percent_max: Option<f64>,
}

/// What a search varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Vary {
    /// The number of sources.
    #[default]
    Sources,
    /// The rate of triggers, 1/s.
    Rate,
    /// The size of fragments, bytes.
    Size,
}

/// The search for the largest load that holds the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaqSearch {
    /// What is varied.
    pub vary: Vary,
    /// The largest load to offer: sources, events a second, or bytes.
    pub max: u64,
    /// How finely loads are told apart, in %.
    pub resolution_percent: f64,
}

impl Default for DaqSearch {
    fn default() -> Self {
        Self { vary: Vary::Sources, max: 1000, resolution_percent: 5.0 }
    }
}

/// The settings of `daq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DaqSettings {
    /// How many sources there are, over all hosts.
    pub sources: u64,
    /// Of these, how many are somebody else's: front ends that connect to the builder by themselves. They have the last
    /// numbers.
    pub front_ends: u64,
    /// Bytes of a fragment: `1KiB`, `uniform 1KiB..4KiB`, `lognormal 1KiB 0.5` (median, sigma) or `file PATH` (one size a
    /// line, taken in turn).
    pub size: Size,
    /// When events happen: `max` (as soon as the window allows), `60/s`, `poisson 60/s`, `bursts 10 6/s` (ten at once, six
    /// times a second) or `file PATH` (one time in seconds a line).
    pub triggers: Triggers,
    /// End after so many events instead of after `time`.
    pub events: Option<u64>,
    /// How long events are counted.
    pub time: Span,
    /// What is left out at the beginning.
    pub omit: Span,
    /// Events that may be under way at once, of each builder. What comes on top is vetoed.
    pub window: u32,
    /// Who decides when a source sends.
    pub pattern: Pattern,
    /// Fragments that may be under way at once with `grant` and `pull`; found by probing unless given.
    pub credit: Option<u32>,
    /// With `push`: each source waits so much longer than the one before it.
    pub stagger: Option<Span>,
    /// How triggers reach the sources.
    pub orders: Orders,
    /// What carries the fragments.
    pub protocol: Carrier,
    /// Congestion control of the sources' connections; each host's default unless given.
    pub congestion_control: Option<String>,
    /// After so long an event ends incomplete, with the list of missing sources.
    pub timeout: Span,
    /// How many builders there are on each builder's host.
    pub builders: u32,
    /// Which of them builds an event.
    pub builder_choice: BuilderChoice,
    /// The rate of the builder's port, for the arithmetic of what is possible; that of its device unless given.
    pub link: Option<BitRate>,
    /// The buffer of the switch's port towards the builder, for the predicted cliff; unknown unless given.
    pub buffer: Option<ByteSize>,
    /// Each fragment carries a checksum of its payload, and the builder checks it.
    pub checksum: bool,
    /// Memory that a builder may hold fragments in.
    pub memory: ByteSize,
    /// Sources overhear this share of the orders, %, by chance: a fault made on purpose.
    pub drop_orders_percent: f64,
    /// Threads that carry the sources of a host; one for each 250, up to two for each CPU, unless
    /// given.
    pub threads: u32,
    /// Where the builder listens, `ADDR:PORT`, for front ends that are started by hand; a free port unless given.
    pub listen: Option<String>,
    /// What must hold.
    pub objective: Objective,
    /// Search the largest load that holds it.
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

/// See [`DaqSettings::together_max`].
const TOGETHER_MAX: u32 = 4;

impl DaqSettings {
    /// Read settings and check every range; files of sizes and times are read later, by the part that needs them.
    ///
    /// # Errors
    /// An unknown key, a wrong unit or an impossible range, with the key named.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        let read: Self = reading::read(&settings, |_| None)?;
        read.check()?;
        Ok(read)
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

    /// Of so many events at most a source sends its fragments together, if their triggers came before its turn. Half the
    /// window: while the builder works on one half, the other is on its way. Datagrams go alone, and so does what is staggered.
    pub fn together_max(&self) -> u32 {
        match (self.protocol, self.stagger) {
            (Carrier::Tcp, None) => (self.window / 2).clamp(1, TOGETHER_MAX),
            _ => 1,
        }
    }

    /// How loads are to be searched.
    pub fn load_plan(&self) -> LoadPlan {
        let search = self.search.clone();
        LoadPlan {
            load_first: search.as_ref().map_or(1, |search| (search.max / 8).max(1)),
            load_max: search.as_ref().map_or(self.sources, |search| search.max),
            fixed: search.is_none().then_some(self.sources),
            hold: self.time,
            search_hold: self.time,
            confirmations: 2,
            ramp_down: false,
            resolution: search.map_or(0.05, |search| search.resolution_percent / 100.0),
        }
    }
}
