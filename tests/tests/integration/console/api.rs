//! The API against its own description: random requests by schemathesis, valid and not.

use std::process::Command;
use std::time::Duration;

use kagiri_tests::{Console, Live, World, beside_others, is_root, need_programs, workspace};
use nix::sys::signal::Signal;

/// The tool is installed by pip when it is missing.
const PATIENCE: Duration = Duration::from_secs(300);
const EXAMPLES: &str = "3";

#[test]
fn random_requests_get_answers_that_the_description_allows() {
    need_programs!("python3", "flock");
    let _beside = beside_others();
    // Requests that are valid by chance must change no settings of this machine.
    let world = if is_root() { World::of_nobody() } else { World::new() };
    world.import_fixture();
    let console = Console::start(&world);
    let run = console.get("/runs")["runs"][0]["id"].as_str().expect("a run").to_owned();
    let mut tests = Command::new(workspace().join("scripts/api-tests"));
    tests.args([&format!("http://{}", console.address), &console.token, &run]).env("EXAMPLES", EXAMPLES);
    let ended = Live::start(tests).end(PATIENCE);
    assert!(ended.status.success(), "{}\n{}", ended.stdout, ended.stderr);
    // It tests nothing if it cannot read the description.
    assert!(ended.stdout.contains("31 selected / 35 total"), "{}", ended.stdout);
    // A run that was asked for is a process of its own.
    for job in console.get("/jobs").as_array().expect("jobs") {
        let stop = format!("/jobs/{}/stop", job["id"].as_str().expect("an id"));
        console.ask("POST", &stop, &serde_json::Value::Null);
    }
    let ended = console.end(Signal::SIGINT).code(0);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}
