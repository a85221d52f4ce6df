//! Servers and players that take all the CPU they may: the search finds the limit and names its cause.

use kagiri_tests::{alone, found, need_root, search, shortened};
use serde_json::Value as Json;

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
