//! Parts on agents go through the same phases as local parts, and losses are named.

use crate::common::{
    Agent, GUARD, bus, coordinator_as, endpoint, error_text, fleet, spec, start_in_time, until, wish,
};
use base::part::{Endpoints, PartSpec, Progress};
use fleet::agent::End;
use fleet::session::{self, Role};
use fleet::{Bus, BusError};
use serde_json::{Value, json};
use zenoh::Wait;

#[test]
fn parts_on_agents_and_here_start_together() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let agents: Vec<_> = ["pc-1", "pc-2"].map(|name| Agent::start(name, &endpoint, dir.path(), true)).into();
    let mut bus = fleet(&endpoint, &["pc-[1-2]"], dir.path());
    assert_eq!(bus.hosts(), ["pc-1", "pc-2", "here"]);
    assert_eq!(bus.facts()["pc-2"]["kagiri"], "0");
    assert_eq!(bus.facts()["pc-2"]["address"], "127.0.0.1", "where it joined from");

    let specs = [("a", "pc-1"), ("b", "pc-2"), ("c", "here")].map(|(name, host)| spec(name, host, json!({})));
    let peers = Endpoints::from([("server".to_owned(), json!("there"))]);
    let outcomes = start_in_time(&mut bus, &specs, &peers);
    assert_eq!(outcomes["b"], json!({ "host": "pc-2", "peers": ["server"] }));
    until("they finish", || {
        ["a", "b", "c"].iter().all(|part| bus.progress(part).unwrap() == Progress::Finished)
    });
    let timing = bus.timing().unwrap();
    let reports = bus.stop(&["a", "b", "c"]);
    let moment = |part: &str| reports[part].as_ref().unwrap()["started_ns"].as_u64().unwrap();
    // All three have one clock, so the moments differ by no more than the clocks are believed to.
    let apart_ns = moment("a").abs_diff(moment("b")).max(moment("a").abs_diff(moment("c")));
    assert!(apart_ns <= timing.bound_ns, "{apart_ns} ns apart, {timing:?}");
    assert!(bus.timing().is_none(), "returned once");
    drop(bus);
    for agent in agents {
        assert_eq!(agent.end().unwrap(), End::RunOver);
    }
}

#[test]
fn agent_that_ends_is_reported_lost_with_its_parts() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let agent = Agent::start("nas", &endpoint, dir.path(), false);
    let other = Agent::start("pc", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas", "pc"], dir.path());
    let specs = [("a", "nas"), ("b", "pc")].map(|(name, host)| spec(name, host, json!({ "holds": true })));
    start_in_time(&mut bus, &specs, &Endpoints::new());
    drop(agent);
    until("it is missed", || bus.progress("a").is_err());
    assert!(error_text(bus.progress("a")).starts_with("host nas was lost:"));
    assert_eq!(bus.progress("b").unwrap(), Progress::Running { done: None });
    let mut ended = bus.stop(&["a", "b"]);
    assert!(matches!(ended.remove("a").unwrap(), Err(BusError::HostLost { .. })));
    assert!(ended["b"].is_ok());
    assert_eq!(bus.hosts(), ["pc", "here"]);
    let why = "nas: its agent ended, was killed, or was cut off".to_owned();
    assert_eq!(bus.unusable(), [("nas".to_owned(), why)]);
    drop((bus, other));
}

#[test]
fn report_may_be_as_long_as_what_was_asked_for() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let _agent = Agent::start("nas", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas"], dir.path());
    let count = 12_000;
    let report = |bus: &mut fleet::coordinator::FleetBus, name: &str, report_items| {
        let spec = PartSpec { report_items, ..spec(name, "nas", json!({ "lists": count })) };
        start_in_time(bus, &[spec], &Endpoints::new());
        bus.stop(&[name]).remove(name).unwrap()
    };
    let lines = report(&mut bus, "a", count).unwrap();
    assert_eq!(lines["lines"].as_array().map(Vec::len), Some(count as usize));
    let why = report(&mut bus, "b", 0).unwrap_err().to_string();
    assert!(why.contains("reading it takes more than 60 MiB of memory"), "{why}");
}

#[test]
fn part_error_names_part_and_host() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let _agent = Agent::start("nas", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas"], dir.path());
    bus.place(vec![spec("a", "nas", json!({ "fails_in": "prepare" }))]).unwrap();
    assert_eq!(error_text(bus.prepare(&["a"], &Endpoints::new())), "a on nas: the disk is full");
    assert!(error_text(bus.place(vec![spec("b", "pc", Value::Null)])).contains("no host 'pc'"));
    assert!(error_text(bus.prepare(&["z"], &Endpoints::new())).contains("no part 'z'"));
}

#[test]
fn missing_and_busy_hosts_are_listed() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let _agents = ["pc-1", "pc-2"].map(|name| Agent::start(name, &endpoint, dir.path(), false));
    let role = Role::Router { listen: vec![endpoint.clone()] };
    let _router = session::open(&role, None, &[], GUARD).unwrap();
    let on_router = |run: &str| coordinator_as(Role::Client { connect: endpoint.clone() }, run);
    let mut first = on_router("run-4");
    first.recruit(&[wish("pc-1")], GUARD, &|_| {}).unwrap();
    let short = std::time::Duration::from_millis(300);
    until("both join", || first.membership().names().len() == 2);
    let error_text = first.recruit(&[wish("pc-[1-3]")], short, &|_| {}).unwrap_err().to_string();
    assert!(error_text.contains("pc-3 did not join (joined: pc-1, pc-2)"), "{error_text}");
    // Another run requests the hosts of the first one.
    let mut second = on_router("run-5");
    let error_text = second.recruit(&[wish("pc-1")], GUARD, &|_| {}).unwrap_err().to_string();
    assert!(error_text.contains("pc-1 is busy with run run-4: wait until that run ends"), "{error_text}");
    drop(bus(first, dir.path()));
    second.recruit(&[wish("pc-1")], GUARD, &|_| {}).unwrap();
}

#[test]
fn late_start_fails_alone() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let _agent = Agent::start("nas", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas"], dir.path());
    for late in ["nas", "here"] {
        // A thread without a CPU may be late itself: repeat until the intended one is late.
        until("the one that was to be late is", || {
            let settings = |host: &str| json!({ "fails_in": (host == late).then_some("start-late") });
            bus.place(["nas", "here"].map(|host| spec(host, host, settings(host))).to_vec()).unwrap();
            bus.prepare(&["nas", "here"], &Endpoints::new()).unwrap();
            let error = bus.start(&["nas", "here"]).unwrap_err();
            assert!(bus.stop(&["nas", "here"]).values().all(Result::is_ok), "no host is lost");
            let BusError::LateStart { host, why } = &error else { panic!("{error}") };
            host == late && why.contains("the moment has passed")
        });
    }
}

/// Beside the agent of a run, another one of its name: the run ends with the reason, whether it comes before
/// a trial, during it, or at its end. An agent that was cut off and joins again has two for a moment.
#[test]
fn two_agents_of_one_name_end_the_run() {
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let reason = "two agents have the name nas: end one, or give it another --name";
    let _first = Agent::start("nas", &endpoint, dir.path(), false);
    let mut bus = fleet(&endpoint, &["nas"], dir.path());
    let part = || vec![spec("a", "nas", json!({}))];
    bus.place(part()).unwrap();
    bus.prepare(&["a"], &Endpoints::new()).unwrap();
    bus.start(&["a"]).unwrap();
    {
        let token = fleet::protocol::agent_key("nas", "for-a-moment");
        let role = Role::Client { connect: endpoint.clone() };
        let session = session::open(&role, None, &[], GUARD).unwrap();
        let _token = session.liveliness().declare_token(token).wait().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        bus.progress("a").expect("it may be the same agent, which joins again");
    }
    let stopped = bus.stop(&["a"]).remove("a").unwrap();
    stopped.expect("one agent is left");

    bus.place(part()).unwrap();
    let _second = Agent::start("nas", &endpoint, dir.path(), false);
    until("the second one is noticed", || bus.progress("a").is_err());
    assert_eq!(bus.progress("a").unwrap_err().to_string(), reason);
    assert_eq!(bus.stop(&["a"]).remove("a").unwrap().unwrap_err().to_string(), reason);
    assert_eq!(bus.place(part()).unwrap_err().to_string(), reason);
}
