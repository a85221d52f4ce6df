//! Offsets of the sources' clocks from the builder's.
//!
//! The builder probes each group of sources. In the terms of [`base::clock`] the builder is the agent (it
//! probes) and the group the coordinator (it answers), so that offsets convert a group's times to the
//! builder's.

use std::collections::VecDeque;

use base::clock::{Batch, Edge, Offset, Probe, Unsynchronised};

use crate::report::GroupClock;

/// Probes of the initial and the final phase.
const INITIAL: u32 = 128;
/// Probes in a row: the answer to one triggers the next, which finds the threads and the CPUs at both ends
/// awake. The first one also measures how long they took to wake up.
const INITIAL_ROW: u32 = 8;
const STEADY_ROW: u32 = 4;
/// Interval between two rows of the initial and the final phase.
const INITIAL_NS: u64 = 64_000_000;
/// Bounds of the interval between two later rows of a group.
const STEADY_NS: (u64, u64) = (100_000_000, 500_000_000);
/// Interval between later rows of different groups: many groups are probed less often each.
const STEADY_NS_PER_GROUP: u64 = 10_000_000;
/// The same in the initial and the final phase.
const INITIAL_NS_PER_GROUP: u64 = 800_000;
/// Between the first probes of two rows, of whatever groups: the answer to the first is then read before the
/// builder is busy with sending the second, which would count as time on the way.
const APART_NS: u64 = 200_000;
/// Longest interval between two rows of a group.
const RARE_NS: u64 = 4_000_000_000;
/// Unanswered probes per group.
const PENDING_MAX: usize = 8;
/// Batches per group; beyond, each takes twice as many probes.
const BATCHES_MAX: usize = 256;
/// Batches per offset estimate: as many as [`Offset`] uses completely.
const BATCHES_USED: usize = 64;
/// Clocks further apart than this are different, whatever boot id a group reports.
const SAME_NS_MAX: u64 = 1_000_000;
/// Send times may lie so far beyond the trigger and the arrival, besides the clock's error.
const MARGIN_NS: u64 = 1_000_000;
/// Points of the hold at which the error bound is evaluated.
const BOUND_SAMPLES: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockProbe {
    /// As numbered by [`Clocks::join`].
    pub group: u32,
    /// Sent as the order's `event`; its `triggered_ns` is the time passed to [`Clocks::next_probe`].
    pub number: u64,
}

/// A fragment's send time by the builder's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendTime {
    Known(u64),
    /// The clock could not be compared.
    Unknown,
    /// Before the trigger, or after the arrival.
    Implausible,
}

impl SendTime {
    pub(super) const fn known(self) -> Option<u64> {
        match self {
            Self::Known(ns) => Some(ns),
            Self::Unknown | Self::Implausible => None,
        }
    }
}

/// A linear offset, cheap to apply to each fragment.
#[derive(Debug, Clone, Copy)]
struct Line {
    at_source_ns: u64,
    ahead_ns: i64,
    rate: f64,
    /// How far it may be off, with a margin until the next estimate.
    error_ns: u64,
}

#[derive(Debug, Default)]
struct Clock {
    id: u64,
    same_kernel: bool,
    sources: u32,
    /// The most sources at a time; at the end none is left.
    sources_most: u32,
    /// The lowest and the highest source number.
    source_range: (u32, u32),
    pending: VecDeque<(u32, u64)>,
    probes_sent: u32,
    /// Rows of the initial or the final phase.
    initial_rows_left: u32,
    /// Probes of the current row that are still to be sent.
    row_left: u32,
    /// When the next row is due.
    next_ns: u64,
    probes: u64,
    /// Of `probes_per_batch` each, the last one of at most that: none says less about its time than others.
    batches: Vec<Batch>,
    probes_per_batch: u64,
    offset: Option<Offset>,
    /// Whether the answers contradict each other.
    is_contradictory: bool,
    line: Option<Line>,
    violations: u64,
}

#[derive(Debug, Default)]
pub(super) struct Clocks {
    clocks: Vec<Clock>,
    groups_max: usize,
    /// When the next row of any group is due.
    next_ns: u64,
    /// Groups that have just answered and whose row continues.
    answered: VecDeque<u32>,
}

impl Clocks {
    /// For at most `groups_max` groups.
    pub(super) fn new(sources: u32) -> Self {
        Self { groups_max: sources.max(1) as usize, ..Self::default() }
    }

    /// Adds a source to its group `id` (see [`crate::wire::Hello`]); call it for each hello. `same_kernel`:
    /// the source runs on the builder's kernel.
    ///
    /// Returns the group's number, and whether the group is new. There are never more groups than sources:
    /// beyond, a new group gets the number of one without sources.
    pub(super) fn join(&mut self, id: u64, source: u32, same_kernel: bool, now_ns: u64) -> (u32, bool) {
        let known = self.clocks.iter().position(|clock| clock.id == id);
        let at = known.unwrap_or_else(|| {
            let new = Clock {
                id,
                same_kernel,
                source_range: (source, source),
                initial_rows_left: INITIAL / INITIAL_ROW,
                next_ns: now_ns,
                ..Clock::default()
            };
            self.next_ns = self.next_ns.min(now_ns);
            let is_full = self.clocks.len() >= self.groups_max;
            let left = self.clocks.iter().position(|clock| is_full && clock.sources == 0);
            match left {
                Some(left) => self.clocks[left] = new,
                None => self.clocks.push(new),
            }
            left.unwrap_or(self.clocks.len() - 1)
        });
        let clock = &mut self.clocks[at];
        clock.sources += 1;
        clock.sources_most = clock.sources_most.max(clock.sources);
        clock.source_range = (clock.source_range.0.min(source), clock.source_range.1.max(source));
        (at as u32, known.is_none())
    }

    pub(super) fn leave(&mut self, group: u32) {
        if let Some(clock) = self.clocks.get_mut(group as usize) {
            clock.sources = clock.sources.saturating_sub(1);
        }
    }

    /// When to call [`Self::next_probe`] again; 0: at once, because a row continues; `None`: there is no
    /// group.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        let next_ns = if self.answered.is_empty() { self.next_ns } else { 0 };
        (!self.clocks.is_empty()).then_some(next_ns)
    }

    /// The next probe, to be sent at once; call it until there is none. `now_ns` counts as the time of
    /// sending.
    pub(super) fn next_probe(&mut self, now_ns: u64) -> Option<ClockProbe> {
        let goes_on = std::iter::from_fn(|| self.answered.pop_front())
            .find(|group| self.clocks.get(*group as usize).is_some_and(|clock| clock.sources > 0));
        let at = goes_on.map_or_else(|| self.next_row(now_ns), |group| Some(group as usize))?;
        let clock = &mut self.clocks[at];
        clock.row_left = clock.row_left.saturating_sub(1);
        clock.probes_sent = clock.probes_sent.wrapping_add(1);
        if clock.pending.len() == PENDING_MAX {
            clock.pending.pop_front();
        }
        clock.pending.push_back((clock.probes_sent, now_ns));
        Some(ClockProbe { group: at as u32, number: (at as u64) << 32 | u64::from(clock.probes_sent) })
    }

    /// The group whose row begins now.
    fn next_row(&mut self, now_ns: u64) -> Option<usize> {
        if now_ns < self.next_ns {
            return None;
        }
        let groups = self.clocks.len() as u64;
        let at = self.clocks.iter().position(|clock| clock.next_ns <= now_ns && clock.sources > 0);
        let Some(at) = at else {
            let present = self.clocks.iter().filter(|clock| clock.sources > 0);
            self.next_ns = present.map(|clock| clock.next_ns).min().unwrap_or(now_ns + RARE_NS);
            return None;
        };
        let clock = &mut self.clocks[at];
        let every_ns = if clock.initial_rows_left > 0 {
            clock.row_left = INITIAL_ROW;
            (groups * INITIAL_NS_PER_GROUP).clamp(INITIAL_NS, RARE_NS)
        } else {
            clock.row_left = STEADY_ROW;
            (groups * STEADY_NS_PER_GROUP)
                .clamp(STEADY_NS.0, STEADY_NS.1.max((groups * 2_000_000).min(RARE_NS)))
        };
        clock.initial_rows_left = clock.initial_rows_left.saturating_sub(1);
        clock.next_ns = now_ns + every_ns;
        self.next_ns = now_ns + APART_NS;
        Some(at)
    }

    /// Handles an answer: `received_ns` and `answered_ns` by the group's clock, `now_ns` read as early as
    /// possible. Returns whether it was expected.
    pub(super) fn handle_answer(
        &mut self,
        number: u64,
        received_ns: u64,
        answered_ns: u64,
        now_ns: u64,
    ) -> bool {
        let Some(clock) = self.clocks.get_mut((number >> 32) as usize) else { return false };
        let at = clock.pending.iter().position(|(pending, _)| *pending == number as u32);
        let Some((probe, asked_ns)) = at.and_then(|at| clock.pending.remove(at)) else { return false };
        if probe == clock.probes_sent && clock.row_left > 0 {
            self.answered.push_back((number >> 32) as u32);
        }
        clock.add_probe(&Probe { t1_ns: asked_ns, t2_ns: received_ns, t3_ns: answered_ns, t4_ns: now_ns })
    }

    /// Whether every connected group has answered the initial probes.
    pub(super) fn has_initial_estimate(&self) -> bool {
        self.clocks.iter().all(|clock| clock.sources == 0 || clock.probes >= u64::from(INITIAL))
    }

    pub(super) fn all_same_kernel(&self) -> bool {
        self.clocks.iter().all(|clock| clock.same_kernel)
    }

    /// Starts the final phase, which bounds the offsets of the hold from the other side. It takes a second.
    pub(super) fn probe_again(&mut self, now_ns: u64) {
        for clock in &mut self.clocks {
            (clock.initial_rows_left, clock.next_ns) = (INITIAL / INITIAL_ROW, now_ns);
        }
        self.next_ns = now_ns;
    }

    /// Converts the send time of a fragment, of an event triggered at `triggered_ns` and read at
    /// `arrived_ns`, to the builder's clock.
    pub(super) fn send_time(
        &self,
        group: u32,
        source_ns: u64,
        triggered_ns: u64,
        arrived_ns: u64,
    ) -> SendTime {
        let Some(clock) = self.clocks.get(group as usize) else { return SendTime::Unknown };
        let (sent_ns, error_ns) = match clock.line {
            _ if clock.same_kernel => (source_ns, MARGIN_NS),
            Some(line) => (line.to_builder_ns(source_ns), line.error_ns),
            None => return SendTime::Unknown,
        };
        let is_early = sent_ns.saturating_add(error_ns) < triggered_ns;
        let is_late = sent_ns > arrived_ns.saturating_add(error_ns);
        if is_early || is_late { SendTime::Implausible } else { SendTime::Known(sent_ns) }
    }

    /// Offsets and bounds for a hold between these times of the builder.
    pub(super) fn report(&mut self, hold_ns: (u64, u64)) -> Vec<GroupClock> {
        self.clocks.iter_mut().map(|clock| clock.report(hold_ns)).collect()
    }
}

impl Line {
    fn to_builder_ns(self, source_ns: u64) -> u64 {
        let since_ns = source_ns as i64 as f64 - self.at_source_ns as i64 as f64;
        source_ns.saturating_add_signed(self.ahead_ns.saturating_add((since_ns * self.rate) as i64))
    }
}

impl Clock {
    fn add_probe(&mut self, probe: &Probe) -> bool {
        // Even clocks of the same kernel are estimated: the estimate checks that claim.
        let Some(batch) = Batch::new(probe, false) else { return false };
        self.probes += 1;
        match self.batches.pop() {
            Some(last) if last.n < self.probes_per_batch => {
                self.batches.extend(merged(&[last, batch], self.rate()));
            }
            last => self.batches.extend(last.into_iter().chain([batch])),
        }
        if self.batches.len() > BATCHES_MAX {
            self.batches = self.merged(2);
            self.probes_per_batch = self.probes_per_batch.max(1) * 2;
        }
        // Later estimates change little.
        if self.probes.is_power_of_two() || self.probes.is_multiple_of(16) {
            self.estimate(probe.t3_ns);
        }
        if let Some(offset) = &self.offset {
            let (ahead_ns, bound_ns) =
                (offset.offset_ns(probe.t3_ns).unsigned_abs(), offset.bound_ns(probe.t3_ns));
            self.same_kernel &= ahead_ns <= bound_ns.saturating_add(SAME_NS_MAX);
            self.violations += u64::from(ahead_ns > bound_ns);
        }
        true
    }

    fn merged(&self, neighbours: usize) -> Vec<Batch> {
        let rate = self.rate();
        self.batches.chunks(neighbours.max(1)).filter_map(|few| merged(few, rate)).collect()
    }

    fn rate(&self) -> f64 {
        self.line.map_or(0.0, |line| line.rate)
    }

    fn estimate(&mut self, source_ns: u64) {
        let batches = self.merged(self.batches.len().div_ceil(BATCHES_USED));
        let offset = match Offset::from_batches(&batches) {
            Ok(offset) => offset,
            Err(Unsynchronised::NoAnswer) => return,
            Err(Unsynchronised::Contradiction { .. }) => {
                // What earlier answers alone said is not true, either.
                (self.offset, self.line, self.same_kernel) = (None, None, false);
                self.is_contradictory = true;
                return;
            }
        };
        let ahead_ns = offset.offset_ns(source_ns);
        let error_ns = offset.bound_ns(source_ns).saturating_add(MARGIN_NS);
        self.line =
            Some(Line { at_source_ns: source_ns, ahead_ns, rate: offset.drift_ppm() / 1e6, error_ns });
        self.offset = Some(offset);
    }

    fn report(&mut self, (from_ns, to_ns): (u64, u64)) -> GroupClock {
        self.estimate(self.batches.last().map_or(0, |batch| batch.upper.at_ns));
        let mut report = GroupClock {
            group: format!("{:x}", self.id),
            sources: self.sources_most,
            source_range: Some(self.source_range),
            same_kernel: self.same_kernel,
            contradictory: self.is_contradictory,
            probes: self.probes,
            violations: (self.same_kernel && self.probes > 0).then_some(self.violations),
            ..GroupClock::default()
        };
        if let Some(offset) = &self.offset {
            // Offsets are functions of the group's clock.
            let shift_ns = offset.offset_ns(self.line.map_or(from_ns, |line| line.at_source_ns));
            let to_ns = to_ns.max(from_ns);
            let at_ns = |part: u64| {
                let builder_ns = from_ns
                    + (u128::from(to_ns - from_ns) * u128::from(part) / u128::from(BOUND_SAMPLES)) as u64;
                builder_ns.saturating_add_signed(shift_ns.saturating_neg())
            };
            report.offset_ns = Some(offset.offset_ns(at_ns(BOUND_SAMPLES / 2)).saturating_neg());
            report.bound_ns = (0..=BOUND_SAMPLES).map(|part| offset.bound_ns(at_ns(part))).max();
            report.drift_ppm = Some(-offset.drift_ppm());
        }
        report
    }
}

/// The tighter lower and the tighter upper edge of neighbours; `rate`: drift of the clock.
fn merged(neighbours: &[Batch], rate: f64) -> Option<Batch> {
    let (first, rest) = neighbours.split_first()?;
    let level = |edge: Edge| edge.offset_ns as f64 - (edge.at_ns as f64 - first.lower.at_ns as f64) * rate;
    let mut merged = *first;
    for batch in rest {
        if level(batch.lower) > level(merged.lower) {
            merged.lower = batch.lower;
        }
        if level(batch.upper) < level(merged.upper) {
            merged.upper = batch.upper;
        }
        merged.n = merged.n.saturating_add(batch.n);
        merged.rtt_min_ns = merged.rtt_min_ns.min(batch.rtt_min_ns);
    }
    Some(merged)
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
