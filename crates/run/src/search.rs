//! Which load comes next. Pure: the next step follows from the plan and the trials so far, so a search can be
//! replayed from a stored run, and its tests are tables of imagined targets.

use base::outcome::{Capacity, Phase};
use base::plan::LoadPlan;
use base::verdict::Verdict;

/// Up to this load the search goes up one by one, as a person would; above, it doubles and then halves.
pub const RAMP_LOAD_MAX: u64 = 16;
/// A load that the generator spoiled this often is taken for the generator's limit.
const INVALID_MAX: u32 = 2;
/// No search needs more trials; a target that passes and fails by turns must not keep it going for ever.
const TRIALS_MAX: usize = 200;

/// One trial of the search: what was offered and what it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The load.
    pub load: u64,
    /// In which phase.
    pub phase: Phase,
    /// The judgement.
    pub verdict: Verdict,
}

/// The trial to make next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The load to offer.
    pub load: u64,
    /// In which phase.
    pub phase: Phase,
}

/// The next trial after `seen`; `None` when the search is over.
pub fn next(plan: &LoadPlan, seen: &[Seen]) -> Option<Step> {
    if seen.len() >= TRIALS_MAX {
        return None;
    }
    if let Some(load) = plan.fixed {
        return seen.is_empty().then_some(Step { load, phase: Phase::Single });
    }
    let bracket = Bracket::of(plan, seen);
    if let Some(load) = bracket.next(plan, seen) {
        return Some(Step { load, phase: Phase::Search });
    }
    let confirmation = Confirmation::of(plan, &bracket, seen);
    if let Some(load) = confirmation.next(plan) {
        return Some(Step { load, phase: Phase::Confirm });
    }
    let gone_down = seen.iter().filter(|trial| trial.phase == Phase::RampDown).count();
    let load = *descent(plan, confirmation.candidate).get(gone_down)?;
    Some(Step { load, phase: Phase::RampDown })
}

/// What the trials say of the capacity, in the load's `unit`.
pub fn capacity(plan: &LoadPlan, seen: &[Seen], unit: &str) -> Capacity {
    let passed = |load: u64| seen.iter().any(|trial| trial.load == load && trial.verdict == Verdict::Pass);
    let value = match plan.fixed {
        Some(load) if passed(load) => load,
        Some(_) => 0,
        None => Confirmation::of(plan, &Bracket::of(plan, seen), seen).candidate,
    };
    // Only a failure of the very first unit makes it zero: below a larger one that failed, loads may be untried.
    let failed_first = || seen.iter().any(|trial| trial.load <= 1 && trial.verdict == Verdict::Fail);
    if value == 0 && !failed_first() {
        return Capacity {
            value: None,
            unit: unit.into(),
            interval: [None, None],
            passes: 0,
            failures_above: 0,
        };
    }
    let failed_above = seen.iter().filter(|trial| trial.load > value && trial.verdict == Verdict::Fail);
    // A load above that both passed and failed is within the uncertainty.
    let upper = failed_above.map(|trial| trial.load).filter(|&load| !passed(load)).min();
    let (passes, failures_above) = counts(seen, value as f64);
    Capacity {
        value: Some(value as f64),
        unit: unit.into(),
        interval: [Some(value as f64), upper.map(|load| (load - 1) as f64)],
        passes,
        failures_above,
    }
}

/// How often a capacity passed, and how often the nearest load above it that failed did.
pub fn counts(seen: &[Seen], capacity: f64) -> (u32, u32) {
    let at = |load: f64, verdict| {
        seen.iter().filter(|trial| trial.load as f64 == load && trial.verdict == verdict).count() as u32
    };
    let failed = seen.iter().filter(|trial| trial.verdict == Verdict::Fail).map(|trial| trial.load as f64);
    let nearest = failed.filter(|load| *load > capacity).min_by(f64::total_cmp);
    (at(capacity, Verdict::Pass), nearest.map_or(0, |load| at(load, Verdict::Fail)))
}

/// How far apart two loads are told apart around `load`.
fn step(plan: &LoadPlan, load: u64) -> u64 {
    if load <= RAMP_LOAD_MAX { 1 } else { ((load as f64 * plan.resolution) as u64).max(1) }
}

/// What the searching trials say: a load that passed, and one above that did not.
struct Bracket {
    low: u64,
    high: Option<u64>,
    /// Whether `high` is where the generator, not the target, gave out.
    high_invalid: bool,
}

impl Bracket {
    fn of(plan: &LoadPlan, seen: &[Seen]) -> Self {
        let searching = || seen.iter().filter(|trial| trial.phase == Phase::Search);
        let invalid =
            |load| searching().filter(|t| t.load == load && t.verdict == Verdict::Invalid).count() as u32;
        let failed = searching().filter(|t| t.verdict == Verdict::Fail).map(|t| t.load).min();
        let spoiled = searching().map(|t| t.load).filter(|&load| invalid(load) >= INVALID_MAX).min();
        let high = [failed, spoiled].into_iter().flatten().min();
        let below = |load: &u64| high.is_none_or(|high| *load < high);
        let low = searching().filter(|t| t.verdict == Verdict::Pass).map(|t| t.load).filter(below).max();
        Self {
            low: low.unwrap_or(0).min(plan.load_max),
            high,
            high_invalid: high.is_some() && failed != high,
        }
    }

    fn next(&self, plan: &LoadPlan, seen: &[Seen]) -> Option<u64> {
        // Past the search, its trials are all there; a spoiled confirmation must not reopen it.
        if seen.iter().any(|trial| trial.phase != Phase::Search) {
            return None;
        }
        match self.high {
            None if self.low >= plan.load_max => None,
            None if plan.load_max <= RAMP_LOAD_MAX => Some(self.low + 1),
            None if self.low == 0 => Some(plan.load_first.clamp(1, plan.load_max)),
            None => Some((self.low * 2).min(plan.load_max)),
            Some(high) if high - self.low > step(plan, self.low) => Some(self.low + (high - self.low) / 2),
            Some(_) => None,
        }
    }
}

/// What the confirming trials say.
struct Confirmation {
    candidate: u64,
    passes: u32,
    /// Confirming passes of the load above the candidate.
    passes_above: u32,
    /// Whether the load above is known to fail, or must not be tried.
    settled: bool,
    invalid: u32,
}

impl Confirmation {
    fn of(plan: &LoadPlan, bracket: &Bracket, seen: &[Seen]) -> Self {
        let settled = bracket.high_invalid || bracket.low >= plan.load_max;
        let mut state = Self { candidate: bracket.low, passes: 0, passes_above: 0, settled, invalid: 0 };
        for trial in seen.iter().filter(|trial| trial.phase == Phase::Confirm) {
            state.record(plan, trial);
        }
        state
    }

    fn above(&self, plan: &LoadPlan) -> u64 {
        (self.candidate + step(plan, self.candidate)).min(plan.load_max)
    }

    fn record(&mut self, plan: &LoadPlan, trial: &Seen) {
        let at_candidate = trial.load == self.candidate;
        match trial.verdict {
            Verdict::Invalid => self.invalid += 1,
            Verdict::Pass if at_candidate => self.passes += 1,
            Verdict::Fail if at_candidate => {
                self.candidate -= step(plan, self.candidate).min(self.candidate);
                (self.passes, self.passes_above, self.settled) = (0, 0, true);
            }
            Verdict::Fail => self.settled = true,
            Verdict::Pass => {
                self.passes_above += 1;
                if self.passes_above >= plan.confirmations {
                    self.candidate = trial.load;
                    (self.passes, self.passes_above) = (self.passes_above, 0);
                    self.settled = self.candidate >= plan.load_max;
                }
            }
        }
    }

    fn next(&self, plan: &LoadPlan) -> Option<u64> {
        if self.invalid > INVALID_MAX {
            return None;
        }
        let unsure = self.candidate > 0 && self.passes < plan.confirmations;
        match (unsure, self.settled) {
            (true, _) => Some(self.candidate),
            (false, false) => Some(self.above(plan)),
            (false, true) => None,
        }
    }
}

/// The loads of the way down.
fn descent(plan: &LoadPlan, from: u64) -> Vec<u64> {
    match from {
        _ if !plan.ramp_down => Vec::new(),
        // At most four steps: the way down is there to be seen, and must not take as long as the way up.
        0..=RAMP_LOAD_MAX => (1..from).rev().step_by(from.div_ceil(5).max(1) as usize).collect(),
        _ => vec![from * 3 / 4, from / 2, from / 4],
    }
}

#[cfg(test)]
mod tests {
    use base::units::Span;
    use proptest::prelude::*;

    use super::*;

    fn plan(load_max: u64) -> LoadPlan {
        LoadPlan {
            load_first: 1,
            load_max,
            fixed: None,
            hold: Span::from_s(10),
            search_hold: Span::from_s(5),
            confirmations: 3,
            ramp_down: true,
            resolution: 0.02,
        }
    }

    /// Run a search against a target whose verdict is a function of step and trial number.
    fn search(plan: &LoadPlan, verdict: impl Fn(&Step, usize) -> Verdict) -> Vec<Seen> {
        let mut seen = Vec::new();
        while let Some(step) = next(plan, &seen) {
            let verdict = verdict(&step, seen.len());
            seen.push(Seen { load: step.load, phase: step.phase, verdict });
        }
        seen
    }

    fn carries(capacity: u64) -> impl Fn(&Step, usize) -> Verdict {
        move |step, _| if step.load <= capacity { Verdict::Pass } else { Verdict::Fail }
    }

    #[test]
    fn a_small_search_goes_up_one_by_one_confirms_and_goes_down() {
        let loads: Vec<_> = search(&plan(10), carries(3)).iter().map(|s| (s.load, s.phase)).collect();
        use Phase::*;
        let up = [(1, Search), (2, Search), (3, Search), (4, Search)];
        let sure = [(3, Confirm), (3, Confirm), (3, Confirm), (4, Confirm)];
        assert_eq!(loads, [&up[..], &sure, &[(2, RampDown), (1, RampDown)]].concat());
    }

    #[test]
    fn the_capacity_carries_its_uncertainty() {
        for (load_max, truth, value, interval) in [
            (10, 3, 3.0, [Some(3.0), Some(3.0)]),
            (10, 0, 0.0, [Some(0.0), Some(0.0)]),
            (4, 9, 4.0, [Some(4.0), None]),
        ] {
            let seen = search(&plan(load_max), carries(truth));
            let found = capacity(&plan(load_max), &seen, "streams");
            assert_eq!((found.value, found.interval), (Some(value), interval));
        }
    }

    #[test]
    fn a_lucky_search_is_corrected_by_the_confirmation() {
        // Load 4 passes while searching, but not when it is held for longer.
        let seen = search(&plan(10), |step, _| match (step.load, step.phase) {
            (..=3, _) | (4, Phase::Search) => Verdict::Pass,
            _ => Verdict::Fail,
        });
        let found = capacity(&plan(10), &seen, "streams");
        assert_eq!((found.value, found.passes), (Some(3.0), 4));
        assert_eq!(found.interval, [Some(3.0), Some(4.0)], "4 passed once, so it is within the uncertainty");
    }

    #[test]
    fn an_unlucky_search_is_corrected_upwards() {
        let seen = search(&plan(10), |step, n| match step.load {
            3 if n == 2 => Verdict::Fail,
            ..=5 => Verdict::Pass,
            _ => Verdict::Fail,
        });
        assert_eq!(capacity(&plan(10), &seen, "streams").value, Some(5.0));
    }

    #[test]
    fn the_generators_limit_is_not_the_targets() {
        let seen =
            search(&plan(1000), |step, _| if step.load <= 100 { Verdict::Pass } else { Verdict::Invalid });
        let found = capacity(&plan(1000), &seen, "streams");
        assert!(found.value.is_some_and(|value| (97.0..=100.0).contains(&value)), "{found:?}");
        assert_eq!((found.interval[1], found.failures_above), (None, 0));
    }

    #[test]
    fn one_spoiled_trial_is_made_again() {
        let seen = search(&plan(10), |step, n| match (n, step.load) {
            (1, _) => Verdict::Invalid,
            (_, ..=3) => Verdict::Pass,
            _ => Verdict::Fail,
        });
        assert_eq!(seen[..3].iter().map(|s| s.load).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(capacity(&plan(10), &seen, "streams").value, Some(3.0));
    }

    #[test]
    fn a_first_load_that_fails_is_halved() {
        let plan = LoadPlan { load_first: 50, ..plan(1000) };
        let seen = search(&plan, carries(20));
        assert_eq!(seen[..3].iter().map(|s| s.load).collect::<Vec<_>>(), [50, 25, 12]);
        assert_eq!(capacity(&plan, &seen, "streams").value, Some(20.0));
    }

    #[test]
    fn a_fixed_load_is_offered_once() {
        let fixed = LoadPlan { fixed: Some(7), ..plan(10) };
        let seen = search(&fixed, carries(9));
        assert_eq!(seen, [Seen { load: 7, phase: Phase::Single, verdict: Verdict::Pass }]);
        assert_eq!(capacity(&fixed, &seen, "streams").value, Some(7.0));
        let seen = search(&fixed, carries(3));
        assert_eq!(capacity(&fixed, &seen, "streams").value, None, "lower loads were not tried");
    }

    proptest! {
        #[test]
        fn any_capacity_is_found_within_the_resolution(truth in 0u64..3000, load_max in 1u64..3000) {
            let plan = plan(load_max);
            let seen = search(&plan, carries(truth));
            let found = capacity(&plan, &seen, "streams").value.unwrap();
            let expected = truth.min(load_max) as f64;
            prop_assert!(found <= expected && expected - found <= (expected * 0.02).max(0.0) + 0.01, "{}", found);
        }

        #[test]
        fn every_search_ends(verdicts in proptest::collection::vec(0u8..3, 300), load_max in 1u64..5000) {
            let all = [Verdict::Pass, Verdict::Fail, Verdict::Invalid];
            let seen = search(&plan(load_max), |_, n| all[verdicts[n] as usize]);
            prop_assert!(seen.len() <= TRIALS_MAX);
            prop_assert!(seen.iter().all(|trial| (1..=load_max).contains(&trial.load)));
        }
    }
}
