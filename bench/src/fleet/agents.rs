//! Many agents and one coordinator.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use base::statistics::quantile;
use fleet::identity::{self, Auth, InitOptions, ServerName};
use sys::child::Child;
use sys::clock::monotonic_ns;

use super::fixture::{Fixture, Lab, Used, Watched, event};
use super::helper_process::{Cost, Event, WAITING, bundle, name};
use super::{Found, Settings};
use crate::noise::{Meter, Noise};
use crate::record::Row;

/// Agents of one process.
const CROWD: u32 = 100;
const WITHIN: Duration = Duration::from_secs(120);
const DESK: &str = "desk";
const REAL: &str = "real";

/// How agents and coordinator know each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// In the clear, in a network of their own.
    Tcp,
    Tls,
}

/// A lab with a coordinator's host and others, and the credentials of all.
pub struct Hall<'a> {
    pub lab: Lab<'a>,
    fixture: &'a Fixture,
    transport: Transport,
    fleet: PathBuf,
    desk: String,
}

impl<'a> Hall<'a> {
    /// Makes it, with `hosts` (of a lab file) besides the desk, and credentials for `members`.
    pub fn make(
        fixture: &'a Fixture,
        transport: Transport,
        hosts: &str,
        members: Vec<String>,
    ) -> anyhow::Result<Self> {
        let text = format!(
            "agents = false\n[host.{DESK}]\n{hosts}[switch.hall]\n[[link]]\nbetween = [\"*\", \"hall\"]\n"
        );
        let lab = fixture.lab("bench-hall", &text)?;
        let desk = lab.address(DESK)?;
        let fleet = fixture.dir.join("credentials");
        if transport == Transport::Tls {
            drop(std::fs::remove_dir_all(&fleet));
            identity::init(&InitOptions {
                dir: fleet.clone(),
                coordinator: Some(ServerName { name: DESK.into(), addresses: vec![desk.clone()] }),
                routers: Vec::new(),
                hosts: members,
                revoke: Vec::new(),
                auth: Some(Auth::Certificates),
                days: 2,
                replace: false,
            })?;
        }
        Ok(Self { lab, fixture, transport, fleet, desk })
    }

    pub fn address(&self) -> String {
        format!("{}:7447", self.desk)
    }

    fn endpoint(&self) -> String {
        let scheme = format!("{:?}", self.transport).to_lowercase();
        format!("{scheme}/{}", self.address())
    }

    fn with_fleet(&self, arguments: &mut Vec<String>) {
        if self.transport == Transport::Tls {
            arguments.extend(["--fleet".to_owned(), self.fleet.display().to_string()]);
        }
    }

    /// A coordinator that waits for all agents, rests, and asks all.
    pub fn coordinator(&self, expect: u32, rest: Duration, rounds: u32) -> anyhow::Result<Child> {
        let mut arguments = vec!["--listen".to_owned(), self.endpoint()];
        let clock = format!("{}:0", self.desk);
        let numbers = [
            ("--clock", clock),
            ("--expect", expect.to_string()),
            ("--rest-ms", rest.as_millis().to_string()),
            ("--rounds", rounds.to_string()),
        ];
        arguments.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        self.with_fleet(&mut arguments);
        Ok(self.lab.helper(DESK, "coordinate")?.args(arguments).start(&self.fixture.journal)?)
    }

    pub fn crowd(&self, host: &str, first: u32, count: u32) -> anyhow::Result<Child> {
        let mut arguments = vec!["--join".to_owned(), self.endpoint()];
        let numbers = [
            ("--first", first.to_string()),
            ("--count", count.to_string()),
            ("--data", self.fixture.dir.display().to_string()),
        ];
        arguments.extend(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        self.with_fleet(&mut arguments);
        Ok(self.lab.helper(host, "crowd")?.args(arguments).start(&self.fixture.journal)?)
    }

    /// The real agent, as a user starts it; over TLS, without which it joins no other host.
    pub fn agent(&self, host: &str, member: &str) -> anyhow::Result<Child> {
        let spawn = self.lab.on(host, &self.fixture.kagiri).args(["agent", "--join", &self.endpoint()]);
        let spawn = spawn.arg("--credentials").arg(bundle(&self.fleet, member));
        Ok(spawn.arg("--data").arg(&self.fixture.dir).start(&self.fixture.journal)?)
    }
}

pub fn measure(fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
    let agents = settings.pace.full_or(settings.agents, 20);
    let mut found = Found::about(format!(
        "{agents} agents, {CROWD} sessions a process, each process on a host of a lab of its own, and a \
             coordinator on another, all on one bridge of one machine: its two cores carry both sides. The \
             agents look for a coordinator every 0.4 s. One question asks all agents for their descriptions. \
             Traffic is that of the hosts' interfaces, both directions, with Ethernet headers. There is no \
             peer."
    ));
    for transport in [Transport::Tcp, Transport::Tls] {
        crowds(fixture, settings, transport, agents, &mut found)?;
    }
    real(fixture, settings, &mut found)?;
    Ok(found)
}

fn start_crowds(hall: &Hall, agents: u32) -> anyhow::Result<Vec<Child>> {
    let hosts = agents.div_ceil(CROWD);
    let crowd = |host: u32| {
        let first = host * CROWD;
        hall.crowd(&format!("crowd-{}", host + 1), first, CROWD.min(agents - first))
    };
    (0..hosts).map(crowd).collect()
}

fn crowds(
    fixture: &Fixture,
    settings: &Settings,
    transport: Transport,
    agents: u32,
    found: &mut Found,
) -> anyhow::Result<()> {
    let hosts = format!("[host.crowd]\ncount = {}\n", agents.div_ceil(CROWD));
    let hall = Hall::make(fixture, transport, &hosts, (0..agents).map(name).collect())?;
    let way = format!("{agents} agents, {}", if transport == Transport::Tls { "TLS" } else { "TCP" });
    let mut waiting = Row::new(format!("{way}: joined, they were waiting"), "s");
    let mut cold = Row::new(format!("{way}: joined, from starting their processes"), "s");
    let mut cpu = Row::new(format!("{way}: coordinator's CPU for all to join"), "s");
    for _ in 0..settings.pace.full_or(settings.repeat.min(5), 1) {
        settings.pace.await_quiet()?;
        let (took_s, cost, noise) = join(&hall, agents)?;
        waiting.ours.push(took_s);
        waiting.noise.push(noise);
        cpu.ours.push(cost.cpu_ns as f64 / 1e9);
        cold.ours.push(join_cold(&hall, agents)?);
    }
    found.rows.extend([waiting.goal_ours("<= 3 s"), cold, cpu]);
    settings.pace.await_quiet()?;
    work(&hall, settings, agents, &way, found)
}

/// Agents wait, a coordinator comes: from its listening until all have joined.
fn join(hall: &Hall, agents: u32) -> anyhow::Result<(f64, Cost, Noise)> {
    let mut crowds = start_crowds(hall, agents)?;
    for crowd in &mut crowds {
        crowd.wait_line(WITHIN, |line| line == WAITING)?;
    }
    let mut watched = Watched::open(&crowds.iter().collect::<Vec<_>>())?;
    let meter = Meter::start(watched.read()?.cpu_ns)?;
    let mut coordinator = hall.coordinator(agents, Duration::ZERO, 0)?;
    let (took_s, cost) = joined(&mut coordinator)?;
    let noise = meter.finish(watched.read()?.cpu_ns + cost.cpu_ns)?;
    Ok((took_s, cost, noise))
}

fn joined(coordinator: &mut Child) -> anyhow::Result<(f64, Cost)> {
    let listening = |event| match event {
        Event::Listening { at_ns } => Some(at_ns),
        _ => None,
    };
    let from_ns = event(coordinator, WITHIN, listening)?;
    let (to_ns, cost) = whole(coordinator)?;
    Ok((to_ns.saturating_sub(from_ns) as f64 / 1e9, cost))
}

pub fn whole(coordinator: &mut Child) -> anyhow::Result<(u64, Cost)> {
    let whole = |event| match event {
        Event::Whole { at_ns, used } => Some((at_ns, used)),
        _ => None,
    };
    event(coordinator, WITHIN, whole)
}

/// A coordinator listens, agents come: from starting their processes until all have joined.
fn join_cold(hall: &Hall, agents: u32) -> anyhow::Result<f64> {
    let mut coordinator = hall.coordinator(agents, Duration::ZERO, 0)?;
    event(&mut coordinator, WITHIN, |event| matches!(event, Event::Listening { .. }).then_some(()))?;
    let from_ns = monotonic_ns();
    let _crowds = start_crowds(hall, agents)?;
    Ok(whole(&mut coordinator)?.0.saturating_sub(from_ns) as f64 / 1e9)
}

/// Idle, then asked.
fn work(hall: &Hall, settings: &Settings, agents: u32, way: &str, found: &mut Found) -> anyhow::Result<()> {
    let rest = Duration::from_secs(settings.pace.full_or(20, 3));
    let rounds = settings.pace.full_or(100, 5);
    let crowds = start_crowds(hall, agents)?;
    let mut coordinator = hall.coordinator(agents, rest, rounds)?;
    whole(&mut coordinator)?;
    let mut watched = Watched::open(&crowds.iter().collect::<Vec<_>>())?;
    let (meter, from, from_ns) = (Meter::start(watched.read()?.cpu_ns)?, watched.read()?, monotonic_ns());
    let (before, used) = event(&mut coordinator, WITHIN, |event| match event {
        Event::Rested { used, before } => Some((before, used)),
        _ => None,
    })?;
    let (to, wall_s) = (watched.read()?, monotonic_ns().saturating_sub(from_ns) as f64 / 1e9);
    let noise = meter.finish(to.cpu_ns + used.cpu_ns.saturating_sub(before.cpu_ns))?;
    let row = |what: &str, unit: &str, value: f64| Row::single(format!("{way}: {what}"), unit, value);
    let per_agent = f64::from(agents);
    let (cpu_percent, byte_per_s) = per_second(&from, &to, wall_s);
    let mut idle = row("coordinator's CPU, nothing asked", "% of a core", used.cpu_percent_since(&before));
    idle.noise.push(noise);
    found.rows.extend([
        idle,
        row("coordinator's memory (RSS)", "MiB", used.rss_bytes as f64 / 1048576.0),
        row("an agent's CPU, nothing asked", "% of a core", cpu_percent / per_agent).goal_each("<= 0.3 %"),
        row("an agent's traffic, nothing asked", "byte/s", byte_per_s / per_agent).goal_each("<= 1000"),
        row("an agent's memory, one of a process of many", "MiB", memory_mib(&watched, per_agent)?),
    ]);
    let asked = event(&mut coordinator, WITHIN * 5, |event| match event {
        Event::Asked { took_ms, used, before } => Some((took_ms, used, before)),
        _ => None,
    })?;
    let (took_ms, used, before) = asked;
    let said = coordinator.output_tail();
    ensure!(!said.contains("\"silent\""), "not all agents answered in each round: {said}");
    let per_round_ms = (used.cpu_ns - before.cpu_ns) as f64 / 1e6 / f64::from(rounds);
    let quantile = |share: f64| quantile(&took_ms, share).context("no rounds");
    let (p50, p99, max) = (quantile(0.5)?, quantile(0.99)?, quantile(1.0)?);
    found.rows.extend([
        row("all asked, median", "ms", p50),
        row("all asked, p99", "ms", p99).goal_each("<= 150 ms"),
        row("all asked, greatest", "ms", max),
        row("coordinator's CPU for a round", "ms", per_round_ms),
        row("coordinator's CPU while asking", "% of a core", used.cpu_percent_since(&before)),
    ]);
    found.notes.push(format!("{way}: {rounds} rounds, in each all {agents} answered"));
    Ok(())
}

fn memory_mib(watched: &Watched, shared_by: f64) -> anyhow::Result<f64> {
    let bytes = watched.memory_bytes().context("memory cannot be read")?;
    Ok(bytes as f64 / 1048576.0 / shared_by)
}

/// CPU in % of one core, and traffic in byte/s.
fn per_second(from: &Used, to: &Used, wall_s: f64) -> (f64, f64) {
    let cpu_s = to.cpu_ns.saturating_sub(from.cpu_ns) as f64 / 1e9;
    (100.0 * cpu_s / wall_s, to.bytes.saturating_sub(from.bytes) as f64 / wall_s)
}

/// One real agent: joined, and while it waits.
fn real(fixture: &Fixture, settings: &Settings, found: &mut Found) -> anyhow::Result<()> {
    let hall = Hall::make(fixture, Transport::Tls, &format!("[host.{REAL}]\n"), vec![REAL.to_owned()])?;
    let mut idle = Row::new("a real agent's CPU, joined, nothing asked", "% of a core");
    let mut traffic = Row::new("a real agent's traffic, joined, nothing asked", "byte/s");
    let mut memory = Row::new("a real agent's memory (PSS)", "MiB");
    let mut waits = Row::new("a real agent's CPU, waiting for a coordinator", "% of a core");
    let rest = Duration::from_secs(settings.pace.full_or(10, 2));
    for _ in 0..settings.pace.full_or(3, 1) {
        settings.pace.await_quiet()?;
        let mut agent = hall.agent(REAL, REAL)?;
        agent.wait_line(WITHIN, |line| line.starts_with("waiting"))?;
        let (cpu_percent, _, _) = rested(&agent, rest)?;
        waits.ours.push(cpu_percent);
        let mut coordinator = hall.coordinator(1, Duration::ZERO, 0)?;
        whole(&mut coordinator)?;
        let (cpu_percent, byte_per_s, noise) = rested(&agent, rest)?;
        idle.ours.push(cpu_percent);
        idle.noise.push(noise);
        traffic.ours.push(byte_per_s);
        memory.ours.push(memory_mib(&Watched::open(&[&agent])?, 1.0)?);
    }
    found.rows.extend([idle.goal_each("<= 0.3 %, each"), traffic.goal_each("<= 1000, each"), waits, memory]);
    Ok(())
}

/// CPU and traffic of a process over a while in which nothing is asked of it.
fn rested(agent: &Child, rest: Duration) -> anyhow::Result<(f64, f64, Noise)> {
    let mut watched = Watched::open(&[agent])?;
    let (from, from_ns) = (watched.read()?, monotonic_ns());
    let meter = Meter::start(from.cpu_ns)?;
    std::thread::sleep(rest);
    let (to, wall_s) = (watched.read()?, monotonic_ns().saturating_sub(from_ns) as f64 / 1e9);
    let (cpu_percent, byte_per_s) = per_second(&from, &to, wall_s);
    Ok((cpu_percent, byte_per_s, meter.finish(to.cpu_ns)?))
}
