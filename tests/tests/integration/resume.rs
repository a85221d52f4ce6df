//! `kagiri run --resume`: runs that were killed or interrupted go on. Every moment at which a run can break
//! off is in the unit tests of the session.

use std::time::Duration;

use kagiri_tests::{RunInLab, World, beside_others, need_root, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// Two variants, measured twice: four trials.
const PLAN: &str = "workload = 'transfer'\nrepeats = 2\nname = 'slow and fast'\n[transfer]\ntime = '1s'\n\
                    rate = '50Mbit/s'\n[[variant]]\nname = 'one'\n[[variant]]\nname = 'four'\n\
                    transfer.flows = 4\n";

fn stored(world: &World, id: &str) -> Value {
    world.run(&["runs", "show", id, "--json"]).code(0).json()
}

fn trials(run: &Value) -> &Vec<Value> {
    run["trials"].as_array().expect("trials")
}

/// Of each trial: its number, variant, repetition, and when it began.
fn results_of(trials: &[Value]) -> Vec<[&Value; 4]> {
    const KEYS: [&str; 4] = ["number", "variant", "repetition", "started_at"];
    trials.iter().map(|trial| KEYS.map(|key| &trial[key])).collect()
}

#[test]
fn killed_run_goes_on_with_its_variants_and_repetitions() {
    let _beside = beside_others();
    let world = World::new();
    world.write("plan.toml", PLAN);
    let mut live = world.start(&["run", "plan.toml"]);
    live.wait_for("repetition 2", PATIENCE);
    let listed = world.run(&["runs", "list", "--json"]).code(0).json();
    let id = listed[0]["run"].as_str().expect("an id").to_owned();
    world.run(&["run", "--resume", &id]).fails(1, &["still measures run", &id]);
    live.signal(Signal::SIGKILL);
    wait_until("its end", PATIENCE, || !live.is_running());
    let before = stored(&world, &id);
    assert_eq!((&before["state"], trials(&before).len()), (&"interrupted".into(), 2), "{before}");
    let command = format!("kagiri run --resume {id}");
    for words in [&["runs", "show", "last"][..], &["runs", "list"]] {
        let said = world.run(words).code(0).stdout;
        assert!(said.contains(&command) || said.contains("1 run broke off"), "{said}");
    }
    // The next measurement says so, once.
    let next = ["transfer", "--time", "0.2", "--rate", "10Mbit/s"];
    let says = |ended: &kagiri_tests::Ended| ended.stderr.contains(&command);
    assert!(says(&world.measure(&next, PATIENCE)) && !says(&world.measure(&next, PATIENCE)));

    let ended = world.measure(&["run", "--resume", &id], PATIENCE).code(0);
    assert!(ended.stderr.contains("continues after 2 trials"), "{}", ended.stderr);
    let after = stored(&world, &id);
    assert_eq!((&after["state"], &after["failure"]), (&"complete".into(), &Value::Null));
    let (first, all) = (trials(&before), trials(&after));
    assert_eq!(results_of(&all[..2]), results_of(first), "finished trials are kept");
    let of = |trial: &Value| (trial["variant"].as_str().map(str::to_owned), trial["repetition"].as_u64());
    let expected = [("one", 1), ("four", 1), ("four", 2), ("one", 2)];
    let expected: Vec<_> = expected.map(|(name, n)| (Some(name.to_owned()), Some(n))).into();
    assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(after["variants"].as_array().map(Vec::len), Some(2));
    assert_eq!(after["environment"]["resumed"][0]["trials_before"], 2);
    let doubts = after["doubts"].to_string();
    assert!(!doubts.contains("interrupted") && !doubts.contains("another environment"), "{doubts}");
    world.run(&["run", "--resume", &id]).fails(2, &["measured to its end", "--plan"]);
    world.run(&["run", "--resume", "none"]).fails(2, &["no run 'none'"]);
    world.run(&["run", "--resume", &id, "--repeat", "3"]).fails(2, &["--repeat"]);
    world.run(&["run"]).fails(2, &["PLAN.toml"]);
}

#[test]
fn interrupted_run_names_the_command_that_goes_on() {
    let _beside = beside_others();
    let world = World::new();
    world.write("plan.toml", PLAN);
    let mut live = world.start(&["run", "plan.toml"]);
    live.wait_for("variant: four", PATIENCE);
    live.signal(Signal::SIGINT);
    let ended = live.end(PATIENCE).code(130);
    let id = world.run(&["runs", "list", "--json"]).code(0).json()[0]["run"].clone();
    let command = format!("kagiri run --resume {}", id.as_str().expect("an id"));
    assert!(ended.stderr.contains(&format!("Go on with '{command}'")), "{}", ended.stderr);
    world.measure(&["run", "--resume", "last", "--quiet"], PATIENCE).code(0);
    let run = stored(&world, id.as_str().expect("an id"));
    let numbers: Vec<u64> = trials(&run).iter().filter_map(|trial| trial["number"].as_u64()).collect();
    assert_eq!((numbers, &run["state"]), (vec![1, 2, 3, 4], &"complete".into()));
}

#[test]
fn killed_run_in_the_lab_of_its_plan_goes_on() {
    need_root!();
    let _beside = beside_others();
    let world = World::new();
    let (RunInLab { mut live, lab }, _) = RunInLab::measured(&world, PATIENCE);
    live.signal(Signal::SIGKILL);
    wait_until("its end", PATIENCE, || !live.is_running());
    wait_until("the lab's end", PATIENCE, || lab.namespaces().is_empty());
    let before = world.run(&["runs", "show", "last", "--json"]).code(0).json();
    let kept = trials(&before).len();
    // Another lab would make other trials.
    let file = std::fs::read_to_string(world.path("lab.toml")).expect("the lab's file");
    world.write("lab.toml", file.replace("100Mbit/s", "50Mbit/s"));
    world.run(&["run", "--resume", "last"]).fails(2, &["the plan's lab has changed", "restore it"]);
    world.write("lab.toml", file);
    let ended = world.measure(&["run", "--resume", "last", "--json"], PATIENCE).code(0);
    let after = ended.json();
    assert_eq!((&after["run"], &after["state"]), (&before["run"], &"complete".into()));
    assert!(kept >= 1 && trials(&after).len() > kept, "{kept} of {}", trials(&after).len());
    assert_eq!(results_of(&trials(&after)[..kept]), results_of(trials(&before)));
    assert!(after["capacity"]["value"].as_f64().is_some_and(|value| value >= 1.0), "{}", after["capacity"]);
    world.assert_nothing_left(ended.pid);
}
