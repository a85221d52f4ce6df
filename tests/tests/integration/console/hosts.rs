//! Hosts of a fleet in the console: one that leaves while it is watched, and comes back.

use kagiri_tests::{Console, FLEET_PATIENCE, Fleet, http_request, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const PLAN: &str = "name = 'far'\nrepeats = 50\nworkload = 'transfer'\n[place]\nserver = 'nas'\n[transfer]\n\
    rate = '20Mbit/s'\ntime = '1s'\n";

fn state_of(console: &Console, name: &str) -> Value {
    let hosts = console.get("/hosts");
    let found = hosts.as_array().and_then(|all| all.iter().find(|host| host["name"] == name)).cloned();
    found.map_or(Value::Null, |host| host["state"].clone())
}

#[test]
fn host_that_leaves_is_lost_its_run_names_it_and_keeps_its_trials() {
    let fleet = Fleet::new();
    let server = fleet.world.start(&["serve", "--listen", "127.0.0.1:0", "--fleet", &fleet.endpoint]);
    let console = Console::of(server);
    assert_eq!(state_of(&console, "nas"), Value::Null);
    let agent = fleet.agent("nas");
    wait_until("nas joins", FLEET_PATIENCE, || state_of(&console, "nas") == "free");
    let job = console.run(PLAN);
    // A page that stays open all the time.
    let bearer = format!("Bearer {}", console.token);
    let path = format!("/api/v1/jobs/{job}/events");
    let mut page = http_request(console.address, "GET", &path, &[("Authorization", bearer.as_str())], "");
    page.events(|name, _| name == "trial");
    assert_eq!(state_of(&console, "nas"), "busy");
    agent.signal(Signal::SIGKILL);
    let rest = page.events(|name, _| name == "bye");
    let end = rest.iter().find(|(name, ..)| name == "end").map(|(_, _, data)| data.clone());
    assert!(end.is_some_and(|end| end["state"] == "failed"), "{rest:?}");
    let failed = console.until(&job, &["failed"]);
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(message.contains("nas") && message.contains("killed"), "{failed:#}");
    let run = console.get(&format!("/runs/{}", failed["run"].as_str().expect("a run")));
    assert!(run["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{failed:#}");
    wait_until("nas is lost", FLEET_PATIENCE, || state_of(&console, "nas") == "lost");
    let gone = agent.end(FLEET_PATIENCE).pid;
    // It comes back, and the next run uses it.
    let agent = fleet.agent("nas");
    wait_until("nas is back", FLEET_PATIENCE, || state_of(&console, "nas") == "free");
    let again = console.run(&PLAN.replace("50", "1"));
    assert_eq!(console.until(&again, &["ended", "failed"])["state"], "ended");
    console.end(Signal::SIGINT).code(0);
    fleet.end(vec![agent], &[gone]);
}
