//! Parts that accompany each trial beside those of its workload: a policy of `kagiri qos` in force, the watch
//! of `kagiri tune` on sockets, and the steps of a lab's links.

use std::collections::BTreeMap;

use base::doubt::{Doubt, WorkloadDoubt};
use base::format::quantity;
use base::outcome::{Cell, Table};
use base::part::{Endpoints, HERE, PartError, PartSpec};
use base::placement::Wish;
use base::series::Series;
use base::workload::Judgement;
use fleet::{Bus, BusError};
use lab::link_steps::{LinkSteps, LinkStepsTask};
use qos::daemon::ClassStatus;
use qos::part::{PolicyPart, PolicyReport, PolicyTask};
use qos::policy::Policy;
use qos::verdict::Judgement as ClassJudgement;
use serde::Serialize;
use serde_json::{Value, json};
use tune::part::WatchPart;
use workload::part::{self, Part};

use crate::placed;
use crate::run_error::RunError;
use crate::tuning::{self, VariantTunings};

/// The role of a policy in messages and names of parts.
const QOS: &str = "qos";
const STEPS: &str = "link-steps";
/// A step is exact within this time.
const STEP_LATE_US_MAX: f64 = 20_000.0;
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
            let prepared = prepare(bus, &specs, &names);
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
        let mut companions = Companions { specs: Vec::new(), policy: None, links: &[] };
        let Some(policy) = self.policies.get(variant) else { return Ok(companions) };
        let hosts = placed::hosts_of("qos.hosts", &policy.hosts, bus)?;
        let task = PolicyTask { name: policy.file.clone(), text: policy.text.clone() };
        for host in &hosts {
            let name = part::name(QOS, host, hosts.len() == 1);
            companions.specs.push(part::spec::<PolicyPart>(name, host, &task)?);
        }
        companions.policy = Some(policy);
        Ok(companions)
    }
}

/// Places and prepares parts that need no endpoints of others.
pub(crate) fn prepare(bus: &mut dyn Bus, specs: &[PartSpec], names: &[&str]) -> Result<(), BusError> {
    if specs.is_empty() {
        return Ok(());
    }
    bus.place(specs.to_vec())?;
    bus.prepare(names, &Endpoints::new()).map(drop)
}

/// The parts that accompany a trial.
pub(crate) struct Companions<'a> {
    specs: Vec<PartSpec>,
    policy: Option<&'a VariantPolicy>,
    links: &'a [SteppingLink],
}

impl Companions<'_> {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.specs.iter().map(|spec| spec.name.as_str())
    }

    /// Places and prepares them: the policies are in force then.
    pub(crate) fn prepare(&self, bus: &mut dyn Bus) -> Result<(), BusError> {
        let names: Vec<&str> = self.names().collect();
        prepare(bus, &self.specs, &names)
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
        for spec in self.specs.iter().filter(|spec| spec.kind != WatchPart::KIND) {
            let Some(report) = reports.get(&spec.name) else { continue };
            let what = || format!("the report of {}", spec.name);
            if spec.kind == LinkSteps::KIND {
                let report: <LinkSteps as Part>::Report = part::read(report, what)?;
                let rates = link_rate(self.links, &report.done);
                let phases = rates.as_ref().and_then(|rates| phases(rates, judgement));
                judgement.account.tables.extend(phases);
                judgement.series.extend(rates);
                let late = report.done.iter().map(|step| step.late_us).fold(0.0, f64::max);
                if late > STEP_LATE_US_MAX {
                    judgement.doubts.push(CompanionDoubt::StepLate { late_ms: late / 1e3 }.into());
                }
            } else if let Some(policy) = self.policy {
                let report: PolicyReport = part::read(report, what)?;
                let status = &report.status;
                verified.0 += status.socket_readings_verified;
                verified.1 += status.socket_readings;
                judgement.account.tables.push(table(policy, &spec.host, &report));
                let problems = status.problems.iter().cloned();
                judgement.doubts.extend(problems.map(|problem| {
                    let doubt = Doubt::from(CompanionDoubt::PolicyProblem { problem });
                    if spec.host == HERE { doubt } else { doubt.on(&spec.host) }
                }));
            }
        }
        if self.policy.is_some() {
            let share = (verified.1 > 0).then(|| verified.0 as f64 / verified.1 as f64);
            judgement.metrics.insert("qos_verified_ratio".to_owned(), share);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum CompanionDoubt {
    /// A link changed its rate later than its schedule says.
    StepLate { late_ms: f64 },
    /// The policy in force reported this.
    PolicyProblem { problem: String },
}

impl WorkloadDoubt for CompanionDoubt {
    fn message(&self) -> String {
        match self {
            Self::StepLate { late_ms } => {
                format!("a link changed its rate {} late", quantity(Some(late_ms / 1e3), "s"))
            }
            Self::PolicyProblem { problem } => {
                format!("the policy in force reported: {}", problem.trim_end_matches('.'))
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::StepLate { .. } => "repeat on a quiet machine",
            Self::PolicyProblem { .. } => "fix this and measure again; docs/qos.md says what is enforced",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::StepLate { late_ms } => *late_ms,
            Self::PolicyProblem { .. } => 0.0,
        }
    }
}

/// The rate of the first link with steps. A step is two points at the same time.
fn link_rate(links: &[SteppingLink], done: &[lab::state::StepDone]) -> Option<Series> {
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

fn table(policy: &VariantPolicy, host: &str, report: &PolicyReport) -> Table {
    let on = if host == HERE { String::new() } else { format!(" on {host}") };
    let file = std::path::Path::new(&policy.file).file_name();
    let file = file.map_or_else(|| policy.file.clone(), |name| name.to_string_lossy().into_owned());
    let columns = [
        ("class", ""),
        ("verdict", ""),
        ("target", "s"),
        ("predicted", "s"),
        ("messages", ""),
        ("in time", "%"),
        ("99 % within", "s"),
        ("UDP sent", "bit/s"),
    ];
    let mut table = Table::new(format!("policy in force{on}: {file}"), &columns);
    let judged = policy.policy.classes.iter().zip(policy.policy.judge());
    for ((class, judged), status) in judged.zip(&report.status.classes) {
        table.rows.push(row(class.target.map(|target| target.s()), &judged, status, report.age_s));
    }
    let status = &report.status;
    table.notes.push(match status.socket_readings {
        0 => "No TCP socket was limited.".to_owned(),
        all => format!(
            "The kernel confirmed the rate at {} of {all} readings of limited TCP sockets.",
            status.socket_readings_verified
        ),
    });
    if let Some(capacity) = status.capacity_bit_per_s {
        table.notes.push(format!("Payload that the link carries: {}.", quantity(Some(capacity), "bit/s")));
    }
    table.notes.extend(status.problems.iter().cloned());
    table.without_unknown_columns()
}

fn row(target_s: Option<f64>, judged: &ClassJudgement, status: &ClassStatus, age_s: f64) -> Vec<Cell> {
    let number = |value: Option<f64>| value.map_or(Cell::Unknown, Cell::from);
    let messages = (status.messages > 0).then_some(status.messages as f64);
    let predicted = judged.predicted_response_s.filter(|_| target_s.is_some());
    let sent = status.udp.as_ref().map(|udp| udp.sent_bytes as f64 * 8.0 / age_s);
    vec![
        status.name.as_str().into(),
        judged.verdict.name().into(),
        number(target_s),
        number(predicted),
        number(messages),
        number(messages.map(|all| 100.0 * status.in_time as f64 / all)),
        number(status.transfer_p99_ms.map(|ms| ms / 1e3)),
        number(sent),
    ]
}

#[cfg(test)]
mod tests {
    use lab::state::StepDone;

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
