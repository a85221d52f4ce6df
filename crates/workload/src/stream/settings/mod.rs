//! The settings of `stream`, as they stand in a plan's `[stream]` table and on the command line.

mod check;

use std::path::PathBuf;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::Codec;
use crate::reading;

/// Loads up to here are searched one by one, so their trials' length decides how long a search takes.
const SEARCH_HOLD_S: u64 = 5;

/// How much a player does with what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Bytes are counted against the index and dropped in the kernel.
    #[default]
    Discard,
    /// Bytes are copied to user memory, as a player would.
    Copy,
    /// And every packet's header is checked.
    Parse,
}

/// The content that is made when none is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContentSettings {
    /// An existing transport stream on this host, served by the server under test.
    pub path: Option<PathBuf>,
    /// Picture coding: one that can be made.
    pub codec: Codec,
    /// How long it plays.
    pub duration: Span,
    /// Every group of pictures of the same size.
    pub cbr: bool,
}

impl Default for ContentSettings {
    fn default() -> Self {
        Self { path: None, codec: Codec::default(), duration: Span::from_s(120), cbr: false }
    }
}

/// Which server is made for the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerKind {
    /// kagiri's own content server, as a process of its own.
    #[default]
    Embedded,
    /// nginx, one worker, sendfile on.
    Nginx,
}

/// The server that is made when no URL is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Which one.
    pub kind: ServerKind,
    /// Worker threads (or processes); 0 for one.
    pub threads: u32,
    /// Congestion control of the embedded server's connections; the host's default unless given.
    pub congestion_control: Option<String>,
    /// CPU time in ns that the embedded server burns for every byte it sends, to stand for a slower CPU.
    pub cost_ns_per_byte: f64,
}

/// How the virtual players behave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlayerSettings {
    /// Buffered before playing starts (VLC's network cache: 1 s).
    pub start: Span,
    /// Buffered at most.
    pub cap: Span,
    /// Buffered before playing goes on after a stall.
    pub resume: Span,
    /// Socket receive buffer; automatic growth would hide seconds of video, and a larger one for each of more than a
    /// thousand players on one host would bring the kernel's TCP memory under pressure.
    pub receive_buffer: ByteSize,
    /// Threads that carry the players.
    pub threads: u32,
    /// Players that check every packet whatever the depth; one of them also checks a hash of the content.
    pub parsing: u64,
    /// From the last player's start to the hold; until all play, and twice the cap more, unless given.
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
            warm_up: None,
        }
    }
}

/// The most there is of a resource, given by the user.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CeilingSettings {
    /// Where the numbers come from, for the report; "given" unless said.
    pub source: Option<String>,
    /// CPU of the server, in % of one core.
    pub cpu_percent: Option<f64>,
    /// The device that holds the content.
    pub disk: Option<BitRate>,
    /// The link.
    pub network: Option<BitRate>,
    /// The server's memory.
    pub memory: Option<ByteSize>,
}

/// The settings of `stream`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamSettings {
    /// Content at a server that is already there; without it one is made.
    pub url: Option<String>,
    /// Rate of made content.
    pub bitrate: BitRate,
    /// The largest load to offer; up to 16 the search goes up one by one.
    pub max: u64,
    /// The first load of a search beyond 16 streams; it doubles from there.
    pub first: u64,
    /// Offer only this load, without a search.
    pub streams: Option<u64>,
    /// How long a load is held.
    pub hold: Span,
    /// How long a load is held while searching; at most 5 s unless given.
    pub search_hold: Option<Span>,
    /// How often the capacity must pass.
    pub confirmations: u32,
    /// Whether to go down again afterwards.
    pub ramp_down: bool,
    /// How finely loads above 16 are told apart, in % of the load.
    pub resolution_percent: f64,
    /// How much the players do with what they receive.
    pub depth: Depth,
    /// Drop the content from memory before each trial.
    pub cold: bool,
    /// Time the players' calls to the kernel, and show them as a table.
    pub calls: bool,
    /// The players.
    pub player: PlayerSettings,
    /// The content that is made.
    pub content: ContentSettings,
    /// The server that is made.
    pub server: ServerSettings,
    /// What is known of the ceilings.
    pub ceiling: CeilingSettings,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            url: None,
            bitrate: BitRate::from_bit_per_s(25_000_000),
            max: 1000,
            first: 1,
            streams: None,
            hold: Span::from_s(10),
            search_hold: None,
            confirmations: 3,
            ramp_down: true,
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
    ///
    /// # Errors
    /// An unknown key, a wrong unit or an impossible range, with the key named.
    pub fn read(settings: Value) -> Result<Self, PlanError> {
        let of_lab = "; hosts with disks, links and quotas are made by a lab: docs/lab.md";
        let read: Self = reading::read(&settings, |key| OF_LAB.contains(&key).then_some(of_lab))?;
        read.check()?;
        Ok(read)
    }

    /// How loads are to be searched.
    pub fn load_plan(&self) -> LoadPlan {
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
}

/// Settings of earlier versions that labs have now.
const OF_LAB: [&str; 3] = ["cpu_quota_percent", "disk", "link"];
