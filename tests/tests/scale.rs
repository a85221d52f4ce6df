//! A hundred agents in one process: joined, asked, commanded, and one of them lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::part::{Endpoints, HostContext, Part, PartError, PartKind, PartSpec, Progress};
use base::permit::Everything;
use base::placement::Wish;
use fleet::agent::{self, End};
use fleet::clock::DatagramAddress;
use fleet::coordinator::{Coordinator, FleetBus, Setting};
use fleet::local::LocalBus;
use fleet::session::Role;
use fleet::{Bus, BusError, FleetError};
use serde_json::{Value, json};
use sys::clock::{Deadline, monotonic_ns, sleep_until_ns};
use sys::proc::ProcessSet;

const AGENTS: usize = 100;
/// No wait is longer.
const GUARD: Duration = Duration::from_secs(20);
/// What a hundred agents and their coordinator may hold: a tenth of what a lab of a hundred processes has.
const MEMORY_MAX_BYTES: u64 = 400 << 20;

/// Notes when it was told to start, and when a thread of it ran.
#[derive(Default)]
struct Starter {
    told_ns: Option<u64>,
    thread: Option<JoinHandle<u64>>,
}

impl Part for Starter {
    fn prepare(&mut self, _: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        Ok(json!({ "host": host.name }))
    }
    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        self.told_ns = Some(at_monotonic_ns);
        self.thread = Some(std::thread::spawn(move || {
            sleep_until_ns(at_monotonic_ns);
            monotonic_ns()
        }));
        Ok(())
    }
    fn progress(&mut self) -> Progress {
        match &self.thread {
            Some(thread) if thread.is_finished() => Progress::Finished,
            _ => Progress::Running { done: None },
        }
    }
    fn stop(&mut self) -> Result<Value, PartError> {
        let ran_ns = self.thread.take().and_then(|thread| thread.join().ok());
        Ok(json!({ "told_ns": self.told_ns, "ran_ns": ran_ns }))
    }
}

fn kinds() -> Vec<PartKind> {
    vec![PartKind { name: "test.starter", build: |_| Ok(Box::<Starter>::default()) }]
}

fn context(dir: &Path) -> HostContext {
    HostContext::here(dir.to_owned(), dir.to_owned(), "unused".into())
}

/// An agent on a thread, ended when dropped.
struct Agent {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<End, FleetError>>>,
}

impl Agent {
    fn start(name: &str, endpoint: &str, dir: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let setting = agent::Setting {
            name: name.to_owned(),
            join: endpoint.to_owned(),
            more: Vec::new(),
            kinds: kinds(),
            host: HostContext { name: name.to_owned(), ..context(dir) },
            grants: Arc::new(|_, _| Ok(Arc::new(Everything))),
            version: "0".into(),
            environment: BTreeMap::new(),
            once: false,
            join_within: None,
            stop: Arc::clone(&stop),
        };
        let run = move || agent::run(&setting, &|_| {}, &|| None);
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }
}

impl Agent {
    /// Let it end by itself.
    fn tell_to_end(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.tell_to_end();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn coordinator(endpoint: &str) -> Coordinator {
    let setting = Setting {
        role: Role::Router { listen: vec![endpoint.to_owned()] },
        more: Vec::new(),
        clock: DatagramAddress::Udp((Ipv4Addr::LOCALHOST, 0).into()),
        name: "test".into(),
        run: "scale".into(),
        stop: Arc::default(),
    };
    Coordinator::open(setting).expect("a coordinator")
}

fn name(number: usize) -> String {
    format!("agent-{number}")
}

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Deadline::after(GUARD);
    while !is_so() {
        assert!(deadline.pause(Duration::from_millis(5)), "{what}: not within {GUARD:?}");
    }
}

/// This process's memory, bytes.
fn memory_bytes() -> u64 {
    let own = i32::try_from(std::process::id()).expect("an id");
    let mut set = ProcessSet::open(Path::new("/"), &[own]).expect("this process");
    set.read_memory().expect("it is readable").rss_bytes
}

/// When each part was told to start, and ran; ns.
fn moments(reports: &BTreeMap<String, Result<Value, BusError>>, key: &str) -> Vec<u64> {
    let moment = |report: &Result<Value, BusError>| report.as_ref().ok()?[key].as_u64();
    reports.values().filter_map(moment).collect()
}

fn apart(moments: &[u64]) -> u64 {
    let (least, most) = (moments.iter().min(), moments.iter().max());
    most.zip(least).map(|(most, least)| most - least).expect("there are some")
}

#[test]
fn a_hundred_agents_start_together_and_the_one_that_is_lost_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let endpoint = format!("tcp/{}", listener.local_addr().expect("it is bound"));
    drop(listener);
    let before_bytes = memory_bytes();
    let mut agents: Vec<Agent> = (0..AGENTS).map(|n| Agent::start(&name(n), &endpoint, dir.path())).collect();
    let mut coordinator = coordinator(&endpoint);
    let wish = Wish { hosts: format!("agent-[0-{}]", AGENTS - 1), count: None, at_least: None };
    coordinator.gather(&[wish], GUARD, &|_| {}).expect("all come");
    assert_eq!(coordinator.agents().len(), AGENTS);

    let began = Instant::now();
    let answers = coordinator.describe_all(GUARD).expect("all are asked");
    let named: BTreeSet<_> = answers.iter().map(|one| one.name.clone()).collect();
    assert_eq!((answers.len(), named.len()), (AGENTS, AGENTS), "each answers once");
    assert!(began.elapsed() < GUARD, "the last answer ends the question, not its deadline");

    let mut bus = FleetBus::new(coordinator, LocalBus::new(kinds(), context(dir.path())), Box::new(|_| {}));
    let all: Vec<String> = (0..AGENTS).map(name).collect();
    let parts: Vec<&str> = all.iter().map(String::as_str).collect();
    let spec = |name: &String| PartSpec {
        kind: "test.starter".into(),
        name: name.clone(),
        host: name.clone(),
        settings: Value::Null,
    };
    bus.place(all.iter().map(spec).collect()).expect("all are placed");
    let told = bus.prepare(&parts, &Endpoints::new()).expect("all are prepared");
    assert_eq!(told[&name(42)], json!({ "host": name(42) }));
    bus.start(&parts).expect("all are started");
    until("all have run", || {
        parts.iter().all(|part| bus.progress(part).expect("it is there") == Progress::Finished)
    });
    let timing = bus.timing().expect("they started together");
    // Reports are taken from all but the last, which goes on to be lost.
    let (last, others) = parts.split_last().expect("there are some");
    let reports = bus.stop(others);
    let (told, ran) = (moments(&reports, "told_ns"), moments(&reports, "ran_ns"));
    assert_eq!((told.len(), ran.len()), (AGENTS - 1, AGENTS - 1));
    // All of them have one clock: what they were told differs by no more than it is believed to.
    assert!(apart(&told) <= timing.bound_ns, "{} ns apart, {timing:?}", apart(&told));
    assert!(ran.iter().zip(&told).all(|(ran, told)| ran >= told), "nobody started early");

    let held_bytes = memory_bytes().saturating_sub(before_bytes);
    assert!(held_bytes < MEMORY_MAX_BYTES, "{AGENTS} agents hold {held_bytes} bytes");

    drop(agents.pop());
    until("the last one is missed", || bus.progress(last).is_err());
    let error = bus.progress(last).expect_err("it is lost").to_string();
    assert!(error.starts_with(&format!("host {last} was lost:")), "{error}");
    assert_eq!(bus.hosts().len(), AGENTS, "99 and this one");
    assert!(matches!(bus.stop(&[last]).remove(*last), Some(Err(BusError::Lost { .. }))));
    drop(bus);
    // Each may take a moment: together.
    agents.iter().for_each(Agent::tell_to_end);
}
