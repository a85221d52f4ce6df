//! The client's report of a transfer: plain data for the judge.

use base::outcome::Figure;
use base::timeline::CallTimes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::flow::{Direction, FlowCount, FlowReport, ThreadReport};

pub use super::driver::{OverTime, Responses, Slot};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferReport {
    /// Whose server it was: `kagiri`, `iperf3`, `ttcp`.
    pub peer: String,
    pub server: String,
    /// How the bytes were given and taken: `splice, copied by the receiver`.
    pub engine: String,
    /// The flows by direction: one or two.
    #[serde(rename = "ways")]
    pub directions: Vec<DirectionReport>,
    /// What the path could carry at best, bit/s of payload; where its rate is known.
    pub theoretical_bit_per_s: Option<f64>,
    pub asked_bytes: Option<u64>,
    /// From the client's start to the hold's ends, s.
    pub hold_s: (f64, f64),
    /// Whether it was ended before its time.
    pub stopped: bool,
    /// Why the transfer broke off, where it did: what arrived until then stands in the ways.
    pub broken: Option<String>,
    /// How far the server's clock is ahead of the client's; absent where it is unknown.
    pub clock: Option<ClockOffset>,
    /// Times from the intended moment of a request to the end of its answer, where requests were made.
    pub responses: Option<Responses>,
    /// The same on the idle path, before the flows of `directions` loaded it.
    pub idle_responses: Option<Responses>,
}

/// How far a server's clock is ahead of a client's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// By so much, ns.
    pub offset_ns: i64,
    /// It is wrong by this at most, ns; 0 where both ends read one clock.
    pub bound_ns: u64,
}

impl ClockOffset {
    /// Over a time at whose beginning and end these were found: the middle, with a bound that holds for both.
    #[must_use]
    pub fn with(&self, after: &Self) -> Self {
        let apart = after.offset_ns.saturating_sub(self.offset_ns);
        Self {
            offset_ns: self.offset_ns.saturating_add(apart / 2),
            bound_ns: self.bound_ns.max(after.bound_ns).saturating_add(apart.unsigned_abs().div_ceil(2)),
        }
    }
}

impl TransferReport {
    /// Whether both ends read the same clock, and so are on the same machine.
    pub(super) fn has_one_clock(&self) -> bool {
        self.clock == Some(ClockOffset::default())
    }

    /// The reports of several clients as one; `None` without any.
    pub fn of_all(mut reports: Vec<Self>) -> Option<Self> {
        let mut all = if reports.is_empty() { return None } else { reports.remove(0) };
        for report in reports {
            all.directions.extend(report.directions);
            all.asked_bytes = all.asked_bytes.zip(report.asked_bytes).map(|(a, b)| a.saturating_add(b));
            all.hold_s = (all.hold_s.0.max(report.hold_s.0), all.hold_s.1.max(report.hold_s.1));
            // Delays against several clocks do not add up.
            all.clock = all.clock.filter(|clock| report.clock == Some(*clock));
            all.stopped |= report.stopped;
            all.broken = all.broken.or(report.broken);
            all.responses = together(all.responses, report.responses);
            all.idle_responses = together(all.idle_responses, report.idle_responses);
        }
        Some(all)
    }
}

fn together(one: Option<Responses>, other: Option<Responses>) -> Option<Responses> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.with(&other)),
        (one, other) => one.or(other),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionReport {
    #[serde(rename = "way", deserialize_with = "one_direction")]
    pub direction: Direction,
    /// The end that sent; absent where the peer does not report.
    pub sender: Option<EndReport>,
    /// The end that received; absent where the peer does not report.
    pub receiver: Option<EndReport>,
}

impl DirectionReport {
    /// A direction whose client sends what goes up and receives what comes down.
    pub(super) fn of_client(
        direction: Direction,
        client: Option<EndReport>,
        server: Option<EndReport>,
    ) -> Self {
        let (sender, receiver) = if direction == Direction::Up { (client, server) } else { (server, client) };
        Self { direction, sender, receiver }
    }

    /// The ends that reported, the sender first.
    pub(super) fn ends(&self) -> impl Iterator<Item = &EndReport> {
        self.sender.iter().chain(&self.receiver)
    }

    /// The end that knows best what arrived: the receiver, or the sender if the receiver did not report.
    pub(super) fn nearest_to_arrival(&self) -> Option<&EndReport> {
        self.receiver.as_ref().or(self.sender.as_ref())
    }

    /// `None` if no datagrams are known to be sent.
    pub(super) fn datagrams(&self) -> Option<DatagramLoss> {
        let sent = self.sender.as_ref()?.count().datagrams;
        let came = self.receiver.as_ref().map(EndReport::count);
        let lost = came.map(|came| sent.saturating_sub(came.datagrams.saturating_sub(came.duplicated)));
        let dropped = self.receiver.as_ref().and_then(EndReport::dropped_at_socket);
        let lost_at_socket = lost.zip(dropped).map(|(lost, dropped)| dropped.min(lost));
        (sent > 0).then_some(DatagramLoss { sent, lost, lost_at_socket })
    }

    /// CPU time that the hypervisor took at the ends' hosts while the flows moved, as a share of one core:
    /// the larger one.
    pub(super) fn steal(&self) -> Option<f64> {
        self.ends().filter_map(|end| end.steal).max_by(f64::total_cmp)
    }
}

pub(super) struct DatagramLoss {
    pub(super) sent: u64,
    /// Absent if the receiver did not report.
    pub(super) lost: Option<u64>,
    /// Of these, dropped at the receiver's full socket; absent if no counter of that socket is known.
    pub(super) lost_at_socket: Option<u64>,
}

fn one_direction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Direction, D::Error> {
    let direction = Direction::deserialize(deserializer)?;
    if direction == Direction::Both {
        Err(D::Error::custom("expected 'up' or 'down'"))
    } else {
        Ok(direction)
    }
}

/// What an end counts of its datagrams. The other fields of its [`FlowCount`] are unknown, not 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    #[default]
    All,
    /// Datagrams, losses and jitter: an iperf3 at the other end.
    LossesAndJitter,
    /// Datagrams and losses: an iperf3 that reported no jitter.
    Losses,
    /// Datagrams alone, since they have no numbers: ttcp.
    Datagrams,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndReport {
    pub host: Option<String>,
    pub counted: Counted,
    /// CPU time that the hypervisor took at its host while the flows moved (`steal`, proc_stat(5)), as a
    /// share of one core; absent if unknown.
    pub steal: Option<f64>,
    /// When the first byte of its first and of its last flow moved, ns after the intended start; of senders.
    pub began_ns: Option<(u64, u64)>,
    /// Each flow, the omitted beginning deducted.
    pub flows: Vec<FlowReport>,
    /// What all flows had moved in the omitted beginning.
    pub omitted: FlowCount,
    /// What the connections waited for: of TCP flow by flow, of QUIC the one that all share.
    pub waits: Vec<Waits>,
    /// The threads that carried them; empty where the peer does not report them.
    pub threads: Vec<ThreadReport>,
    /// CPU time of the whole end, s, where it is known.
    pub cpu_s: Option<f64>,
    /// Where the time of its threads went, call by call; where that was asked for.
    pub calls: Option<CallTimes>,
    /// The calls of a stretch of the time one by one.
    pub timeline: Option<Figure>,
    /// Bytes of all flows in each interval: (its beginning, its end, in s after the start; bytes).
    pub intervals: Vec<(f64, f64, u64)>,
}

impl EndReport {
    pub(super) fn count(&self) -> FlowCount {
        self.flows.iter().fold(FlowCount::default(), |sum, flow| sum.with(&flow.count))
    }

    /// Datagrams dropped at the full sockets of a receiver; `None` unless it is known of every flow.
    pub(super) fn dropped_at_socket(&self) -> Option<u64> {
        let dropped: Option<Vec<u64>> = self.flows.iter().map(|flow| flow.count.overflowed).collect();
        Some(dropped?.into_iter().fold(0, u64::saturating_add))
    }

    pub fn bytes(&self) -> u64 {
        // Another host may report any number.
        self.flows.iter().map(|flow| flow.count.bytes).fold(0, u64::saturating_add)
    }

    /// From the first byte of any flow to the last of any, s; `None` when fewer than two moments are known.
    pub fn elapsed_s(&self) -> Option<f64> {
        let (first, last) = moved_ns(&self.flows)?;
        (last > first).then(|| (last - first) as f64 / 1e9)
    }

    /// Payload over the time in which it moved, bit/s. What was there at the first moment took its time
    /// before, and does not count.
    pub fn goodput_bit_per_s(&self) -> Option<f64> {
        let first = self.flows.iter().filter_map(|flow| Some((flow.moved_ns?.0, flow.first_bytes))).min()?;
        let bytes = self.bytes().saturating_sub(first.1);
        Some(bytes as f64 * 8.0 / self.elapsed_s()?)
    }

    /// The busiest thread, % of a core.
    pub fn busiest_percent(&self) -> Option<f64> {
        let percent = |thread: &ThreadReport| 100.0 * thread.cpu_ns as f64 / thread.wall_ns.max(1) as f64;
        self.threads.iter().map(percent).max_by(f64::total_cmp)
    }
}

/// When the first and the last bytes of any flow moved, ns.
pub(super) fn moved_ns<'a>(flows: impl IntoIterator<Item = &'a FlowReport>) -> Option<(u64, u64)> {
    let moments = flows.into_iter().filter_map(|flow| flow.moved_ns);
    moments.reduce(|(first, last), (begun, ended)| (first.min(begun), last.max(ended)))
}

/// At a flow's end: what its sender waited for (`TCP_INFO`), and how the path was (also of QUIC).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// Time with data to send or in flight, us.
    pub busy_us: Option<u64>,
    /// Of it, waiting for the peer's window, us.
    pub rwnd_limited_us: Option<u64>,
    /// Of it, waiting for room in the own send buffer, us.
    pub sndbuf_limited_us: Option<u64>,
    /// How often it was looked at while it sent.
    pub looks: u32,
    /// How often of these all that its send buffer held was under way.
    pub drained: u32,
    /// Segments sent again; of QUIC, packets taken for lost.
    pub retransmits: Option<u64>,
    /// Whether they are of a QUIC connection.
    pub is_quic: bool,
    pub min_rtt_us: Option<u64>,
    /// Smoothed round-trip time, us.
    pub rtt_us: Option<u64>,
    pub congestion_window_bytes: Option<u64>,
}

impl From<&sys::net::TcpInfo> for Waits {
    fn from(info: &sys::net::TcpInfo) -> Self {
        let window = info.congestion_window_segments.zip(info.send_mss_bytes);
        Self {
            busy_us: info.busy_us,
            rwnd_limited_us: info.rwnd_limited_us,
            sndbuf_limited_us: info.sndbuf_limited_us,
            looks: 0,
            drained: 0,
            retransmits: info.retransmits_total.map(u64::from),
            is_quic: false,
            min_rtt_us: info.min_rtt_us.map(u64::from),
            rtt_us: info.rtt_us.map(u64::from),
            congestion_window_bytes: window.map(|(segments, mss)| u64::from(segments) * u64::from(mss)),
        }
    }
}
