//! The clocks of the sources against the builder's.
//!
//! The builder asks each group of sources what its clock says. In the words of [`base::clock`] the builder is thus the
//! agent (it asks) and the group the coordinator (it answers), so that offsets carry a group's times over to the builder's.

use std::collections::VecDeque;

use base::clock::{Batch, Edge, Offset, Probe};

use crate::daq::report::GroupClock;

/// Questions that begin the acquaintance, and end it.
const QUICK: u32 = 64;
/// Between two of these, ns.
const QUICK_NS: u64 = 16_000_000;
/// Between two questions to the same group afterwards, at least and at most, ns.
const STEADY_NS: (u64, u64) = (50_000_000, 250_000_000);
/// Between two questions to different groups: many groups are asked less often each.
const STEADY_NS_A_GROUP: u64 = 5_000_000;
/// The same at the beginning and the end.
const QUICK_NS_A_GROUP: u64 = 200_000;
/// However many groups there are, each is asked so often.
const RARE_NS: u64 = 2_000_000_000;
/// Questions under way to one group.
const ASKED_MAX: usize = 8;
/// Batches that are kept of a group; then neighbours become one.
const BATCHES_MAX: usize = 256;
/// Batches that an offset is made of: as many as [`Offset`] takes without leaving some out.
const BATCHES_USED: usize = 64;
/// Clocks that are further apart than this are not the same, whatever a group says of its kernel.
const SAME_NS_MAX: u64 = 1_000_000;
/// Moments of the hold at which the bound is looked at.
const LOOKS: u64 = 64;

/// A question that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// To which group, as [`Clocks::join`] numbers them.
    pub group: u32,
    /// Its number, in the order's `event`; its `triggered_ns` is the time that was given to [`Clocks::due`].
    pub number: u64,
}

/// An offset as a straight line: quick to apply to each fragment.
#[derive(Debug, Clone, Copy)]
struct Line {
    at_source_ns: u64,
    ahead_ns: i64,
    rate: f64,
}

#[derive(Debug, Default)]
struct Clock {
    id: u64,
    same_kernel: bool,
    sources: u32,
    /// At the end they have all gone.
    sources_most: u32,
    /// The least and the greatest number of them.
    source_range: (u32, u32),
    asked: VecDeque<(u32, u64)>,
    questions: u32,
    quick_left: u32,
    next_ns: u64,
    probes: u64,
    batches: Vec<Batch>,
    offset: Option<Offset>,
    line: Option<Line>,
    violations: u64,
}

/// The clocks of all groups of one builder.
#[derive(Debug, Default)]
pub struct Clocks {
    clocks: Vec<Clock>,
    groups_max: usize,
    next_ns: u64,
}

impl Clocks {
    /// For so many sources, each of which may be a group.
    pub fn new(sources: u32) -> Self {
        Self { groups_max: sources.max(1) as usize, ..Self::default() }
    }

    /// The number of a group, from 0 on, by what its sources say in their [`crate::daq::wire::Hello`]; `now_ns` is when
    /// the first question may go. To be called for each source that says hello. `same_kernel`: it runs on the builder's.
    ///
    /// Returns the number, and whether the group is a new one. There are never more than sources: then a new one gets the
    /// number of one that has left.
    pub fn join(&mut self, id: u64, source: u32, same_kernel: bool, now_ns: u64) -> (u32, bool) {
        let known = self.clocks.iter().position(|clock| clock.id == id);
        let at = known.unwrap_or_else(|| {
            let source_range = (source, source);
            let new = Clock {
                id,
                same_kernel,
                source_range,
                quick_left: QUICK,
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

    /// A source of that group is gone.
    pub fn leave(&mut self, group: u32) {
        if let Some(clock) = self.clocks.get_mut(group as usize) {
            clock.sources = clock.sources.saturating_sub(1);
        }
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.clocks.len() as u32
    }

    /// When [`Self::due`] is to be asked again; `None` while there is no group.
    pub fn next_due_ns(&self) -> Option<u64> {
        (!self.clocks.is_empty()).then_some(self.next_ns)
    }

    /// The next question, to be sent at once and asked for until there is none. `now_ns` is to be read anew each time: it is
    /// taken as the time of sending.
    pub fn due(&mut self, now_ns: u64) -> Option<Question> {
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
        let every_ns = if clock.quick_left > 0 {
            (groups * QUICK_NS_A_GROUP).clamp(QUICK_NS, RARE_NS)
        } else {
            (groups * STEADY_NS_A_GROUP)
                .clamp(STEADY_NS.0, STEADY_NS.1.max((groups * 1_000_000).min(RARE_NS)))
        };
        clock.quick_left = clock.quick_left.saturating_sub(1);
        clock.next_ns = now_ns + every_ns;
        clock.questions = clock.questions.wrapping_add(1);
        if clock.asked.len() == ASKED_MAX {
            clock.asked.pop_front();
        }
        clock.asked.push_back((clock.questions, now_ns));
        Some(Question { group: at as u32, number: (at as u64) << 32 | u64::from(clock.questions) })
    }

    /// The answer to a question came: `received_ns` and `answered_ns` by the group's clock, `now_ns` read as early as
    /// possible. Returns whether it was waited for.
    pub fn answer(&mut self, number: u64, received_ns: u64, answered_ns: u64, now_ns: u64) -> bool {
        let Some(clock) = self.clocks.get_mut((number >> 32) as usize) else { return false };
        let Some(on) = clock.asked.iter().position(|(asked, _)| *asked == number as u32) else {
            return false;
        };
        let Some((_, asked_ns)) = clock.asked.remove(on) else { return false };
        clock.learn(&Probe { t1_ns: asked_ns, t2_ns: received_ns, t3_ns: answered_ns, t4_ns: now_ns })
    }

    /// Whether every group that is present has answered as often as at the beginning it is asked.
    pub fn acquainted(&self) -> bool {
        self.clocks.iter().all(|clock| clock.sources == 0 || clock.probes >= u64::from(QUICK))
    }

    /// Whether all groups read this host's own clock.
    pub fn are_all_ours(&self) -> bool {
        self.clocks.iter().all(|clock| clock.same_kernel)
    }

    /// The hold is over: ask quickly once more, so that what lies before is bounded from both sides. It takes a second.
    pub fn ask_once_more(&mut self, now_ns: u64) {
        for clock in &mut self.clocks {
            (clock.quick_left, clock.next_ns) = (QUICK, now_ns);
        }
        self.next_ns = now_ns;
    }

    /// What the builder's clock showed when the group's showed `source_ns`; `None` while nothing is known.
    pub fn to_builder_ns(&self, group: u32, source_ns: u64) -> Option<u64> {
        let clock = self.clocks.get(group as usize)?;
        if clock.same_kernel {
            return Some(source_ns);
        }
        let line = clock.line?;
        let since_ns = source_ns as i64 as f64 - line.at_source_ns as i64 as f64;
        Some(source_ns.saturating_add_signed(line.ahead_ns + (since_ns * line.rate) as i64))
    }

    /// What came of it, for a hold between these times of the builder.
    pub fn report(&mut self, hold_ns: (u64, u64)) -> Vec<GroupClock> {
        self.clocks.iter_mut().map(|clock| clock.report(hold_ns)).collect()
    }
}

impl Clock {
    fn learn(&mut self, probe: &Probe) -> bool {
        // Not taken for one clock even where it is: what the numbers say is to be held against that.
        let Some(batch) = Batch::new(probe, false) else { return false };
        self.probes += 1;
        if self.batches.len() >= BATCHES_MAX {
            self.batches = self.merged(2);
        }
        self.batches.push(batch);
        // The first estimates are worth their work, later ones change little.
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

    /// So many neighbours become one.
    fn merged(&self, neighbours: usize) -> Vec<Batch> {
        let rate = self.line.map_or(0.0, |line| line.rate);
        self.batches.chunks(neighbours.max(1)).filter_map(|few| merged(few, rate)).collect()
    }

    fn estimate(&mut self, source_ns: u64) {
        let batches = self.merged(self.batches.len().div_ceil(BATCHES_USED));
        let Ok(offset) = Offset::from_batches(&batches) else { return };
        let ahead_ns = offset.offset_ns(source_ns);
        self.line = Some(Line { at_source_ns: source_ns, ahead_ns, rate: offset.drift_ppm() / 1e6 });
        self.offset = Some(offset);
    }

    fn report(&mut self, (from_ns, to_ns): (u64, u64)) -> GroupClock {
        self.estimate(self.batches.last().map_or(0, |batch| batch.upper.at_ns));
        let mut report = GroupClock {
            group: format!("{:x}", self.id),
            sources: self.sources_most,
            source_range: Some(self.source_range),
            same_kernel: self.same_kernel,
            probes: self.probes,
            violations: (self.same_kernel && self.probes > 0).then_some(self.violations),
            ..GroupClock::default()
        };
        if let Some(offset) = &self.offset {
            // The group's clock is the one that offsets are asked by.
            let shift_ns = offset.offset_ns(self.line.map_or(from_ns, |line| line.at_source_ns));
            let to_ns = to_ns.max(from_ns);
            let at_ns = |part: u64| {
                let builder_ns =
                    from_ns + (u128::from(to_ns - from_ns) * u128::from(part) / u128::from(LOOKS)) as u64;
                builder_ns.saturating_add_signed(shift_ns.saturating_neg())
            };
            report.offset_ns = Some(offset.offset_ns(at_ns(LOOKS / 2)).saturating_neg());
            report.bound_ns = (0..=LOOKS).map(|part| offset.bound_ns(at_ns(part))).max();
            report.drift_ppm = Some(-offset.drift_ppm());
        }
        report
    }
}

/// The better lower edge and the better upper edge of neighbours, whose clock gains `rate` on the other meanwhile.
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
