//! An upper bound of a run's remaining time. Pure: a function of the plan and the trials so far.

use std::collections::BTreeMap;

use base::outcome::Phase;
use base::plan::{HoldTime, LoadPlan, Plan, TrialTime};
use base::units::Span;
use base::verdict::Verdict;
use run::engine::ConfiguredVariant;
use run::search::{self, RAMP_LOAD_MAX, Step, TrialResult};

/// Overhead of a trial beside its hold and warm-up (start-up, judging), in s, until one was measured, if the
/// workload does not know it.
const BEYOND_HOLD_S: f64 = 10.0;
/// Margin of the measured overhead, in s, at most what the workload knows: larger loads take longer to start.
const BEYOND_HOLD_MARGIN_S: f64 = 2.0;
/// Share of a hold from which on its pace is known.
const PACE_FROM: f64 = 0.01;

/// How loads are searched, and what is known of a trial's length.
pub type VariantLoads = (LoadPlan, TrialTime);

pub struct Estimate {
    loads: BTreeMap<String, VariantLoads>,
    /// Searches of each variant that have not begun.
    to_come: BTreeMap<String, u32>,
    current: Option<(String, Vec<TrialResult>)>,
    /// Start of the current trial, in s after the start of the run.
    trial_began_s: Option<f64>,
    /// The hold of the current trial: its start and the last look at it, in s, and the share that was done.
    hold: Option<(f64, f64, f64)>,
    learned: Learned,
    /// The bound from the start of the current trial on.
    bound: UpperBound,
    /// What the whole run may take, in s, if its searches have to end in time.
    budget_s: Option<f64>,
}

/// What trials that passed took, in s.
#[derive(Debug, Clone, Copy, Default)]
struct Learned {
    /// Largest overhead of a trial, warm-up excluded.
    beyond_hold_s: Option<f64>,
    /// Longest hold whose length was unknown.
    hold_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpperBound {
    pub trials: usize,
    /// Time of the first one in s; `None`: unknown.
    first_s: Option<f64>,
    /// Time of the others in s; `None`: unknown.
    later_s: Option<f64>,
}

impl UpperBound {
    const NOTHING: Self = Self { trials: 0, first_s: Some(0.0), later_s: Some(0.0) };

    /// Time of all trials in s; `None`: unknown.
    pub fn s(&self) -> Option<f64> {
        sum(self.first_s, self.later_s)
    }
}

fn sum(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? + b?)
}

impl Estimate {
    /// For a run that searches each variant `repeats` times.
    pub fn new(variants: impl IntoIterator<Item = (String, VariantLoads)>, repeats: u32) -> Self {
        let loads: BTreeMap<_, _> = variants.into_iter().collect();
        let to_come = loads.keys().map(|name| (name.clone(), repeats)).collect();
        let mut new = Self {
            loads,
            to_come,
            current: None,
            trial_began_s: None,
            hold: None,
            learned: Learned::default(),
            bound: UpperBound::NOTHING,
            budget_s: None,
        };
        new.update_bound();
        new
    }

    /// For a run of a plan.
    pub fn of_plan(plan: &Plan, variants: &[ConfiguredVariant<'_>]) -> Self {
        let loads = |configured: &ConfiguredVariant<'_>| {
            let workload = &configured.workload;
            (configured.variant.name.clone(), (workload.load_plan(), workload.trial_time()))
        };
        let budget = variants.iter().find_map(|variant| variant.workload.time_budget());
        let estimate = Self::new(variants.iter().map(loads), plan.repeats);
        estimate.within(budget.map(|budget| budget.as_secs_f64()))
    }

    /// The same for searches that end after `each_s` at the latest.
    #[must_use]
    pub fn within(mut self, each_s: Option<f64>) -> Self {
        let searches = self.to_come.values().sum::<u32>();
        self.budget_s = each_s.map(|each_s| each_s * f64::from(searches));
        self
    }

    pub fn variants(&self) -> usize {
        self.loads.len()
    }

    /// Whether any load is searched.
    pub fn is_search(&self) -> bool {
        self.loads.values().any(|(plan, _)| plan.fixed.is_none())
    }

    /// A search begins, or continues after the trials that it has already.
    pub fn search_begins(&mut self, variant: &str, kept: &[TrialResult]) {
        if let Some(left) = self.to_come.get_mut(variant) {
            *left = left.saturating_sub(1);
        }
        self.current = Some((variant.to_owned(), kept.to_vec()));
        self.update_bound();
    }

    /// A search had ended before this run was continued.
    pub fn search_skipped(&mut self, variant: &str) {
        let searches = f64::from(self.to_come.values().sum::<u32>().max(1));
        self.budget_s = self.budget_s.map(|budget_s| budget_s * (searches - 1.0) / searches);
        if let Some(left) = self.to_come.get_mut(variant) {
            *left = left.saturating_sub(1);
        }
        self.current = None;
        self.update_bound();
    }

    pub fn trial_begins(&mut self, now_s: f64) {
        (self.trial_began_s, self.hold) = (Some(now_s), None);
    }

    /// Of the current trial's hold this share is done, 0 until the hold begins.
    pub fn trial_at(&mut self, done: f64, now_s: f64) {
        let from_s = self.hold.filter(|_| done > 0.0).map_or(now_s, |(from_s, ..)| from_s);
        self.hold = Some((from_s, now_s, done));
    }

    pub fn trial_ends(&mut self, seen: TrialResult, hold_s: f64, now_s: f64) {
        let took_s = self.trial_began_s.take().map(|began_s| now_s - began_s);
        let time = self.current_time();
        // A failed trial may have ended early.
        if let Some(took_s) = took_s.filter(|_| seen.verdict == Verdict::Pass) {
            let larger = |before: Option<f64>, s: f64| Some(s.max(before.unwrap_or(0.0)));
            let beyond_s = took_s - hold_s - time.warm_up.s();
            self.learned.beyond_hold_s = larger(self.learned.beyond_hold_s, beyond_s);
            if time.hold == HoldTime::Unknown {
                self.learned.hold_s = larger(self.learned.hold_s, hold_s);
            }
        }
        if let Some((_, trials)) = &mut self.current {
            trials.push(seen);
        }
        self.update_bound();
    }

    /// The bound from the start of the current trial on.
    pub fn upper_bound(&self) -> UpperBound {
        let (Some(budget_s), Some(first_s)) = (self.budget_s, self.bound.first_s) else { return self.bound };
        let later_s = self.bound.later_s.unwrap_or(f64::INFINITY).min((budget_s - first_s).max(0.0));
        UpperBound { later_s: Some(later_s), ..self.bound }
    }

    /// Remaining time in s at bound, unless trials are disturbed or contradict each other; `None`: unknown.
    pub fn left_s(&self, now_s: f64) -> Option<f64> {
        let left_s = sum(self.trial_left_s(now_s), self.bound.later_s);
        let in_time_s = self.budget_s.map(|budget_s| (budget_s - now_s).max(0.0));
        left_s.into_iter().chain(in_time_s).min_by(f64::total_cmp)
    }

    fn current_time(&self) -> TrialTime {
        let name = self.current.as_ref().map(|(name, _)| name);
        name.and_then(|name| self.loads.get(name)).map(|(_, time)| *time).unwrap_or_default()
    }

    fn trial_left_s(&self, now_s: f64) -> Option<f64> {
        let Some(began_s) = self.trial_began_s else { return self.bound.first_s };
        self.hold_left_s(now_s)
            .or_else(|| self.bound.first_s.map(|first_s| (first_s - (now_s - began_s).max(0.0)).max(0.0)))
    }

    /// By the pace of the hold so far, where the plan does not know when it begins or ends.
    fn hold_left_s(&self, now_s: f64) -> Option<f64> {
        let time = self.current_time();
        let is_planned = time.hold == HoldTime::OfPlan && time.wait_max == Span::default();
        let (from_s, at_s, done) = self.hold.filter(|(.., done)| !is_planned && *done >= PACE_FROM)?;
        let left_s = (at_s - from_s) * (1.0 - done) / done;
        Some((left_s - (now_s - at_s)).max(0.0) + BEYOND_HOLD_MARGIN_S)
    }

    /// Takes some milliseconds, so never during a trial.
    fn update_bound(&mut self) {
        let current = self.current.as_ref().and_then(|(name, seen)| Some((self.loads.get(name)?, &seen[..])));
        let mut bound =
            current.map_or(UpperBound::NOTHING, |(loads, seen)| longest(loads, seen, &self.learned));
        for (name, &times) in self.to_come.iter().filter(|(_, times)| **times > 0) {
            let whole = longest(&self.loads[name], &[], &self.learned);
            bound.trials += whole.trials * times as usize;
            bound.later_s = sum(bound.later_s, whole.s().map(|s| s * f64::from(times)));
        }
        self.bound = bound;
    }
}

/// The longest continuation of the search after `seen`, over all possible capacities.
fn longest(loads: &VariantLoads, seen: &[TrialResult], learned: &Learned) -> UpperBound {
    let ways = [Verdict::Fail, Verdict::Invalid]
        .into_iter()
        .flat_map(|above| capacities(&loads.0, seen).into_iter().map(move |capacity| (capacity, above)));
    let ways = ways.map(|(capacity, above)| continuation(loads, seen, learned, capacity, above));
    let s = |bound: &UpperBound| bound.s().unwrap_or(f64::INFINITY);
    let order = |a: &UpperBound, b: &UpperBound| s(a).total_cmp(&s(b)).then(a.trials.cmp(&b.trials));
    ways.max_by(order).unwrap_or(UpperBound::NOTHING)
}

/// The continuation of the search against a target that carries `capacity`; higher loads end as `above`.
fn continuation(
    loads: &VariantLoads,
    seen: &[TrialResult],
    learned: &Learned,
    capacity: u64,
    above: Verdict,
) -> UpperBound {
    let (plan, time) = loads;
    let mut seen = seen.to_vec();
    let mut bound = UpperBound::NOTHING;
    while let Some(step) = search::next(plan, &seen) {
        let verdict = if step.load <= capacity { Verdict::Pass } else { above };
        seen.push(TrialResult { load: step.load, phase: step.phase, verdict, is_disturbed: false });
        let hold_s = hold_s(loads, step, learned);
        let took_s = hold_s.map(|hold_s| hold_s + beyond_hold_s(time, learned));
        match bound.trials {
            0 => bound.first_s = took_s,
            _ => bound.later_s = sum(bound.later_s, took_s),
        }
        bound.trials += 1;
    }
    bound
}

/// What a trial takes beside its hold, in s.
fn beyond_hold_s(time: &TrialTime, learned: &Learned) -> f64 {
    let (wait_s, usual_s) = (time.wait_max.s(), time.beyond.map_or(BEYOND_HOLD_S, Span::s));
    let beyond_s = match learned.beyond_hold_s {
        Some(seen_s) => (seen_s + BEYOND_HOLD_MARGIN_S.min(usual_s)).max(wait_s),
        None => usual_s + wait_s,
    };
    beyond_s + time.warm_up.s()
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

/// How long a trial holds its load, in s; `None`: unknown.
fn hold_s((plan, time): &VariantLoads, step: Step, learned: &Learned) -> Option<f64> {
    match (time.hold, step.phase) {
        (HoldTime::S(s), _) => Some(s),
        (HoldTime::AtLoad(number), _) => Some(number / step.load.max(1) as f64),
        (HoldTime::Unknown, _) => learned.hold_s,
        (HoldTime::OfPlan, Phase::Confirm | Phase::Single) => Some(plan.hold.s()),
        (HoldTime::OfPlan, Phase::Search | Phase::RampDown) => Some(plan.search_hold.s()),
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
