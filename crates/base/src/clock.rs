//! From probes to the difference of two monotonic clocks, with a bound that holds.
//!
//! Let `D(c)` be the agent's clock minus the coordinator's when the latter reads `c`. A probe leaves the
//! agent at `t1`, reaches the coordinator at `t2`, leaves it at `t3` and is back at `t4`. Nothing arrives
//! before it was sent, so at its arrival at `t2` the agent's clock shows at least `t1`, and when it leaves at
//! `t3` at most `t4`:
//!
//! ```text
//! D(t2) >= t1 - t2        D(t3) <= t4 - t3
//! ```
//!
//! Whatever the delays are and however unequal. The middle of both is Cristian's estimate `theta` (1989),
//! half their distance its bound `delta / 2` (RFC 5905, section 8); but the best lower and the best upper
//! edge of all probes need not be of the same probe, so their intersection (Marzullo 1984) is never wider,
//! and mostly narrower.
//!
//! How fast `D` can change carries an edge to other times. With rates in `[a, b]`, `D(c)` lies above every
//! lower edge's cone and below every upper one's; no tighter bound follows from these facts. Each rate is at
//! first within [`RATE_MAX_PPB`]; several batches show the mean rate between them (Moon 1999; Huygens, NSDI
//! 2018), and rates within a session differ by at most [`WANDER_MAX_PPB`]. Probes before and after a run thus
//! bound what lies between and beyond.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// How fast two clocks may part, in ppb (ns per second): two quartzes of 100 ppm each. Time services steer
/// steady clocks well within that; one that is being corrected faster contradicts itself, see
/// [`Unsynchronised`].
pub const RATE_MAX_PPB: i64 = 200_000;

/// How much that rate may change during one session, in ppb: temperature, and a time service that follows it.
pub const WANDER_MAX_PPB: i64 = 10_000;

const NS_PER_S: i128 = 1_000_000_000;

/// Batches that are kept; of more, the narrower of two neighbours.
const BATCHES_MAX: usize = 64;

/// The four times of one probe that was answered, in ns of the monotonic clock of the host that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Sent by the agent.
    pub t1_ns: u64,
    /// Received by the coordinator.
    pub t2_ns: u64,
    /// Answered by the coordinator.
    pub t3_ns: u64,
    /// Received by the agent.
    pub t4_ns: u64,
}

impl Probe {
    /// The time under way in both directions, `delta` of RFC 5905; `None` if one of the clocks went back.
    pub fn rtt_ns(&self) -> Option<u64> {
        let there_and_back = self.t4_ns.checked_sub(self.t1_ns)?;
        // An agent's slow clock may show less for the whole than the coordinator's for its part.
        Some(there_and_back.saturating_sub(self.t3_ns.checked_sub(self.t2_ns)?))
    }

    fn edges(&self) -> (Edge, Edge) {
        let lower = Edge { at_ns: self.t2_ns, offset_ns: difference_ns(self.t1_ns, self.t2_ns) };
        let upper = Edge { at_ns: self.t3_ns, offset_ns: difference_ns(self.t4_ns, self.t3_ns) };
        (lower, upper)
    }
}

/// A limit of the offset at one time of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The coordinator's monotonic clock, ns.
    pub at_ns: u64,
    /// The agent's clock minus the coordinator's, ns.
    pub offset_ns: i64,
}

/// What probes of one moment, a few milliseconds to seconds, say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The offset is at least this.
    pub lower: Edge,
    /// The offset is at most this.
    pub upper: Edge,
    /// The number of probes.
    pub n: u64,
    /// The least time under way in both directions, ns.
    pub rtt_min_ns: u64,
    /// Whether both clocks are of one kernel, so that they cannot part: known when probes go over a UNIX
    /// socket.
    pub same_kernel: bool,
}

impl Batch {
    /// A batch of one probe; `None` if one of its clocks went back.
    pub fn new(probe: &Probe, same_kernel: bool) -> Option<Self> {
        let (lower, upper) = probe.edges();
        Some(Self { lower, upper, n: 1, rtt_min_ns: probe.rtt_ns()?, same_kernel })
    }

    /// Adds a later probe. Returns whether that made the batch narrower; a probe whose clock went back is
    /// left out.
    pub fn add(&mut self, probe: &Probe) -> bool {
        let Some(rtt_ns) = probe.rtt_ns() else { return false };
        let (lower, upper) = probe.edges();
        let raised = wide(lower) > wide(self.lower) - self.fading_ns(self.lower, lower);
        let lowered = wide(upper) < wide(self.upper) + self.fading_ns(self.upper, upper);
        if raised {
            self.lower = lower;
        }
        if lowered {
            self.upper = upper;
        }
        self.n = self.n.saturating_add(1);
        self.rtt_min_ns = self.rtt_min_ns.min(rtt_ns);
        raised || lowered
    }

    /// Half the distance of its edges, ns: the bound at the time of the batch.
    pub fn bound_ns(&self) -> u64 {
        let fading = self.fading_ns(self.lower, self.upper);
        half(wide(self.upper) - wide(self.lower) + fading)
    }

    /// What one edge no longer says at the time of another, ns.
    fn fading_ns(&self, edge: Edge, other: Edge) -> i128 {
        let rate_ppb = if self.same_kernel { 0 } else { RATE_MAX_PPB };
        rate_ns(rate_ppb, edge.at_ns.max(other.at_ns), edge.at_ns.min(other.at_ns))
    }
}

/// Why nothing can be said about an agent's clock.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Unsynchronised {
    /// There was no batch.
    #[error("no clock probe was answered: let the agent's host reach the coordinator's clock port over UDP")]
    NoAnswer,
    /// The batches exclude each other.
    #[error(
        "the clocks moved against each other by {rate_ppm:.0} ppm, more than quartzes can ({} ppm): a host \
         was suspended or migrated, or its time service is correcting it; wait until it is steady, and \
         probe again",
        RATE_MAX_PPB / 1000
    )]
    Contradiction {
        /// The rate that would explain them, in ppm.
        rate_ppm: f64,
    },
}

/// The agent's monotonic clock minus the coordinator's, at any time, with a bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// In order of time.
    batches: Vec<Batch>,
    /// The least and the greatest rate, in ppb.
    rates_ppb: (i64, i64),
    /// The number of probes it is founded on.
    pub n: u64,
    /// The least time under way in both directions, ns.
    pub rtt_min_ns: u64,
}

impl Offset {
    /// What `batches`, in any order, say together.
    ///
    /// # Errors
    /// There is none, or they exclude each other.
    pub fn from_batches(batches: &[Batch]) -> Result<Self, Unsynchronised> {
        let rtt_min_ns = batches.iter().map(|batch| batch.rtt_min_ns).min();
        let rtt_min_ns = rtt_min_ns.ok_or(Unsynchronised::NoAnswer)?;
        let n = batches.iter().fold(0, |n: u64, batch| n.saturating_add(batch.n));
        let mut batches = batches.to_vec();
        batches.sort_by_key(|batch| batch.lower.at_ns);
        thin(&mut batches);
        let rates_ppb = rates_ppb(&batches)?;
        Ok(Self { batches, rates_ppb, n, rtt_min_ns })
    }

    /// Agent minus coordinator when the coordinator's clock reads `coordinator_ns`, in ns.
    pub fn offset_ns(&self, coordinator_ns: u64) -> i64 {
        let (lower, upper) = self.limits(coordinator_ns);
        saturate(lower + (upper - lower) / 2)
    }

    /// How far [`Self::offset_ns`] can be from the truth, in ns.
    pub fn bound_ns(&self, coordinator_ns: u64) -> u64 {
        let (lower, upper) = self.limits(coordinator_ns);
        // Clocks count whole nanoseconds: each reading is up to one early.
        half(upper - lower).saturating_add(1)
    }

    /// What the agent's monotonic clock shows when the coordinator's reads `coordinator_ns`.
    pub fn to_agent_ns(&self, coordinator_ns: u64) -> u64 {
        coordinator_ns.saturating_add_signed(self.offset_ns(coordinator_ns))
    }

    /// What the coordinator's monotonic clock shows when the agent's reads `agent_ns`.
    pub fn to_coordinator_ns(&self, agent_ns: u64) -> u64 {
        let at = |coordinator_ns| {
            let ns = i128::from(agent_ns) - i128::from(self.offset_ns(coordinator_ns));
            u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
        };
        // Each step leaves 200 ppm of the error: four of them less than a nanosecond of a week.
        (0..4).fold(at(self.batches.first().map_or(0, |batch| batch.lower.at_ns)), |guess, _| at(guess))
    }

    /// How fast the agent's clock gains on the coordinator's, in ppm; 0 while nothing is known.
    pub fn drift_ppm(&self) -> f64 {
        (self.rates_ppb.0 + self.rates_ppb.1) as f64 / 2e3
    }

    /// How far [`Self::drift_ppm`] can be from the truth at any instant.
    pub fn drift_bound_ppm(&self) -> f64 {
        (self.rates_ppb.1 - self.rates_ppb.0) as f64 / 2e3
    }

    /// The least and the greatest offset that all batches allow.
    fn limits(&self, at_ns: u64) -> (i128, i128) {
        let (slow, fast) = self.rates_ppb;
        let lower = self.batches.iter().map(|batch| {
            let rate = if at_ns >= batch.lower.at_ns { slow } else { fast };
            wide(batch.lower) + rate_ns(rate, at_ns, batch.lower.at_ns)
        });
        let upper = self.batches.iter().map(|batch| {
            let rate = if at_ns >= batch.upper.at_ns { fast } else { slow };
            // Rounded away from the lower limit.
            wide(batch.upper) - rate_ns(-rate, at_ns, batch.upper.at_ns)
        });
        let lower = lower.max().unwrap_or(i128::from(i64::MIN));
        let upper = upper.min().unwrap_or(i128::from(i64::MAX));
        (lower, upper.max(lower))
    }
}

/// The least and the greatest rate that `batches` allow, in ppb.
fn rates_ppb(batches: &[Batch]) -> Result<(i64, i64), Unsynchronised> {
    let rate_max = if batches.iter().all(|batch| batch.same_kernel) { 0 } else { RATE_MAX_PPB };
    let contradiction = |rate_ppb: i128| Unsynchronised::Contradiction { rate_ppm: rate_ppb as f64 / 1e3 };
    // The mean rate between some two edges is at least `slow`, and between some two at most `fast`.
    let (mut slow, mut fast) = (i128::MIN, i128::MAX);
    for Edge { at_ns: x, offset_ns: least } in batches.iter().map(|batch| batch.lower) {
        for Edge { at_ns: y, offset_ns: most } in batches.iter().map(|batch| batch.upper) {
            // One nanosecond for the readings' fractions.
            let room_ppb = (i128::from(most) - i128::from(least) + 1) * NS_PER_S;
            let between_ns = i128::from(x.abs_diff(y));
            match y.cmp(&x) {
                Ordering::Greater => fast = fast.min(room_ppb.div_euclid(between_ns) + 1),
                Ordering::Less => slow = slow.max((-room_ppb).div_euclid(between_ns)),
                Ordering::Equal if room_ppb < 0 => return Err(contradiction(room_ppb)),
                Ordering::Equal => {}
            }
        }
    }
    let (max, wander) = (i128::from(rate_max), i128::from(WANDER_MAX_PPB));
    if slow > max || fast < -max {
        return Err(contradiction(if slow > max { slow } else { fast }));
    }
    if slow.saturating_sub(wander) > fast {
        // It wanders more than a steady clock does: only the first principle is left.
        return Ok((-rate_max, rate_max));
    }
    let within = |ppb: i128| saturate(ppb.clamp(-max, max));
    Ok((within(slow.saturating_sub(wander)), within(fast.saturating_add(wander))))
}

/// Leaves out the wider of neighbours until few enough are left; what is left out only widens the bound.
fn thin(batches: &mut Vec<Batch>) {
    while batches.len() > BATCHES_MAX {
        *batches = batches
            .chunks(2)
            .filter_map(|pair| pair.iter().min_by_key(|batch| batch.bound_ns()).copied())
            .collect();
    }
}

/// `left - right`, at the limits of its type if it is beyond.
fn difference_ns(left: u64, right: u64) -> i64 {
    saturate(i128::from(left) - i128::from(right))
}

fn saturate(ns: i128) -> i64 {
    i64::try_from(ns).unwrap_or(if ns < 0 { i64::MIN } else { i64::MAX })
}

fn wide(edge: Edge) -> i128 {
    i128::from(edge.offset_ns)
}

/// What a rate makes of the time from `since_ns` to `at_ns`, rounded down.
fn rate_ns(rate_ppb: i64, at_ns: u64, since_ns: u64) -> i128 {
    (i128::from(rate_ppb) * (i128::from(at_ns) - i128::from(since_ns))).div_euclid(NS_PER_S)
}

fn half(ns: i128) -> u64 {
    u64::try_from(ns.max(0).unsigned_abs().div_ceil(2)).unwrap_or(u64::MAX)
}
