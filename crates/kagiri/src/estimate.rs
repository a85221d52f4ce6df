//! How long a run still takes at most. Pure: a function of the plan and of what has happened, so its tests are runs
//! that are imagined to their end.

use std::collections::BTreeMap;

use base::outcome::Phase;
use base::plan::LoadPlan;
use base::verdict::Verdict;
use run::search::{self, RAMP_LOAD_MAX, Seen};

/// What a trial takes beside its hold (start-up, warm-up, judging) as long as none has shown it, in s.
const BEYOND_HOLD_S: f64 = 10.0;
/// Larger loads take longer to start than those seen so far, in s.
const BEYOND_HOLD_MARGIN_S: f64 = 2.0;

/// What is known of a run's remaining length.
pub struct Estimate {
    /// How each variant is searched.
    loads: BTreeMap<String, LoadPlan>,
    /// How many searches of a variant have not begun.
    to_come: BTreeMap<String, u32>,
    /// The search under way: its variant and trials.
    current: Option<(String, Vec<Seen>)>,
    /// When the trial under way began, in s after the run's begin.
    trial_began_s: Option<f64>,
    /// The most that a trial took beside its hold, in s.
    beyond_hold_s: Option<f64>,
    /// The bound on everything from the present trial's begin on.
    most: Most,
}

/// A bound on what is to come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Most {
    /// At most so many trials.
    pub trials: usize,
    /// Which take at most so long, in s.
    pub s: f64,
    /// The first of them takes so long, in s.
    first_s: f64,
}

impl Estimate {
    /// Of a run that searches each of these variants so often.
    pub fn new(variants: impl IntoIterator<Item = (String, LoadPlan)>, repeats: u32) -> Self {
        let loads: BTreeMap<_, _> = variants.into_iter().collect();
        let to_come = loads.keys().map(|name| (name.clone(), repeats)).collect();
        let mut new = Self {
            loads,
            to_come,
            current: None,
            trial_began_s: None,
            beyond_hold_s: None,
            most: Most::default(),
        };
        new.bound();
        new
    }

    /// The search of a variant begins.
    pub fn search_begins(&mut self, variant: &str) {
        if let Some(left) = self.to_come.get_mut(variant) {
            *left = left.saturating_sub(1);
        }
        self.current = Some((variant.to_owned(), Vec::new()));
        self.bound();
    }

    /// A trial begins, `now_s` after the run did.
    pub fn trial_begins(&mut self, now_s: f64) {
        self.trial_began_s = Some(now_s);
    }

    /// The trial under way has ended as `seen`, after holding its load for `hold_s`.
    pub fn trial_ends(&mut self, seen: Seen, hold_s: f64, now_s: f64) {
        let took_s = self.trial_began_s.take().map(|began_s| now_s - began_s);
        // One that was given up early says nothing about the others' length.
        if let Some(took_s) = took_s.filter(|_| seen.verdict == Verdict::Pass) {
            self.beyond_hold_s = Some((took_s - hold_s).max(self.beyond_hold_s.unwrap_or(0.0)));
        }
        if let Some((_, trials)) = &mut self.current {
            trials.push(seen);
        }
        self.bound();
    }

    /// What is to come from the begin of the present trial on.
    pub fn most(&self) -> Most {
        self.most
    }

    /// How much longer it takes at most, in s, unless trials are disturbed or contradict each other.
    pub fn left_s(&self, now_s: f64) -> f64 {
        let within_s = self.trial_began_s.map_or(0.0, |began_s| now_s - began_s);
        self.most.s - within_s.clamp(0.0, self.most.first_s)
    }

    /// Bound what is left anew. Not in the midst of a trial: it takes some milliseconds.
    fn bound(&mut self) {
        let beyond_s = self.beyond_hold_s.map_or(BEYOND_HOLD_S, |seen_s| seen_s + BEYOND_HOLD_MARGIN_S);
        let current = self.current.as_ref().and_then(|(name, seen)| Some((self.loads.get(name)?, &seen[..])));
        let mut most = current.map(|(plan, seen)| longest(plan, seen, beyond_s)).unwrap_or_default();
        for (name, &times) in self.to_come.iter().filter(|(_, times)| **times > 0) {
            let whole = longest(&self.loads[name], &[], beyond_s);
            most.trials += whole.trials * times as usize;
            most.s += whole.s * f64::from(times);
        }
        self.most = most;
    }
}

/// The longest way on from `seen`: against every kind of target that gives out at some load, or whose players do.
fn longest(plan: &LoadPlan, seen: &[Seen], beyond_s: f64) -> Most {
    let ways = [Verdict::Fail, Verdict::Invalid]
        .into_iter()
        .flat_map(|above| capacities(plan, seen).into_iter().map(move |capacity| (capacity, above)));
    let ways = ways.map(|(capacity, above)| way(plan, seen, beyond_s, capacity, above));
    ways.max_by(|a, b| a.s.total_cmp(&b.s)).unwrap_or_default()
}

/// The way of the search against a target that carries `capacity`, and `above` it ends every trial so.
fn way(plan: &LoadPlan, seen: &[Seen], beyond_s: f64, capacity: u64, above: Verdict) -> Most {
    let mut seen = seen.to_vec();
    let mut most = Most::default();
    while let Some(step) = search::next(plan, &seen) {
        let verdict = if step.load <= capacity { Verdict::Pass } else { above };
        seen.push(Seen { load: step.load, phase: step.phase, verdict });
        let took_s = hold_s(plan, step.phase) + beyond_s;
        if most.trials == 0 {
            most.first_s = took_s;
        }
        most.trials += 1;
        most.s += took_s;
    }
    most
}

/// The capacities that a target can have after what was seen; of many, those around which the search turns.
fn capacities(plan: &LoadPlan, seen: &[Seen]) -> Vec<u64> {
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
    // Trials that contradict each other leave none; then any may be.
    if fit.is_empty() { all } else { fit }
}

/// How long a trial of a phase holds its load.
fn hold_s(plan: &LoadPlan, phase: Phase) -> f64 {
    match phase {
        Phase::Confirm | Phase::Single => plan.hold.s(),
        Phase::Search | Phase::RampDown => plan.search_hold.s(),
    }
}

/// A length of time as one says it of what is to come: never less than it is.
pub fn rounded_up(seconds: f64) -> String {
    match seconds {
        s if s <= 90.0 => format!("{:.0} s", (s.max(0.0) / 5.0).ceil() * 5.0),
        s if s <= 5400.0 => format!("{:.0} min", (s / 60.0).ceil()),
        s => format!("{:.1} h", (s / 360.0).ceil() / 10.0),
    }
}

#[cfg(test)]
mod tests {
    use base::units::Span;

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

    /// A run against a target that carries `capacity`: what was said to be left before each trial, the trials that
    /// were made, and how long they took. Each takes `beyond_s` beside its hold.
    fn imagine(plan: &LoadPlan, capacity: u64, above: Verdict, beyond_s: f64) -> (Vec<(f64, Most)>, f64) {
        let mut estimate = Estimate::new([("a".to_owned(), *plan)], 1);
        estimate.search_begins("a");
        let (mut seen, mut now_s, mut said) = (Vec::new(), 0.0, Vec::new());
        while let Some(step) = search::next(plan, &seen) {
            estimate.trial_begins(now_s);
            said.push((now_s, estimate.most()));
            let verdict = if step.load <= capacity { Verdict::Pass } else { above };
            let trial = Seen { load: step.load, phase: step.phase, verdict };
            // One that fails is given up early.
            let held_s = hold_s(plan, step.phase) * if verdict == Verdict::Pass { 1.0 } else { 0.3 };
            now_s += held_s + beyond_s;
            seen.push(trial);
            estimate.trial_ends(trial, held_s, now_s);
        }
        assert_eq!(estimate.most(), Most::default(), "at the end nothing is left");
        (said, now_s)
    }

    #[test]
    fn no_run_takes_longer_than_was_said_at_any_of_its_trials() {
        for (load_max, first) in [(1, 1), (6, 1), (16, 1), (100, 1), (1000, 1), (6400, 50)] {
            let plan = LoadPlan { load_first: first, ..plan(load_max) };
            for capacity in (0..=16).chain([23, 49, 50, 51, 99, 127, 128, 511, 700, 999, 1000, 5000, 6400]) {
                for above in [Verdict::Fail, Verdict::Invalid] {
                    let (said, end_s) = imagine(&plan, capacity.min(load_max), above, 6.0);
                    for (n, (at_s, most)) in said.iter().enumerate() {
                        let (trials, s) = (said.len() - n, end_s - at_s);
                        assert!(
                            most.s >= s - 1e-9 && most.trials >= trials,
                            "max {load_max}, capacity {capacity}, trial {n}: {most:?}, but {trials} in {s} s"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_said_at_first_is_not_far_from_the_longest_run() {
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
        Estimate::new([("a".to_owned(), *plan)], 1).most().trials
    }

    #[test]
    fn a_single_trial_runs_down_and_not_below_nothing() {
        let plan = LoadPlan { fixed: Some(7), ..plan(10) };
        let mut estimate = Estimate::new([("a".to_owned(), plan)], 1);
        assert_eq!((estimate.most().trials, estimate.left_s(0.0)), (1, 20.0));
        estimate.search_begins("a");
        assert_eq!(estimate.left_s(50.0), 20.0, "making content takes nothing from it");
        estimate.trial_begins(60.0);
        assert_eq!(estimate.left_s(65.0), 15.0);
        assert_eq!(estimate.left_s(500.0), 0.0);
        estimate.trial_ends(Seen { load: 7, phase: Phase::Single, verdict: Verdict::Pass }, 10.0, 76.0);
        assert_eq!(estimate.left_s(76.0), 0.0);
    }

    #[test]
    fn every_variant_and_repetition_counts_and_what_trials_take_is_learnt() {
        let fixed = |hold| LoadPlan { fixed: Some(1), hold: Span::from_s(hold), ..plan(10) };
        let mut estimate = Estimate::new([("a".to_owned(), fixed(10)), ("b".to_owned(), fixed(30))], 2);
        assert_eq!((estimate.most().trials, estimate.left_s(0.0)), (4, 120.0));
        estimate.search_begins("a");
        assert_eq!(estimate.left_s(0.0), 120.0);
        estimate.trial_begins(0.0);
        let seen = Seen { load: 1, phase: Phase::Single, verdict: Verdict::Pass };
        estimate.trial_ends(seen, 10.0, 13.0);
        // 3 s and the margin beside the hold, no longer 10 s.
        assert_eq!((estimate.most().trials, estimate.left_s(13.0)), (3, 2.0 * 35.0 + 15.0));
    }

    #[test]
    fn lengths_are_rounded_up() {
        for (seconds, said) in [
            (-1.0, "0 s"),
            (0.2, "5 s"),
            (41.0, "45 s"),
            (90.0, "90 s"),
            (91.0, "2 min"),
            (121.0, "3 min"),
            (5401.0, "1.6 h"),
        ] {
            assert_eq!(rounded_up(seconds), said);
        }
    }
}
