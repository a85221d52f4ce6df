//! Recruits the agents that a plan asks for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::names::first_of;
use base::placement::Wish;
use serde_json::Value;
use sys::clock::Deadline;

use super::lease::{LEASE, LeaseRenewer};
use super::{ANSWER_WITHIN, Coordinator, fan_out};
use crate::FleetError;
use crate::protocol::{Description, PROTOCOL, Request, Response};

/// With a pattern of open size, the fleet is complete when no agent has joined for this long.
const SETTLE_TIME: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const NAMED_MAX: usize = 12;

#[derive(Debug, Clone)]
pub struct Agent {
    /// Another instance of the same name is another agent.
    pub instance: String,
    pub description: Description,
    /// What should be equal on hosts of one role.
    pub configuration: BTreeMap<String, String>,
    /// Facts about its host.
    pub environment: BTreeMap<String, Value>,
    /// The agent's wall clock minus this host's, in s; uncertain by the duration of the request.
    pub wall_clock_off_s: f64,
}

/// Waits for hosts, asks for their descriptions, and takes all that match. Surplus hosts stand by to replace
/// lost ones.
pub fn recruit(
    coordinator: &mut Coordinator,
    wishes: &[Wish],
    within: Duration,
    notify: &dyn Fn(&str),
) -> Result<(), FleetError> {
    wait(coordinator, wishes, within, notify)?;
    let (descriptions, mut refused) = describe(coordinator, wishes)?;
    let fleet: Vec<IpAddr> = descriptions.values().filter_map(|(one, _)| one.address).collect();
    let mut requests = Vec::new();
    for (name, (description, _)) in &descriptions {
        match rejection(coordinator, description) {
            Some(why) => refused.push((name.clone(), why)),
            None => {
                let request = Request::Take {
                    run: coordinator.run.clone(),
                    coordinator: coordinator.id.clone(),
                    name: coordinator.name.clone(),
                    fleet: fleet.clone(),
                    lease_ms: LEASE.as_millis() as u64,
                };
                coordinator.membership.pin_instance(name, &description.instance);
                requests.push((name.clone(), request));
            }
        }
    }
    coordinator.lease_renewer =
        Some(LeaseRenewer::start(coordinator.session.clone(), &coordinator.id, &coordinator.run)?);
    let ask = |coordinator: &Coordinator, requests| {
        let Coordinator { session, membership, .. } = coordinator;
        let is_running = || coordinator.is_running();
        fan_out::request_each(session, membership, requests, ANSWER_WITHIN, &is_running)
    };
    for (name, answer) in ask(coordinator, requests) {
        let mut refuse = |why: String| refused.push((name.clone(), why));
        match (answer, descriptions.get(&name)) {
            (Ok(Response::Taken { configuration, environment }), Some((description, wall_clock_off_s))) => {
                let (instance, description) = (description.instance.clone(), description.clone());
                let wall_clock_off_s = *wall_clock_off_s;
                let agent = Agent { instance, description, configuration, environment, wall_clock_off_s };
                coordinator.agents.insert(name.clone(), agent);
            }
            (Ok(Response::Refused { error, .. }), _) => refuse(format!("{name}: {error}")),
            (Ok(_), _) => refuse(format!("{name}: it sent an unexpected response")),
            (Err(error), _) => refuse(error.to_string()),
        }
    }
    // Before the comparison of clocks, which takes time.
    enough(coordinator, wishes, &refused)?;
    let names: Vec<String> = coordinator.agents.keys().cloned().collect();
    notify(&format!("comparing clocks with {}", hosts(names.len())));
    coordinator.probe(&names);
    let mut unused = Vec::new();
    for name in names {
        if let Err(why) = coordinator.clocks.offset(&name) {
            coordinator.agents.remove(&name);
            unused.push((name.clone(), Request::Release { run: coordinator.run.clone() }));
            refused.push((name.clone(), format!("{name}: its clock is not known: {why}")));
        }
    }
    // Frees these hosts for others at once. A host that misses it was lost anyway.
    drop(ask(coordinator, unused));
    enough(coordinator, wishes, &refused)?;
    for (_, why) in &refused {
        notify(&format!("left out: {why}"));
    }
    coordinator.left_out = refused;
    Ok(())
}

/// Waits until no more agents join and compares clocks with all of them. Takes none for the run.
pub fn compare_clocks(coordinator: &mut Coordinator, within: Duration) -> Result<(), FleetError> {
    let all = Wish { hosts: "*".into(), count: None, at_least: None };
    wait(coordinator, &[all], within, &|_| {})?;
    coordinator.probe(&coordinator.membership.names());
    Ok(())
}

/// Waits until all expected hosts have joined, or until the deadline.
fn wait(
    coordinator: &Coordinator,
    wishes: &[Wish],
    within: Duration,
    notify: &dyn Fn(&str),
) -> Result<(), FleetError> {
    let deadline = Deadline::after(within);
    let (mut changes, mut settled) = (0, Deadline::after(SETTLE_TIME));
    loop {
        let names = coordinator.membership.names();
        let fitting = |wish: &Wish| names.iter().filter(|name| wish.matches(name)).count() as u32;
        let whole = |wish: &Wish| match wish.expected() {
            Some(expected) => fitting(wish) >= expected,
            None => fitting(wish) >= wish.enough() && settled.passed(),
        };
        if wishes.iter().all(whole) || deadline.passed() {
            return Ok(());
        }
        if !coordinator.is_running() {
            return Err(FleetError::Interrupted);
        }
        let now = coordinator.membership.wait_change(changes, POLL_INTERVAL);
        if now != changes {
            (changes, settled) = (now, Deadline::after(SETTLE_TIME));
            let joined = coordinator.membership.names().len();
            notify(&format!("{} {} joined", hosts(joined), if joined == 1 { "has" } else { "have" }));
        }
    }
}

type Refused = Vec<(String, String)>;

type Descriptions = BTreeMap<String, (Description, f64)>;

/// The descriptions of all matching hosts; and why others have none.
fn describe(coordinator: &Coordinator, wishes: &[Wish]) -> Result<(Descriptions, Refused), FleetError> {
    let mut all = coordinator.described(ANSWER_WITHIN)?;
    let is_wanted = |name: &str| wishes.iter().any(|wish| wish.matches(name));
    for name in coordinator.membership.names() {
        if all.iter().all(|(other, _)| *other != name) {
            all.push((name, Err("it joined, but sends no description".to_owned())));
        }
    }
    let other_versions = |version: String| {
        Err(format!(
            "it uses protocol version {version}, this host {PROTOCOL}: install the same kagiri on both"
        ))
    };
    all.extend(
        coordinator
            .membership
            .other_versions()
            .into_iter()
            .map(|(name, version)| (name, other_versions(version))),
    );
    let (mut descriptions, mut refused) = (Descriptions::new(), Refused::new());
    for (name, one) in all.into_iter().filter(|(name, _)| is_wanted(name)) {
        match one {
            Ok(one) => drop(descriptions.insert(name, one)),
            Err(why) => refused.push((name.clone(), format!("{name}: {why}"))),
        }
    }
    Ok((descriptions, refused))
}

fn rejection(coordinator: &Coordinator, agent: &Description) -> Option<String> {
    let name = &agent.name;
    if agent.protocol != PROTOCOL {
        return Some(format!(
            "{name} runs kagiri {} (protocol version {}, this host {PROTOCOL}): install the same kagiri on \
             both",
            agent.version, agent.protocol
        ));
    }
    if coordinator.membership.known(name).is_some_and(|known| known.instances.len() > 1) {
        return Some(format!("two agents have the name {name}: end one, or give it another --name"));
    }
    if !coordinator.membership.is_present(name, &agent.instance) {
        return Some(format!(
            "{name} responds as another instance than the one that joined: restart its agent"
        ));
    }
    let other = agent.busy.as_ref().filter(|run| **run != coordinator.run)?;
    Some(format!("{name} is busy with run {other}: wait until that run ends"))
}

/// Checks that enough hosts were taken; otherwise lists the missing ones with reasons.
fn enough(coordinator: &Coordinator, wishes: &[Wish], refused: &Refused) -> Result<(), FleetError> {
    let mut missing: Vec<String> = refused.iter().map(|(_, why)| why.clone()).collect();
    let mut short = false;
    for wish in wishes {
        let found = coordinator.agents.keys().filter(|name| wish.matches(name)).count() as u32;
        if found >= wish.enough() {
            continue;
        }
        short = true;
        let known = |name: &String| {
            coordinator.agents.contains_key(name) || refused.iter().any(|(refused, _)| refused == name)
        };
        match wish.spelled_out() {
            Some(names) => {
                let absent: Vec<String> = names.into_iter().filter(|name| !known(name)).collect();
                missing.extend(
                    (!absent.is_empty()).then(|| format!("{} did not join", first_of(&absent, NAMED_MAX))),
                );
            }
            None => missing.push(format!(
                "{} that fit{} '{}' joined, and {} needed",
                hosts(found as usize),
                if found == 1 { "s" } else { "" },
                wish.hosts,
                match wish.enough() {
                    1 => "1 is".to_owned(),
                    enough => format!("{enough} are"),
                }
            )),
        }
    }
    if !short {
        return Ok(());
    }
    if !coordinator.is_running() {
        // The user stopped: the remaining hosts were not lost.
        return Err(FleetError::Interrupted);
    }
    let there = coordinator.membership.names();
    let joined = if there.is_empty() {
        "0 hosts joined".to_owned()
    } else {
        format!("joined: {}", first_of(&there, NAMED_MAX))
    };
    Err(FleetError::Missing(format!("hosts are missing: {} ({joined})", missing.join("; "))))
}

fn hosts(number: usize) -> String {
    format!("{number} host{}", if number == 1 { "" } else { "s" })
}
