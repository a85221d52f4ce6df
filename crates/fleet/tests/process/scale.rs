//! A hundred agents in one process: joined, asked, commanded, and one of them lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::common::{Agent, GUARD, bus, coordinator, endpoint, spec, start_in_time, until, wish};
use base::part::{Endpoints, Progress};
use fleet::{Bus, BusError};
use serde_json::{Value, json};
use sys::proc::ProcessSet;

const AGENTS: usize = 100;
/// Memory limit of a hundred agents and their coordinator: a tenth of that of a lab of a hundred processes.
const MEMORY_MAX_BYTES: u64 = 400 << 20;

fn name(number: usize) -> String {
    format!("agent-{number}")
}

pub fn memory_bytes() -> u64 {
    let own = i32::try_from(std::process::id()).expect("an id");
    let mut set = ProcessSet::open(Path::new("/"), &[own]).expect("this process");
    set.read_memory().expect("it is readable").rss_bytes
}

/// Requested and actual start of each part, ns.
fn moments(reports: &BTreeMap<String, Result<Value, BusError>>, key: &str) -> Vec<u64> {
    let moment = |report: &Result<Value, BusError>| report.as_ref().ok()?[key].as_u64();
    reports.values().filter_map(moment).collect()
}

fn apart(moments: &[u64]) -> u64 {
    let (least, most) = (moments.iter().min(), moments.iter().max());
    most.zip(least).map(|(most, least)| most - least).expect("there are some")
}

#[test]
fn hundred_agents_start_together_and_a_lost_one_is_named() {
    let _alone = crate::alone();
    let (dir, endpoint) = (tempfile::tempdir().unwrap(), endpoint());
    let before_bytes = memory_bytes();
    let mut agents: Vec<Agent> =
        (0..AGENTS).map(|n| Agent::start(&name(n), &endpoint, dir.path(), false)).collect();
    let mut coordinator = coordinator(&endpoint, "scale");
    let all = wish(&format!("agent-[0-{}]", AGENTS - 1));
    coordinator.recruit(&[all], GUARD, &|_| {}).expect("all come");
    assert_eq!(coordinator.agents().len(), AGENTS);

    let began = Instant::now();
    let answers = coordinator.describe_all(GUARD).expect("all are asked");
    let named: BTreeSet<_> = answers.iter().map(|one| one.name.clone()).collect();
    assert_eq!((answers.len(), named.len()), (AGENTS, AGENTS), "each answers once");
    assert!(began.elapsed() < GUARD, "the last answer ends the question, not its deadline");

    let mut bus = bus(coordinator, dir.path());
    let all: Vec<String> = (0..AGENTS).map(name).collect();
    let parts: Vec<&str> = all.iter().map(String::as_str).collect();
    let specs: Vec<_> = all.iter().map(|name| spec(name, name, json!({}))).collect();
    let start_times = start_in_time(&mut bus, &specs, &Endpoints::new());
    assert_eq!(start_times[&name(42)], json!({ "host": name(42), "peers": [] }));
    until("all have run", || {
        parts.iter().all(|part| bus.progress(part).expect("it is there") == Progress::Finished)
    });
    let timing = bus.timing().expect("they started together");
    // The last agent continues and is lost later.
    let (last, others) = parts.split_last().expect("there are some");
    let reports = bus.stop(others);
    let start_times = moments(&reports, "started_ns");
    assert_eq!(start_times.len(), AGENTS - 1);
    // All share one clock, so their start times differ by less than the bound.
    assert!(apart(&start_times) <= timing.bound_ns, "{} ns apart, {timing:?}", apart(&start_times));

    let held_bytes = memory_bytes().saturating_sub(before_bytes);
    assert!(held_bytes < MEMORY_MAX_BYTES, "{AGENTS} agents hold {held_bytes} bytes");

    drop(agents.pop());
    until("the last one is missed", || bus.progress(last).is_err());
    let error = bus.progress(last).expect_err("it is lost").to_string();
    assert!(error.starts_with(&format!("host {last} was lost:")), "{error}");
    assert_eq!(bus.hosts().len(), AGENTS, "99 and this one");
    assert!(matches!(bus.stop(&[last]).remove(*last), Some(Err(BusError::HostLost { .. }))));
    drop(bus);
    // Each may take a moment: together.
    agents.iter().for_each(|agent| agent.stop.store(true, Ordering::Relaxed));
}
