//! Comparisons of whole runs.

use crate::common::{arbitrary, capacity, run, trial, variant};
use base::metric::{Better, MetricSpec};
use base::outcome::{Phase, Resource, Run, State, Trial};
use base::verdict::Verdict;
use proptest::prelude::*;
use serde_json::json;
use store::compare::{AtLoad, Change, Comparison, Difference, compare};

const fn spec(name: &'static str, unit: &'static str, better: Better) -> MetricSpec {
    MetricSpec { name, unit, better, meaning: "" }
}

const SPECS: [MetricSpec; 3] = [
    spec("stalls", "", Better::Lower),
    spec("server_cpu_percent", "%", Better::Lower),
    spec("frames_played", "", Better::Neither),
];

/// A trial at load 3 with this CPU use, in a repetition.
fn at_three(number: u32, repetition: u32, cpu: f64) -> Trial {
    let mut trial = Trial { number, repetition, ..trial(number, 3.0) };
    trial.metrics.insert("server_cpu_percent".into(), Some(cpu));
    trial
}

fn repeated(id: &str, cpu: &[f64], capacities: &[f64]) -> Run {
    let trials =
        cpu.iter().zip(1..).map(|(&cpu, repetition)| at_three(repetition, repetition, cpu)).collect();
    Run { trials, variants: vec![variant("default", capacities)], ..run(id) }
}

fn metric<'a>(at: &'a AtLoad, name: &str) -> &'a Difference {
    at.metrics.iter().find(|found| found.metric == name).unwrap()
}

fn cpu(comparison: &Comparison) -> &Difference {
    metric(&comparison.pairs[0].loads[0], "server_cpu_percent")
}

#[test]
fn less_cpu_is_better_and_noise_is_equal() {
    let base = repeated("a", &[60.0, 61.0, 59.0], &[5.0, 5.0, 5.0]);
    let lean = repeated("b", &[40.0, 41.0, 39.5], &[8.0, 7.0, 8.0]);
    let same = repeated("c", &[60.5, 59.5, 60.2], &[5.0, 5.0, 5.0]);
    let found = compare(&[base, lean, same], &SPECS);
    assert_eq!(found.pairs.len(), 2);
    let difference = cpu(&found);
    assert_eq!((difference.a.median, difference.b.median, difference.b.n), (Some(60.0), Some(40.0), 3));
    assert_eq!((difference.difference, difference.change), (Some(-20.0), Change::Better));
    assert!((difference.difference_percent.unwrap() + 100.0 / 3.0).abs() < 1e-9);
    assert_eq!(found.pairs[0].capacity.change, Change::Better);
    assert_eq!(found.pairs[1].capacity.change, Change::Equal);
    assert_eq!(metric(&found.pairs[1].loads[0], "server_cpu_percent").change, Change::Equal);
    assert_eq!(found.pairs[0].limits, [Resource::Cpu; 2]);
    // The order of the workload's list, then the metrics that it does not name.
    let names: Vec<_> = found.pairs[0].loads[0].metrics.iter().map(|d| d.metric.as_str()).collect();
    assert_eq!(names, ["stalls", "server_cpu_percent", "disk_bit_per_s"]);
    assert!(found.by_chance > 0.0);
}

#[test]
fn one_repetition_is_not_comparable() {
    let found = compare(&[run("a"), run("b")], &SPECS);
    let pair = &found.pairs[0];
    assert_eq!((pair.capacity.change, pair.capacity.reason.as_deref()), (Change::Unknown, Some("n = 1")));
    assert_eq!(pair.capacity.a.interval, [Some(5.0), Some(6.0)]);
    assert_eq!(pair.loads.iter().map(|at| at.load).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for difference in pair.loads.iter().flat_map(|at| &at.metrics) {
        let reason = if difference.metric == "disk_bit_per_s" { "unknown on both sides" } else { "n = 1" };
        assert_eq!((difference.change, difference.reason.as_deref()), (Change::Unknown, Some(reason)));
    }
}

#[test]
fn repetition_counts_once_without_invalid_trials() {
    let mut a = repeated("a", &[60.0, 62.0], &[5.0, 5.0]);
    let mut invalid = at_three(3, 1, 999.0);
    invalid.verdict = Verdict::Invalid;
    a.trials.extend([invalid, at_three(4, 1, 64.0), at_three(5, 1, 68.0)]);
    let found = compare(&[a, repeated("b", &[60.0, 62.0], &[5.0, 5.0])], &SPECS);
    let sample = &cpu(&found).a;
    assert_eq!((sample.n, sample.interval), (2, [Some(62.0), Some(64.0)]));
}

#[test]
fn only_trials_of_equal_hold_are_compared() {
    let frames = |run: &mut Run, hold_s: f64| {
        for trial in &mut run.trials {
            trial.hold_to_s = trial.hold_from_s + hold_s;
            trial.metrics.insert("frames_played".into(), Some(25.0 * hold_s));
        }
    };
    let mut short = repeated("a", &[60.0, 61.0], &[5.0, 5.0]);
    frames(&mut short, 10.0);
    let mut both = repeated("b", &[60.0, 61.0], &[5.0, 5.0]);
    frames(&mut both, 30.0);
    let found = compare(&[short.clone(), both.clone()], &SPECS);
    let frames_played = metric(&found.pairs[0].loads[0], "frames_played");
    assert_eq!(frames_played.change, Change::Differs);
    assert!(frames_played.reason.as_ref().unwrap().contains("held for 10.0 s and for 30.0 s"));

    let confirming = both.trials.clone();
    frames(&mut both, 10.25);
    for trial in confirming {
        both.trials.push(Trial { number: trial.number + 2, phase: Phase::Confirm, ..trial });
    }
    let found = compare(&[short, both], &SPECS);
    let frames_played = metric(&found.pairs[0].loads[0], "frames_played");
    assert_eq!((frames_played.b.median, frames_played.b.n), (Some(256.25), 2));
    assert_eq!(frames_played.reason, None);
}

#[test]
fn lower_bound_can_be_better_but_not_worse() {
    let open = |id: &str, value: f64| {
        let mut run = repeated(id, &[60.0, 61.0, 62.0], &[value; 3]);
        let outcome = &mut run.variants[0];
        for known in outcome.repetitions.iter_mut().chain([&mut outcome.capacity]) {
            known.interval[1] = None;
        }
        run
    };
    let five = repeated("a", &[60.0, 61.0, 62.0], &[5.0; 3]);
    for (a, b, change) in [
        (five.clone(), open("b", 9.0), Change::Better),
        (five.clone(), open("b", 3.0), Change::Unknown),
        (open("a", 3.0), five.clone(), Change::Unknown),
        (open("a", 9.0), five, Change::Worse),
        (open("a", 9.0), open("b", 3.0), Change::Unknown),
    ] {
        let found = &compare(&[a, b], &SPECS).pairs[0].capacity;
        assert_eq!(found.change, change, "{found:?}");
        assert_eq!(found.reason.is_some(), change == Change::Unknown);
    }
}

#[test]
fn variants_of_a_run_are_compared_with_the_first() {
    let mut one = run("a");
    one.variants = vec![variant("ext3", &[4.0]), variant("ext4", &[5.0]), variant("xfs", &[5.0])];
    one.plan["variants"] = json!([
        {"name": "ext3", "settings": {"bitrate": "25Mbit/s", "disk": {"file_system": "ext3"}}},
        {"name": "ext4", "settings": {"bitrate": "25Mbit/s", "disk": {"file_system": "ext4"}}},
        {"name": "xfs", "settings": {"bitrate": "25Mbit/s"}},
    ]);
    let found = compare(&[one], &SPECS);
    assert_eq!(found.pairs.iter().map(|p| p.b.variant.as_str()).collect::<Vec<_>>(), ["ext4", "xfs"]);
    let settings = &found.pairs[0].settings;
    assert_eq!(settings.len(), 1);
    assert_eq!(
        (settings[0].key.as_str(), &settings[0].a, &settings[0].b),
        ("disk.file_system", &Some(json!("ext3")), &Some(json!("ext4")))
    );
    assert_eq!(found.pairs[1].settings[0].key, "disk.file_system");
    assert_eq!(found.pairs[1].settings[0].b, None);
    assert!(found.environment.is_empty() && found.plan.is_empty());
}

#[test]
fn clocks_and_processes_of_hosts_are_not_compared_as_environment() {
    let with = |name: &str, offset_ns: i64, kernel: &str| {
        let mut run = run(name);
        let host = json!({
            "clock": {"offset_ns": offset_ns, "bound_ns": 3166, "n": offset_ns},
            "calendar_clock_off_s": offset_ns as f64 / 1e9,
            "environment": {"kernel_release": kernel, "clock_source": "tsc", "pid": offset_ns},
        });
        run.environment.insert("hosts".into(), json!({"builder": host, "gone": null}));
        run
    };
    let found = compare(&[with("a", -270, "6.1"), with("b", 75, "6.1")], &SPECS);
    assert!(found.environment.is_empty(), "{:?}", found.environment);
    assert!(!found.notes.iter().any(|note| note.contains("environments")), "{:?}", found.notes);
    let found = compare(&[with("a", -270, "6.1"), with("b", 75, "6.2")], &SPECS);
    let keys: Vec<_> = found.environment.iter().map(|fact| fact.key.as_str()).collect();
    assert_eq!(keys, ["hosts.builder.environment.kernel_release"]);
}

#[test]
fn differences_of_plan_and_environment_are_listed() {
    let (a, mut b) = (run("a"), run("b"));
    b.environment.insert("kernel".into(), json!("6.19.0"));
    b.environment.insert("cpu".into(), json!({"model": "test", "cores": 4}));
    b.plan["seed"] = json!(7);
    b.variants[0].name = "renamed".into();
    b.state = State::Interrupted;
    b.workload = "daq".into();
    let found = compare(&[a, b], &SPECS);
    let keys = |facts: &[store::compare::RunFact]| {
        facts.iter().map(|fact| fact.key.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((keys(&found.environment), keys(&found.plan)), ("cpu.cores kernel".into(), "seed".into()));
    assert_eq!(found.environment[0].values, [Some(json!(2)), Some(json!(4))]);
    assert_eq!(found.pairs.len(), 1, "single variants are compared whatever their names");
    for part in ["workloads differ", "environments", "run b is not complete (interrupted)"] {
        assert!(found.notes.iter().any(|note| note.contains(part)), "{:?}", found.notes);
    }
}

#[test]
fn variant_without_counterpart_is_listed() {
    let (mut a, mut b) = (run("a"), run("b"));
    a.variants = vec![variant("x", &[1.0]), variant("y", &[1.0])];
    b.variants = vec![variant("y", &[1.0]), variant("z", &[1.0])];
    let found = compare(&[a, b], &SPECS);
    assert_eq!(found.pairs.len(), 1);
    let alone: Vec<_> = found.unmatched.iter().map(|side| format!("{}/{}", side.run, side.variant)).collect();
    assert_eq!(alone, ["a/x", "b/z"]);
    for runs in [vec![], vec![run("a")]] {
        let found = compare(&runs, &SPECS);
        assert!(found.pairs.is_empty() && found.notes.len() == 1);
    }
}

#[test]
fn loads_counted_in_different_units_are_not_compared() {
    let (a, mut b) = (run("a"), run("b"));
    b.variants[0].capacity.unit = "bit/s".into();
    b.variants[0].repetitions = vec![capacity(1e6); 3];
    let pair = &compare(&[a, b], &SPECS).pairs[0];
    assert!(pair.loads.is_empty(), "5 streams and 5 bit/s are not the same load");
    let found = &pair.capacity;
    assert_eq!(found.change, Change::Unknown);
    assert!(found.reason.as_ref().unwrap().contains("streams and in bit/s"));
    assert_eq!((found.difference, found.difference_percent, found.interval), (None, None, None));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_runs_can_be_compared_and_the_result_reads_back(a in arbitrary::run("a"),
        b in arbitrary::run("b")) {
        for runs in [vec![a.clone(), b.clone()], vec![a]] {
            let found = compare(&runs, &SPECS);
            let text = serde_json::to_string(&found).unwrap();
            let read: Comparison = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}

#[test]
fn more_repetitions_are_advised_only_where_they_would_decide() {
    let has_too_few = |repetitions: usize, is_open: bool| {
        let side = |id: &str| {
            let mut run = repeated(id, &[], &[4.0; 5][..repetitions]);
            let outcome = &mut run.variants[0];
            let all = outcome.repetitions.iter_mut().chain([&mut outcome.capacity]);
            all.for_each(|capacity| capacity.interval[1] = (!is_open).then_some(5.0));
            run
        };
        compare(&[side("a"), side("b")], &SPECS).pairs[0].result().has_too_few
    };
    assert!(has_too_few(1, false) && has_too_few(2, false));
    // Both capacities are lower bounds, however often they are measured.
    assert!(!has_too_few(5, false) && !has_too_few(5, true) && !has_too_few(2, true));
}
