//! The bus over a fleet: parts on agents and on this host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::doubt::Doubt;
use base::part::{Endpoints, HERE, Live, PartError, PartSpec, Progress};
use serde_json::{Value, json};

use super::membership::LogLine;
use super::{ANSWER_WITHIN, Agent, Coordinator, fan_out};
use crate::local::LocalBus;
use crate::protocol::{Request, Response};
use crate::{Bus, BusError, Timing, wakeup_latency};

/// Generating hours of content takes minutes.
const PREPARE_WITHIN: Duration = Duration::from_secs(1800);
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// From the start order to the common start with few hosts ...
const LEAD: Duration = Duration::from_millis(500);
/// ... and with many.
const LEAD_OF_MANY: Duration = Duration::from_secs(2);
const FEW: usize = 50;
/// Two agents of one name for so long are no agent that joins again. Longer than a lease of a link.
const DUPLICATE_MAX: Duration = Duration::from_millis(3500);
const DUPLICATE_POLL: Duration = Duration::from_millis(20);

type ByHostNs = BTreeMap<String, u64>;
type ByHost = BTreeMap<String, Vec<String>>;

struct Started {
    /// On this host's clock.
    at_ns: u64,
    start_times: Vec<(String, u64)>,
    /// Wake-up latency of this host, if it took part.
    local_latency: Option<wakeup_latency::WakeupLatency>,
}

pub struct FleetBus {
    coordinator: Coordinator,
    local: LocalBus,
    placed: BTreeMap<String, String>,
    report_items: BTreeMap<String, u64>,
    bounds_ns: ByHostNs,
    /// The agents know that the run is over, because the user stopped it.
    is_released: Cell<bool>,
    lost: RefCell<BTreeSet<String>>,
    started: Option<Started>,
}

impl FleetBus {
    pub fn new(coordinator: Coordinator, local: LocalBus) -> Self {
        Self {
            coordinator,
            local,
            placed: BTreeMap::new(),
            report_items: BTreeMap::new(),
            bounds_ns: ByHostNs::new(),
            is_released: Cell::new(false),
            lost: RefCell::default(),
            started: None,
        }
    }

    fn host_of(&self, part: &str) -> Result<&str, BusError> {
        let host = self.placed.get(part).map(String::as_str);
        host.ok_or_else(|| BusError::Unknown(format!("there is no part '{part}'")))
    }

    fn split<'a>(&self, parts: &[&'a str]) -> Result<(Vec<&'a str>, ByHost), BusError> {
        let (mut here, mut there) = (Vec::new(), ByHost::new());
        for part in parts {
            match self.host_of(part)? {
                HERE => here.push(*part),
                host => there.entry(host.to_owned()).or_default().push((*part).to_owned()),
            }
        }
        Ok((here, there))
    }

    fn agent(&self, host: &str) -> Result<&Agent, BusError> {
        let agent = self.coordinator.agents.get(host).ok_or_else(|| {
            BusError::Unknown(format!("there is no host '{host}' in this fleet that works for the run"))
        })?;
        if self.coordinator.membership.is_present(host, &agent.instance) {
            Ok(agent)
        } else {
            Err(self.lost(host, fan_out::AGENT_GONE))
        }
    }

    /// Whether another agent with this host's name has come to stay.
    fn check_single(&self, host: &str) -> Result<(), BusError> {
        match self.coordinator.membership.duplicate_for(host) {
            Some(time) if time >= DUPLICATE_MAX => Err(BusError::TwoAgents { host: host.to_owned() }),
            _ => Ok(()),
        }
    }

    /// The same, but waits until it is known.
    fn await_single(&self, host: &str) -> Result<(), BusError> {
        while self.coordinator.membership.duplicate_for(host).is_some_and(|time| time < DUPLICATE_MAX) {
            std::thread::sleep(DUPLICATE_POLL);
        }
        self.check_single(host)
    }

    /// Reports the loss at once, because ending the trial may take a while.
    fn lost(&self, host: &str, why: &str) -> BusError {
        if self.lost.borrow_mut().insert(host.to_owned()) {
            self.local.show(&format!("host {host} was lost: {why}"), false);
        }
        BusError::HostLost { host: host.to_owned(), why: why.to_owned() }
    }

    fn unusable_reason(&self, host: &str) -> Option<String> {
        // A host whose clock is unknown cannot start with others.
        let clock =
            || Some(format!("its clock is not known: {}", self.coordinator.clocks.offset(host).err()?));
        self.agent(host).err().map(|_| fan_out::AGENT_GONE.to_owned()).or_else(clock)
    }

    fn run(&self) -> String {
        self.coordinator.run.clone()
    }

    /// Sends requests in parallel and forwards the agents' log lines meanwhile.
    fn request_all(
        &self,
        requests: Vec<(String, Request)>,
        within: Duration,
    ) -> BTreeMap<String, Result<Response, BusError>> {
        let is_running = || {
            for LogLine { host, text, is_needed } in self.coordinator.membership.take_lines() {
                self.local.show(&format!("{host}: {text}"), is_needed);
            }
            self.coordinator.is_running()
        };
        let Coordinator { session, membership, .. } = &self.coordinator;
        fan_out::request_each(session, membership, requests, within, &is_running)
    }

    fn collect_responses(
        &self,
        answers: BTreeMap<String, Result<Response, BusError>>,
    ) -> Result<Vec<(String, Response)>, BusError> {
        if !self.coordinator.is_running() {
            // Interrupts parts that prepare for minutes.
            self.release();
            self.is_released.set(true);
            let error = PartError::new("interrupted");
            return Err(BusError::Part { part: "the run".into(), host: HERE.into(), error });
        }
        let read = |(host, answer): (String, Result<Response, BusError>)| match answer {
            Ok(Response::Refused { part, error }) => {
                Err(BusError::Part { part: part.unwrap_or_else(|| "the agent".into()), host, error })
            }
            Err(BusError::HostLost { host, why }) => Err(self.lost(&host, &why)),
            answer => answer.map(|answer| (host, answer)),
        };
        answers.into_iter().map(read).collect()
    }
}

impl Bus for FleetBus {
    fn hosts(&self) -> Vec<String> {
        let there =
            self.coordinator.agents.keys().filter(|host| self.unusable_reason(host).is_none()).cloned();
        there.chain([HERE.to_owned()]).collect()
    }

    fn unusable(&self) -> Vec<(String, String)> {
        let why = |host: &String| Some((host.clone(), format!("{host}: {}", self.unusable_reason(host)?)));
        let left_out = self.coordinator.left_out.iter().cloned();
        left_out.chain(self.coordinator.agents.keys().filter_map(why)).collect()
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        let facts = |(name, agent): (&String, &Agent)| {
            let clock = self.coordinator.clocks.offset(name).ok().map(|offset| {
                let now_ns = self.coordinator.clocks.now_ns();
                json!({
                    "offset_ns": offset.offset_ns(now_ns),
                    "bound_ns": offset.bound_ns(now_ns),
                    "drift_ppm": offset.drift_ppm(),
                    "drift_bound_ppm": offset.drift_bound_ppm(),
                    "n": offset.n,
                    "rtt_min_ns": offset.rtt_min_ns,
                })
            });
            let description = &agent.description;
            let facts = json!({
                "kagiri": description.version,
                "address": description.address,
                "configuration": agent.configuration,
                "environment": agent.environment,
                "clock": clock,
                "calendar_clock_off_s": agent.wall_clock_off_s,
            });
            (name.clone(), facts)
        };
        self.coordinator.agents.iter().map(facts).collect()
    }

    fn place(&mut self, specs: Vec<PartSpec>) -> Result<(), BusError> {
        let (here, there): (Vec<_>, Vec<_>) = specs.into_iter().partition(|spec| spec.host == HERE);
        let mut by_host = BTreeMap::<String, Vec<PartSpec>>::new();
        for spec in there {
            self.agent(&spec.host)?;
            self.await_single(&spec.host)?;
            self.placed.insert(spec.name.clone(), spec.host.clone());
            self.report_items.insert(spec.name.clone(), spec.report_items);
            self.coordinator.membership.reset_progress(&spec.host, &[&spec.name]);
            by_host.entry(spec.host.clone()).or_default().push(spec);
        }
        self.placed.extend(here.iter().map(|spec| (spec.name.clone(), HERE.to_owned())));
        self.local.place(here)?;
        let requests =
            by_host.into_iter().map(|(host, specs)| (host, Request::Place { run: self.run(), specs }));
        self.collect_responses(self.request_all(requests.collect(), ANSWER_WITHIN)).map(drop)
    }

    fn prepare(&mut self, parts: &[&str], peers: &Endpoints) -> Result<Endpoints, BusError> {
        let (here, there) = self.split(parts)?;
        let request =
            |(host, parts)| (host, Request::Prepare { run: self.run(), parts, peers: peers.clone() });
        let answers = self.request_all(there.into_iter().map(request).collect(), PREPARE_WITHIN);
        let mut endpoints = Endpoints::new();
        for (_, answer) in self.collect_responses(answers)? {
            if let Response::Prepared(of_host) = answer {
                endpoints.extend(of_host);
            }
        }
        endpoints.extend(self.local.prepare(&here, peers)?);
        Ok(endpoints)
    }

    fn start(&mut self, parts: &[&str]) -> Result<(), BusError> {
        let (here, there) = self.split(parts)?;
        let hosts: Vec<String> = there.keys().cloned().collect();
        self.coordinator.probe(&hosts);
        let lead = if hosts.len() > FEW { LEAD_OF_MANY } else { LEAD };
        let at_ns = self.coordinator.clocks.now_ns() + lead.as_nanos() as u64;
        let (mut requests, mut start_times) = (Vec::new(), Vec::new());
        for (host, parts) in there {
            let offset = self.coordinator.clocks.offset(&host);
            let offset = offset.map_err(|why| self.lost(&host, &format!("its clock is not known: {why}")))?;
            let agent_ns = offset.to_agent_ns(at_ns);
            let worst_ns = self.bounds_ns.entry(host.clone()).or_default();
            *worst_ns = offset.bound_ns(at_ns).max(*worst_ns);
            start_times.push((host.clone(), agent_ns));
            requests.push((host, Request::Start { run: self.run(), parts, at_ns: agent_ns }));
        }
        // Waits longer than `lead`, so that a late agent fails this start only and is not reported as lost.
        let answers = self.request_all(requests, lead + ANSWER_WITHIN);
        for (host, answer) in &answers {
            // The agent itself, not a part, refused: the order came too late.
            if let Ok(Response::Refused { part: None, error }) = answer {
                return Err(BusError::LateStart { host: host.clone(), why: error.to_string() });
            }
        }
        self.collect_responses(answers)?;
        let local_latency = match here.is_empty() {
            true => None,
            false => wakeup_latency::measure(at_ns).ok(),
        };
        let now_ns = self.coordinator.clocks.now_ns();
        let late = |why: String| BusError::LateStart { host: HERE.to_owned(), why };
        if !here.is_empty() && now_ns >= at_ns {
            let late_ms = (now_ns - at_ns) as f64 / 1e6;
            return Err(late(format!("the start order came {late_ms:.1} ms after the start time")));
        }
        // After the start time the delay is the cause, not the part.
        let whose = |error: BusError| match self.coordinator.clocks.now_ns() < at_ns {
            true => error,
            false => late(error.to_string()),
        };
        self.local.start_at(&here, at_ns).map_err(whose)?;
        self.started = Some(Started { at_ns, start_times, local_latency });
        Ok(())
    }

    fn progress(&mut self, part: &str) -> Result<Progress, BusError> {
        let host = self.host_of(part)?;
        if host == HERE {
            return self.local.progress(part);
        }
        self.agent(host)?;
        self.check_single(host)?;
        if let Some(why) = self.coordinator.membership.heartbeat_overdue(host, part) {
            return Err(self.lost(host, &why));
        }
        Ok(match self.coordinator.membership.progress(host, part) {
            Some(Progress::Failed(PartError { message, usage })) => {
                let message = format!("{part} on {host}: {message}");
                Progress::Failed(PartError { message, usage })
            }
            Some(progress) => progress,
            None => Progress::Running { done: None },
        })
    }

    fn live(&mut self, part: &str) -> Live {
        match self.placed.get(part).map(String::as_str) {
            Some(HERE) => self.local.live(part),
            Some(host) => self.coordinator.membership.live(host, part),
            None => Live::new(),
        }
    }

    fn stop(&mut self, parts: &[&str]) -> BTreeMap<String, Result<Value, BusError>> {
        let mut ended = BTreeMap::new();
        let mut by_host = ByHost::new();
        for part in parts {
            match self.placed.remove(*part) {
                Some(host) if host == HERE => ended.extend(self.local.stop(&[part])),
                Some(host) => by_host.entry(host).or_default().push((*part).to_owned()),
                None => {
                    let unknown = BusError::Unknown(format!("there is no part '{part}'"));
                    ended.insert((*part).to_owned(), Err(unknown));
                }
            }
        }
        let request = |(host, parts): (&String, &Vec<String>)| {
            let items = parts.iter().filter_map(|part| self.report_items.get(part)).sum();
            (host.clone(), Request::Stop { run: self.run(), parts: parts.clone() }, items)
        };
        let requests = by_host.iter().map(request).collect();
        if self.is_released.get() {
            let gone = || Err(BusError::Unknown("the run was stopped, and all its parts ended".to_owned()));
            ended.extend(by_host.into_values().flatten().map(|part| (part, gone())));
            return ended;
        }
        // Stops parts even when the user has stopped the run: this is how they end.
        let Coordinator { session, membership, .. } = &self.coordinator;
        let mut answers = fan_out::request_reports(session, membership, requests, STOP_WITHIN, &|| true);
        for (host, parts) in by_host {
            let answer = answers.remove(&host);
            let single = self.await_single(&host);
            for part in parts {
                let report = match single {
                    Ok(()) => fan_out::part_report(&host, &part, answer.as_ref()),
                    Err(_) => Err(BusError::TwoAgents { host: host.clone() }),
                };
                ended.insert(part, report);
            }
        }
        ended
    }

    fn timing(&mut self) -> Option<Timing> {
        let Started { at_ns, start_times, local_latency } = self.started.take()?;
        let hosts: Vec<String> = start_times.iter().map(|(host, _)| host.clone()).collect();
        // Compares clocks again, so that the start lies between two comparisons.
        self.coordinator.probe(&hosts);
        let bound_ns = self.coordinator.clocks.start_spread_ns(&start_times, at_ns)?;
        let late = |host: &String| self.coordinator.membership.start_late_ns(host);
        let here = local_latency.map(|late| wakeup_latency::read(&late));
        let late: Option<Vec<u64>> = hosts.iter().map(late).chain(here).collect();
        // There is no skew with a single host.
        let late = late.filter(|late| late.len() > 1);
        let spread = |late: Vec<u64>| Some(late.iter().max()? - late.iter().min()?);
        let skew_ns = late.and_then(spread);
        Some(Timing { skew_ns, bound_ns })
    }

    fn doubts(&mut self) -> Vec<Doubt> {
        let lost = |host: &String, why: &str| Doubt::HostsLost { hosts: vec![host.clone()], why: why.into() };
        let mut doubts = Vec::new();
        for (host, agent) in &self.coordinator.agents {
            let bound_ns = self.bounds_ns.get(host).copied();
            doubts.extend(self.coordinator.clocks.doubts(host, bound_ns, agent.wall_clock_off_s));
            if self.agent(host).is_err() {
                doubts.push(lost(host, fan_out::AGENT_GONE));
            }
        }
        doubts.extend(self.coordinator.left_out.iter().map(|(host, why)| lost(host, why)));
        doubts
    }
}

impl FleetBus {
    /// Ends the run on the agents. Agents that miss the request end when their lease expires.
    fn release(&self) {
        let Coordinator { session, membership, agents, .. } = &self.coordinator;
        let release = |host: &String| (host.clone(), Request::Release { run: self.run() });
        let requests = agents.keys().filter(|host| self.agent(host).is_ok()).map(release).collect();
        drop(fan_out::request_each(session, membership, requests, ANSWER_WITHIN, &|| true));
    }
}

impl Drop for FleetBus {
    fn drop(&mut self) {
        if !self.is_released.get() {
            self.release();
        }
    }
}
