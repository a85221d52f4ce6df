//! An upper bound of a run's remaining time. Pure: a function of the plan and the trials so far.

use std::collections::BTreeMap;

use base::outcome::Phase;
use base::plan::LoadPlan;
use base::verdict::Verdict;
use run::search::{self, RAMP_LOAD_MAX, TrialResult};

/// Overhead of a trial beside its hold (start-up, warm-up, judging), in s, until one was measured.
const BEYOND_HOLD_S: f64 = 10.0;
/// Margin of the measured overhead, in s: larger loads take longer to start.
const BEYOND_HOLD_MARGIN_S: f64 = 2.0;

pub struct Estimate {
    loads: BTreeMap<String, LoadPlan>,
    /// Searches of each variant that have not begun.
    to_come: BTreeMap<String, u32>,
    current: Option<(String, Vec<TrialResult>)>,
    /// Start of the current trial, in s after the start of the run.
    trial_began_s: Option<f64>,
    /// Largest overhead of a trial, in s.
    beyond_hold_s: Option<f64>,
    /// The bound from the start of the current trial on.
    bound: UpperBound,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UpperBound {
    pub trials: usize,
    pub s: f64,
    /// Time of the first one in s.
    first_s: f64,
}

impl Estimate {
    /// For a run that searches each variant `repeats` times.
    pub fn new(variants: impl IntoIterator<Item = (String, LoadPlan)>, repeats: u32) -> Self {
        let loads: BTreeMap<_, _> = variants.into_iter().collect();
        let to_come = loads.keys().map(|name| (name.clone(), repeats)).collect();
        let mut new = Self {
            loads,
            to_come,
            current: None,
            trial_began_s: None,
            beyond_hold_s: None,
            bound: UpperBound::default(),
        };
        new.update_bound();
        new
    }

    pub fn variants(&self) -> usize {
        self.loads.len()
    }

    /// Whether any load is searched.
    pub fn is_search(&self) -> bool {
        self.loads.values().any(|plan| plan.fixed.is_none())
    }

    pub fn search_begins(&mut self, variant: &str) {
        if let Some(left) = self.to_come.get_mut(variant) {
            *left = left.saturating_sub(1);
        }
        self.current = Some((variant.to_owned(), Vec::new()));
        self.update_bound();
    }

    pub fn trial_begins(&mut self, now_s: f64) {
        self.trial_began_s = Some(now_s);
    }

    pub fn trial_ends(&mut self, seen: TrialResult, hold_s: f64, now_s: f64) {
        let took_s = self.trial_began_s.take().map(|began_s| now_s - began_s);
        // A failed trial may have ended early.
        if let Some(took_s) = took_s.filter(|_| seen.verdict == Verdict::Pass) {
            self.beyond_hold_s = Some((took_s - hold_s).max(self.beyond_hold_s.unwrap_or(0.0)));
        }
        if let Some((_, trials)) = &mut self.current {
            trials.push(seen);
        }
        self.update_bound();
    }

    /// The bound from the start of the current trial on.
    pub fn upper_bound(&self) -> UpperBound {
        self.bound
    }

    /// Remaining time in s at bound, unless trials are disturbed or contradict each other.
    pub fn left_s(&self, now_s: f64) -> f64 {
        let within_s = self.trial_began_s.map_or(0.0, |began_s| now_s - began_s);
        self.bound.s - within_s.clamp(0.0, self.bound.first_s)
    }

    /// Takes some milliseconds, so never during a trial.
    fn update_bound(&mut self) {
        let beyond_s = self.beyond_hold_s.map_or(BEYOND_HOLD_S, |seen_s| seen_s + BEYOND_HOLD_MARGIN_S);
        let current = self.current.as_ref().and_then(|(name, seen)| Some((self.loads.get(name)?, &seen[..])));
        let mut bound = current.map(|(plan, seen)| longest(plan, seen, beyond_s)).unwrap_or_default();
        for (name, &times) in self.to_come.iter().filter(|(_, times)| **times > 0) {
            let whole = longest(&self.loads[name], &[], beyond_s);
            bound.trials += whole.trials * times as usize;
            bound.s += whole.s * f64::from(times);
        }
        self.bound = bound;
    }
}

/// The longest continuation of the search after `seen`, over all possible capacities.
fn longest(plan: &LoadPlan, seen: &[TrialResult], beyond_s: f64) -> UpperBound {
    let ways = [Verdict::Fail, Verdict::Invalid]
        .into_iter()
        .flat_map(|above| capacities(plan, seen).into_iter().map(move |capacity| (capacity, above)));
    let ways = ways.map(|(capacity, above)| continuation(plan, seen, beyond_s, capacity, above));
    ways.max_by(|a, b| a.s.total_cmp(&b.s)).unwrap_or_default()
}

/// The continuation of the search against a target that carries `capacity`; higher loads end as `above`.
fn continuation(
    plan: &LoadPlan,
    seen: &[TrialResult],
    beyond_s: f64,
    capacity: u64,
    above: Verdict,
) -> UpperBound {
    let mut seen = seen.to_vec();
    let mut bound = UpperBound::default();
    while let Some(step) = search::next(plan, &seen) {
        let verdict = if step.load <= capacity { Verdict::Pass } else { above };
        seen.push(TrialResult { load: step.load, phase: step.phase, verdict, is_disturbed: false });
        let took_s = hold_s(plan, step.phase) + beyond_s;
        if bound.trials == 0 {
            bound.first_s = took_s;
        }
        bound.trials += 1;
        bound.s += took_s;
    }
    bound
}

/// The capacities that are consistent with `seen`; of many, those at which the search changes direction.
fn capacities(plan: &LoadPlan, seen: &[TrialResult]) -> Vec<u64> {
    let max = plan.fixed.unwrap_or(plan.load_max);
    let passed = seen.iter().filter(|trial| trial.verdict == Verdict::Pass).map(|trial| trial.load).max();
    let failed = seen.iter().filter(|trial| trial.verdict == Verdict::Fail).map(|trial| trial.load).min();
    let possible =
        |load: u64| load <= max && passed.is_none_or(|p| p <= load) && failed.is_none_or(|f| load < f);
    let doubled = std::iter::successors(Some(plan.load_first.max(1)), |load| load.checked_mul(2));
    let doubled = doubled.take_while(|load| *load <= max);
    // At both ends of each doubling and within it, where halving takes longest.
    let turns =
        doubled.flat_map(|load| [load / 2, load - 1, load, load + 1, load + load / 3, load + load * 2 / 3]);
    let near =
        passed.into_iter().flat_map(|load| [load, load + 1]).chain(failed.map(|load| load.saturating_sub(1)));
    let all: Vec<u64> = (0..=RAMP_LOAD_MAX.min(max)).chain(turns).chain(near).chain([max]).collect();
    let fit: Vec<u64> = all.iter().copied().filter(|load| possible(*load)).collect();
    // Contradicting trials leave none: then all are possible.
    if fit.is_empty() { all } else { fit }
}

fn hold_s(plan: &LoadPlan, phase: Phase) -> f64 {
    match phase {
        Phase::Confirm | Phase::Single => plan.hold.s(),
        Phase::Search | Phase::RampDown => plan.search_hold.s(),
    }
}

#[cfg(test)]
mod tests {
    use base::units::Span;

    use super::*;

    fn plan(load_max: u64) -> LoadPlan {
        let (search_hold, searched) = (Span::from_s(5), LoadPlan::search(load_max, Span::from_s(10)));
        LoadPlan { search_hold, confirmations: 3, ramp_down: true, ..searched }
    }

    /// A run against a target that carries `capacity`: what was said to be left before each trial, the trials
    /// that were made, and how long they took. Each takes `beyond_s` beside its hold.
    fn imagine(
        plan: &LoadPlan,
        capacity: u64,
        above: Verdict,
        beyond_s: f64,
    ) -> (Vec<(f64, UpperBound)>, f64) {
        let mut estimate = Estimate::new([("a".to_owned(), *plan)], 1);
        estimate.search_begins("a");
        let (mut seen, mut now_s, mut said) = (Vec::new(), 0.0, Vec::new());
        while let Some(step) = search::next(plan, &seen) {
            estimate.trial_begins(now_s);
            said.push((now_s, estimate.upper_bound()));
            let verdict = if step.load <= capacity { Verdict::Pass } else { above };
            let trial = TrialResult { load: step.load, phase: step.phase, verdict, is_disturbed: false };
            // One that fails is given up early.
            let held_s = hold_s(plan, step.phase) * if verdict == Verdict::Pass { 1.0 } else { 0.3 };
            now_s += held_s + beyond_s;
            seen.push(trial);
            estimate.trial_ends(trial, held_s, now_s);
        }
        assert_eq!(estimate.upper_bound(), UpperBound::default(), "at the end nothing is left");
        (said, now_s)
    }

    #[test]
    fn no_run_takes_longer_than_its_upper_bound() {
        for (load_max, first) in [(1, 1), (6, 1), (16, 1), (16, 5), (100, 1), (1000, 1), (6400, 50)] {
            let plan = LoadPlan { load_first: first, ..plan(load_max) };
            for capacity in (0..=16).chain([23, 49, 50, 51, 99, 127, 128, 511, 700, 999, 1000, 5000, 6400]) {
                for above in [Verdict::Fail, Verdict::Invalid] {
                    let (said, end_s) = imagine(&plan, capacity.min(load_max), above, 6.0);
                    for (n, (at_s, bound)) in said.iter().enumerate() {
                        let (trials, s) = (said.len() - n, end_s - at_s);
                        assert!(
                            bound.s >= s - 1e-9 && bound.trials >= trials,
                            "max {load_max}, capacity {capacity}, trial {n}: {bound:?}, but {trials} in {s} s"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn first_upper_bound_is_close_to_the_longest_run() {
        for load_max in [1, 6, 16, 1000] {
            let plan = plan(load_max);
            let runs = (0..=load_max).step_by(load_max.div_ceil(200) as usize);
            let runs = runs.flat_map(|capacity| [(capacity, Verdict::Fail), (capacity, Verdict::Invalid)]);
            let longest = runs.map(|(capacity, above)| imagine(&plan, capacity, above, 10.0).0.len()).max();
            let said = longest_trials(&plan);
            assert!(
                Some(said) >= longest && said as f64 <= 1.1 * longest.unwrap() as f64,
                "{load_max}: {said}, {longest:?}"
            );
        }
    }

    fn longest_trials(plan: &LoadPlan) -> usize {
        Estimate::new([("a".to_owned(), *plan)], 1).upper_bound().trials
    }

    #[test]
    fn remaining_time_of_a_single_trial_never_falls_below_zero() {
        let plan = LoadPlan { fixed: Some(7), ..plan(10) };
        let mut estimate = Estimate::new([("a".to_owned(), plan)], 1);
        assert_eq!((estimate.upper_bound().trials, estimate.left_s(0.0)), (1, 20.0));
        estimate.search_begins("a");
        assert_eq!(estimate.left_s(50.0), 20.0, "making content takes nothing from it");
        estimate.trial_begins(60.0);
        assert_eq!(estimate.left_s(65.0), 15.0);
        assert_eq!(estimate.left_s(500.0), 0.0);
        estimate.trial_ends(
            TrialResult { load: 7, phase: Phase::Single, verdict: Verdict::Pass, is_disturbed: false },
            10.0,
            76.0,
        );
        assert_eq!(estimate.left_s(76.0), 0.0);
    }

    #[test]
    fn estimate_counts_variants_and_repetitions_and_learns_trial_overhead() {
        let fixed = |hold| LoadPlan { fixed: Some(1), hold: Span::from_s(hold), ..plan(10) };
        let mut estimate = Estimate::new([("a".to_owned(), fixed(10)), ("b".to_owned(), fixed(30))], 2);
        assert_eq!((estimate.upper_bound().trials, estimate.left_s(0.0)), (4, 120.0));
        estimate.search_begins("a");
        assert_eq!(estimate.left_s(0.0), 120.0);
        estimate.trial_begins(0.0);
        let passed = (Phase::Single, Verdict::Pass);
        let seen = TrialResult { load: 1, phase: passed.0, verdict: passed.1, is_disturbed: false };
        estimate.trial_ends(seen, 10.0, 13.0);
        // 3 s and the margin beside the hold, no longer 10 s.
        assert_eq!((estimate.upper_bound().trials, estimate.left_s(13.0)), (3, 2.0 * 35.0 + 15.0));
    }
}
