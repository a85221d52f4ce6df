//! The settings of `stream`, as they stand in a plan's `[stream]` table and on the command line.

mod check;

use std::path::PathBuf;
use std::time::Duration;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::doubt::StreamDoubt;
use mpegts::Codec;

/// Loads up to here are searched one by one, so their trials' length decides how long a search takes.
const SEARCH_HOLD_S: u64 = 5;

/// A quick search begins with so many streams: with fewer it would take longer to reach a usual server's
/// capacity than it may.
const QUICK_FIRST: u64 = 16;
const QUICK_HOLD: Span = Span::from_s(3);
const QUICK_WARM_UP: Span = Span::from_s(2);
/// Resolution of a quick search above 16 streams.
const QUICK_RESOLUTION: f64 = 0.25;
/// The time of a quick search, so that with its report it answers within 60 s.
const QUICK_BUDGET: Duration = Duration::from_secs(52);
/// Steps of this size are worth a doubt, as a share of the load.
const COARSE: f64 = 0.2;

/// What players do with the bytes that they receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Count the bytes and drop them in the kernel; costs least.
    #[default]
    Discard,
    /// Copy the bytes to user memory, as any player does.
    Copy,
    /// Copy the bytes and check the header of every packet.
    Parse,
}

/// The content that is made when none is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContentSettings {
    /// Serve this transport stream instead of making one.
    #[schemars(extend("x-flag" = {"name": "content", "value": "FILE", "file": true, "conflicts": ["url"]}))]
    pub path: Option<PathBuf>,
    /// Video codec of the content that kagiri makes.
    #[schemars(extend("x-flag" = {"name": "codec", "value": "CODEC", "conflicts": ["url", "content.path"]}))]
    pub codec: Codec,
    /// Length of the content that kagiri makes; players start again at its end.
    #[schemars(extend("x-min" = "5s", "x-max" = "10h",
        "x-flag" = {"name": "duration", "conflicts": ["url", "content.path"]}))]
    pub duration: Span,
    /// Make content of constant bit rate: every group of pictures has the same size.
    #[schemars(extend("x-flag" = {"name": "cbr", "conflicts": ["url", "content.path"]}))]
    pub cbr: bool,
}

impl Default for ContentSettings {
    fn default() -> Self {
        Self { path: None, codec: Codec::default(), duration: Span::from_s(120), cbr: false }
    }
}

/// Which server is started for the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// Kagiri's own content server.
    #[default]
    Embedded,
    /// Nginx with one worker and sendfile.
    Nginx,
}

/// The server that is started when no URL is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Server that kagiri starts for the measurement.
    #[schemars(extend("x-flag" = {"name": "server", "value": "KIND", "conflicts": ["url"]}))]
    pub kind: ServerKind,
    /// Worker threads (nginx: processes) of the server.
    #[schemars(range(max = 1024), extend("x-unset" = "1", "x-flag" = {"rare": true, "conflicts": ["url"]}))]
    pub threads: u32,
    /// Congestion control of the embedded server's connections, e.g. cubic.
    #[schemars(extend("x-unset" = "the host's default",
        "x-flag" = {"name": "congestion-control", "aliases": ["congestion"], "conflicts": ["url"],
            "rare": true}))]
    pub congestion_control: Option<String>,
    /// CPU time in ns that the embedded server spends in addition for every byte, to simulate a slower CPU.
    #[schemars(range(min = 0.0, max = 10_000.0),
        extend("x-flag" = {"value": "NS", "rare": true, "conflicts": ["url"]}))]
    pub cost_ns_per_byte: f64,
}

/// How the virtual players behave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlayerSettings {
    /// Video that a player buffers before it starts to play (VLC's network cache: 1 s).
    #[schemars(extend("x-min" = "100ms", "x-max" = "60s", "x-flag" = {"rare": true}))]
    pub start: Span,
    /// Maximum video that a player buffers.
    #[schemars(extend("x-min" = "100ms", "x-max" = "60s", "x-flag" = {"rare": true}))]
    pub cap: Span,
    /// Video that a player buffers before it continues after a stall.
    #[schemars(extend("x-min" = "100ms", "x-max" = "60s", "x-flag" = {"rare": true}))]
    pub resume: Span,
    /// Socket receive buffer of a player (SO_RCVBUF), at least 80 ms of content. Small, so that the video
    /// waits in the player, which counts it, and that the kernel's TCP memory suffices for many players.
    #[schemars(extend("x-min" = "16KiB", "x-max" = "64MiB",
        "x-flag" = {"rare": true, "name": "receive-buffer"}))]
    pub receive_buffer: ByteSize,
    /// Threads that run the players; one thread runs about 1000 players.
    #[schemars(range(min = 1, max = 1024))]
    pub threads: u32,
    /// Number of players that check every packet, whatever --depth says; at least one on each host. The first
    /// player also checks a hash of the content.
    #[schemars(extend("x-flag" = {"rare": true}))]
    pub parsing: u64,
    /// Count a trial in which the players were the limit as failed, not as invalid. For the capacity of a
    /// host that runs both the server and the players.
    #[schemars(extend("x-flag" = {"rare": true, "name": "judge-players"}))]
    pub judged: bool,
    /// Time from the start of the last player until stalls count.
    #[schemars(extend("x-min" = "0s", "x-max" = "2min",
        "x-unset" = "until all players play, plus 2 x --player-cap",
        "x-flag" = {"rare": true, "name": "warm-up"}))]
    pub warm_up: Option<Span>,
}

impl Default for PlayerSettings {
    fn default() -> Self {
        Self {
            start: Span::from_s(1),
            cap: Span::from_s(2),
            resume: Span::from_ms(500),
            receive_buffer: ByteSize::from_bytes(256 * 1024),
            threads: 1,
            parsing: 1,
            judged: false,
            warm_up: None,
        }
    }
}

/// The most there is of a resource, given by the user.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CeilingSettings {
    /// Where the numbers come from, for the report.
    #[schemars(extend("x-unset" = "\"given\""))]
    pub source: Option<String>,
    /// CPU time that the server can use, in % of one core.
    #[schemars(range(min = 1.0, max = 1_000_000.0))]
    pub cpu_percent: Option<f64>,
    /// Rate of the device that holds the content.
    #[schemars(extend("x-min" = "100kbit/s"))]
    pub disk: Option<BitRate>,
    /// Rate of the link.
    #[schemars(extend("x-min" = "100kbit/s"))]
    pub network: Option<BitRate>,
    /// Memory of the server.
    #[schemars(extend("x-min" = "1B"))]
    pub memory: Option<ByteSize>,
}

/// The settings of `stream`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamSettings {
    /// Content (MPEG-TS) on a server that is already running; without a URL kagiri makes content and serves
    /// it.
    #[schemars(extend("x-flag" = {"positional": true, "value": "URL"}))]
    pub url: Option<String>,
    /// Bit rate of the content that kagiri makes; --content and URL have their own.
    #[schemars(extend("x-min" = "1Mbit/s", "x-max" = "1Gbit/s"))]
    pub bitrate: BitRate,
    /// Largest number of streams to try. With 16 or less, the search tries 1, 2, 3, ...; with more, it
    /// doubles the number until a trial fails, and then bisects.
    #[schemars(range(min = 1, max = 100_000))]
    pub max: u64,
    /// Number of streams to try first.
    #[schemars(range(min = 1, max = 100_000), extend("x-flag" = {"rare": true}))]
    pub first: u64,
    /// Answer within 60 s: short trials, coarse steps, one confirmation if there is time. Less sure, and the
    /// answer says so.
    #[schemars(extend("x-flag" = {"conflicts": ["streams", "hold", "search_hold", "confirmations",
        "resolution_percent", "ramp_down"]}))]
    pub quick: bool,
    /// Run a single trial with N streams instead of a search.
    #[schemars(range(min = 1, max = 100_000), extend("x-flag" = {"conflicts": ["max", "first"]}))]
    pub streams: Option<u64>,
    /// Judged time of each trial that confirms the result; with --streams, of the only trial.
    #[schemars(extend("x-min" = "1s", "x-max" = "24h", "x-aliases" = ["time"],
        "x-flag" = {"name": "time", "aliases": ["hold"]}))]
    pub hold: Span,
    /// Judged time of all other trials: of the search, and of lower loads after it.
    #[schemars(extend("x-min" = "1s", "x-max" = "24h", "x-aliases" = ["search_time"],
        "x-unset" = "5s, or --time if that is shorter",
        "x-flag" = {"name": "search-time", "aliases": ["search-hold"]}))]
    pub search_hold: Option<Span>,
    /// Number of trials that must pass at the largest number of streams found.
    #[schemars(range(min = 1, max = 100), extend("x-flag" = {"rare": true}))]
    pub confirmations: u32,
    /// Repeat lower loads after the search, to see whether the server recovers.
    pub ramp_down: bool,
    /// Above 16 streams, end the search when the passing and the failing load differ by at most PERCENT.
    #[schemars(range(min = 0.1, max = 50.0), extend("x-flag" = {"name": "resolution", "rare": true}))]
    pub resolution_percent: f64,
    /// What players do with received bytes.
    #[schemars(extend("x-flag" = {"value": "DEPTH"}))]
    pub depth: Depth,
    /// Drop the content from memory before every trial, so that the server reads it from disk; not with URL.
    pub cold: bool,
    /// Time the players' system calls, and show where the time went.
    pub calls: bool,
    /// The players.
    #[schemars(extend("x-flag" = {"group": "Players"}))]
    pub player: PlayerSettings,
    /// The content that is made.
    #[schemars(extend("x-flag" = {"group": "Content"}))]
    pub content: ContentSettings,
    /// The server that is started.
    #[schemars(extend("x-flag" = {"group": "Server"}))]
    pub server: ServerSettings,
    /// Known maximum of each resource, to predict the load at which it is exhausted.
    #[schemars(extend("x-flag" = false))]
    pub ceiling: CeilingSettings,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            url: None,
            bitrate: BitRate::from_bit_per_s(25_000_000),
            max: 1000,
            first: 1,
            quick: false,
            streams: None,
            hold: Span::from_s(10),
            search_hold: None,
            confirmations: 3,
            ramp_down: false,
            resolution_percent: 2.0,
            depth: Depth::default(),
            cold: false,
            calls: false,
            player: PlayerSettings::default(),
            content: ContentSettings::default(),
            server: ServerSettings::default(),
            ceiling: CeilingSettings::default(),
        }
    }
}

impl StreamSettings {
    /// Read settings and check every range.
    /// Errors: An unknown key, a wrong unit or an impossible range, with the key named.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        workload::settings::read(&settings)
    }

    /// How loads are to be searched.
    pub fn load_plan(&self) -> LoadPlan {
        if self.quick {
            return LoadPlan {
                load_first: self.first.max(QUICK_FIRST).min(self.max),
                confirmations: 1,
                resolution: QUICK_RESOLUTION,
                ..LoadPlan::search(self.max, QUICK_HOLD)
            };
        }
        let search_hold = self.search_hold.unwrap_or(Span::from_s(SEARCH_HOLD_S));
        LoadPlan {
            load_first: self.first,
            load_max: self.max,
            fixed: self.streams,
            hold: self.hold,
            search_hold: search_hold.min(self.hold),
            confirmations: self.confirmations,
            ramp_down: self.ramp_down,
            resolution: self.resolution_percent / 100.0,
        }
    }

    /// The time that a search may take.
    pub(crate) fn time_budget(&self) -> Option<Duration> {
        self.quick.then_some(QUICK_BUDGET)
    }

    /// Time from the start of the last player to the hold; `None`: as long as it takes.
    pub(crate) fn warm_up(&self) -> Option<Span> {
        self.player.warm_up.or(self.quick.then_some(QUICK_WARM_UP))
    }

    /// The doubt of a search in coarse steps.
    pub(crate) fn coarse_search(&self) -> Option<StreamDoubt> {
        let plan = self.load_plan();
        let is_coarse = plan.fixed.is_none() && plan.resolution >= COARSE;
        is_coarse.then(|| StreamDoubt::CoarseSearch {
            hold_s: plan.search_hold.s(),
            resolution_percent: plan.resolution * 100.0,
        })
    }
}
