use super::*;

/// A search whose trials take as long as the plan says.
fn planned(plan: LoadPlan) -> [(String, VariantLoads); 1] {
    [("a".to_owned(), (plan, TrialTime::default()))]
}

fn plan(load_max: u64) -> LoadPlan {
    let (search_hold, searched) = (Span::from_s(5), LoadPlan::search(load_max, Span::from_s(10)));
    LoadPlan { search_hold, confirmations: 3, ramp_down: true, ..searched }
}

/// A run against a target that carries `capacity`: what was said to be left before each trial, the trials
/// that were made, and how long they took. Each takes `beyond_s` beside its hold.
fn imagine(plan: &LoadPlan, capacity: u64, above: Verdict, beyond_s: f64) -> (Vec<(f64, UpperBound)>, f64) {
    let mut estimate = Estimate::new(planned(*plan), 1);
    estimate.search_begins("a", &[]);
    let (mut seen, mut now_s, mut said) = (Vec::new(), 0.0, Vec::new());
    while let Some(step) = search::next(plan, &seen) {
        estimate.trial_begins(now_s);
        said.push((now_s, estimate.upper_bound()));
        let verdict = if step.load <= capacity { Verdict::Pass } else { above };
        let trial = TrialResult { load: step.load, phase: step.phase, verdict, is_disturbed: false };
        // One that fails is given up early.
        let whole_s = hold_s(&(*plan, TrialTime::default()), step, &Learned::default()).unwrap();
        let held_s = whole_s * if verdict == Verdict::Pass { 1.0 } else { 0.3 };
        now_s += held_s + beyond_s;
        seen.push(trial);
        estimate.trial_ends(trial, held_s, now_s);
    }
    assert_eq!(estimate.upper_bound(), UpperBound::NOTHING, "at the end nothing is left");
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
                        bound.s().unwrap() >= s - 1e-9 && bound.trials >= trials,
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
    Estimate::new(planned(*plan), 1).upper_bound().trials
}

#[test]
fn remaining_time_of_a_single_trial_never_falls_below_zero() {
    let plan = LoadPlan { fixed: Some(7), ..plan(10) };
    let mut estimate = Estimate::new(planned(plan), 1);
    assert_eq!((estimate.upper_bound().trials, estimate.left_s(0.0)), (1, Some(20.0)));
    estimate.search_begins("a", &[]);
    assert_eq!(estimate.left_s(50.0), Some(20.0), "making content takes nothing from it");
    estimate.trial_begins(60.0);
    assert_eq!(estimate.left_s(65.0), Some(15.0));
    assert_eq!(estimate.left_s(500.0), Some(0.0));
    estimate.trial_ends(
        TrialResult { load: 7, phase: Phase::Single, verdict: Verdict::Pass, is_disturbed: false },
        10.0,
        76.0,
    );
    assert_eq!(estimate.left_s(76.0), Some(0.0));
}

#[test]
fn estimate_counts_variants_and_repetitions_and_learns_trial_overhead() {
    let fixed =
        |hold| (LoadPlan { fixed: Some(1), hold: Span::from_s(hold), ..plan(10) }, TrialTime::default());
    let mut estimate = Estimate::new([("a".to_owned(), fixed(10)), ("b".to_owned(), fixed(30))], 2);
    assert_eq!((estimate.upper_bound().trials, estimate.left_s(0.0)), (4, Some(120.0)));
    estimate.search_begins("a", &[]);
    assert_eq!(estimate.left_s(0.0), Some(120.0));
    estimate.trial_begins(0.0);
    let passed = (Phase::Single, Verdict::Pass);
    let seen = TrialResult { load: 1, phase: passed.0, verdict: passed.1, is_disturbed: false };
    estimate.trial_ends(seen, 10.0, 13.0);
    // 3 s and the margin beside the hold, no longer 10 s.
    assert_eq!((estimate.upper_bound().trials, estimate.left_s(13.0)), (3, Some(2.0 * 35.0 + 15.0)));
}

/// A trial of one load that holds it for 5 s, unless `hold` says otherwise.
fn single(hold: HoldTime, warm_up_s: u64, wait_max_s: u64) -> [(String, VariantLoads); 1] {
    let plan = LoadPlan { fixed: Some(40), hold: Span::from_s(5), ..plan(40) };
    let (warm_up, wait_max) = (Span::from_s(warm_up_s), Span::from_s(wait_max_s));
    [("a".to_owned(), (plan, TrialTime { hold, warm_up, wait_max, beyond: None }))]
}

#[test]
fn warm_up_waiting_and_number_of_operations_count() {
    for (hold, warm_up_s, wait_max_s, left_s) in [
        (HoldTime::OfPlan, 0, 0, Some(15.0)),
        (HoldTime::OfPlan, 600, 0, Some(615.0)),
        (HoldTime::OfPlan, 0, 30, Some(45.0)),
        (HoldTime::S(120.0), 2, 0, Some(132.0)),
        (HoldTime::AtLoad(4000.0), 0, 0, Some(110.0)),
        (HoldTime::Unknown, 3, 30, None),
    ] {
        let estimate = Estimate::new(single(hold, warm_up_s, wait_max_s), 1);
        let found = (estimate.left_s(0.0), estimate.upper_bound().s());
        assert_eq!(found, (left_s, left_s), "{hold:?} {warm_up_s} {wait_max_s}");
    }
}

#[test]
fn learned_overhead_leaves_the_warm_up_to_the_plan() {
    let mut estimate = Estimate::new(single(HoldTime::OfPlan, 60, 0), 2);
    estimate.search_begins("a", &[]);
    estimate.trial_begins(0.0);
    let passed = TrialResult { load: 40, phase: Phase::Single, verdict: Verdict::Pass, is_disturbed: false };
    estimate.trial_ends(passed, 5.0, 66.0);
    // 60 s of warm-up, 5 s of hold, 1 s that was seen beside both, and the margin.
    assert_eq!(estimate.left_s(66.0), Some(68.0));
}

#[test]
fn wait_is_over_when_the_hold_begins() {
    let mut estimate = Estimate::new(single(HoldTime::OfPlan, 0, 30), 1);
    estimate.search_begins("a", &[]);
    estimate.trial_begins(0.0);
    estimate.trial_at(0.0, 3.0);
    assert_eq!(estimate.left_s(3.0), Some(42.0), "the others may come late");
    estimate.trial_at(0.2, 4.0);
    assert_eq!(estimate.left_s(4.0), Some(6.0), "4 s of the hold, and the end");
    assert_eq!(estimate.left_s(100.0), Some(2.0));
}

#[test]
fn unknown_length_is_learned_from_the_pace_and_from_the_first_trial() {
    let mut estimate = Estimate::new(single(HoldTime::Unknown, 0, 0), 2);
    estimate.search_begins("a", &[]);
    estimate.trial_begins(0.0);
    estimate.trial_at(0.0, 1.0);
    estimate.trial_at(0.005, 1.1);
    assert_eq!(estimate.left_s(1.1), None, "too little to know a pace");
    estimate.trial_at(0.25, 11.0);
    assert_eq!(estimate.left_s(11.0), None, "the second trial's length is unknown");
    let passed = TrialResult { load: 40, phase: Phase::Single, verdict: Verdict::Pass, is_disturbed: false };
    estimate.trial_ends(passed, 40.0, 43.0);
    assert_eq!(estimate.left_s(43.0), Some(45.0), "as long as the first, and its 3 s beside the hold");
    estimate.search_begins("a", &[]);
    estimate.trial_begins(43.0);
    estimate.trial_at(0.0, 44.0);
    estimate.trial_at(0.5, 64.0);
    assert_eq!(estimate.left_s(64.0), Some(22.0), "by the pace");
}

#[test]
fn overhead_that_the_workload_knows_replaces_the_general_one() {
    let time = TrialTime { beyond: Some(Span::from_ms(400)), ..TrialTime::default() };
    let plan = LoadPlan { fixed: Some(1), hold: Span::from_ms(200), ..plan(1) };
    let mut estimate = Estimate::new([("a".to_owned(), (plan, time))], 2);
    let left_s = |estimate: &Estimate, now_s| estimate.left_s(now_s).unwrap();
    assert!((left_s(&estimate, 0.0) - 1.2).abs() < 1e-9);
    estimate.search_begins("a", &[]);
    estimate.trial_begins(0.0);
    let (phase, verdict) = (Phase::Single, Verdict::Pass);
    estimate.trial_ends(TrialResult { load: 1, phase, verdict, is_disturbed: false }, 0.2, 0.5);
    // 0.3 s were measured; the margin is no larger than what is usual.
    assert!((left_s(&estimate, 0.5) - 0.9).abs() < 1e-9);
}

#[test]
fn budget_bounds_the_announced_time() {
    let loads = (plan(1000), TrialTime::default());
    let unlimited = Estimate::new([("a".to_owned(), loads)], 1);
    assert!(unlimited.upper_bound().s().unwrap() > 60.0);
    let mut limited = unlimited.within(Some(50.0));
    assert_eq!(limited.upper_bound().s(), Some(50.0));
    limited.search_begins("a", &[]);
    assert_eq!(limited.left_s(20.0), Some(30.0));
    assert_eq!(limited.left_s(70.0), Some(0.0));
}
