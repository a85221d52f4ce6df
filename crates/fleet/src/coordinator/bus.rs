//! The bus over a fleet: parts on agents, and on this host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::doubt::Doubt;
use base::part::{Endpoints, HERE, Live, PartError, PartSpec, Progress};
use serde_json::{Value, json};

use super::{ANSWER_WITHIN, Agent, Coordinator, ask};
use crate::local::LocalBus;
use crate::protocol::{Answer, Ask};
use crate::{Bus, BusError, Timing, lateness};

/// How long preparing may take: content of hours is made in minutes.
const PREPARE_WITHIN: Duration = Duration::from_secs(1800);
/// How long parts may take to end and report.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// From the order to start to the start: enough for the slowest of a few hosts ...
const LEAD: Duration = Duration::from_millis(500);
/// ... and of many.
const LEAD_OF_MANY: Duration = Duration::from_secs(2);
/// More hosts than these are many.
const FEW: usize = 50;
/// Clocks known less well than this are doubted.
const BOUND_DOUBT_NS: u64 = 1_000_000;
/// A calendar clock that is off by more than this is worth a word.
const WALL_CLOCK_OFF_S: f64 = 2.0;

/// A time by host.
type ByHostNs = BTreeMap<String, u64>;

/// Names of parts by host.
type ByHost = BTreeMap<String, Vec<String>>;

/// A common start.
struct Started {
    /// When, on this host's clock.
    at_ns: u64,
    /// The hosts that took part, and when on their own clocks.
    told: Vec<(String, u64)>,
    /// How late this host's threads ran, if it took part.
    late_here: Option<lateness::Late>,
}

/// Parts on agents and on this host.
pub struct FleetBus {
    coordinator: Coordinator,
    local: LocalBus,
    /// Where each part is.
    placed: BTreeMap<String, String>,
    /// How well each host's clock was known at the worst of its starts.
    bounds_ns: ByHostNs,
    /// The user wants to stop, so that the agents were told that the run is over.
    given_up: Cell<bool>,
    /// The hosts whose loss was told.
    lost: RefCell<BTreeSet<String>>,
    /// The last common start.
    started: Option<Started>,
    say: Box<dyn Fn(&str)>,
}

impl FleetBus {
    /// A bus over the agents that were gathered; parts on this host are built by `local`.
    pub fn new(coordinator: Coordinator, local: LocalBus, say: Box<dyn Fn(&str)>) -> Self {
        Self {
            coordinator,
            local,
            placed: BTreeMap::new(),
            bounds_ns: ByHostNs::new(),
            given_up: Cell::new(false),
            lost: RefCell::default(),
            started: None,
            say,
        }
    }

    fn host_of(&self, part: &str) -> Result<&str, BusError> {
        let host = self.placed.get(part).map(String::as_str);
        host.ok_or_else(|| BusError::Unknown(format!("there is no part '{part}'")))
    }

    /// Parts by host; those of this host apart.
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
        if self.coordinator.roster.is_there(host, &agent.instance) {
            Ok(agent)
        } else {
            Err(self.lost(host, ask::GONE))
        }
    }

    /// Say at once that a host is lost: what comes of it may take a while.
    fn lost(&self, host: &str, why: &str) -> BusError {
        if self.lost.borrow_mut().insert(host.to_owned()) {
            (self.say)(&format!("host {host} was lost: {why}"));
        }
        BusError::Lost { host: host.to_owned(), why: why.to_owned() }
    }

    /// Why nothing can be placed on a host now.
    fn objection(&self, host: &str) -> Option<String> {
        // Nothing can start together with a host whose clock is not known.
        let clock =
            || Some(format!("its clock is not known: {}", self.coordinator.clocks.offset(host).err()?));
        self.agent(host).err().map(|_| ask::GONE.to_owned()).or_else(clock)
    }

    fn run(&self) -> String {
        self.coordinator.run.clone()
    }

    /// Ask hosts side by side; what agents say meanwhile is passed on.
    fn ask(&self, asks: Vec<(String, Ask)>, within: Duration) -> BTreeMap<String, Result<Answer, BusError>> {
        let goes_on = || {
            for (host, line) in self.coordinator.roster.take_lines() {
                (self.say)(&format!("{host}: {line}"));
            }
            self.coordinator.goes_on()
        };
        ask::each(&self.coordinator.session, &self.coordinator.roster, asks, within, &goes_on)
    }

    /// The answers, or the first error. Those that were given up because the user wants to stop are nobody's fault.
    fn answered(
        &self,
        answers: BTreeMap<String, Result<Answer, BusError>>,
    ) -> Result<Vec<(String, Answer)>, BusError> {
        if !self.coordinator.goes_on() {
            // Parts that prepare for minutes hear of it only so.
            self.release();
            self.given_up.set(true);
            let error = PartError::new("interrupted");
            return Err(BusError::Part { part: "the run".into(), host: HERE.into(), error });
        }
        let read = |(host, answer): (String, Result<Answer, BusError>)| match answer {
            Ok(Answer::Refused { part, error }) => {
                Err(BusError::Part { part: part.unwrap_or_else(|| "the agent".into()), host, error })
            }
            Err(BusError::Lost { host, why }) => Err(self.lost(&host, &why)),
            answer => answer.map(|answer| (host, answer)),
        };
        answers.into_iter().map(read).collect()
    }
}

impl Bus for FleetBus {
    fn hosts(&self) -> Vec<String> {
        let there = self.coordinator.agents.keys().filter(|host| self.objection(host).is_none()).cloned();
        there.chain([HERE.to_owned()]).collect()
    }

    fn unusable(&self) -> Vec<(String, String)> {
        let why = |host: &String| Some((host.clone(), format!("{host}: {}", self.objection(host)?)));
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
                "configuration": description.configuration,
                "environment": description.environment,
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
            self.placed.insert(spec.name.clone(), spec.host.clone());
            self.coordinator.roster.forget_progress(&spec.host, &[&spec.name]);
            by_host.entry(spec.host.clone()).or_default().push(spec);
        }
        self.placed.extend(here.iter().map(|spec| (spec.name.clone(), HERE.to_owned())));
        self.local.place(here)?;
        let asks = by_host.into_iter().map(|(host, specs)| (host, Ask::Place { run: self.run(), specs }));
        self.answered(self.ask(asks.collect(), ANSWER_WITHIN)).map(drop)
    }

    fn prepare(&mut self, parts: &[&str], peers: &Endpoints) -> Result<Endpoints, BusError> {
        let (here, there) = self.split(parts)?;
        let ask = |(host, parts)| (host, Ask::Prepare { run: self.run(), parts, peers: peers.clone() });
        let answers = self.ask(there.into_iter().map(ask).collect(), PREPARE_WITHIN);
        let mut endpoints = Endpoints::new();
        for (_, answer) in self.answered(answers)? {
            if let Answer::Prepared(of_host) = answer {
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
        let (mut asks, mut told) = (Vec::new(), Vec::new());
        for (host, parts) in there {
            let offset = self.coordinator.clocks.offset(&host);
            let offset = offset.map_err(|why| self.lost(&host, &format!("its clock is not known: {why}")))?;
            let agent_ns = offset.to_agent_ns(at_ns);
            let worst_ns = self.bounds_ns.entry(host.clone()).or_default();
            *worst_ns = offset.bound_ns(at_ns).max(*worst_ns);
            told.push((host.clone(), agent_ns));
            asks.push((host, Ask::Start { run: self.run(), parts, at_ns: agent_ns }));
        }
        // Longer than that, so that who answers late spoils this start alone, and is not lost.
        let answers = self.ask(asks, lead + ANSWER_WITHIN);
        for (host, answer) in &answers {
            // What an agent itself refuses here, and no part, is an order that came too late.
            if let Ok(Answer::Refused { part: None, error }) = answer {
                return Err(BusError::Late { host: host.clone(), why: error.to_string() });
            }
        }
        self.answered(answers)?;
        let late_here = match here.is_empty() {
            true => None,
            false => lateness::watch(at_ns).ok(),
        };
        let now_ns = self.coordinator.clocks.now_ns();
        let late = |why: String| BusError::Late { host: HERE.to_owned(), why };
        if !here.is_empty() && now_ns >= at_ns {
            let late_ms = (now_ns - at_ns) as f64 / 1e6;
            return Err(late(format!("it was told {late_ms:.1} ms after the moment itself")));
        }
        // What cannot be done in time is no fault of the part's.
        let whose = |error: BusError| match self.coordinator.clocks.now_ns() < at_ns {
            true => error,
            false => late(error.to_string()),
        };
        self.local.start_at(&here, at_ns).map_err(whose)?;
        self.started = Some(Started { at_ns, told, late_here });
        Ok(())
    }

    fn progress(&mut self, part: &str) -> Result<Progress, BusError> {
        let host = self.host_of(part)?;
        if host == HERE {
            return self.local.progress(part);
        }
        self.agent(host)?;
        if let Some(why) = self.coordinator.roster.silent(host, part) {
            return Err(self.lost(host, &why));
        }
        Ok(match self.coordinator.roster.progress(host, part) {
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
            Some(host) => self.coordinator.roster.live(host, part),
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
        let asks = by_host
            .iter()
            .map(|(host, parts)| (host.clone(), Ask::Stop { run: self.run(), parts: parts.clone() }));
        if self.given_up.get() {
            let gone = || Err(BusError::Unknown("the run was given up, and all of it ended".to_owned()));
            ended.extend(by_host.into_values().flatten().map(|part| (part, gone())));
            return ended;
        }
        // Parts are ended although the user wants to stop: that is how they are ended then.
        let of = &self.coordinator;
        let mut answers = ask::each(&of.session, &of.roster, asks.collect(), STOP_WITHIN, &|| true);
        for (host, parts) in by_host {
            let answer = answers.remove(&host);
            for part in parts {
                let report = ask::report(&host, &part, answer.as_ref());
                ended.insert(part, report);
            }
        }
        ended
    }

    fn timing(&mut self) -> Option<Timing> {
        let Started { at_ns, told, late_here } = self.started.take()?;
        let hosts: Vec<String> = told.iter().map(|(host, _)| host.clone()).collect();
        // Clocks are compared once more, so that the start lies between two comparisons.
        self.coordinator.probe(&hosts);
        let bound_ns = self.coordinator.clocks.apart_ns(&told, at_ns)?;
        let late = |host: &String| self.coordinator.roster.start_late_ns(host);
        let here = late_here.map(|late| lateness::seen(&late));
        let late: Option<Vec<u64>> = hosts.iter().map(late).chain(here).collect();
        // One host alone has nobody to be apart from.
        let late = late.filter(|late| late.len() > 1);
        let spread = |late: Vec<u64>| Some(late.iter().max()? - late.iter().min()?);
        let skew_ns = late.and_then(spread);
        Some(Timing { skew_ns, bound_ns })
    }

    fn doubts(&mut self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        for (host, agent) in &self.coordinator.agents {
            match self.coordinator.clocks.offset(host) {
                Ok(_) => {
                    let bound_ns = self.bounds_ns.get(host).copied().unwrap_or_default();
                    let bound_us = bound_ns as f64 / 1e3;
                    let uncertain = Doubt::ClockUncertain { host: host.clone(), bound_us };
                    doubts.extend((bound_ns > BOUND_DOUBT_NS).then_some(uncertain));
                }
                Err(why) => doubts.push(Doubt::NotSampled { what: vec![why.to_string()] }.on(host)),
            }
            let off_s = agent.wall_clock_off_s;
            let wall = Doubt::WallClockOff { host: host.clone(), off_s };
            doubts.extend((off_s.abs() > WALL_CLOCK_OFF_S).then_some(wall));
            if self.agent(host).is_err() {
                doubts.push(Doubt::HostsLost { hosts: vec![host.clone()], why: ask::GONE.to_owned() });
            }
        }
        let left_out =
            |(host, why): &(String, String)| Doubt::HostsLost { hosts: vec![host.clone()], why: why.clone() };
        doubts.extend(self.coordinator.left_out.iter().map(left_out));
        doubts
    }
}

impl FleetBus {
    /// Tell the agents that the run is over. Whoever does not hear it ends by its lease.
    fn release(&self) {
        let of = &self.coordinator;
        let release = |host: &String| (host.clone(), Ask::Release { run: of.run.clone() });
        let asks = of.agents.keys().filter(|host| self.agent(host).is_ok()).map(release).collect();
        drop(ask::each(&of.session, &of.roster, asks, ANSWER_WITHIN, &|| true));
    }
}

impl Drop for FleetBus {
    fn drop(&mut self) {
        if !self.given_up.get() {
            self.release();
        }
    }
}
