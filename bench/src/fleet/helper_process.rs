//! What this program starts itself for on a lab's hosts: a crowd of agents, and a coordinator that prints
//! what it sees.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use base::part::HostContext;
use base::permit::Everything;
use clap::Args;
use fleet::agent;
use fleet::clock::DatagramAddress;
use fleet::coordinator::{Coordinator, CoordinatorConfig};
use fleet::identity::{Credentials, access_control, low_pass_filter};
use fleet::session;
use serde::{Deserialize, Serialize};
use sys::clock::{Deadline, monotonic_ns};
use sys::proc::ProcessSet;

/// Longer than anything here takes; the process that started this one ends it anyway.
const WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at the roster.
const LOOK: Duration = Duration::from_millis(100);
const NAMED_MAX: usize = 20;
/// What a crowd says once all of its agents wait for a coordinator.
pub const WAITING: &str = "all are waiting";

/// What a coordinator prints, one line of JSON each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Agents can join soon after this moment.
    Listening {
        at_ns: u64,
    },
    Whole {
        at_ns: u64,
        used: Cost,
    },
    /// Nothing was asked since [`Event::Whole`] for as long as was wished.
    Rested {
        used: Cost,
        before: Cost,
    },
    /// All were asked, again and again: how long each round took.
    Asked {
        took_ms: Vec<f64>,
        used: Cost,
        before: Cost,
    },
    Silent {
        round: usize,
        answers: usize,
        names: Vec<String>,
    },
    Changed {
        at_ns: u64,
        came: Vec<String>,
        gone: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// When, ns.
    pub at_ns: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
}

impl Cost {
    fn now() -> anyhow::Result<Self> {
        let own = i32::try_from(std::process::id())?;
        let memory = ProcessSet::open(Path::new("/"), &[own])?.read_memory();
        let rss_bytes = memory.context("this process's memory cannot be read")?.rss_bytes;
        Ok(Self { at_ns: monotonic_ns(), cpu_ns: sys::thread::process_cpu_ns(), rss_bytes })
    }

    /// CPU since another moment, in % of one core.
    pub fn cpu_percent_since(&self, before: &Self) -> f64 {
        let wall_ns = self.at_ns.saturating_sub(before.at_ns).max(1);
        100.0 * self.cpu_ns.saturating_sub(before.cpu_ns) as f64 / wall_ns as f64
    }
}

/// Be many agents, each with a session of its own.
#[derive(Args)]
pub struct Crowd {
    /// The coordinator's endpoint
    #[arg(long)]
    join: String,
    /// The number of the first: agent-N
    #[arg(long)]
    first: u32,
    /// How many
    #[arg(long)]
    count: u32,
    /// Where the fleet's credentials are
    #[arg(long)]
    fleet: Option<PathBuf>,
    /// Where they may write
    #[arg(long)]
    data: PathBuf,
}

/// The name of an agent of a crowd.
pub fn name(number: u32) -> String {
    format!("agent-{number}")
}

/// The bundle of a member of the fleet in `dir`.
pub fn bundle(dir: &Path, member: &str) -> PathBuf {
    dir.join("bundles").join(member)
}

impl Crowd {
    /// Be them until killed.
    pub fn perform(self) -> anyhow::Result<()> {
        sys::thread::raise_file_limit(u64::from(self.count) * 16 + 1024)?;
        let waiting = Arc::new(AtomicU32::new(0));
        let mut threads = Vec::new();
        for number in self.first..self.first + self.count {
            let (setting, waiting, count) = (self.setting(number)?, Arc::clone(&waiting), self.count);
            let say = move |line: &str| {
                if line.starts_with("waiting") && waiting.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    println!("{WAITING}");
                }
            };
            let be = move || agent::run(&setting, &say, &|| None).map(drop);
            threads.push(std::thread::Builder::new().name("agent".into()).spawn(be)?);
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("an agent panicked"))??;
        }
        Ok(())
    }

    fn setting(&self, number: u32) -> anyhow::Result<agent::AgentConfig> {
        let name = name(number);
        let credentials =
            self.fleet.as_deref().map(|dir| Credentials::load(&bundle(dir, &name))).transpose()?;
        let host = HostContext::here(self.data.clone(), self.data.clone(), std::env::current_exe()?);
        let facts = serde_json::to_value(sys::environment::describe(Path::new("/")))?;
        Ok(agent::AgentConfig {
            host: HostContext { name: name.clone(), ..host },
            name,
            join: self.join.clone(),
            credentials,
            kinds: run::registry::BUILT_IN.part_kinds(),
            permits: Arc::new(|_, _| Ok(Arc::new(Everything))),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: facts.as_object().cloned().unwrap_or_default().into_iter().collect(),
            once: false,
            join_within: None,
            stop: Arc::default(),
        })
    }
}

/// Be a coordinator.
#[derive(Args)]
pub struct Coordinate {
    /// Where to listen
    #[arg(long)]
    listen: String,
    /// Where clock probes are answered
    #[arg(long)]
    clock: SocketAddr,
    /// Where the fleet's credentials are
    #[arg(long)]
    fleet: Option<PathBuf>,
    /// How many agents are to come
    #[arg(long)]
    expect: usize,
    /// How long to ask nothing then, ms
    #[arg(long, default_value_t = 0)]
    rest_ms: u64,
    /// How often to ask all then
    #[arg(long, default_value_t = 0)]
    rounds: usize,
}

fn print_event(event: &Event) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(event)?);
    Ok(())
}

impl Coordinate {
    /// Be it until killed.
    pub fn perform(self) -> anyhow::Result<()> {
        let credentials =
            self.fleet.as_deref().map(|dir| Credentials::load(&bundle(dir, "coordinator"))).transpose()?;
        let more = vec![access_control(credentials.as_ref()), low_pass_filter()];
        // It can be joined before this line is printed.
        print_event(&Event::Listening { at_ns: monotonic_ns() })?;
        let coordinator = Coordinator::open(CoordinatorConfig {
            role: session::Role::Router { listen: vec![self.listen.clone()] },
            credentials,
            more,
            clock: DatagramAddress::Udp(self.clock),
            name: "bench".into(),
            run: "bench".into(),
            stop: Arc::default(),
        })?;
        self.await_all(&coordinator)?;
        print_event(&Event::Whole { at_ns: monotonic_ns(), used: Cost::now()? })?;
        if self.rest_ms > 0 {
            let before = Cost::now()?;
            std::thread::sleep(Duration::from_millis(self.rest_ms));
            print_event(&Event::Rested { used: Cost::now()?, before })?;
        }
        if self.rounds > 0 {
            self.ask(&coordinator)?;
        }
        watch(&coordinator)
    }

    fn await_all(&self, coordinator: &Coordinator) -> anyhow::Result<()> {
        let (deadline, mut changes) = (Deadline::after(WITHIN), 0);
        loop {
            let there = coordinator.membership().names().len();
            if there >= self.expect {
                return Ok(());
            }
            ensure!(!deadline.passed(), "{there} of {} agents came within {WITHIN:?}", self.expect);
            changes = coordinator.membership().wait_change(changes, LOOK);
        }
    }

    fn ask(&self, coordinator: &Coordinator) -> anyhow::Result<()> {
        let before = Cost::now()?;
        let mut took_ms = Vec::new();
        for round in 0..self.rounds {
            let began = Instant::now();
            let answers = coordinator.describe_all(WITHIN)?;
            // Microseconds are enough, and keep the line short.
            took_ms.push((began.elapsed().as_secs_f64() * 1e6).round() / 1e3);
            let answered: BTreeSet<String> = answers.into_iter().map(|one| one.name).collect();
            if answered.len() < self.expect {
                let silent =
                    coordinator.membership().names().into_iter().filter(|name| !answered.contains(name));
                let names = silent.take(NAMED_MAX).collect();
                print_event(&Event::Silent { round, answers: answered.len(), names })?;
            }
        }
        print_event(&Event::Asked { took_ms, used: Cost::now()?, before })
    }
}

/// Print which hosts come and go, until killed.
fn watch(coordinator: &Coordinator) -> anyhow::Result<()> {
    let names = || coordinator.membership().names().into_iter().collect::<BTreeSet<_>>();
    let (mut known, mut changes) = (names(), 0);
    loop {
        changes = coordinator.membership().wait_change(changes, LOOK);
        let (at_ns, now) = (monotonic_ns(), names());
        if now != known {
            let came = now.difference(&known).cloned().collect();
            let gone = known.difference(&now).cloned().collect();
            print_event(&Event::Changed { at_ns, came, gone })?;
            known = now;
        }
    }
}
