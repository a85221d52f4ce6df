//! `kagiri runs compare --fail-on worse` on planted runs: worse, equal within the noise, better.

use std::fs;

use kagiri_tests::{Ended, World, workspace};
use serde_json::{Value, json};

/// A run of the fixture's workload without trials, its capacity in each repetition.
fn run_of_capacities(id: &str, capacities: &[f64]) -> Value {
    let text = fs::read_to_string(workspace().join("tests/fixtures/run.json")).expect("the fixture");
    let mut run: Value = serde_json::from_str(&text).expect("JSON");
    let capacity = |value: &f64| {
        json!({ "value": value, "unit": "streams", "interval": [value, value], "passes": 3,
            "failures_above": 3 })
    };
    run["run"] = json!(format!("20261121-120000-{id}"));
    run["trials"] = json!([]);
    let median = capacity(&capacities[capacities.len() / 2]);
    run["variants"][0]["repetitions"] = capacities.iter().map(capacity).collect();
    run["variants"][0]["capacity"] = median.clone();
    run["capacity"] = median;
    run
}

/// The same with a main number of one load, of which there is a value in each repetition.
fn run_of_finding(id: &str, workload: &str, metric: &str, values: &[f64]) -> Value {
    let mut run = run_of_capacities(id, &[1.0]);
    run["workload"] = json!(workload);
    run["variants"][0]["findings"] = json!([{ "metric": metric, "values": values }]);
    run
}

/// The same with a metric of trials at one load, and what its plan requires.
fn run_of_metric(id: &str, require: &[&str], metric: &str, values: &[f64]) -> Value {
    let mut run = run_of_capacities(id, &[5.0; 5]);
    let trial = |(at, value): (usize, &f64)| {
        json!({
            "number": at + 1, "variant": "default", "repetition": at + 1, "phase": "confirm", "load": 5.0,
            "verdict": "pass", "reasons": [], "metrics": { metric: value }, "doubts": [],
            "started_at": "2026-11-21T12:00:00Z", "hold_from_s": 4.0, "hold_to_s": 14.0,
        })
    };
    run["trials"] = values.iter().enumerate().map(trial).collect();
    run["plan"]["require"] = json!(require);
    run
}

/// `kagiri runs compare A B --fail-on worse` of two exported runs.
fn compared(world: &World, a: &Value, b: &Value) -> Ended {
    let [a, b] = [("a.json", a), ("b.json", b)].map(|(name, run)| world.write(name, run.to_string()));
    let [a, b] = [&a, &b].map(|path| path.to_str().expect("UTF-8"));
    world.run(&["runs", "compare", a, b, "--fail-on", "worse"])
}

const BEFORE: [f64; 5] = [10.0, 10.0, 11.0, 10.0, 10.0];

#[test]
fn worse_capacity_fails_and_noise_does_not() {
    let world = World::new();
    let before = run_of_capacities("befo", &BEFORE);
    for (after, code, said) in [
        ([7.0, 8.0, 7.0, 7.0, 8.0], 3, "-30.0 %: worse"),
        ([10.0, 11.0, 10.0, 10.0, 9.0], 0, ""),
        ([14.0, 13.0, 14.0, 14.0, 13.0], 0, ""),
    ] {
        let ended = compared(&world, &before, &run_of_capacities("afte", &after)).code(code);
        assert!(ended.stderr.contains(said) && ended.stderr.is_empty() == said.is_empty(), "{ended:?}");
    }
    // Without the flag, a comparison is a comparison.
    let files = ["a.json", "b.json"].map(|name| world.path(name).to_str().expect("UTF-8").to_owned());
    let worse = run_of_capacities("afte", &[7.0; 5]);
    compared(&world, &before, &worse).code(3);
    world.run(&["runs", "compare", &files[0], &files[1]]).code(0);
    let json = world.run(&["runs", "compare", &files[0], &files[1], "--json", "--fail-on", "worse"]).code(3);
    assert_eq!(json.json()["pairs"][0]["worse"][0]["metric"], "capacity", "{}", json.stdout);
}

#[test]
fn direction_is_that_of_the_metrics_declaration() {
    let world = World::new();
    let (low, high) = ([5.0, 5.1, 4.9, 5.0, 5.0], [6.0, 6.1, 5.9, 6.0, 6.0]);
    for (workload, metric, before, after, code) in [
        ("exchange", "response_p99_ms", low, high, 3),
        ("exchange", "response_p99_ms", high, low, 0),
        ("transfer", "goodput_bit_per_s", high, low, 3),
        ("transfer", "goodput_bit_per_s", low, high, 0),
        ("transfer", "goodput_bit_per_s", low, [4.9, 5.0, 5.1, 5.0, 4.9], 0),
    ] {
        let (a, b) = (
            run_of_finding("befo", workload, metric, &before),
            run_of_finding("afte", workload, metric, &after),
        );
        let ended = compared(&world, &a, &b).code(code);
        assert_eq!(ended.stderr.contains(": worse"), code == 3, "{metric}: {}", ended.stderr);
    }
}

#[test]
fn required_metric_counts_and_its_requirement_directs_it() {
    let world = World::new();
    let (low, high) = ([2.0, 2.1, 1.9, 2.0, 2.0], [3.0, 3.1, 2.9, 3.0, 3.0]);
    // Declared: less start-up time is better. Not declared: whether received bytes are to be many or few.
    for (metric, require, before, after, code) in [
        ("startup_max_s", &["startup_max<=5s"][..], low, high, 3),
        ("startup_max_s", &["startup_max<=5s"], high, low, 0),
        ("startup_max_s", &[], low, high, 0),
        ("received_bit_per_s", &["received>=1kbit/s"], high, low, 3),
        ("received_bit_per_s", &["received>=1kbit/s"], low, high, 0),
        ("received_bit_per_s", &["received<=1kbit/s"], low, high, 3),
        ("received_bit_per_s", &[], high, low, 0),
    ] {
        let (a, b) =
            (run_of_metric("befo", require, metric, &before), run_of_metric("afte", require, metric, &after));
        let ended = compared(&world, &a, &b).code(code);
        assert_eq!(ended.stderr.contains(": worse"), code == 3, "{metric} {require:?}: {}", ended.stderr);
    }
}

#[test]
fn single_measurements_are_not_decided_and_that_is_said() {
    let world = World::new();
    let ended = compared(&world, &run_of_capacities("befo", &[10.0]), &run_of_capacities("afte", &[5.0]));
    let ended = ended.code(0);
    assert!(
        ended.stderr.contains("not decided: ") && ended.stderr.contains("--repeat 5"),
        "{}",
        ended.stderr
    );
    world.run(&["runs", "compare", "last", "--fail-on", "better"]).code(2);
}
