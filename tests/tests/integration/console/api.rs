//! The API against its own description: random requests by schemathesis, valid and not.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Console, Live, World, beside_others, is_root, need_programs, workspace};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The tool is installed by pip when it is missing.
const PATIENCE: Duration = Duration::from_secs(300);
const EXAMPLES: &str = "3";

/// A method and a path, which may have parameters: `GET /api/v1/jobs/{id}`.
type Operation = (String, String);

/// The operations of a description: those that get random requests, and those that do not.
fn described(description: &Value) -> (BTreeSet<Operation>, BTreeSet<Operation>) {
    let paths = description["paths"].as_object().expect("paths").iter();
    let all = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, operation)| ((method.to_uppercase(), path.clone()), operation))
    });
    let (random, left_out): (Vec<_>, Vec<_>) =
        all.partition(|(_, operation)| operation["x-random-tests"] != false);
    let names = |all: Vec<(Operation, &Value)>| all.into_iter().map(|(name, _)| name).collect();
    (names(random), names(left_out))
}

/// The operation that a request is for, if it is for one.
fn operation_of<'a>(method: &str, url: &str, all: &'a BTreeSet<Operation>) -> Option<&'a Operation> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, path) = path.split_once("://").and_then(|(_, rest)| rest.split_once('/'))?;
    let segments: Vec<&str> = path.split('/').collect();
    let matches = |pattern: &str| {
        let pattern: Vec<&str> = pattern.trim_start_matches('/').split('/').collect();
        let is_met = |(part, segment): (&&str, &&str)| part.starts_with('{') || part == segment;
        pattern.len() == segments.len() && pattern.iter().zip(&segments).all(is_met)
    };
    let possible = all.iter().filter(|(own, pattern)| own == method && matches(pattern));
    // A path without parameters is meant before one with them.
    possible.min_by_key(|(_, pattern)| pattern.matches('{').count())
}

#[test]
fn random_requests_exercise_every_operation_and_get_answers_that_the_description_allows() {
    need_programs!("python3", "flock");
    let _beside = beside_others();
    // Requests that are valid by chance must change no settings of this machine.
    let world = if is_root() { World::of_nobody() } else { World::new() };
    world.import_fixture();
    let console = Console::start(&world);
    let run = console.get("/runs")["runs"][0]["id"].as_str().expect("a run").to_owned();
    let har = world.path("requests.har");
    let mut tests = Command::new(workspace().join("scripts/api-tests"));
    tests.args([&format!("http://{}", console.address), &console.token, &run]);
    tests.env("EXAMPLES", EXAMPLES).env("HAR", &har);
    let ended = Live::start(tests).end(PATIENCE);
    assert!(ended.status.success(), "{}\n{}", ended.stdout, ended.stderr);

    let (random, left_out) = described(&console.get("/openapi.json"));
    let all: BTreeSet<Operation> = random.union(&left_out).cloned().collect();
    let har: Value = serde_json::from_slice(&std::fs::read(har).expect("the requests")).expect("JSON");
    let entries = har["log"]["entries"].as_array().expect("entries");
    let answered = entries.iter().filter(|entry| entry["response"]["status"].as_u64() > Some(0));
    let operation = |entry: &Value| {
        let text = |key: &str| entry["request"][key].as_str().expect("a request");
        operation_of(text("method"), text("url"), &all).cloned()
    };
    let exercised: BTreeSet<Operation> = answered.filter_map(operation).collect();
    assert_eq!(exercised, random, "{}", ended.stdout);
    // A run that was asked for is a process of its own.
    for job in console.get("/jobs").as_array().expect("jobs") {
        let stop = format!("/jobs/{}/stop", job["id"].as_str().expect("an id"));
        console.ask("POST", &stop, &Value::Null);
    }
    let ended = console.end(Signal::SIGINT).code(0);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}
