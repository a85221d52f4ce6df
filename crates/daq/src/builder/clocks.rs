//! Offsets of the sources' clocks from the builder's.
//!
//! The builder probes each group of sources. In the terms of [`base::clock`] the builder is the agent (it
//! probes) and the group the coordinator (it answers), so that offsets convert a group's times to the
//! builder's.

use std::collections::VecDeque;

use base::clock::{Batch, Edge, Offset, Probe};

use crate::report::GroupClock;

/// Probes of the initial and the final phase.
const INITIAL: u32 = 64;
/// Interval between two of these.
const INITIAL_NS: u64 = 16_000_000;
/// Bounds of the interval between two later probes of a group.
const STEADY_NS: (u64, u64) = (50_000_000, 250_000_000);
/// Interval between later probes of different groups: many groups are probed less often each.
const STEADY_NS_PER_GROUP: u64 = 5_000_000;
/// The same in the initial and the final phase.
const INITIAL_NS_PER_GROUP: u64 = 200_000;
/// Longest interval between two probes of a group.
const RARE_NS: u64 = 2_000_000_000;
/// Unanswered probes per group.
const PENDING_MAX: usize = 8;
/// Batches per group; beyond, neighbours are merged.
const BATCHES_MAX: usize = 256;
/// Batches per offset estimate: as many as [`Offset`] uses completely.
const BATCHES_USED: usize = 64;
/// Clocks further apart than this are different, whatever boot id a group reports.
const SAME_NS_MAX: u64 = 1_000_000;
/// Points of the hold at which the error bound is evaluated.
const BOUND_SAMPLES: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockProbe {
    /// As numbered by [`Clocks::join`].
    pub group: u32,
    /// Sent as the order's `event`; its `triggered_ns` is the time passed to [`Clocks::next_probe`].
    pub number: u64,
}

/// A linear offset, cheap to apply to each fragment.
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
    /// The most sources at a time; at the end none is left.
    sources_most: u32,
    /// The lowest and the highest source number.
    source_range: (u32, u32),
    pending: VecDeque<(u32, u64)>,
    probes_sent: u32,
    initial_left: u32,
    next_ns: u64,
    probes: u64,
    batches: Vec<Batch>,
    offset: Option<Offset>,
    line: Option<Line>,
    violations: u64,
}

#[derive(Debug, Default)]
pub(super) struct Clocks {
    clocks: Vec<Clock>,
    groups_max: usize,
    next_ns: u64,
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
                initial_left: INITIAL,
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

    /// When to call [`Self::next_probe`] again; `None`: there is no group.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        (!self.clocks.is_empty()).then_some(self.next_ns)
    }

    /// The next probe, to be sent at once; call it until there is none. `now_ns` counts as the time of
    /// sending.
    pub(super) fn next_probe(&mut self, now_ns: u64) -> Option<ClockProbe> {
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
        let every_ns = if clock.initial_left > 0 {
            (groups * INITIAL_NS_PER_GROUP).clamp(INITIAL_NS, RARE_NS)
        } else {
            (groups * STEADY_NS_PER_GROUP)
                .clamp(STEADY_NS.0, STEADY_NS.1.max((groups * 1_000_000).min(RARE_NS)))
        };
        clock.initial_left = clock.initial_left.saturating_sub(1);
        clock.next_ns = now_ns + every_ns;
        clock.probes_sent = clock.probes_sent.wrapping_add(1);
        if clock.pending.len() == PENDING_MAX {
            clock.pending.pop_front();
        }
        clock.pending.push_back((clock.probes_sent, now_ns));
        Some(ClockProbe { group: at as u32, number: (at as u64) << 32 | u64::from(clock.probes_sent) })
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
        let Some((_, asked_ns)) = at.and_then(|at| clock.pending.remove(at)) else { return false };
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
            (clock.initial_left, clock.next_ns) = (INITIAL, now_ns);
        }
        self.next_ns = now_ns;
    }

    /// Converts a group's time to the builder's clock; `None`: unknown yet.
    pub(super) fn to_builder_ns(&self, group: u32, source_ns: u64) -> Option<u64> {
        let clock = self.clocks.get(group as usize)?;
        if clock.same_kernel {
            return Some(source_ns);
        }
        let line = clock.line?;
        let since_ns = source_ns as i64 as f64 - line.at_source_ns as i64 as f64;
        Some(source_ns.saturating_add_signed(line.ahead_ns + (since_ns * line.rate) as i64))
    }

    /// Offsets and bounds for a hold between these times of the builder.
    pub(super) fn report(&mut self, hold_ns: (u64, u64)) -> Vec<GroupClock> {
        self.clocks.iter_mut().map(|clock| clock.report(hold_ns)).collect()
    }
}

impl Clock {
    fn add_probe(&mut self, probe: &Probe) -> bool {
        // Even clocks of the same kernel are estimated: the estimate checks that claim.
        let Some(batch) = Batch::new(probe, false) else { return false };
        self.probes += 1;
        if self.batches.len() >= BATCHES_MAX {
            self.batches = self.merged(2);
        }
        self.batches.push(batch);
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
mod tests {
    use super::*;

    /// A group whose clock is ahead and drifts; most answers are slow.
    struct Group {
        ahead_ns: f64,
        ppm: f64,
        random: fastrand::Rng,
    }

    impl Group {
        fn at(&self, builder_ns: u64) -> u64 {
            (builder_ns as f64 * (1.0 + self.ppm / 1e6) + self.ahead_ns) as u64
        }

        fn way_ns(&mut self) -> u64 {
            let slow = if self.random.u8(..100) < 85 { self.random.u64(..2_000_000) } else { 0 };
            6_000 + self.random.u64(..5_000) + slow
        }
    }

    /// Probes and answers until `until_ns`; returns the last time.
    fn talk(clocks: &mut Clocks, group: &mut Group, mut now_ns: u64, until_ns: u64) -> u64 {
        while now_ns < until_ns {
            now_ns = now_ns.max(clocks.next_due_ns().expect("there is a group"));
            while let Some(probe) = clocks.next_probe(now_ns) {
                let [there_ns, back_ns] = [(); 2].map(|()| group.way_ns());
                let received_ns = group.at(now_ns + there_ns);
                let answered_ns = group.at(now_ns + there_ns + 1_000);
                let back_ns = now_ns + there_ns + 1_000 + back_ns;
                assert!(clocks.handle_answer(probe.number, received_ns, answered_ns, back_ns));
                assert!(!clocks.handle_answer(probe.number, received_ns, answered_ns, back_ns), "only once");
            }
        }
        now_ns
    }

    #[test]
    fn times_of_a_drifting_group_are_converted() {
        for (seed, ahead_ns, ppm) in [(1, 5e12, 20.0), (2, -4e11, -80.0), (3, 1e6, 0.0)] {
            let mut group = Group { ahead_ns, ppm, random: fastrand::Rng::with_seed(seed) };
            let mut clocks = Clocks::new(8);
            let start_ns = 1_000_000_000_000;
            assert_eq!(clocks.join(7, 0, false, start_ns).0, clocks.join(7, 0, false, start_ns).0);
            let from_ns = talk(&mut clocks, &mut group, start_ns, start_ns + 1_000_000_000);
            let to_ns = talk(&mut clocks, &mut group, from_ns, from_ns + 10_000_000_000);
            assert!(clocks.has_initial_estimate());
            let now_ns = to_ns - 100_000_000;
            let seen_ns = clocks.to_builder_ns(0, group.at(now_ns)).expect("it answered");
            assert!(seen_ns.abs_diff(now_ns) < 50_000, "{} off", seen_ns.abs_diff(now_ns));
            clocks.probe_again(to_ns);
            talk(&mut clocks, &mut group, to_ns, to_ns + 1_000_000_000);
            let report = &clocks.report((from_ns, to_ns))[0];
            let middle_ns = from_ns + (to_ns - from_ns) / 2;
            let true_ns = group.at(middle_ns) as i64 - middle_ns as i64;
            let (offset_ns, bound_ns) = (report.offset_ns.unwrap(), report.bound_ns.unwrap());
            assert!(offset_ns.abs_diff(true_ns) <= bound_ns, "{report:?}: {true_ns}");
            assert!(bound_ns <= 20_000, "{report:?}");
            assert!((report.drift_ppm.unwrap() - ppm).abs() < 12.0, "{report:?}");
            assert_eq!((report.sources, report.violations), (2, None));
        }
    }

    #[test]
    fn clock_of_the_same_kernel_stays_within_the_bound() {
        let mut group = Group { ahead_ns: 0.0, ppm: 0.0, random: fastrand::Rng::with_seed(4) };
        let mut clocks = Clocks::new(8);
        clocks.join(7, 0, true, 5);
        let end_ns = talk(&mut clocks, &mut group, 5, 20_000_000_000);
        let report = &clocks.report((1_000_000_000, end_ns))[0];
        assert_eq!((report.violations, report.same_kernel), (Some(0), true));
        assert_eq!(clocks.to_builder_ns(0, 77), Some(77));
        let mut other = Group { ahead_ns: 1e9, ..group };
        let mut clocks = Clocks::new(8);
        clocks.join(7, 0, true, 5);
        talk(&mut clocks, &mut other, 5, 2_000_000_000);
        assert!(!clocks.report((0, 1))[0].same_kernel, "the clocks differ by a second");
    }

    #[test]
    fn number_of_a_group_that_left_is_reused() {
        let mut clocks = Clocks::new(2);
        assert_eq!([clocks.join(1, 0, false, 0), clocks.join(2, 0, false, 0)], [(0, true), (1, true)]);
        for id in 3..100 {
            clocks.leave(1);
            assert_eq!(clocks.join(id, 0, false, 0), (1, true));
        }
        assert_eq!((clocks.join(1, 0, false, 0), clocks.clocks.len()), ((0, false), 2));
    }

    #[test]
    fn unanswered_probes_and_unexpected_answers_are_ignored() {
        let mut clocks = Clocks::new(8);
        assert_eq!((clocks.next_due_ns(), clocks.next_probe(5)), (None, None));
        clocks.join(1, 0, false, 0);
        for k in 0..20 {
            assert!(clocks.next_probe(k * 16_000_000).is_some());
        }
        assert_eq!(clocks.to_builder_ns(0, 5), None);
        for number in [0, 1, 20 << 32, u64::MAX] {
            assert!(!clocks.handle_answer(number, 1, 1, 1));
        }
        assert!(clocks.handle_answer(20, 400_000_000, 400_000_000, 400_000_000));
        clocks.leave(0);
        assert_eq!(clocks.next_probe(1_000_000_000_000), None);
        assert_eq!(clocks.report((0, 10))[0].sources, 1, "it was there");
    }
}
