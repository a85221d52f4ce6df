//! The settings of `stream`, as they stand in a plan's `[stream]` table and on the command line.

use std::path::PathBuf;

use base::plan::{LoadPlan, PlanError};
use base::units::{BitRate, ByteSize, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// More streams than any one host's players could ever open sockets for.
const STREAMS_MAX: u64 = 100_000;
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

/// Picture coding of made content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodecName {
    /// ISO/IEC 13818-2; every player paces it correctly.
    #[default]
    Mpeg2,
    /// ISO/IEC 14496-10.
    H264,
}

/// The content that is made when none is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContentSettings {
    /// An existing transport stream on this host, served by the server under test.
    pub path: Option<PathBuf>,
    /// Picture coding.
    pub codec: CodecName,
    /// How long it plays.
    pub duration: Span,
    /// Every group of pictures of the same size.
    pub cbr: bool,
}

impl Default for ContentSettings {
    fn default() -> Self {
        Self { path: None, codec: CodecName::default(), duration: Span::from_s(120), cbr: false }
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
    /// CPU time in ns that the embedded server burns for every byte it sends, to stand for a slower CPU.
    pub cost_ns_per_byte: f64,
    /// CPU quota of the server's cgroup, in % of one core. Needs root.
    pub cpu_quota_percent: Option<f64>,
}

/// File systems that a disk image can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are the file systems' own")]
pub enum FileSystem {
    #[default]
    Ext4,
    Ext3,
    Xfs,
    Btrfs,
}

impl FileSystem {
    /// As `mkfs.NAME` and `mount -t NAME` spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext3 => "ext3",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// A disk made from an image file for the measurement. Needs root.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSettings {
    /// Size of the image.
    pub size: ByteSize,
    /// Its file system.
    pub file_system: FileSystem,
    /// Most that the server may read from it.
    pub read_limit: Option<BitRate>,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self { size: ByteSize::from_bytes(2_600_000_000), file_system: FileSystem::default(), read_limit: None }
    }
}

/// A link made for the measurement between the server and the players. Needs root.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// Its rate.
    pub rate: BitRate,
    /// Bytes that queue before it drops.
    #[serde(default = "link_buffer")]
    pub buffer: ByteSize,
}

fn link_buffer() -> ByteSize {
    ByteSize::from_bytes(256 * 1024)
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
    /// Socket receive buffer; automatic growth would hide seconds of video.
    pub receive_buffer: ByteSize,
    /// Threads that carry the players.
    pub threads: u32,
    /// Players that check every packet whatever the depth; one of them also checks a hash of the content.
    pub parsing: u64,
    /// Before the hold; start-up and twice the cap unless given.
    pub warm_up: Option<Span>,
}

impl Default for PlayerSettings {
    fn default() -> Self {
        Self {
            start: Span::from_s(1),
            cap: Span::from_s(2),
            resume: Span::from_ms(500),
            receive_buffer: ByteSize::from_bytes(512 * 1024),
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
    /// The players.
    pub player: PlayerSettings,
    /// The content that is made.
    pub content: ContentSettings,
    /// The server that is made.
    pub server: ServerSettings,
    /// A disk that is made for the content.
    pub disk: Option<DiskSettings>,
    /// A link that is made between server and players.
    pub link: Option<LinkSettings>,
    /// What is known of the ceilings.
    pub ceiling: CeilingSettings,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            url: None,
            bitrate: BitRate::from_bit_per_s(25_000_000),
            max: 1000,
            streams: None,
            hold: Span::from_s(10),
            search_hold: None,
            confirmations: 3,
            ramp_down: true,
            resolution_percent: 2.0,
            depth: Depth::default(),
            cold: false,
            player: PlayerSettings::default(),
            content: ContentSettings::default(),
            server: ServerSettings::default(),
            disk: None,
            link: None,
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
        let read: Self = serde_json::from_value(settings).map_err(|error| unreadable(&error.to_string()))?;
        read.check()?;
        Ok(read)
    }

    fn check(&self) -> Result<(), PlanError> {
        let mbit = 1_000_000;
        within("bitrate", self.bitrate.bit_per_s(), mbit, 1000 * mbit, "1Mbit/s to 1Gbit/s")?;
        within("max", self.max, 1, STREAMS_MAX, "1 to 100000 streams")?;
        if let Some(streams) = self.streams {
            within("streams", streams, 1, STREAMS_MAX, "1 to 100000 streams")?;
        }
        span("hold", self.hold, 1, 86_400)?;
        if let Some(hold) = self.search_hold {
            span("search_hold", hold, 1, 86_400)?;
        }
        within("confirmations", u64::from(self.confirmations), 1, 100, "1 to 100")?;
        ranged("resolution_percent", self.resolution_percent, 0.1, 50.0)?;
        self.check_player()?;
        span("content.duration", self.content.duration, 5, 36_000)?;
        ranged("server.cost_ns_per_byte", self.server.cost_ns_per_byte, 0.0, 10_000.0)?;
        if let Some(percent) = self.server.cpu_quota_percent {
            ranged("server.cpu_quota_percent", percent, 1.0, 100_000.0)?;
        }
        if let Some(link) = &self.link {
            within("link.rate", link.rate.bit_per_s(), mbit / 10, 100_000 * mbit, "100kbit/s to 100Gbit/s")?;
        }
        self.check_made()
    }

    fn check_player(&self) -> Result<(), PlanError> {
        let player = &self.player;
        for (key, value) in [("start", player.start), ("resume", player.resume), ("cap", player.cap)] {
            if value.s() < 0.1 || value.s() > 60.0 {
                return Err(PlanError::of_key(&format!("player.{key}"), format!("{value} is not within 100ms to 60s")));
            }
        }
        if player.start > player.cap || player.resume > player.cap {
            return Err(PlanError::of_key("player.cap", "the cap must be at least as long as start and resume"));
        }
        within("player.receive_buffer", player.receive_buffer.bytes(), 16 << 10, 64 << 20, "16KiB to 64MiB")?;
        within("player.threads", u64::from(player.threads), 1, 1024, "1 to 1024")
    }

    /// What is made for a measurement must fit together.
    fn check_made(&self) -> Result<(), PlanError> {
        let made = self.server != ServerSettings::default() || self.disk.is_some() || self.link.is_some();
        if self.url.is_some() && made {
            return Err(PlanError::of_key("url", "a server that is already there cannot be given a server, disk or link"));
        }
        if self.server.kind == ServerKind::Nginx && self.server.cost_ns_per_byte > 0.0 {
            return Err(PlanError::of_key("server.cost_ns_per_byte", "only the embedded server can burn CPU per byte"));
        }
        if let (Some(disk), None) = (&self.disk, &self.content.path) {
            let content = self.content.duration.s() * self.bitrate.bit_per_s() as f64 / 8.0;
            if content * 1.15 > disk.size.bytes() as f64 {
                let problem = format!("{} cannot hold {:.0} MB of content", disk.size, content / 1e6);
                return Err(PlanError::of_key("disk.size", problem));
            }
        }
        Ok(())
    }

    /// How loads are to be searched.
    pub fn load_plan(&self) -> LoadPlan {
        let search_hold = self.search_hold.unwrap_or(Span::from_s(SEARCH_HOLD_S));
        LoadPlan {
            load_max: self.max,
            fixed: self.streams,
            hold: self.hold,
            search_hold: search_hold.min(self.hold),
            confirmations: self.confirmations,
            ramp_down: self.ramp_down,
            resolution: self.resolution_percent / 100.0,
        }
    }

    /// Before the hold begins: start-up and two caps, unless given.
    pub fn warm_up(&self) -> Span {
        let usual = Span::from_duration(self.player.start.duration() + self.player.cap.duration() * 2);
        self.player.warm_up.unwrap_or(usual)
    }
}

/// serde's message, with the key that it quotes.
fn unreadable(message: &str) -> PlanError {
    let quoted = message.split('`').nth(1).filter(|_| message.starts_with("unknown field"));
    PlanError { key: quoted.map(str::to_owned), ..PlanError::new(message) }
}

fn within(key: &str, value: u64, low: u64, high: u64, expected: &str) -> Result<(), PlanError> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(PlanError::of_key(key, format!("{value} is not within {expected}"))),
    }
}

fn ranged(key: &str, value: f64, low: f64, high: f64) -> Result<(), PlanError> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(PlanError::of_key(key, format!("{value} is not within {low} to {high}"))),
    }
}

fn span(key: &str, value: Span, low_s: u64, high_s: u64) -> Result<(), PlanError> {
    match (Span::from_s(low_s)..=Span::from_s(high_s)).contains(&value) {
        true => Ok(()),
        false => Err(PlanError::of_key(key, format!("{value} is not within {low_s}s to {high_s}s"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_are_valid_and_complete() {
        let settings = StreamSettings::read(json!({})).unwrap();
        assert_eq!(settings, StreamSettings::default());
        assert_eq!(settings.load_plan().search_hold, Span::from_s(5));
        assert_eq!(settings.warm_up(), Span::from_s(5));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_key() {
        for (settings, part) in [
            (json!({"bitrat": "25Mbit/s"}), "unknown field `bitrat`"),
            (json!({"bitrate": "25"}), "the unit is missing"),
            (json!({"bitrate": "-25Mbit/s"}), "must not be negative"),
            (json!({"max": 0}), "max: 0 is not within"),
            (json!({"hold": "0s"}), "hold: 0s is not within 1s"),
            (json!({"player": {"cap": "500ms"}}), "player.cap"),
            (json!({"disk": {"size": "10MB"}}), "disk.size: 10MB cannot hold 375 MB"),
            (json!({"url": "http://nas/x.ts", "disk": {}}), "url: a server that is already there"),
            (json!({"server": {"cpu_quota_percent": 0.0}}), "server.cpu_quota_percent"),
            (json!({"server": {"kind": "nginx", "cost_ns_per_byte": 1.0}}), "only the embedded server"),
        ] {
            let message = StreamSettings::read(settings.clone()).unwrap_err().to_string();
            assert!(message.contains(part), "{settings}: {message}");
        }
    }
}
