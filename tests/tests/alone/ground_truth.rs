//! Servers whose limit is known: the search finds it and names its cause.
//!
//! They are the ready plans with shorter holds, fewer confirmations (the disk plan: one variant) and a search
//! from just below the known limit to just above it, so that each test takes about a minute. Where it is a
//! disk or a link, the CPUs are idle, and another such test may run.

use std::fs;
use std::time::Duration;

use kagiri_tests::{
    MachineLock, World, alone, beside_others, need_programs, need_root, undisturbed, workspace,
};
use serde_json::Value as Json;
use toml::{Table, Value};

const PATIENCE: Duration = Duration::from_secs(420);

/// A ready plan, made shorter, with its lab's path made absolute; its search begins at `first` streams.
fn shortened(name: &str, first: u32, search_hold: &str, hold: &str, warm_up: Option<&str>) -> Table {
    let text = fs::read_to_string(workspace().join("plans").join(name)).expect("a ready plan");
    let mut plan: Table = text.parse().expect("TOML");
    let shorter = format!(
        "first = {first}\nhold = '{hold}'\nsearch_hold = '{search_hold}'\nconfirmations = 1\n{}",
        warm_up.map(|warm_up| format!("player.warm_up = '{warm_up}'\n")).unwrap_or_default()
    );
    let stream = plan["stream"].as_table_mut().expect("the workload's settings");
    stream.extend(shorter.parse::<Table>().expect("TOML"));
    if let Some(Value::String(lab)) = plan.get_mut("lab") {
        *lab = workspace().join("plans").join(&*lab).to_string_lossy().into_owned();
    }
    plan
}

/// Runs the plan until the result is as wanted, or was undisturbed by other programs, or attempts run out.
fn search(_lock: MachineLock, plan: &Table, wanted: impl Fn(&Json) -> bool) -> Json {
    let measure = || {
        let world = World::new();
        world.write("plan.toml", plan.to_string());
        world.measure(&["run", "plan.toml", "--json"], PATIENCE)
    };
    let (ended, document) = undisturbed(wanted, measure);
    eprintln!("{}", ended.stderr);
    ended.code(0);
    document
}

/// The capacity and the limiting resource.
fn found(document: &Json) -> (f64, &str) {
    let value = document["capacity"]["value"].as_f64().unwrap_or(f64::NAN);
    (value, document["limit"]["resource"].as_str().expect("a word"))
}

fn verdicts(document: &Json) -> Vec<&str> {
    let trials = document["trials"].as_array().expect("trials");
    trials.iter().map(|trial| trial["verdict"].as_str().expect("a verdict")).collect()
}

#[test]
fn slow_cpu_carries_five() {
    need_root!();
    let cost = |document: &Json| document["saturation"]["cpu"]["cost_per_load"].as_f64();
    let is_right = |cost: f64| (12.0..17.0).contains(&cost);
    // The cost of a stream takes three loads that passed.
    let mut plan = shortened("cpu-limited.toml", 3, "6s", "8s", Some("2s"));
    plan["stream"]["max"] = 6.into();
    let document = search(alone(), &plan, |it| found(it) == (5.0, "cpu") && cost(it).is_some_and(is_right));
    assert_eq!(found(&document), (5.0, "cpu"), "{}", document["limit"]);
    let cost = cost(&document).unwrap();
    assert!(is_right(cost), "44.8 ns per byte is about 14 % of a CPU per stream; found {cost}");
}

#[test]
fn a_slow_disk_carries_four() {
    need_root!();
    need_programs!("mkfs.ext3");
    let mut plan = shortened("disk-limited.toml", 3, "6s", "10s", Some("2s"));
    plan["stream"]["max"] = 5.into();
    // Long enough that five evenly spread streams read disjoint parts.
    plan["stream"]["content"]["duration"] = "150s".into();
    plan["variant"]
        .as_array_mut()
        .expect("variants")
        .retain(|variant| variant["name"].as_str() == Some("ext3"));
    let document = search(beside_others(), &plan, |it| found(it) == (4.0, "disk"));
    assert_eq!(found(&document), (4.0, "disk"), "{}", document["limit"]);
    assert_eq!(document["variants"][0]["name"], "ext3");
}

#[test]
fn a_narrow_link_carries_four() {
    need_root!();
    need_programs!("ip", "tc");
    let mut plan = shortened("network-limited.toml", 3, "5s", "8s", None);
    plan["stream"]["max"] = 5.into();
    let is_confirmed = |it: &serde_json::Value| it["limit"]["certainty"] == "confirmed";
    // The link's queue may drop nothing: TCP small queues bound what the sender queues. So check the evidence
    // instead.
    let waited = |it: &serde_json::Value| {
        it["limit"]["evidence"].to_string().contains("the network limited the server's connections")
    };
    let document =
        search(beside_others(), &plan, |it| found(it) == (4.0, "network") && is_confirmed(it) && waited(it));
    assert_eq!(found(&document), (4.0, "network"), "{}", document["limit"]);
    assert!(is_confirmed(&document) && waited(&document), "{}", document["limit"]);
}

/// The players give out long before the server: no trial may be called a failure, and the capacity is open
/// above.
#[test]
fn players_that_give_out_are_not_the_servers_fault() {
    let mut plan = shortened("player-limited.toml", 400, "3s", "4s", None);
    plan["stream"]["resolution_percent"] = 50.0.into();
    let document = search(alone(), &plan, |it| found(it).1 == "player" && !verdicts(it).contains(&"fail"));
    let verdicts = verdicts(&document);
    assert!(verdicts.contains(&"invalid") && !verdicts.contains(&"fail"), "{verdicts:?}");
    assert_eq!(document["limit"]["resource"], "player", "{}", document["limit"]);
    assert!(
        document["capacity"]["value"].as_f64().is_some_and(|value| value >= 1.0),
        "{}",
        document["capacity"]
    );
    assert!(document["capacity"]["interval"][1].is_null(), "open above: {}", document["capacity"]);
    assert!(document["variants"][0]["doubts"].to_string().contains("capacity_is_lower_bound"));
}
