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
    /// A number of errors or losses, kept under this name: more than zero is a failure.
    Failures(String),
    /// How long a request took, kept under this name.
    Latency(String),
    /// What was carried per second, kept under this name.
    Throughput(String),
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
    /// It is a rate, which is the load only where no other column is.
    pub is_rate: bool,
}

/// Spellings of the load, separated by `|` as in all lists here. Case and separators do not matter.
const LOADS: &str = "load|streams|users|virtual users|vus|concurrent users|active users|clients|\
    concurrent clients|connections|concurrent connections|sessions|concurrent sessions|threads|workers|\
    processes|jobs|numjobs|iodepth|queue depth|tasks|flows|viewers|players|sources|nodes|n|concurrency|\
    parallelism|offered load|stream|user|vu|client|connection|session|thread|worker|process|job|flow|viewer|\
    player|source|number of streams|number of clients|number of users|number of connections|\
    number of threads|num streams|num clients|num users|num connections|num threads|stream count|\
    client count|user count|connection count|thread count";
/// Spellings of rates, by their unit. A rate is the load where the table has no other load column, and else
/// the throughput that came of the load.
const RATES: [(&str, &str); 6] = [
    (
        "requests/s",
        "rps|requests s|requests per s|requests per second|requests sec|req s|reqs s|req per s|req sec|\
         request rate|arrival rate|target rps|offered rps",
    ),
    ("queries/s", "qps|queries s|queries per s|queries per second|query rate"),
    ("transactions/s", "tps|transactions s|transactions per s|transactions per second"),
    ("operations/s", "iops|ops|ops s|ops per s|ops sec|ops per second|operations s|operations per second"),
    ("messages/s", "messages s|messages per s|messages per second|msgs s|msg s|message rate"),
    ("events/s", "events s|events per s|events per second|event rate"),
];
/// Names of the load without a unit; a word after them is its unit.
const UNNAMED: [&str; 5] = ["n", "load", "concurrency", "parallelism", "offered load"];
const THROUGHPUTS: &str = "throughput|tput|goodput|achieved rps|actual rps|completed rps";
/// A name that has one of these words, and no other words than [`OF_FAILURES`], counts failures.
const FAILURES: &str = "error|errors|err|errs|failure|failures|failed|fail|fails|timeout|timeouts|timedout|\
    5xx|lost|loss|losses|dropped|stall|stalls|stalled|rebuffer|rebuffers|rejected|rejects|rejections|refused|\
    aborted|aborts|exceptions|ko|timed";
const OF_FAILURES: &str = "rate|rates|ratio|share|fraction|count|counts|total|number|num|of|n|percent|pct|\
    per|s|sec|second|min|minute|http|status|requests|request|req|reqs|responses|response|replies|packets|\
    packet|pkts|datagrams|frames|messages|events|queries|transactions|connections|connection|connect|\
    streams|calls|jobs|users|clients|sessions|read|write|socket|client|server|out";
/// The same for how long a request took; a percentile such as `p99` is such a word, too.
const LATENCIES: &str = "latency|latencies|lat|rtt|ttfb|delay|duration|responsetime|resptime";
const OF_LATENCIES: &str = "response|resp|request|req|service|time|avg|average|mean|median|max|maximum|http|\
    percentile|th|of|ms|us|ns|s|sec|seconds|msec|usec|all|read|write|query|transaction|end|to|round|trip";
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

fn is_in(spellings: &str, word: &str) -> bool {
    spellings.split('|').any(|spelling| spelling == word)
}

/// The spelling in a list that is `name` but for its separators.
fn spelling_of<'a>(spellings: &'a str, name: &str) -> Option<&'a str> {
    let joined = |text: &str| text.replace(' ', "");
    spellings.split('|').find(|spelling| joined(spelling) == joined(name))
}

/// The unit of a rate by its name.
fn rate_unit(name: &str) -> Option<&'static str> {
    RATES.iter().find(|(_, spellings)| spelling_of(spellings, name).is_some()).map(|(unit, _)| *unit)
}

/// The usual names of the load, for a message.
pub const LOAD_EXAMPLES: &str =
    "load, streams, users, clients, connections, threads, sources, flows, requests/s or the like";

/// Whether a name consists of words of both lists, with at least one of the first.
fn is_made_of(name: &str, is_key: impl Fn(&str) -> bool, others: &str) -> bool {
    name.split(' ').any(&is_key) && name.split(' ').all(|word| is_key(word) || is_in(others, word))
}

/// `p50`, `p99`, `p999`, `p99 9` being split at its point; `95th`.
fn is_percentile(word: &str) -> bool {
    let digits = word.strip_prefix('p').or_else(|| word.strip_suffix("th")).unwrap_or_default();
    (2..=4).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// What the words of a whole header say that no list of spellings has.
fn worded(header: &str) -> Option<(Role, Dimension, f64)> {
    let words = plain(header);
    let name = words.replace(' ', "_");
    if is_made_of(&words, |word| is_in(FAILURES, word), OF_FAILURES) {
        return Some((Role::Failures(name), Dimension::Failures, 1.0));
    }
    let is_key = |word: &str| is_in(LATENCIES, word) || is_percentile(word);
    let is_time = words.contains("response time") || words.contains("service time");
    if is_made_of(&words, is_key, OF_LATENCIES) || is_time {
        let unit = words.rsplit(' ').next().unwrap_or_default();
        return Some((Role::Latency(name), Dimension::Time, Dimension::Time.factor(unit).unwrap_or(1.0)));
    }
    let is_rate = |name: &str| spelling_of(THROUGHPUTS, name).is_some();
    let throughput = is_rate(&words) || words.split_once(' ').is_some_and(|(first, _)| is_rate(first));
    throughput.then_some((Role::Throughput(name), Dimension::Plain, 1.0))
}

/// The role that a name (without its unit) stands for.
fn role(name: &str) -> Option<(Role, Dimension)> {
    let name = plain(name);
    if spelling_of(LOADS, &name).is_some() || rate_unit(&name).is_some() {
        return Some((Role::Load, Dimension::Plain));
    }
    let is_in = |spellings: &str| spelling_of(spellings, &name).is_some();
    if is_in(VERDICTS) {
        return Some((Role::Verdict, Dimension::Plain));
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
                if by_gap && (!UNNAMED.contains(&plain(name).as_str()) || worded(header).is_some()) {
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
            return Ok(Self::new(header, role, dimension, factor));
        }
        if let Some((role, dimension, factor)) = worded(header) {
            return Ok(Self::new(header, role, dimension, Some(factor)));
        }
        Ok(Self::new(header, Role::Other(plain(header).replace(' ', "_")), Dimension::Plain, Some(1.0)))
    }

    fn new(header: &str, role: Role, dimension: Dimension, factor: Option<f64>) -> Self {
        Self { header: header.to_owned(), role, dimension, factor, load_unit: None, is_rate: false }
    }

    /// Whether the header ends with the unit of a time.
    pub fn header_has_time_unit(&self) -> bool {
        let words = plain(&self.header);
        Dimension::Time.factor(words.rsplit(' ').next().unwrap_or_default()).is_some()
    }

    /// A rate beside a load is what came of the load.
    pub fn into_throughput(self) -> Self {
        let role = Role::Throughput(plain(&self.header).replace(' ', "_"));
        Self { role, load_unit: None, is_rate: false, ..self }
    }

    /// The column of the load, whose unit is its own name unless the name says nothing.
    fn load(header: &str, name: &str, unit: &str) -> Self {
        let name = plain(name);
        let rate = rate_unit(&name);
        let name = spelling_of(LOADS, &name).unwrap_or(&name);
        let name = name.strip_prefix("number of ").or(name.strip_prefix("num ")).unwrap_or(name);
        let is_unnamed = UNNAMED.contains(&name);
        let unit = match (rate, unit, name) {
            (Some(rate), ..) => rate.to_owned(),
            (_, "", _) if is_unnamed => "load".to_owned(),
            (_, unit, _) if is_unnamed => short(unit),
            (.., "vus" | "vu") => "virtual users".to_owned(),
            (.., "process" | "processes") => "processes".to_owned(),
            (.., "iodepth" | "queue depth") => "requests in flight".to_owned(),
            (.., "numjobs") => "jobs".to_owned(),
            (.., name) => name.strip_suffix(" count").unwrap_or(name).trim_end_matches('s').to_owned() + "s",
        };
        let column = Self::new(header, Role::Load, Dimension::Plain, Some(1.0));
        Self { load_unit: Some(unit), is_rate: rate.is_some(), ..column }
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
