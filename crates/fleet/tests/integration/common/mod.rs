//! A fleet in one process, over loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base::part::{AnyPart, Endpoints, HostContext, PartError, PartKind, PartSpec, Progress};
use base::permit::Everything;
use base::placement::Wish;
use fleet::agent::{self, End};
use fleet::clock::DatagramAddress;
use fleet::coordinator::{Coordinator, CoordinatorConfig, FleetBus};
use fleet::local::LocalBus;
use fleet::session::Role;
use fleet::{Bus, BusError, FleetError};
use serde_json::{Value, json};
use sys::clock::Deadline;

/// No wait of a test is longer.
pub const GUARD: Duration = Duration::from_secs(20);

/// A part that runs until its start time, or as its settings say: `{"fails_in": "prepare"}`, `{"holds":
/// true}`; with `{"fails_in": "prepare-slowly", "leaves": FILE}` it prepares until it is stopped, and has a
/// file until it is dropped; with `{"fails_in": "start-late"}` it sees that the moment has passed; with
/// `{"says_after": FILE}` it does not say how far it is before there is this file, and makes one beside it
/// when it is asked; with `{"lists": N}` its report has N lines of forty numbers.
struct Worker {
    settings: Value,
    started_ns: Option<u64>,
    leaves: Option<PathBuf>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.leaves.iter().for_each(|file| std::fs::remove_file(file).expect("no other process removes it"));
    }
}

impl AnyPart for Worker {
    fn prepare(&mut self, peers: &Endpoints, host: &HostContext) -> Result<Value, PartError> {
        match self.settings["fails_in"].as_str() {
            Some("prepare") => return Err(PartError::new("the disk is full")),
            Some("prepare-slowly") => {
                // Files that would be left behind without its drop, and a short time for ending.
                self.leaves = self.settings["leaves"].as_str().map(Into::into);
                self.leaves.iter().for_each(|file| std::fs::write(file, "made").expect("a test needs it"));
                while !host.stop_requested() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::thread::sleep(Duration::from_millis(300));
                return Err(PartError::new("interrupted"));
            }
            _ => {}
        }
        host.say("prepared");
        Ok(json!({ "host": host.name, "peers": peers.keys().collect::<Vec<_>>() }))
    }
    fn start(&mut self, at_monotonic_ns: u64) -> Result<(), PartError> {
        if self.settings["fails_in"] == "start-late" {
            sys::clock::sleep_until_ns(at_monotonic_ns);
            return Err(PartError::new("the moment has passed"));
        }
        self.started_ns = Some(at_monotonic_ns);
        Ok(())
    }
    fn progress(&mut self) -> Progress {
        if let Some(file) = self.settings["says_after"].as_str().map(Path::new) {
            std::fs::write(file.with_extension("asked"), "").expect("a test needs it");
            until("it may say", || file.exists());
        }
        match self.started_ns {
            Some(at_ns) if sys::clock::monotonic_ns() >= at_ns && self.settings["holds"].is_null() => {
                Progress::Finished
            }
            _ => Progress::Running { done: None },
        }
    }
    fn stop(&mut self) -> Result<Value, PartError> {
        let line: BTreeMap<String, u64> =
            (0..40).map(|number| (format!("number_{number}"), number)).collect();
        let lines = vec![line; self.settings["lists"].as_u64().unwrap_or(0) as usize];
        Ok(json!({ "started_ns": self.started_ns, "lines": lines }))
    }
}

fn build(spec: &PartSpec) -> Result<Box<dyn AnyPart>, PartError> {
    Ok(Box::new(Worker { settings: spec.settings.clone(), started_ns: None, leaves: None }))
}

pub fn kinds() -> Vec<PartKind> {
    vec![PartKind { name: "test.worker", build }]
}

pub fn spec(name: &str, host: &str, settings: Value) -> PartSpec {
    PartSpec { kind: "test.worker".into(), name: name.into(), host: host.into(), settings, report_items: 0 }
}

pub fn context(dir: &Path) -> HostContext {
    HostContext::here(dir.to_owned(), dir.to_owned(), "unused".into())
}

/// A port that was free a moment ago.
pub fn endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a test needs it");
    format!("tcp/{}", listener.local_addr().expect("a test needs it"))
}

pub struct Agent {
    pub stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<End, FleetError>>>,
}

impl Agent {
    pub fn start(name: &str, endpoint: &str, dir: &Path, once: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let setting = agent::AgentConfig {
            name: name.to_owned(),
            join: endpoint.to_owned(),
            credentials: None,
            kinds: kinds(),
            host: HostContext { name: name.to_owned(), ..context(dir) },
            permits: Arc::new(|_, _| Ok(Arc::new(Everything))),
            version: "0".into(),
            environment: BTreeMap::new(),
            once,
            join_within: None,
            stop: Arc::clone(&stop),
        };
        let run = move || agent::run(&setting, &|line| eprintln!("{line}"), &|| None);
        Self { stop, thread: Some(std::thread::spawn(run)) }
    }

    pub fn end(mut self) -> Result<End, FleetError> {
        self.thread.take().expect("a test needs it").join().expect("a test needs it")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

pub fn coordinator(endpoint: &str, run: &str) -> Coordinator {
    coordinator_as(Role::Router { listen: vec![endpoint.to_owned()] }, run)
}

pub fn coordinator_as(role: Role, run: &str) -> Coordinator {
    let setting = CoordinatorConfig {
        role,
        credentials: None,
        more: Vec::new(),
        clock: DatagramAddress::Udp("127.0.0.1:0".parse().expect("a test needs it")),
        name: "test".into(),
        run: run.to_owned(),
        stop: Arc::default(),
    };
    Coordinator::open(setting).expect("a test needs it")
}

pub fn wish(hosts: &str) -> Wish {
    Wish { hosts: hosts.into(), count: None, at_least: None }
}

pub fn bus(coordinator: Coordinator, dir: &Path) -> FleetBus {
    let local = LocalBus::new(kinds(), context(dir));
    FleetBus::new(coordinator, local)
}

/// The bus of a run that has recruited these hosts.
pub fn fleet(endpoint: &str, hosts: &[&str], dir: &Path) -> FleetBus {
    let mut coordinator = coordinator(endpoint, "run");
    let wishes: Vec<_> = hosts.iter().map(|host| wish(host)).collect();
    coordinator.recruit(&wishes, GUARD, &|_| {}).expect("all join");
    bus(coordinator, dir)
}

/// Places, prepares and starts parts; returns their endpoints. Repeats a start that was too late on a busy
/// machine, as the engine does; any other error fails.
pub fn start_in_time(bus: &mut FleetBus, specs: &[PartSpec], peers: &Endpoints) -> Endpoints {
    let parts: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let deadline = Deadline::after(GUARD);
    loop {
        bus.place(specs.to_vec()).expect("all are placed");
        let endpoints = bus.prepare(&parts, peers).expect("all are prepared");
        match bus.start(&parts) {
            Ok(()) => return endpoints,
            Err(error @ BusError::LateStart { .. }) => assert!(!deadline.passed(), "never in time: {error}"),
            Err(error) => panic!("{error}"),
        }
        assert!(bus.stop(&parts).values().all(Result::is_ok), "a late host is not lost");
    }
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Deadline::after(GUARD);
    while !is_so() {
        assert!(deadline.pause(Duration::from_millis(5)), "{what}: not within {GUARD:?}");
    }
}

pub fn error_text<T>(result: Result<T, BusError>) -> String {
    match result {
        Ok(_) => panic!("it was to fail"),
        Err(error) => error.to_string(),
    }
}
