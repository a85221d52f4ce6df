//! What the parts of a trial hand over, as plain data. Times are of the builder's monotonic clock unless said
//! otherwise.

mod sources;

use std::collections::BTreeMap;

use base::histogram::Histogram;
use serde::{Deserialize, Serialize};

pub use sources::{SourceSent, SourcesReport, Stall};

/// Stalls that the report of one host's sources lists at most.
pub const STALLS_MAX: usize = 20_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuildersReport {
    pub builders: Vec<BuilderReport>,
}

/// The triggers that were due in the hold, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventCounts {
    pub offered: u64,
    /// Of these, not sent because the window (or the memory) was full.
    pub vetoed: u64,
    pub triggered: u64,
    /// Of the sent, built with every fragment.
    pub complete: u64,
    /// Of the sent, given up after the timeout.
    pub incomplete: u64,
    /// Of the sent, still under way when the trial was ended early.
    pub unfinished: u64,
}

/// The fragments that arrived, by outcome, warm-up included, so that they can be compared with the sources'
/// counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// Part of an event that was completed.
    pub built: u64,
    /// Part of an event that was given up, and arrived before that.
    pub in_incomplete: u64,
    /// Arrived for an event that had been given up.
    pub late: u64,
    /// Arrived a second time.
    pub duplicate: u64,
    /// Refused, by reason: see [`REASONS`].
    pub refused: BTreeMap<String, u64>,
    /// Connections and datagrams of unidentified peers, by the same reasons; not part of the balance.
    pub turned_away: BTreeMap<String, u64>,
    /// Connections that broke in the middle of a fragment, and those that ended before the run did.
    pub broken_connections: u64,
    /// Sources that reconnected.
    pub reconnected: u64,
}

/// Why messages are refused (docs/daq-wire.md explains each).
pub const REASONS: &[&str] = &[
    "never_triggered",
    "from_the_past",
    "wrong_builder",
    "wrong_run",
    "unknown_source",
    "wrong_address",
    "payload_length",
    "payload_checksum",
    "too_large",
    "no_memory",
    "bad_header",
    "header_checksum",
    "wrong_version",
    "wrong_kind",
    "duplicate_source",
    "configuration",
    "no_group",
    "no_hello",
    "incomplete_hello",
];

impl Ledger {
    pub fn refused_all(&self) -> u64 {
        self.refused.values().sum()
    }

    pub(crate) fn count_refused(&mut self, reason: &str) {
        count(&mut self.refused, reason);
    }

    pub(crate) fn count_turned_away(&mut self, reason: &str) {
        count(&mut self.turned_away, reason);
    }
}

/// A reason with its count, for people.
pub(crate) fn counted(reason: &str, count: u64) -> String {
    format!("{}: {count}", reason.replace('_', " "))
}

/// Allocates for the first of a reason only.
fn count(counts: &mut BTreeMap<String, u64>, reason: &str) {
    match counts.get_mut(reason) {
        Some(count) => *count += 1,
        None => drop(counts.insert(reason.to_owned(), 1)),
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderCounts {
    /// Triggers, each event's first.
    pub triggers: u64,
    pub grants: u64,
    pub pulls: u64,
    /// Triggers or grants sent to all again.
    pub repeated: u64,
    /// Triggers or grants sent to single sources, over their connections.
    pub unicast: u64,
    /// Requests to send bytes again (UDP).
    pub nacks: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A source sent late: its host had other things to do, or did not hear the order.
    Host,
    /// The order was lost on its way, and had to be repeated.
    Order,
    /// Fragments waited in a queue on their way.
    #[default]
    Queueing,
    /// A fragment was lost, and TCP's tail-loss probe (RFC 8985) brought it.
    TailLossProbe,
    /// A fragment was lost, and TCP's retransmission timeout brought it.
    RetransmissionTimeout,
    /// A fragment was lost and sent again by other means: fast retransmission, or a NACK.
    Loss,
    /// The builder itself was late to read.
    Builder,
    Gone,
    /// No fragment of a connected source arrived before the timeout; nothing shows that it sent one.
    Silent,
    /// Neither a counter nor a send time shows where the fragment was.
    Unknown,
}

/// One event that took long, or was given up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowEvent {
    pub event: u64,
    /// From its trigger to its last fragment (or its end), ns.
    pub took_ns: u64,
    pub complete: bool,
    /// The source at fault: the one that took longest from its order or on the way, or the first missing one.
    pub source: u32,
    /// When that source sent, ns after the trigger was due; unknown for a missing source.
    pub sent_after_ns: Option<i64>,
    /// When the fragment reached the builder's host, ns after the trigger was due.
    pub arrived_after_ns: Option<u64>,
    /// How many times the order was repeated for it.
    pub repeats: u32,
    /// As far as the builder knows it; the sources' own counters may show more (see
    /// [`SourcesReport::stalls`]).
    pub cause: Cause,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incomplete {
    pub event: u64,
    pub missing: u32,
    /// Which, up to 64 of them.
    pub sources: Vec<u32>,
}

/// What a builder saw of one source during the hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceSeen {
    pub source: u32,
    /// Its fragments in complete and incomplete events.
    pub fragments: u64,
    /// Mean of the time from the trigger (with push) or from its own grant or pull to its fragment, us.
    pub delay_mean_us: Option<f64>,
    /// 99th percentile of the same, us: within 1.6 % up to 15,000 sources, within 25 % of any number.
    pub delay_p99_us: Option<f64>,
    /// Events whose last fragment was this source's.
    pub last: u64,
    /// Events that were given up without its fragment.
    pub missed: u64,
    /// Fragments whose send time cannot be right: before their trigger, or after their arrival.
    pub implausible_times: u64,
    /// Whether its connection stood at the end.
    pub connected: bool,
    pub congestion_control: Option<String>,
}

/// The clock of a group of sources against the builder's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupClock {
    /// The group's number, in hexadecimal digits.
    pub group: String,
    pub sources: u32,
    /// The least and the greatest number of them; unknown if a builder does not report it.
    pub source_range: Option<(u32, u32)>,
    /// Whether it runs on the builder's kernel, so that both clocks are one (and the true offset is 0).
    pub same_kernel: bool,
    /// Its clock minus the builder's in the middle of the hold; unknown without answers.
    pub offset_ns: Option<i64>,
    /// How far that may be off at most, the worst moment of the hold.
    pub bound_ns: Option<u64>,
    /// Its rate against the builder's, ppm.
    pub drift_ppm: Option<f64>,
    /// Whether its answers contradict each other: then nothing else is known of the clock.
    pub contradictory: bool,
    /// Answered probes.
    pub probes: u64,
    /// Of these, estimates that missed the true offset by more than the bound; known with one kernel only.
    pub violations: Option<u64>,
}

/// The result of the credit search.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steered {
    /// The credit in use, fragments.
    pub credit: u32,
    /// The stagger that push would need, ns a source.
    pub stagger_ns: u64,
    /// The buffer of the port as it was found; unknown where nothing was lost.
    pub buffer_bytes: Option<u64>,
    /// The rate of the port as it was found, bit/s on the wire.
    pub rate_bit_per_s: Option<f64>,
    /// What was tried, in short probes.
    pub tried: Vec<CreditTrial>,
    /// The credit in use, after the hold, for as long as push.
    pub granted: Option<CreditTrial>,
    /// Push, right after `granted`.
    pub push: Option<CreditTrial>,
}

/// One credit as tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreditTrial {
    /// Fragments that might be under way at once.
    pub credit: u32,
    /// Events that ended.
    pub events: u32,
    /// Of these, complete.
    pub complete: u32,
    /// From the first trigger to the end of the last event, s.
    pub lasted_s: f64,
    /// Complete events.
    pub events_per_s: f64,
    /// 99th percentile of the complete events' times, ms; unknown if none completed.
    pub completion_p99_ms: Option<f64>,
    /// Events with a fragment that took long, or that never came.
    pub stalled: u32,
}

/// One fragment in a picture of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arrival {
    pub source: u32,
    /// When it was sent, ns after the trigger was due.
    pub sent_ns: i64,
    /// When its last byte was read, ns after the trigger was due.
    pub arrived_ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventPicture {
    pub event: u64,
    /// From its trigger to its last fragment, ns.
    pub took_ns: u64,
    pub complete: bool,
    pub arrivals: Vec<Arrival>,
}

/// What happened within an interval of about a fiftieth of the hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Its end, s after the trial's start.
    pub end_s: f64,
    /// Its length, s.
    pub length_s: f64,
    pub complete: u64,
    pub incomplete: u64,
    pub vetoed: u64,
    pub payload_bytes: u64,
    /// The slowest completion in it, ns.
    pub completion_max_ns: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuilderReport {
    pub builder: u16,
    /// Sources that were connected when it began, and that it waited for.
    pub sources: u32,
    /// The hold, s after the trial's start.
    pub hold_from_s: f64,
    /// The hold's end: when its last event ended.
    pub hold_to_s: f64,
    /// For how long a full window of events flowed in the hold, s, where triggers follow ends (`--triggers
    /// max`).
    pub flowed_s: Option<f64>,
    /// Its triggers in the hold.
    pub events: EventCounts,
    /// What became of its fragments, of the whole trial.
    pub ledger: Ledger,
    /// Its orders, of the whole trial.
    pub orders: OrderCounts,
    /// From the trigger (when it was due) to the last fragment.
    pub completion: Histogram,
    /// From the trigger to the first fragment.
    pub first_fragment: Histogram,
    /// From the first fragment to the last.
    pub spread: Histogram,
    /// From the first source's sending to the last one's.
    pub skew: Histogram,
    /// From the trigger to the arrival of a fragment with a repeated order or the catch-up flag.
    pub recovery: Histogram,
    /// Events of which an order was lost and repeated.
    pub recovered: u64,
    /// The skew of up to 2000 events, evenly over the hold: number, ns.
    pub skews: Vec<(u64, u64)>,
    /// Payload that arrived in the hold, in complete and incomplete events.
    pub payload_bytes: u64,
    /// What that takes on the wire, with our headers, TCP's (or UDP's), IP's and Ethernet's 14 bytes, as a
    /// port counts.
    pub wire_bytes: u64,
    pub fragments: u64,
    /// CPU time of its thread in the hold, s.
    pub cpu_s: f64,
    /// Time in which its thread was ready and had no CPU, s.
    pub ready_s: Option<f64>,
    /// Most events that were under way at once.
    pub outstanding_max: u32,
    /// Most memory that fragments held at once.
    pub memory_bytes_max: u64,
    /// Datagrams that found no room at the builder's UDP socket; unknown over TCP, or if the kernel does not
    /// count them.
    pub datagrams_overflowed: Option<u64>,
    pub sources_seen: Vec<SourceSeen>,
    pub clocks: Vec<GroupClock>,
    /// The slowest events, up to 200, and how many were slow (took over 4 x the median, or over 20 ms more
    /// than it).
    pub slow: Vec<SlowEvent>,
    /// Events that took long, by cause, all of them.
    pub causes: BTreeMap<Cause, u64>,
    /// Events that were given up, up to 200.
    pub incomplete: Vec<Incomplete>,
    /// A typical event and the slowest one, for the figures.
    pub pictures: Vec<EventPicture>,
    /// Delays for the heat map: of up to 64 events, evenly over the hold and with the worst, each source's
    /// delay in us (`None`: it did not come).
    pub heat: Vec<(u64, Vec<Option<u32>>)>,
    pub intervals: Vec<Interval>,
    /// The result of the credit search, unless the settings set the credit.
    pub steered: Option<Steered>,
    /// The credit that held, fragments; of grant and pull.
    pub credit: Option<u32>,
    /// How it reached its sources, where multicast did not work: one sentence.
    pub orders_note: Option<String>,
    pub broke_off: Option<String>,
    /// Whether it was stopped before its time (or its number of events) was over.
    pub ended_early: bool,
    /// The rate of its network device, if known.
    pub link_bit_per_s: Option<f64>,
}

impl BuilderReport {
    /// Whether its hold began; otherwise its counts of the hold are no measurement.
    pub fn has_held(&self) -> bool {
        self.hold_to_s > self.hold_from_s || self.events.offered > 0
    }
}
