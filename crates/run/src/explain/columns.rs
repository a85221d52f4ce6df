//! What a column holds, from its header in any of the usual spellings.

use base::outcome::Resource;

use super::cells::{Dimension, is_like_a_unit, short};

#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    Load,
    Usage(Resource),
    /// A counter that the explanation knows, by its name in trials.
    Counter(&'static str),
    /// pass, fail or invalid.
    Verdict,
    /// A number of mishaps: more than zero is a failure.
    Mishaps,
    /// Not used; numbers are kept under this name.
    Other(String),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub header: String,
    pub role: Role,
    pub dimension: Dimension,
    /// Its unit in base units; `None` where each cell must carry its own.
    pub factor: Option<f64>,
    /// What the load counts, if this column names it.
    pub load_unit: Option<String>,
}

/// Spellings of the load, separated by `|` as in all lists here.
const LOADS: &str = "load|streams|stream|n|viewers|clients|connections|users|players|sessions|sources|\
    threads|flows|concurrency|number of streams|number of clients|num streams|num clients|stream count|\
    client count";
/// Names of the load without a unit; a word after them is its unit.
const UNNAMED: [&str; 3] = ["n", "load", "concurrency"];
const MISHAPS: &str = "stalls|stall|stalled streams|rebuffers|rebuffer count|failures";
const VERDICTS: &str = "verdict|ok|pass|passed|result";

const USAGES: &[(Resource, Dimension, &str)] = &[
    (
        Resource::Cpu,
        Dimension::Cpu,
        "cpu|server cpu|cpu server|cpu usage|cpu load|cpu use|cpu util|cpu utilization|cpu utilisation|\
         server cpu usage|process cpu|cpu time",
    ),
    (
        Resource::Disk,
        Dimension::Rate,
        "disk|disk read|disk reads|disk rate|disk throughput|disk io|disk i o|disk read rate|disk bandwidth|\
         storage|hdd",
    ),
    (
        Resource::Network,
        Dimension::Rate,
        "network|net|network rate|net rate|network throughput|net throughput|network tx|net tx|tx|\
         network out|net out|network sent|network bandwidth|nic",
    ),
    (
        Resource::Memory,
        Dimension::Size,
        "memory|mem|rss|server memory|server rss|memory usage|mem usage|memory used|memory rss|ram",
    ),
    (Resource::Player, Dimension::Cpu, "player cpu|players cpu|client cpu|viewer cpu|generator cpu"),
];

/// Spellings of the counters that the explanation knows, with their kind.
const COUNTERS: &[(&str, Dimension, &str)] = &[
    ("throttled_percent", Dimension::Percent, "throttled|cpu throttled|throttled time|throttling"),
    ("cpu_wait_percent", Dimension::Percent, "cpu wait|run queue wait|runqueue wait|sched wait"),
    ("pressure_cpu_percent", Dimension::Percent, "pressure cpu|cpu pressure|psi cpu"),
    ("pressure_io_percent", Dimension::Percent, "pressure io|io pressure|psi io"),
    ("pressure_memory_percent", Dimension::Percent, "pressure memory|memory pressure|psi memory"),
    ("disk_busy_percent", Dimension::Percent, "disk busy|disk util|disk utilization|util|busy"),
    ("disk_await_ms", Dimension::Time, "disk await|await|r await|disk latency"),
    ("disk_queue", Dimension::Plain, "disk queue|disk queue depth|aqu sz|avgqu sz"),
    ("network_drops_per_s", Dimension::Plain, "network drops|net drops|qdisc drops|drops"),
    ("sender_limited_percent", Dimension::Percent, "sender limited|network limited|cwnd limited"),
    ("host_cpu_percent", Dimension::Cpu, "host cpu|total cpu|system cpu"),
    ("other_cpu_percent", Dimension::Cpu, "other cpu|neighbour cpu|neighbor cpu"),
    ("steal_percent", Dimension::Percent, "steal|cpu steal"),
    ("softirq_percent", Dimension::Percent, "softirq"),
    ("tick_late_max_ms", Dimension::Time, "tick late max|tick late|players late"),
    ("slack_min_s", Dimension::Plain, "slack min s|min slack s|least slack s|min slack"),
];

/// Letters and digits in lower case, everything else one space.
fn plain(text: &str) -> String {
    let spaced: String =
        text.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { ' ' }).collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The role that a name (without its unit) stands for.
fn role(name: &str) -> Option<(Role, Dimension)> {
    let name = plain(name);
    let is_in = |spellings: &str| spellings.split('|').any(|spelling| spelling == name);
    for (spellings, role) in [(LOADS, Role::Load), (VERDICTS, Role::Verdict), (MISHAPS, Role::Mishaps)] {
        if is_in(spellings) {
            return Some((role, Dimension::Plain));
        }
    }
    if let Some((resource, dimension, _)) = USAGES.iter().find(|(_, _, spellings)| is_in(spellings)) {
        return Some((Role::Usage(*resource), *dimension));
    }
    let (counter, dimension, _) = COUNTERS.iter().find(|(_, _, spellings)| is_in(spellings))?;
    Some((Role::Counter(counter), *dimension))
}

/// Ways to divide a header into a name and a unit, the likeliest first.
fn divisions(header: &str) -> Vec<(&str, &str)> {
    let mut divisions = Vec::new();
    if let (Some(open), true) = (header.rfind(['(', '[']), header.ends_with([')', ']'])) {
        divisions.push((&header[..open], header[open + 1..header.len() - 1].trim()));
    }
    divisions.push((header, ""));
    if let Some(name) = header.strip_suffix('%') {
        divisions.push((name, "%"));
    }
    let is_gap = |c: char| c.is_whitespace() || matches!(c, '_' | ',' | ':' | '-');
    divisions.extend(
        header.match_indices(is_gap).map(|(at, gap)| (&header[..at], header[at + gap.len()..].trim())),
    );
    divisions
}

impl Column {
    /// Read a header.
    /// Errors: The column is one that the explanation uses, but its unit is none that it can have.
    pub fn from_header(header: &str) -> Result<Self, String> {
        let header = header.trim();
        for (name, unit) in divisions(header) {
            let Some((role, dimension)) = role(name) else { continue };
            if role == Role::Load {
                // "load_streams" is a load; "streams_broken" is something else that is counted in streams.
                let by_gap = !unit.is_empty() && !header.ends_with([')', ']']);
                if by_gap && !UNNAMED.contains(&plain(name).as_str()) {
                    continue;
                }
                return Ok(Self::load(header, name, unit));
            }
            let factor = match (unit, dimension) {
                // CPU and shares are in % wherever nothing else is said; a rate or a size could be anything.
                ("", Dimension::Cpu | Dimension::Percent | Dimension::Plain) => Some(1.0),
                ("", Dimension::Time) => Some(1.0),
                ("", Dimension::Rate | Dimension::Size) => None,
                (unit, _) => match dimension.factor(unit) {
                    Some(factor) => Some(factor),
                    None if is_like_a_unit(unit) => return Err(wrong_unit(header, unit, dimension)),
                    None => continue,
                },
            };
            return Ok(Self { header: header.to_owned(), role, dimension, factor, load_unit: None });
        }
        let role = Role::Other(plain(header).replace(' ', "_"));
        let (dimension, factor) = (Dimension::Plain, Some(1.0));
        Ok(Self { header: header.to_owned(), role, dimension, factor, load_unit: None })
    }

    /// The column of the load, whose unit is its own name unless the name says nothing.
    fn load(header: &str, name: &str, unit: &str) -> Self {
        let name = plain(name);
        let name = name.strip_prefix("number of ").or(name.strip_prefix("num ")).unwrap_or(&name);
        let unit = match (unit, name) {
            ("", name) if UNNAMED.contains(&name) => "load".to_owned(),
            ("", "stream" | "stream count") => "streams".to_owned(),
            ("", "client count") => "clients".to_owned(),
            ("", name) => name.to_owned(),
            (unit, _) => short(unit),
        };
        let (role, dimension) = (Role::Load, Dimension::Plain);
        Self { header: header.to_owned(), role, dimension, factor: Some(1.0), load_unit: Some(unit) }
    }
}

fn wrong_unit(header: &str, unit: &str, dimension: Dimension) -> String {
    format!(
        "column '{}': the unit '{}' is unknown or could be mistaken; expected {}",
        short(header),
        short(unit),
        dimension.example()
    )
}
