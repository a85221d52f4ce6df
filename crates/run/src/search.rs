//! Which load comes next. Pure: the next step follows from the plan and the trials so far, so a search can be
//! replayed from a stored run, and its tests are tables of imagined targets.

use base::outcome::{Capacity, Phase, Trial};
use base::plan::LoadPlan;
use base::verdict::Verdict;

/// Up to this load the search rises by one; above, it doubles and then halves.
pub const RAMP_LOAD_MAX: u64 = 16;
/// A load with this many invalid trials is the generator's limit.
const INVALID_MAX: u32 = 2;
/// How often a fixed load is offered at most, where others that used the CPUs made its trials invalid.
const DISTURBED_MAX: usize = 3;
/// Upper bound of the trials of a search, for a target that passes and fails by turns.
const TRIALS_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialResult {
    pub load: u64,
    pub phase: Phase,
    pub verdict: Verdict,
    /// See [`Trial::is_disturbed`].
    pub is_disturbed: bool,
}

impl From<&Trial> for TrialResult {
    fn from(trial: &Trial) -> Self {
        let (load, is_disturbed) = (trial.load as u64, trial.is_disturbed());
        Self { load, phase: trial.phase, verdict: trial.verdict, is_disturbed }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub load: u64,
    pub phase: Phase,
}

/// The next trial after `trials`; `None` when the search is over.
pub fn next(plan: &LoadPlan, trials: &[TrialResult]) -> Option<Step> {
    if trials.len() >= TRIALS_MAX {
        return None;
    }
    if let Some(load) = plan.fixed {
        let is_open = trials.len() < DISTURBED_MAX && trials.iter().all(|trial| trial.is_disturbed);
        return is_open.then_some(Step { load, phase: Phase::Single });
    }
    let bracket = Bracket::of(plan, trials);
    if let Some(load) = bracket.next(plan, trials) {
        return Some(Step { load, phase: Phase::Search });
    }
    let confirmation = Confirmation::of(plan, &bracket, trials);
    if let Some(load) = confirmation.next(plan) {
        return Some(Step { load, phase: Phase::Confirm });
    }
    let gone_down = trials.iter().filter(|trial| trial.phase == Phase::RampDown).count();
    let load = *descent(plan, confirmation.candidate).get(gone_down)?;
    Some(Step { load, phase: Phase::RampDown })
}

/// The capacity before anything was measured.
pub fn unknown_capacity(unit: &str) -> Capacity {
    Capacity { value: None, unit: unit.into(), interval: [None, None], passes: 0, failures_above: 0 }
}

/// The capacity that the trials show, in the load's `unit`.
pub fn capacity(plan: &LoadPlan, trials: &[TrialResult], unit: &str) -> Capacity {
    let passed = |load: u64| trials.iter().any(|trial| trial.load == load && trial.verdict == Verdict::Pass);
    let value = match plan.fixed {
        Some(load) if passed(load) => load,
        Some(_) => 0,
        None => Confirmation::of(plan, &Bracket::of(plan, trials), trials).candidate,
    };
    // The capacity is 0 only if a load of 1 failed: below a larger load that failed, loads may be untried.
    let failed_first = || trials.iter().any(|trial| trial.load <= 1 && trial.verdict == Verdict::Fail);
    if value == 0 && !failed_first() {
        return unknown_capacity(unit);
    }
    let failed_above = trials.iter().filter(|trial| trial.load > value && trial.verdict == Verdict::Fail);
    // A load above that both passed and failed is within the uncertainty.
    let upper = failed_above.map(|trial| trial.load).filter(|&load| !passed(load)).min();
    let (passes, failures_above) = counts(trials, value as f64);
    Capacity {
        value: Some(value as f64),
        unit: unit.into(),
        interval: [Some(value as f64), upper.map(|load| (load - 1) as f64)],
        passes,
        failures_above,
    }
}

/// Passes of the capacity, and failures of the lowest load above it that failed.
pub fn counts(trials: &[TrialResult], capacity: f64) -> (u32, u32) {
    let at = |load: f64, verdict| {
        trials.iter().filter(|trial| trial.load as f64 == load && trial.verdict == verdict).count() as u32
    };
    let failed = trials.iter().filter(|trial| trial.verdict == Verdict::Fail).map(|trial| trial.load as f64);
    let nearest = failed.filter(|load| *load > capacity).min_by(f64::total_cmp);
    (at(capacity, Verdict::Pass), nearest.map_or(0, |load| at(load, Verdict::Fail)))
}

/// The resolution of the search around `load`.
fn step(plan: &LoadPlan, load: u64) -> u64 {
    if load <= RAMP_LOAD_MAX { 1 } else { ((load as f64 * plan.resolution) as u64).max(1) }
}

/// The result of the searching trials: a load that passed, and one above that did not.
struct Bracket {
    low: u64,
    high: Option<u64>,
    /// Whether `high` is the limit of the generator, not of the target.
    high_invalid: bool,
}

impl Bracket {
    fn of(plan: &LoadPlan, trials: &[TrialResult]) -> Self {
        let searching = || trials.iter().filter(|trial| trial.phase == Phase::Search);
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

    fn next(&self, plan: &LoadPlan, trials: &[TrialResult]) -> Option<u64> {
        // The search is over; an invalid confirmation must not reopen it.
        if trials.iter().any(|trial| trial.phase != Phase::Search) {
            return None;
        }
        match self.high {
            None if self.low >= plan.load_max => None,
            None if self.low == 0 => Some(plan.load_first.clamp(1, plan.load_max)),
            None if plan.load_max <= RAMP_LOAD_MAX => Some(self.low + 1),
            None => Some((self.low * 2).min(plan.load_max)),
            Some(high) if high - self.low > step(plan, self.low) => Some(self.low + (high - self.low) / 2),
            Some(_) => None,
        }
    }
}

/// The result of the confirming trials.
struct Confirmation {
    candidate: u64,
    passes: u32,
    /// Confirming passes of the load above the candidate.
    passes_above: u32,
    /// Whether the load above fails, or must not be tried.
    settled: bool,
    /// Invalid confirming trials of the candidate.
    invalid: u32,
    /// Invalid confirming trials of the load above.
    invalid_above: u32,
    /// How often a load above was confirmed: the search may have ended far too low.
    ups: u32,
    /// The least load above that failed when it was to be confirmed.
    failed_above: Option<u64>,
}

impl Confirmation {
    fn of(plan: &LoadPlan, bracket: &Bracket, trials: &[TrialResult]) -> Self {
        let settled = bracket.high_invalid || bracket.low >= plan.load_max;
        let mut state = Self {
            candidate: bracket.low,
            passes: 0,
            passes_above: 0,
            settled,
            invalid: 0,
            invalid_above: 0,
            ups: 0,
            failed_above: None,
        };
        for trial in trials.iter().filter(|trial| trial.phase == Phase::Confirm) {
            state.record(plan, trial);
        }
        state
    }

    fn above(&self, plan: &LoadPlan) -> u64 {
        // Single steps would take too long after a search that one failed trial ended far too low.
        let stride = step(plan, self.candidate) << self.ups.saturating_sub(1).min(20);
        let halfway = |failed: u64| self.candidate + (failed - self.candidate).div_ceil(2);
        let most = self.failed_above.map_or(plan.load_max, halfway);
        (self.candidate + stride).min(most).min(plan.load_max)
    }

    /// Whether nothing is left to try above the candidate.
    fn is_closed(&self, plan: &LoadPlan) -> bool {
        let near = |failed: u64| failed.saturating_sub(self.candidate) <= step(plan, self.candidate);
        self.candidate >= plan.load_max || self.failed_above.is_some_and(near)
    }

    fn record(&mut self, plan: &LoadPlan, trial: &TrialResult) {
        let at_candidate = trial.load == self.candidate;
        match trial.verdict {
            Verdict::Invalid if at_candidate => self.invalid += 1,
            Verdict::Invalid => {
                self.invalid_above += 1;
                self.settled |= self.invalid_above >= INVALID_MAX;
            }
            Verdict::Pass if at_candidate => self.passes += 1,
            Verdict::Fail if at_candidate => {
                self.candidate -= step(plan, self.candidate).min(self.candidate);
                (self.passes, self.passes_above, self.settled) = (0, 0, true);
                (self.invalid, self.invalid_above) = (0, 0);
            }
            Verdict::Fail => {
                self.failed_above = Some(self.failed_above.map_or(trial.load, |load| load.min(trial.load)));
                (self.passes_above, self.invalid_above, self.ups) = (0, 0, 0);
                self.settled |= self.is_closed(plan);
            }
            Verdict::Pass => {
                self.passes_above += 1;
                if self.passes_above >= plan.confirmations {
                    self.candidate = trial.load;
                    (self.passes, self.passes_above) = (self.passes_above, 0);
                    (self.invalid, self.invalid_above) = (self.invalid_above, 0);
                    self.ups += 1;
                    self.settled = self.is_closed(plan);
                }
            }
        }
    }

    fn next(&self, plan: &LoadPlan) -> Option<u64> {
        if self.invalid >= INVALID_MAX {
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

/// The loads of the ramp down.
fn descent(plan: &LoadPlan, from: u64) -> Vec<u64> {
    match from {
        _ if !plan.ramp_down => Vec::new(),
        // At most four steps: the ramp down must not take as long as the search.
        0..=RAMP_LOAD_MAX => (1..from).rev().step_by(from.div_ceil(5).max(1) as usize).collect(),
        _ => vec![from * 3 / 4, from / 2, from / 4],
    }
}

#[cfg(test)]
mod tests;
