//! Tables of imagined targets.

use base::units::Span;
use proptest::prelude::*;

use super::*;

fn plan(load_max: u64) -> LoadPlan {
    let (search_hold, searched) = (Span::from_s(5), LoadPlan::search(load_max, Span::from_s(10)));
    LoadPlan { search_hold, confirmations: 3, ramp_down: true, ..searched }
}

/// Run a search against a target whose verdict is a function of step and trial number.
fn search(plan: &LoadPlan, verdict: impl Fn(&Step, usize) -> Verdict) -> Vec<TrialResult> {
    let mut seen = Vec::new();
    while let Some(step) = next(plan, &seen) {
        let verdict = verdict(&step, seen.len());
        let is_disturbed = verdict == Verdict::Invalid;
        seen.push(TrialResult { load: step.load, phase: step.phase, verdict, is_disturbed });
    }
    seen
}

fn carries(capacity: u64) -> impl Fn(&Step, usize) -> Verdict {
    move |step, _| if step.load <= capacity { Verdict::Pass } else { Verdict::Fail }
}

#[test]
fn small_search_rises_by_one_confirms_and_ramps_down() {
    let loads: Vec<_> = search(&plan(10), carries(3)).iter().map(|s| (s.load, s.phase)).collect();
    use Phase::*;
    let up = [(1, Search), (2, Search), (3, Search), (4, Search)];
    let sure = [(3, Confirm), (3, Confirm), (3, Confirm), (4, Confirm)];
    assert_eq!(loads, [&up[..], &sure, &[(2, RampDown), (1, RampDown)]].concat());
}

#[test]
fn capacity_has_its_interval() {
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
fn confirmation_corrects_a_load_that_passed_by_chance() {
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
fn confirmation_corrects_a_load_that_failed_by_chance() {
    let seen = search(&plan(10), |step, n| match step.load {
        3 if n == 2 => Verdict::Fail,
        ..=5 => Verdict::Pass,
        _ => Verdict::Fail,
    });
    assert_eq!(capacity(&plan(10), &seen, "streams").value, Some(5.0));
}

#[test]
fn search_recovers_from_an_early_failure_in_large_steps() {
    let plan = LoadPlan { confirmations: 1, ..plan(5000) };
    // One trial at 128 fails by chance.
    let seen = search(&plan, |step, _| match (step.load, step.phase) {
        (128, Phase::Search) => Verdict::Fail,
        (..=960, _) => Verdict::Pass,
        _ => Verdict::Fail,
    });
    let found = capacity(&plan, &seen, "streams").value.unwrap();
    assert!((941.0..=960.0).contains(&found), "{found}");
    assert!(seen.len() < 40, "{seen:?}");
}

#[test]
fn generator_limit_gives_a_lower_bound() {
    let seen = search(&plan(1000), |step, _| if step.load <= 100 { Verdict::Pass } else { Verdict::Invalid });
    let found = capacity(&plan(1000), &seen, "streams");
    assert!(found.value.is_some_and(|value| (97.0..=100.0).contains(&value)), "{found:?}");
    assert_eq!((found.interval[1], found.failures_above), (None, 0));
}

#[test]
fn one_invalid_trial_is_repeated() {
    let seen = search(&plan(10), |step, n| match (n, step.load) {
        (1, _) => Verdict::Invalid,
        (_, ..=3) => Verdict::Pass,
        _ => Verdict::Fail,
    });
    assert_eq!(seen[..3].iter().map(|s| s.load).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(capacity(&plan(10), &seen, "streams").value, Some(3.0));
}

#[test]
fn invalid_load_is_repeated_equally_often_in_every_phase() {
    let tries = |spoiled: Step| {
        let seen = search(&plan(10), |step, n| match step {
            step if *step == spoiled => Verdict::Invalid,
            _ => carries(3)(step, n),
        });
        let at = |trial: &&TrialResult| trial.load == spoiled.load && trial.phase == spoiled.phase;
        (seen.iter().filter(at).count(), capacity(&plan(10), &seen, "streams"))
    };
    for (load, phase, passes, interval) in [
        // Where the generator gives out, the target may carry more.
        (4, Phase::Search, 4, [Some(3.0), None]),
        // An unconfirmed candidate stays the best that is known.
        (3, Phase::Confirm, 1, [Some(3.0), Some(3.0)]),
        // The load above failed in the search, so the candidate is confirmed all the same.
        (4, Phase::Confirm, 4, [Some(3.0), Some(3.0)]),
    ] {
        let (times, found) = tries(Step { load, phase });
        assert_eq!(times as u32, INVALID_MAX, "{load} {phase:?}");
        assert_eq!((found.value, found.passes, found.interval), (Some(3.0), passes, interval));
    }
}

#[test]
fn invalid_trials_of_one_load_do_not_count_for_another() {
    use Verdict::{Fail, Invalid, Pass};
    // One of the candidate and one of the load above, which is then made again.
    let seen = search(&plan(10), |step, n| match (step.phase, n) {
        (Phase::Confirm, 4 | 8) => Invalid,
        _ => carries(3)(step, n),
    });
    let confirming = seen.iter().filter(|trial| trial.phase == Phase::Confirm);
    let loads: Vec<_> = confirming.map(|trial| (trial.load, trial.verdict)).collect();
    assert_eq!(loads, [(3, Invalid), (3, Pass), (3, Pass), (3, Pass), (4, Invalid), (4, Fail)]);
}

#[test]
fn failed_first_load_is_halved() {
    let plan = LoadPlan { load_first: 50, ..plan(1000) };
    let seen = search(&plan, carries(20));
    assert_eq!(seen[..3].iter().map(|s| s.load).collect::<Vec<_>>(), [50, 25, 12]);
    assert_eq!(capacity(&plan, &seen, "streams").value, Some(20.0));
}

#[test]
fn small_search_begins_at_the_first_load() {
    let plan = LoadPlan { load_first: 4, confirmations: 1, ramp_down: false, ..plan(10) };
    for (truth, expected) in [
        (5, &[4, 5, 6, 5, 6][..]),
        (4, &[4, 5, 4, 5]),
        (3, &[4, 2, 3, 3, 4]),
        (0, &[4, 2, 1, 1]),
        (10, &[4, 5, 6, 7, 8, 9, 10, 10]),
    ] {
        let seen = search(&plan, carries(truth));
        assert_eq!(seen.iter().map(|s| s.load).collect::<Vec<_>>(), expected, "{truth}");
        assert_eq!(capacity(&plan, &seen, "streams").value, Some(truth as f64));
    }
    let beyond = LoadPlan { load_first: 50, ..plan };
    assert_eq!(next(&beyond, &[]), Some(Step { load: 10, phase: Phase::Search }), "at most the maximum");
}

#[test]
fn fixed_load_is_offered_once() {
    let fixed = LoadPlan { fixed: Some(7), ..plan(10) };
    let seen = search(&fixed, carries(9));
    let (phase, verdict) = (Phase::Single, Verdict::Pass);
    assert_eq!(seen, [TrialResult { load: 7, phase, verdict, is_disturbed: false }]);
    assert_eq!(capacity(&fixed, &seen, "streams").value, Some(7.0));
    let seen = search(&fixed, carries(3));
    assert_eq!(capacity(&fixed, &seen, "streams").value, None, "lower loads were not tried");
}

#[test]
fn fixed_load_that_others_disturbed_is_repeated() {
    use Verdict::{Fail, Invalid, Pass};
    let fixed = LoadPlan { fixed: Some(7), ..plan(10) };
    for (disturbed, then, made) in [(1, Pass, 2), (2, Fail, 3), (9, Pass, DISTURBED_MAX)] {
        let seen = search(&fixed, |_, n| if n < disturbed { Invalid } else { then });
        assert_eq!(seen.len(), made, "{seen:?}");
        let found = capacity(&fixed, &seen, "streams").value;
        assert_eq!(found.is_some(), made == 2, "{seen:?}");
    }
    // What broke off, or was invalid by itself, would be so again.
    let invalid = TrialResult { load: 7, phase: Phase::Single, verdict: Invalid, is_disturbed: false };
    assert_eq!(next(&fixed, &[invalid]), None);
}

proptest! {
    #[test]
    fn capacity_is_found_within_the_resolution(truth in 0u64..3000, load_max in 1u64..3000) {
        let plan = plan(load_max);
        let seen = search(&plan, carries(truth));
        let found = capacity(&plan, &seen, "streams").value.unwrap();
        let expected = truth.min(load_max) as f64;
        prop_assert!(found <= expected && expected - found <= (expected * 0.02).max(0.0) + 0.01, "{}", found);
    }

    #[test]
    fn search_always_ends(verdicts in proptest::collection::vec(0u8..3, 300), load_max in 1u64..5000) {
        let all = [Verdict::Pass, Verdict::Fail, Verdict::Invalid];
        let seen = search(&plan(load_max), |_, n| all[verdicts[n] as usize]);
        prop_assert!(seen.len() <= TRIALS_MAX);
        prop_assert!(seen.iter().all(|trial| (1..=load_max).contains(&trial.load)));
    }
}
