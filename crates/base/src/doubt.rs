//! What weakens a result. Each doubt has a meaning a program can read and an advice a person can follow.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::discriminant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::format;
use crate::names::first_of;
use crate::resource::{Ceiling, Resource};

/// A reason to trust a result less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    /// Programs other than the target and kagiri used the host's CPU, in % of one core.
    NoisyNeighbour { other_cpu_percent: f64 },
    /// The hypervisor gave CPU time to other guests: of all CPUs, in % of one core.
    CpuStolen { steal_percent: f64 },
    /// Samples of a resource are missing.
    SamplesMissing { resource: String, missing_percent: f64 },
    /// What was to be sampled and could not be, and why: a sentence each.
    NotSampled { what: Vec<String> },
    /// The server runs elsewhere, so that its load could not be read.
    ServerNotVisible { server: String },
    /// The search ended at its upper end or at the generator's limit: the target may carry more.
    CapacityIsLowerBound { reason: String },
    /// The capacity was not confirmed as often as planned.
    CapacityUnconfirmed { passed: u32, wanted: u32 },
    /// One repetition says nothing about repeatability.
    SingleRepetition,
    /// Repetitions disagreed.
    RepetitionsDisagree { least: f64, most: f64 },
    /// Too few loads were measured to fit a line with any certainty.
    FewLoads { loads: u64 },
    /// The lines were drawn out far beyond the greatest load that was measured.
    FarPrediction { predicted: f64, greatest: f64 },
    /// A resource does not grow in a straight line with load, so that its prediction is rough.
    NotLinear { resource: String, error_percent: f64 },
    /// The ceiling of a resource is unknown, so that it was left out of the prediction.
    CeilingUnknown { resource: String },
    /// More of a resource was used at loads that passed (in the resource's unit) than its ceiling allows, so
    /// that the ceiling was left out.
    CeilingRefuted { resource: Resource, ceiling: Ceiling, most_used: f64 },
    /// The predicted and the measured capacity differ.
    PredictionDisagrees { predicted: f64, measured: f64 },
    /// Hosts were lost, so that the run went on with fewer.
    HostsLost { hosts: Vec<String>, why: String },
    /// Hosts of one role are not alike in what should be alike.
    HostsDiffer { hosts: Vec<String>, what: String, theirs: String, others: String },
    /// A host's clock is known less well than its peers' starts need.
    ClockUncertain { host: String, bound_us: f64 },
    /// A host's calendar clock is off; times in its logs are, too. Nothing measured depends on it.
    WallClockOff { host: String, off_s: f64 },
    /// Something that concerns one host of several.
    OnHost { host: String, doubt: Box<Doubt> },
    /// The measurement was ended before its time.
    Interrupted,
    /// A doubt that a workload brings with it.
    #[serde(untagged)]
    Workload(StoredDoubt),
}

/// Why a capacity is a lower bound, in the words of [`Doubt::CapacityIsLowerBound`].
pub mod lower_bound {
    /// The loads ended before the target did.
    pub const NO_LOAD_FAILED: &str = "no load failed";
    /// Players that were at their own limit left nothing to judge above it.
    pub const PLAYERS: &str = "the trials above it were spoiled";
    /// Other programs left nothing to judge above it.
    pub const OTHERS: &str = "other programs spoiled the trials above it";
    /// As predicted: the measuring side ends before the target.
    pub const PLAYERS_FIRST: &str = "the players are used up first";
}

impl Doubt {
    pub fn on(self, host: &str) -> Self {
        Self::OnHost { host: host.to_owned(), doubt: Box::new(self) }
    }

    /// What to do about it, as an imperative sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::NoisyNeighbour { .. } => "repeat on a quiet host, or with --repeat 5, and compare medians",
            Self::CpuStolen { .. } => "repeat at another time or on a dedicated host",
            Self::SamplesMissing { .. } => {
                "measure for longer, on a quiet host; samples are lost if a trial is short, the sampler is \
                 late or a program ends"
            }
            Self::NotSampled { .. } => "run as root, or on a kernel that provides it",
            Self::ServerNotVisible { .. } => "run an agent on the server's host to see its load",
            Self::CapacityIsLowerBound { reason } => match reason.as_str() {
                lower_bound::NO_LOAD_FAILED => {
                    "search among larger loads: --max N, or --search N where the command has it"
                }
                lower_bound::OTHERS => "measure again when the host is quiet",
                _ => "measure from further hosts as well (--place)",
            },
            Self::CapacityUnconfirmed { .. } => "repeat on a quiet host, and let the search run to its end",
            Self::SingleRepetition => "add --repeat 5 before you compare or publish",
            Self::RepetitionsDisagree { .. } => {
                "report the interval, and check for other programs on the host"
            }
            Self::FewLoads { .. } => "measure at least three loads",
            Self::FarPrediction { .. } => "measure larger loads before you rely on it",
            Self::NotLinear { .. } => "trust the measured capacity more than the predicted one",
            Self::CeilingUnknown { resource } => match resource.as_str() {
                "cpu" => "give it with --ceiling, for example --ceiling cpu=200%",
                "memory" => "give it with --ceiling, for example --ceiling memory=512MiB",
                "network" => "give it with --ceiling, for example --ceiling network=1Gbit/s",
                "player" => "give it with --ceiling, for example --ceiling player=90%",
                _ => "give it with --ceiling, for example --ceiling disk=110Mbit/s",
            },
            Self::CeilingRefuted { .. } => {
                "give the true ceiling with --ceiling, or calibrate again on a quiet host"
            }
            Self::PredictionDisagrees { .. } => {
                "check the evidence: a resource that was not sampled may be the limit"
            }
            Self::HostsLost { .. } => "see the agent's output; repeat with all hosts",
            Self::HostsDiffer { .. } => "use hosts with equal settings for a role",
            Self::ClockUncertain { .. } => "check for a busy host or a slow path to the coordinator",
            Self::WallClockOff { .. } => "synchronise that host's clock with NTP or PTP",
            Self::OnHost { doubt, .. } => doubt.advice(),
            Self::Interrupted => "go on with 'kagiri run --resume RUN'",
            Self::Workload(stored) => stored.advice,
        }
    }

    /// Whether the other one is of the same kind, whatever its facts.
    pub fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Workload(one), Self::Workload(other)) => one.kind == other.kind,
            _ => discriminant(self) == discriminant(other),
        }
    }

    /// Whether it says that others used the CPUs: other programs, or other guests of the hypervisor.
    pub fn is_of_others(&self) -> bool {
        match self {
            Self::NoisyNeighbour { .. } | Self::CpuStolen { .. } => true,
            Self::OnHost { doubt, .. } => doubt.is_of_others(),
            _ => false,
        }
    }

    /// How grave it is among doubts of its own kind: the larger, the graver. 0 where there are no degrees.
    pub fn gravity(&self) -> f64 {
        match self {
            Self::NoisyNeighbour { other_cpu_percent: degree }
            | Self::CpuStolen { steal_percent: degree }
            | Self::SamplesMissing { missing_percent: degree, .. }
            | Self::ClockUncertain { bound_us: degree, .. } => *degree,
            Self::OnHost { doubt, .. } => doubt.gravity(),
            Self::Workload(stored) => stored.gravity,
            _ => 0.0,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoisyNeighbour { other_cpu_percent } => {
                write!(f, "other programs used {other_cpu_percent:.0} % of a core")
            }
            Self::CpuStolen { steal_percent } => {
                write!(f, "the hypervisor took {steal_percent:.1} % of a core")
            }
            Self::SamplesMissing { resource, missing_percent } => {
                write!(f, "{missing_percent:.0} % of the samples of {resource} are missing")
            }
            Self::NotSampled { what } => {
                let sentences: Vec<&str> = what.iter().map(|one| one.trim_end_matches('.')).collect();
                write!(f, "not sampled: {}", sentences.join("; "))
            }
            Self::ServerNotVisible { server } => {
                write!(f, "CPU, memory, disk and network use of server {server} were not sampled")
            }
            Self::CapacityIsLowerBound { reason } => write!(f, "the capacity is a lower bound: {reason}"),
            Self::CapacityUnconfirmed { passed, wanted } => {
                write!(f, "the capacity was confirmed {passed} of {wanted} times")
            }
            Self::SingleRepetition => f.write_str("the run was measured once"),
            Self::RepetitionsDisagree { least, most } => {
                write!(f, "capacities of the repetitions: {least} to {most}")
            }
            Self::FewLoads { loads } => f.write_str(&few(*loads)),
            Self::FarPrediction { predicted, greatest } => f.write_str(&far(*predicted, *greatest)),
            Self::NotLinear { resource, error_percent } => {
                let name = if resource == "cpu" { "CPU" } else { resource };
                write!(
                    f,
                    "{name} use does not grow in a straight line with the load (off by up to \
                     {error_percent:.0} %)"
                )
            }
            Self::CeilingUnknown { resource } => write!(f, "the ceiling of {resource} is unknown"),
            Self::CeilingRefuted { resource, ceiling, most_used } => {
                f.write_str(&refuted(*resource, ceiling, *most_used))
            }
            Self::PredictionDisagrees { predicted, measured } => {
                let predicted = format::number(*predicted);
                write!(f, "the predicted capacity is {predicted}, but the measured one is {measured}")
            }
            Self::Interrupted => f.write_str("the run was interrupted"),
            Self::Workload(stored) => f.write_str(&stored.message),
            Self::HostsLost { hosts, why } => write!(f, "lost {}: {why}", first_of(hosts, HOSTS_NAMED_MAX)),
            Self::HostsDiffer { hosts, what, theirs, others } => {
                write!(
                    f,
                    "{what} is {theirs} on {}, but {others} on most hosts",
                    first_of(hosts, HOSTS_NAMED_MAX)
                )
            }
            Self::ClockUncertain { host, bound_us } => {
                write!(f, "clock error of {host}: up to {bound_us:.0} us")
            }
            Self::WallClockOff { host, off_s } => {
                write!(f, "the calendar clock of {host} is off by {off_s:.1} s")
            }
            Self::OnHost { host, doubt } => write!(f, "on {host}: {doubt}"),
        }
    }
}

const HOSTS_NAMED_MAX: usize = 5;

fn refuted(resource: Resource, ceiling: &Ceiling, most_used: f64) -> String {
    let (value, used) = (amount(resource, ceiling.value), amount(resource, most_used));
    let source = &ceiling.source;
    format!(
        "{resource}: {used} were used at a load that passed, more than its ceiling of {value} ({source}); \
         the ceiling was left out"
    )
}

/// How far beyond the measured loads a predicted one is.
fn far(predicted: f64, greatest: f64) -> String {
    let times = predicted / greatest;
    format!(
        "the predicted {predicted:.0} is {times:.0} times the largest measured load ({greatest}); usage may \
         not stay linear"
    )
}

fn few(loads: u64) -> String {
    match loads {
        0 => "no load was measured".to_owned(),
        1 => "only 1 load was measured".to_owned(),
        loads => format!("only {loads} loads were measured"),
    }
}

fn amount(resource: Resource, value: f64) -> String {
    let of = if resource.unit() == "%" { " of a core" } else { "" };
    format!("{}{of}", format::quantity(Some(value), resource.unit()))
}

/// A doubt as it stands in JSON: its fields, and beside them the sentence and the advice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoubtNote {
    /// What a program reads.
    #[serde(flatten)]
    pub doubt: Doubt,
    /// What a person reads.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl From<Doubt> for DoubtNote {
    fn from(doubt: Doubt) -> Self {
        Self { message: doubt.to_string(), advice: doubt.advice().to_owned(), doubt }
    }
}

/// A kind of doubts that a workload brings with it: an enum whose variants are tagged by `kind`.
pub trait WorkloadDoubt: Serialize {
    /// What weakens the result, as a clause with its numbers.
    fn message(&self) -> String;
    /// What to do about it, as an imperative sentence.
    fn advice(&self) -> &'static str;
    /// How grave it is among doubts of its own kind: the larger, the graver.
    fn gravity(&self) -> f64 {
        0.0
    }
}

/// A workload's doubt as data: its kind and its facts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StoredDoubt {
    kind: String,
    #[serde(flatten)]
    facts: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "is_zero")]
    gravity: f64,
    /// Both stand in the [`DoubtNote`], where a stored one is read from.
    #[serde(skip)]
    message: String,
    #[serde(skip)]
    advice: &'static str,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(gravity: &f64) -> bool {
    *gravity == 0.0
}

impl PartialEq for StoredDoubt {
    fn eq(&self, other: &Self) -> bool {
        (&self.kind, &self.facts) == (&other.kind, &other.facts)
    }
}

impl<T: WorkloadDoubt> From<T> for Doubt {
    fn from(doubt: T) -> Self {
        const PROVEN: &str = "an enum of named fields, tagged by its kind";
        let mut stored: StoredDoubt =
            serde_json::to_value(&doubt).and_then(serde_json::from_value).expect(PROVEN);
        (stored.gravity, stored.message, stored.advice) = (doubt.gravity(), doubt.message(), doubt.advice());
        Self::Workload(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_loads_message_uses_singular_and_plural() {
        let few = [0, 1, 2].map(|loads| Doubt::FewLoads { loads }.to_string());
        assert_eq!(few, ["no load was measured", "only 1 load was measured", "only 2 loads were measured"]);
    }

    #[test]
    fn doubt_note_round_trips_through_json() {
        let note = DoubtNote::from(Doubt::CpuStolen { steal_percent: 3.5 });
        let json = serde_json::to_value(&note).unwrap();
        assert_eq!(json["kind"], "cpu_stolen");
        assert_eq!(json["message"], "the hypervisor took 3.5 % of a core");
        assert_eq!(serde_json::from_value::<DoubtNote>(json).unwrap(), note);
    }

    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum EchoDoubt {
        AnswersLate { late_ms_max: f64 },
        ClientsGone,
    }

    impl WorkloadDoubt for EchoDoubt {
        fn message(&self) -> String {
            match self {
                Self::AnswersLate { late_ms_max } => format!("answers were up to {late_ms_max} ms late"),
                Self::ClientsGone => "clients went away".to_owned(),
            }
        }

        fn advice(&self) -> &'static str {
            "use fewer clients"
        }

        fn gravity(&self) -> f64 {
            if let Self::AnswersLate { late_ms_max } = self { *late_ms_max } else { 0.0 }
        }
    }

    #[test]
    fn doubt_of_a_workload_is_stored_as_a_general_one_is() {
        let late = |late_ms_max| Doubt::from(EchoDoubt::AnswersLate { late_ms_max });
        let note = DoubtNote::from(late(2.5));
        let json = serde_json::to_value(&note).unwrap();
        let stored = serde_json::json!({
            "kind": "answers_late", "late_ms_max": 2.5, "gravity": 2.5,
            "message": "answers were up to 2.5 ms late", "advice": "use fewer clients"
        });
        assert_eq!(json, stored);
        let read: DoubtNote = serde_json::from_value(json).unwrap();
        assert_eq!((&read, read.doubt.gravity()), (&note, 2.5));
        assert!(late(1.0).is_same_kind(&read.doubt) && late(1.0) != read.doubt);
        assert!(!late(1.0).is_same_kind(&EchoDoubt::ClientsGone.into()));
        assert!(!late(1.0).is_same_kind(&Doubt::Interrupted));
    }

    #[test]
    fn doubt_of_a_workload_that_this_version_does_not_know_is_kept() {
        let stored = serde_json::json!({
            "kind": "cpus_shared", "message": "builder and sources shared the CPUs",
                "advice": "use other hosts"
        });
        let read: DoubtNote = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }
}
