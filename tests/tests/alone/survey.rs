//! `kagiri survey`, whole and interrupted. Alone, because it fills the machine.

use std::time::Duration;

use kagiri_tests::{World, alone};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn survey_is_interrupted_while_it_calibrates_and_measures() {
    let _alone = alone();
    let world = World::new();
    for (part, measured) in [("disk: reading", false), ("streams (search), 0:", true)] {
        let mut live = world.start(&["survey"]);
        live.wait_for(part, PATIENCE * 3);
        live.signal(Signal::SIGINT);
        let ended = live.end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        let ended = ended.code(130);
        assert_eq!(ended.stderr.contains("6 of 6"), measured, "{}", ended.stderr);
        let listed = world.run(&["runs", "list"]).code(0).stdout;
        assert_eq!(!listed.contains("no runs"), measured, "a run begins with the first trials: {listed}");
    }
}

#[test]
fn survey_ends_with_a_capacity_and_a_report_that_is_there() {
    let _alone = alone();
    let world = World::new();
    let ended = world.measure(&["survey"], PATIENCE * 8).code(0);
    let said = &ended.stdout;
    // Server and players share the cores: where the players give out before the capacity is confirmed, the
    // answer says both.
    let is_unconfirmed =
        said.contains("Not confirmed: carries ") && said.contains("the busiest player thread used");
    assert!(said.contains("Carries ") || is_unconfirmed, "{said}");
    assert!(ended.stderr.contains("  file server: did "), "{}", ended.stderr);
    let replies = ended.stderr.lines().find(|line| line.starts_with("  10 kB: ")).expect("a line of it");
    assert!(replies.contains(" 400 messages: half within ") && replies.chars().count() <= 80, "{replies}");
    let named = said.lines().find_map(|line| line.strip_prefix("Report: ")).expect("it names its report");
    let report = std::fs::read_to_string(named).expect("the report is there");
    let runs = world.run(&["runs", "list", "--json"]).code(0).json();
    let mut ids = runs.as_array().expect("runs").iter().filter_map(|run| run["run"].as_str());
    assert!(ids.any(|id| report.contains(id)) && report.contains("</html>"), "{named} is of no stored run");
    // The loopback carries what its own calibration found, or less: the ceiling was not left out.
    let run = world.run(&["runs", "show", "last", "--json"]).code(0).json();
    let doubts = run["variants"][0]["doubts"].to_string();
    let ceilings = &run["environment"]["ceilings"]["embedded server"];
    assert!(ceilings["network"]["value"].as_f64().is_some_and(|value| value > 0.0), "{ceilings}");
    assert!(!doubts.contains("ceiling_refuted"), "{ceilings} {doubts}");
}
