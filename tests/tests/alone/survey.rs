//! `kagiri survey`, whole and interrupted. Alone, because it fills the machine.

use std::time::Duration;

use kagiri_tests::{World, alone};
use nix::sys::signal::Signal;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn survey_is_interrupted_while_it_calibrates_and_measures() {
    let _alone = alone();
    let world = World::new();
    for (part, measured) in [("disk: reading", false), ("3 of 6: ", true)] {
        let mut live = world.start(&["survey"]);
        live.wait_for(part, PATIENCE * 3);
        live.signal(Signal::SIGINT);
        let ended = live.end(PATIENCE);
        world.assert_nothing_left(ended.pid);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        let ended = ended.code(130);
        assert!(!ended.stderr.contains("4 of 6"), "{}", ended.stderr);
        // What was measured before is printed, and kept.
        assert_eq!(ended.stdout.contains("TCP, 1 flow"), measured, "{}", ended.stdout);
        let listed = world.run(&["runs", "list"]).code(0).stdout;
        assert_eq!(!listed.contains("no runs"), measured, "a run begins with the first trials: {listed}");
    }
}

/// Every workload's row, by its name.
const ROWS: [&str; 10] = [
    "disk, sequential",
    "loopback, sendfile",
    "TCP, 1 flow",
    "TCP, 8 flows",
    "UDP, 1472 B",
    "requests, 1 B",
    "replies, 10 kB",
    "events, 100 sources",
    "file server",
    "25 Mbit/s streams",
];

#[test]
fn survey_ends_with_one_table_and_one_report() {
    let _alone = alone();
    let world = World::new();
    let ended = world.measure(&["survey"], PATIENCE * 8).code(0);
    let said = &ended.stdout;
    assert!(said.lines().count() <= 15, "{said}");
    let is_short = |line: &str| line.chars().count() <= 80 || line.starts_with("Report: ");
    assert!(said.lines().all(is_short), "{said}");
    let row = |name: &str| {
        let found = said.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("no row '{name}' in\n{said}"))[name.len()..].trim().to_owned()
    };
    for name in ROWS {
        let row = row(name);
        assert!(row.contains(|c: char| c.is_ascii_digit()), "{name} has no number: {row}\n{}", ended.stderr);
        assert!(!row.contains("not measured") && !row.contains("failed"), "{name}: {row}\n{}", ended.stderr);
    }
    assert!(row("replies, 10 kB").starts_with("p99 "), "{said}");
    // Server and players share the cores. That the players need them, too, is a limit and no failure.
    let streams = row("25 Mbit/s streams");
    assert!(streams.contains(" streams "), "{streams}\n{}", ended.stderr);

    let named = said.lines().find_map(|line| line.strip_prefix("Report: ")).expect("it names its report");
    let report = std::fs::read_to_string(named).expect("the report is there");
    let runs = world.run(&["runs", "list", "--json"]).code(0).json();
    let ids: Vec<&str> =
        runs.as_array().expect("runs").iter().filter_map(|run| run["run"].as_str()).collect();
    assert_eq!(ids.len(), 5, "a run for each workload: {runs}");
    for id in ids {
        assert!(report.contains(&format!("id=\"run-{id}\"")), "{named} has no run {id}");
    }
    assert!(report.contains("</html>") && ROWS.iter().all(|name| report.contains(name)), "{named}");
    // The loopback carries what its own calibration found, or less: the ceiling was not left out.
    let run = world.run(&["runs", "show", "last", "--json"]).code(0).json();
    assert!(run["capacity"]["passes"].as_u64() >= Some(1), "{}", run["capacity"]);
    let doubts = run["variants"][0]["doubts"].to_string();
    assert!(!doubts.contains("capacity_unconfirmed"), "{doubts}\n{}", ended.stderr);
    let ceilings = &run["environment"]["ceilings"]["embedded server"];
    assert!(ceilings["network"]["value"].as_f64().is_some_and(|value| value > 0.0), "{ceilings}");
    assert!(!doubts.contains("ceiling_refuted"), "{ceilings} {doubts}");
    let rows = run["environment"]["survey"]["rows"].as_array().expect("the rows of the other runs");
    assert_eq!(rows.len(), ROWS.len() - 1, "{rows:?}");
    let again = world.run(&["report", "-o", "-"]).code(0).stdout;
    let anchors = |page: &str| page.matches("<section id=\"run-").count();
    assert_eq!((anchors(&again), anchors(&report)), (5, 5), "the same report can be written again");
}
