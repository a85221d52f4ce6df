//! Parts that accompany each trial beside those of its workload: a policy of `kagiri qos` in force, the
//! coordinator of its hosts, the watch of `kagiri tune` on sockets, and the steps of a lab's links.

mod doubt;
mod policy_table;

use std::collections::BTreeMap;

use base::doubt::Doubt;
use base::outcome::{Cell, Table};
use base::part::{Endpoints, HERE, PartError, PartSpec};
use base::placement::Wish;
use base::series::Series;
use base::workload::Judgement;
use fleet::{Bus, BusError};
use lab::link_steps::{LinkSteps, LinkStepsTask};
use lab::state::StepDone;
use qos::daemon::LeaseState;
use qos::part::coordinator::{CoordinatorPart, CoordinatorReport, CoordinatorTask};
use qos::part::{PolicyPart, PolicyReport, PolicyTask};
use qos::policy::Policy;
use serde_json::{Value, json};
use tune::part::WatchPart;
use workload::part::{self, Part};

use crate::placed;
use crate::run_error::RunError;
use crate::tuning::{self, VariantTunings};
use doubt::CompanionDoubt;

/// The role of a policy in messages and names of parts.
const QOS: &str = "qos";
const COORDINATOR: &str = "qos-coordinator";
const STEPS: &str = "link-steps";
/// A step is exact within this time.
const STEP_LATE_US_MAX: f64 = 20_000.0;
/// Share of the coordinator's steps that may come too late.
const LATE_STEPS_MAX: f64 = 0.05;
/// Series of the rate of a link with steps.
const LINK_RATE: &str = "link_rate_bit_per_s";

/// Phases of a link's rate are averaged from this time after each step on.
const SETTLED_AFTER_S: f64 = 2.0;
/// What is averaged, where a workload has it.
const SERIES_OF_PHASES: [(&str, &str); 3] = [
    ("in time", "in_time_percent"),
    ("mean response", "response_mean_ms"),
    ("background", "background_bit_per_s"),
];

/// A policy that is in force while a variant is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantPolicy {
    /// Its file, for messages.
    pub file: String,
    pub text: String,
    pub policy: Policy,
    pub hosts: Wish,
    /// The host that coordinates them; `None`: the plan names none.
    pub coordinator: Option<Wish>,
}

/// The first rate of a link, and its lab has steps for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteppingLink {
    /// Number in the lab's file.
    pub number: usize,
    pub first_bit_per_s: u64,
}

/// What accompanies the trials of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beside {
    /// By the name of the variant.
    pub policies: BTreeMap<String, VariantPolicy>,
    /// The lab, and its links with steps.
    pub steps: Option<(String, Vec<SteppingLink>)>,
    /// By the name of the variant.
    pub tunings: VariantTunings,
}

impl VariantPolicy {
    /// As it is stored with the run: text, hosts, and the verdict on each class.
    fn fact(&self) -> Value {
        let judged = self.policy.classes.iter().zip(self.policy.judge()).map(|(class, judged)| {
            json!({
                "class": class.name,
                "verdict": judged.verdict.name(),
                "predicted_response_ms": judged.predicted_response_s.map(|s| s * 1e3),
            })
        });
        json!({
            "file": self.file,
            "hosts": self.hosts.hosts,
            "coordinator": self.coordinator.as_ref().map(|wish| &wish.hosts),
            "text": self.text,
            "classes": judged.collect::<Vec<_>>(),
        })
    }
}

impl Beside {
    /// What is stored of the policies, by variant.
    pub(crate) fn fact(&self) -> Option<Value> {
        let facts = self.policies.iter().map(|(variant, policy)| (variant.clone(), policy.fact()));
        (!self.policies.is_empty()).then(|| Value::Object(facts.collect()))
    }

    /// Brings each policy into force once, before anything is measured, and ends it.
    /// Errors: a host does not enforce it, or is not there.
    pub(crate) fn check(&self, bus: &mut dyn Bus) -> Result<(), RunError> {
        let mut checked: Vec<&VariantPolicy> = Vec::new();
        for (variant, policy) in &self.policies {
            if checked.contains(&policy) {
                continue;
            }
            let companions = self.of_policy(variant, bus)?;
            let prepared = companions.prepare(bus);
            let ended = bus.stop(&companions.names().collect::<Vec<_>>());
            prepared?;
            ended.into_values().try_for_each(|report| report.map(drop))?;
            checked.push(policy);
        }
        for variant in self.tunings.keys() {
            let specs = tuning::settings_parts(&self.tunings, variant, bus)?;
            let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let prepared = prepare(bus, &specs, &names, &Endpoints::new());
            let ended = bus.stop(&names);
            prepared?;
            ended.into_values().try_for_each(|report| report.map(drop))?;
        }
        Ok(())
    }

    /// Parts that set the kernel's settings of a variant; prepared before all others, and stopped last.
    /// Errors: a host of them is not there.
    pub(crate) fn settings_of(&self, variant: &str, bus: &dyn Bus) -> Result<Vec<PartSpec>, RunError> {
        tuning::settings_parts(&self.tunings, variant, bus)
    }

    /// What accompanies the trials of a variant.
    /// Errors: a host that is to enforce its policy is not there.
    pub(crate) fn of_variant(&self, variant: &str, bus: &dyn Bus) -> Result<Companions<'_>, RunError> {
        let mut companions = self.of_policy(variant, bus)?;
        companions.specs.extend(tuning::watch_parts(&self.tunings, variant, bus)?);
        if let Some((lab, links)) = &self.steps {
            let task = LinkStepsTask { lab: lab.clone() };
            companions.specs.push(part::spec::<LinkSteps>(STEPS.to_owned(), HERE, &task)?);
            companions.links = links;
        }
        Ok(companions)
    }

    fn of_policy(&self, variant: &str, bus: &dyn Bus) -> Result<Companions<'_>, RunError> {
        let mut companions = Companions { specs: Vec::new(), coordinator: None, policy: None, links: &[] };
        let Some(policy) = self.policies.get(variant) else { return Ok(companions) };
        let hosts = placed::hosts_of("qos.hosts", &policy.hosts, bus)?;
        let (name, text) = (&policy.file, &policy.text);
        if let Some(wish) = &policy.coordinator {
            let host = one_host("qos.coordinator", wish, bus)?;
            let (name, text, hosts) = (name.clone(), text.clone(), hosts.clone());
            let task = CoordinatorTask { name, text, host: host.clone(), hosts };
            let spec = part::spec::<CoordinatorPart>(COORDINATOR.to_owned(), &host, &task)?;
            companions.coordinator = Some(spec);
        }
        for host in &hosts {
            let coordinator = policy.coordinator.as_ref().map(|_| (COORDINATOR.to_owned(), host.clone()));
            let task = PolicyTask { name: name.clone(), text: text.clone(), coordinator };
            let name = part::name(QOS, host, hosts.len() == 1);
            companions.specs.push(part::spec::<PolicyPart>(name, host, &task)?);
        }
        companions.policy = Some(policy);
        Ok(companions)
    }
}

/// The host of a key that names one.
/// Errors: there is none, or there are several.
fn one_host(key: &str, wish: &Wish, bus: &dyn Bus) -> Result<String, RunError> {
    let mut hosts = placed::hosts_of(key, wish, bus)?;
    match (hosts.pop(), hosts.is_empty()) {
        (Some(host), true) => Ok(host),
        _ => Err(RunError::new(format!("{key} = \"{}\" names several hosts; name one", wish.hosts))),
    }
}

/// Places and prepares parts, which get the endpoints of these peers.
pub(crate) fn prepare(
    bus: &mut dyn Bus,
    specs: &[PartSpec],
    names: &[&str],
    peers: &Endpoints,
) -> Result<(), BusError> {
    if specs.is_empty() {
        return Ok(());
    }
    bus.place(specs.to_vec())?;
    bus.prepare(names, peers).map(drop)
}

/// The parts that accompany a trial.
pub(crate) struct Companions<'a> {
    /// Without the coordinator.
    specs: Vec<PartSpec>,
    coordinator: Option<PartSpec>,
    policy: Option<&'a VariantPolicy>,
    links: &'a [SteppingLink],
}

impl Companions<'_> {
    /// The coordinator is the last to be stopped: a host that it leaves counts as alone.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.specs.iter().chain(&self.coordinator).map(|spec| spec.name.as_str())
    }

    /// Places and prepares them: the policies are in force then, and follow their coordinator.
    pub(crate) fn prepare(&self, bus: &mut dyn Bus) -> Result<(), BusError> {
        let mut peers = Endpoints::new();
        if let Some(coordinator) = &self.coordinator {
            bus.place(vec![coordinator.clone()])?;
            peers = bus.prepare(&[&coordinator.name], &peers)?;
        }
        let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
        prepare(bus, &self.specs, &names, &peers)
    }

    /// Adds what they report to a trial's judgement.
    /// Errors: a report cannot be read.
    pub(crate) fn add_to(
        &self,
        judgement: &mut Judgement,
        reports: &BTreeMap<String, Value>,
    ) -> Result<(), PartError> {
        let mut verified = (0, 0);
        tuning::add_watches(&self.specs, judgement, reports)?;
        let specs = self.specs.iter().chain(&self.coordinator);
        for spec in specs.filter(|spec| spec.kind != WatchPart::KIND) {
            let Some(report) = reports.get(&spec.name) else { continue };
            let what = || format!("the report of {}", spec.name);
            let doubts = match spec.kind.as_str() {
                LinkSteps::KIND => {
                    let report: <LinkSteps as Part>::Report = part::read(report, what)?;
                    self.add_steps(judgement, &report.done)
                }
                CoordinatorPart::KIND => {
                    let report: CoordinatorReport = part::read(report, what)?;
                    let is_late = report.late_steps as f64 > LATE_STEPS_MAX * report.steps as f64;
                    let (late, steps) = (report.late_steps, report.steps);
                    Vec::from_iter(is_late.then_some(CompanionDoubt::CoordinatorLate { late, steps }))
                }
                _ => {
                    let Some(policy) = self.policy else { continue };
                    let report: PolicyReport = part::read(report, what)?;
                    verified.0 += report.status.socket_readings_verified;
                    verified.1 += report.status.socket_readings;
                    judgement.account.tables.push(policy_table::table(policy, &spec.host, &report));
                    doubts_of_policy(&report)
                }
            };
            judgement.doubts.extend(doubts.into_iter().map(|doubt| {
                let doubt = Doubt::from(doubt);
                if spec.host == HERE { doubt } else { doubt.on(&spec.host) }
            }));
        }
        if self.policy.is_some() {
            let share = (verified.1 > 0).then(|| verified.0 as f64 / verified.1 as f64);
            judgement.metrics.insert("qos_verified_ratio".to_owned(), share);
        }
        Ok(())
    }

    /// The rate of the link over time, and what was measured at each.
    fn add_steps(&self, judgement: &mut Judgement, done: &[StepDone]) -> Vec<CompanionDoubt> {
        let rates = link_rate(self.links, done);
        let phases = rates.as_ref().and_then(|rates| phases(rates, judgement));
        judgement.account.tables.extend(phases);
        judgement.series.extend(rates);
        let late = done.iter().map(|step| step.late_us).fold(0.0, f64::max);
        let is_late = late > STEP_LATE_US_MAX;
        Vec::from_iter(is_late.then_some(CompanionDoubt::StepLate { late_ms: late / 1e3 }))
    }
}

fn doubts_of_policy(report: &PolicyReport) -> Vec<CompanionDoubt> {
    let status = &report.status;
    let problem = |problem: &String| CompanionDoubt::PolicyProblem { problem: problem.clone() };
    let problems = status.problems.iter().map(problem);
    let alone = status.hosts.iter().filter(|hosts| hosts.state == LeaseState::Alone);
    let alone = alone.map(|hosts| CompanionDoubt::HostAlone { problem: policy_table::why(hosts).to_owned() });
    problems.chain(alone).collect()
}

/// The rate of the first link with steps. A step is two points at the same time.
fn link_rate(links: &[SteppingLink], done: &[StepDone]) -> Option<Series> {
    let link = links.first()?;
    let mut series = Series::new(LINK_RATE, "bit/s");
    let mut rate = link.first_bit_per_s as f64;
    series.push(0.0, Some(rate));
    for step in done.iter().filter(|step| step.link == link.number) {
        series.push(step.after_s, Some(rate));
        rate = step.bit_per_s as f64;
        series.push(step.after_s, Some(rate));
    }
    Some(series)
}

/// The workload's series while the link had each rate, from [`SETTLED_AFTER_S`] after each step.
fn phases(rates: &Series, judgement: &Judgement) -> Option<Table> {
    let shown: Vec<(&str, &Series)> = SERIES_OF_PHASES
        .iter()
        .filter_map(|(title, name)| Some((*title, judgement.series.iter().find(|one| one.name == *name)?)))
        .collect();
    let columns = [("from", "s"), ("to", "s"), ("rate of the link", "bit/s")].into_iter();
    let columns: Vec<_> =
        columns.chain(shown.iter().map(|(title, series)| (*title, series.unit.as_str()))).collect();
    let mut table = Table::new("By the rate of the link", &columns);
    let end_s = judgement.hold_s.1;
    // Each rate stands at its begin and at its end.
    let mut points = rates.at_s.iter().zip(&rates.values).step_by(2).peekable();
    while let Some((&from_s, &rate)) = points.next() {
        let to_s = points.peek().map_or(end_s, |(at_s, _)| **at_s).min(end_s);
        let settled_s = (from_s + SETTLED_AFTER_S).max(judgement.hold_s.0);
        if settled_s >= to_s {
            continue;
        }
        let means = shown.iter().map(|(_, series)| series.mean(settled_s, to_s));
        let cells = [Some(settled_s), Some(to_s), rate].into_iter().chain(means);
        table.rows.push(cells.map(|value| value.map_or(Cell::Unknown, Cell::from)).collect());
    }
    table.notes.push(format!(
        "Means of the judged time from {SETTLED_AFTER_S} s after each change on; each interval of time \
         counts the same."
    ));
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_link_are_a_staircase() {
        let links = [SteppingLink { number: 2, first_bit_per_s: 50 }];
        let step = |link, after_s, bit_per_s| StepDone { link, after_s, bit_per_s, late_us: 3.0 };
        let series = link_rate(&links, &[step(2, 1.0, 20), step(1, 2.0, 7), step(2, 3.0, 5)]).unwrap();
        assert_eq!(series.at_s, [0.0, 1.0, 1.0, 3.0, 3.0]);
        assert_eq!(series.values, [50.0, 50.0, 20.0, 20.0, 5.0].map(Some));
        assert!(link_rate(&[], &[]).is_none());
        let mut judgement = Judgement::new(base::verdict::Verdict::Pass, (0.5, 8.0));
        let mut in_time = Series::new("in_time_percent", "%");
        (1..=16).for_each(|half| in_time.push(f64::from(half) / 2.0, Some(f64::from(half))));
        judgement.series.push(in_time);
        let table = phases(&series, &judgement).expect("a phase is longer than the time to settle");
        let numbers = [5.0, 8.0, 5.0, 13.0].map(Cell::Number).to_vec();
        assert_eq!((table.rows, table.columns.len()), (vec![numbers], 4));
    }
}
