//! From a plan's wishes to agents that work for its run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use base::names::first_of;
use base::placement::Wish;
use sys::clock::Deadline;

use super::lease::{LEASE, Renewing};
use super::{ANSWER_WITHIN, Coordinator, ask};
use crate::FleetError;
use crate::protocol::{Answer, Ask, Description, PROTOCOL};

/// Where a pattern leaves open how many hosts fit it, the fleet counts as whole when nobody has come for this long.
const SETTLED: Duration = Duration::from_secs(1);
/// How often waiting looks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Names that an error lists.
const NAMED_MAX: usize = 12;

/// An agent that works for a run.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Which instance; another one of the same name is another agent.
    pub instance: String,
    /// Who it is.
    pub description: Description,
    /// How far its calendar clock is ahead of this host's, in s, to within the time that it took to ask.
    pub wall_clock_off_s: f64,
}

/// Wait for the hosts, ask who they are, and take them: all that fit, those beyond a wish's count too, which stand by in
/// the place of hosts that are lost.
pub fn gather(
    of: &mut Coordinator,
    wishes: &[Wish],
    within: Duration,
    say: &dyn Fn(&str),
) -> Result<(), FleetError> {
    wait(of, wishes, within, say)?;
    let (descriptions, mut refused) = describe(of, wishes)?;
    let fleet: Vec<IpAddr> = descriptions.values().filter_map(|(one, _)| one.address).collect();
    let mut asks = Vec::new();
    for (name, (description, _)) in &descriptions {
        match objection(of, description) {
            Some(why) => refused.push((name.clone(), why)),
            None => {
                let ask = Ask::Take {
                    run: of.run.clone(),
                    coordinator: of.id.clone(),
                    name: of.name.clone(),
                    fleet: fleet.clone(),
                    lease_ms: LEASE.as_millis() as u64,
                };
                of.roster.choose(name, &description.instance);
                asks.push((name.clone(), ask));
            }
        }
    }
    of.renewing = Some(Renewing::start(of.session.clone(), &of.id, &of.run)?);
    let taken = ask::each(&of.session, &of.roster, asks, ANSWER_WITHIN, &|| of.goes_on());
    for (name, answer) in taken {
        let mut refuse = |why: String| refused.push((name.clone(), why));
        match (answer, descriptions.get(&name)) {
            (Ok(Answer::Done), Some((description, wall_clock_off_s))) => {
                let (instance, description) = (description.instance.clone(), description.clone());
                of.agents.insert(
                    name.clone(),
                    Agent { instance, description, wall_clock_off_s: *wall_clock_off_s },
                );
            }
            (Ok(Answer::Refused { error, .. }), _) => refuse(format!("{name}: {error}")),
            (Ok(_), _) => refuse(format!("{name} gave an answer that does not fit")),
            (Err(error), _) => refuse(error.to_string()),
        }
    }
    // Nobody waits for clocks that are compared in vain.
    enough(of, wishes, &refused)?;
    let names: Vec<String> = of.agents.keys().cloned().collect();
    say(&format!("comparing clocks with {}", hosts(names.len())));
    of.probe(&names);
    let mut unused = Vec::new();
    for name in names {
        if let Err(why) = of.clocks.offset(&name) {
            of.agents.remove(&name);
            unused.push((name.clone(), Ask::Release { run: of.run.clone() }));
            refused.push((name.clone(), format!("{name}: its clock is not known: {why}")));
        }
    }
    // Whoever else wants them need not wait for the end of this run. Who does not hear it was lost anyway.
    drop(ask::each(&of.session, &of.roster, unused, ANSWER_WITHIN, &|| of.goes_on()));
    enough(of, wishes, &refused)?;
    for (_, why) in &refused {
        say(&format!("left out: {why}"));
    }
    of.left_out = refused;
    Ok(())
}

/// Wait until nobody more comes, and compare clocks with everybody, taking nobody.
pub fn look(of: &mut Coordinator, within: Duration) -> Result<(), FleetError> {
    let everybody = Wish { hosts: "*".into(), count: None, at_least: None };
    wait(of, &[everybody], within, &|_| {})?;
    of.probe(&of.roster.names());
    Ok(())
}

/// Until everybody who is expected is there, or time is over and those that are there are enough.
fn wait(of: &Coordinator, wishes: &[Wish], within: Duration, say: &dyn Fn(&str)) -> Result<(), FleetError> {
    let deadline = Deadline::after(within);
    let (mut changes, mut settled) = (0, Deadline::after(SETTLED));
    loop {
        let names = of.roster.names();
        let fitting = |wish: &Wish| names.iter().filter(|name| wish.matches(name)).count() as u32;
        let whole = |wish: &Wish| match wish.expected() {
            Some(expected) => fitting(wish) >= expected,
            None => fitting(wish) >= wish.enough() && settled.passed(),
        };
        if wishes.iter().all(whole) || deadline.passed() {
            return Ok(());
        }
        if !of.goes_on() {
            return Err(FleetError::Interrupted);
        }
        let now = of.roster.wait_change(changes, LOOK);
        if now != changes {
            (changes, settled) = (now, Deadline::after(SETTLED));
            let joined = of.roster.names().len();
            say(&format!("{} {} joined", hosts(joined), if joined == 1 { "has" } else { "have" }));
        }
    }
}

/// Who cannot be had, and why.
type Refused = Vec<(String, String)>;

/// Everybody who is wished for, by name, with how far the calendar clocks are apart.
type Descriptions = BTreeMap<String, (Description, f64)>;

/// Everybody who is wished for and says who it is; and why others do not.
fn describe(of: &Coordinator, wishes: &[Wish]) -> Result<(Descriptions, Refused), FleetError> {
    let mut all = of.described(ANSWER_WITHIN)?;
    let is_wanted = |name: &str| wishes.iter().any(|wish| wish.matches(name));
    for name in of.roster.names() {
        if all.iter().all(|(other, _)| *other != name) {
            all.push((name, Err("it joined, but does not say who it is".to_owned())));
        }
    }
    let foreign = |version: String| {
        Err(format!(
            "it speaks messages of version {version}, here {PROTOCOL}: install the same kagiri on both"
        ))
    };
    all.extend(of.roster.foreign().into_iter().map(|(name, version)| (name, foreign(version))));
    let (mut descriptions, mut refused) = (Descriptions::new(), Refused::new());
    for (name, one) in all.into_iter().filter(|(name, _)| is_wanted(name)) {
        match one {
            Ok(one) => drop(descriptions.insert(name, one)),
            Err(why) => refused.push((name.clone(), format!("{name}: {why}"))),
        }
    }
    Ok((descriptions, refused))
}

/// Why an agent cannot be taken.
fn objection(of: &Coordinator, agent: &Description) -> Option<String> {
    let name = &agent.name;
    if agent.protocol != PROTOCOL {
        return Some(format!(
            "{name} runs kagiri {} (messages of version {}, here {PROTOCOL}): install the same kagiri on both",
            agent.version, agent.protocol
        ));
    }
    if of.roster.known(name).is_some_and(|known| known.instances.len() > 1) {
        return Some(format!("two agents call themselves {name}: end one, or give it another --name"));
    }
    if !of.roster.is_there(name, &agent.instance) {
        return Some(format!("{name} answers as another agent than the one that joined: start it anew"));
    }
    let other = agent.busy.as_ref().filter(|run| **run != of.run)?;
    Some(format!("{name} works for run {other}: wait until it is over"))
}

/// Whether those that were taken are enough, and if not, who is missing and why.
fn enough(of: &Coordinator, wishes: &[Wish], refused: &Refused) -> Result<(), FleetError> {
    let mut missing: Vec<String> = refused.iter().map(|(_, why)| why.clone()).collect();
    let mut short = false;
    for wish in wishes {
        let found = of.agents.keys().filter(|name| wish.matches(name)).count() as u32;
        if found >= wish.enough() {
            continue;
        }
        short = true;
        let known = |name: &String| {
            of.agents.contains_key(name) || refused.iter().any(|(refused, _)| refused == name)
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
    if !of.goes_on() {
        // Those who were still asked then were given up, not lost.
        return Err(FleetError::Interrupted);
    }
    let there = of.roster.names();
    let joined = if there.is_empty() {
        "nobody joined".to_owned()
    } else {
        format!("joined: {}", first_of(&there, NAMED_MAX))
    };
    Err(FleetError::Missing(format!("the fleet is not whole: {} ({joined})", missing.join("; "))))
}

fn hosts(number: usize) -> String {
    format!("{number} host{}", if number == 1 { "" } else { "s" })
}
