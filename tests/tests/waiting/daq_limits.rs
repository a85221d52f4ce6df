//! A switch's port whose limits are known by arithmetic: the search of `kagiri daq` finds them, for sources,
//! rate and size, and names the cause.

use std::time::Duration;

use kagiri_tests::{World, beside_others, need_programs, need_root, undisturbed};
use serde_json::Value as Json;

const PATIENCE: Duration = Duration::from_secs(180);

/// The builder's port takes 20 Mbit/s, which two cores offer easily, and holds 64 KiB. A fragment of 1 KiB is
/// a packet of 1154 bytes: 56 fit, and 2166 pass in a second.
const LAB: &str = r#"
name = "daq-VARY"
[host.source]
count = 4
[host.builder]
[switch.tor]
[[link]]
between = ["source-*", "tor"]
rate = "1Gbit/s"
buffer = "1MiB"
[[link]]
from = "builder"
to = "tor"
rate = "20Mbit/s"
buffer = "64KiB"
"#;

/// Searches for the largest `vary` with these settings, until the capacity is within `truth` for this reason,
/// or attempts run out.
fn search_finds(vary: &str, settings: &str, truth: std::ops::RangeInclusive<f64>, resource: &str) {
    need_root!();
    need_programs!("ip", "tc");
    // The port is slow and the CPUs are idle: another such test may run.
    let _shared = beside_others();
    let plan = format!(
        "schema = 1\nworkload = 'daq'\nlab = 'lab.toml'\n[place]\nbuilder = 'builder'\nsources = 'source-*'\n\
         [daq]\ntime = '1s'\nomit = '200ms'\nsearch.resolution_percent = 20\nsearch.vary = '{vary}'\n\
         {settings}"
    );
    let value = |it: &Json| it["capacity"]["value"].as_f64().unwrap_or(f64::NAN);
    let limit = |it: &Json| (it["limit"]["resource"].clone(), it["limit"]["certainty"].clone());
    let wanted = (Json::from(resource), Json::from("confirmed"));
    let (ended, document) = undisturbed(
        |it| truth.contains(&value(it)) && limit(it) == wanted,
        || {
            let world = World::new();
            world.write("lab.toml", LAB.replace("VARY", vary));
            world.write("plan.toml", &plan);
            world.measure(&["run", "plan.toml", "--json"], PATIENCE)
        },
    );
    eprintln!("{}", ended.stderr);
    ended.code(0);
    assert!(truth.contains(&value(&document)), "{}, expected {truth:?}", document["capacity"]);
    assert_eq!(limit(&document), wanted, "{}", document["limit"]);
}

#[test]
fn a_shallow_port_takes_56_sources_at_once() {
    let settings = "pattern = 'push'\nlink = '20Mbit/s'\nbuffer = '64KiB'\n\
                    search.max = 320\nobjective.completion_p99_max = '100ms'\n";
    search_finds("sources", settings, 46.0..=60.0, "buffer");
}

#[test]
fn a_narrow_port_takes_54_events_a_second() {
    let settings = "sources = 40\npattern = 'grant'\ncredit = 40\nwindow = 3\n\
                    search.max = 320\nobjective.dead_time_percent_max = 5\n";
    search_finds("rate", settings, 45.0..=60.0, "network");
}

#[test]
fn a_narrow_port_takes_fragments_of_11_kb() {
    let settings = "sources = 20\npattern = 'grant'\ncredit = 2\nsearch.max = 65536\n\
                    objective.completion_p99_max = '100ms'\n";
    search_finds("size", settings, 9_000.0..=12_900.0, "network");
}
