//! What came of a run: the one document that is stored, exported, compared and reported.

mod figure;
mod table;

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::doubt::DoubtNote;
use crate::metric::Metrics;
use crate::objective::Requirement;
use crate::series::Series;
use crate::statistics;
use crate::verdict::Verdict;

pub use crate::resource::{Ceiling, Resource, ResourceSpec};
pub use figure::{Axis, Figure, Layer, MARKS_MAX, Marks, Tone};
pub use table::{Cell, Column, Table};

/// The schema number of [`Run`] as this version writes it. Fields are added, never renamed, within a number.
pub const SCHEMA: u32 = 1;

/// In which phase of the search a trial was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Looking for the largest load that passes.
    Search,
    /// Making sure of it, and of the failure one above.
    Confirm,
    /// Going down again.
    RampDown,
    /// One trial at a load that was asked for.
    Single,
}

/// One load, one variant, one repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Counts from 1 within the run, in the order in which the trials were made.
    pub number: u32,
    /// The variant's name.
    pub variant: String,
    /// Counts from 1.
    pub repetition: u32,
    /// Where in the search.
    pub phase: Phase,
    /// The load that was offered, in the workload's unit.
    pub load: f64,
    /// The judgement.
    pub verdict: Verdict,
    /// Why it is not a pass, one sentence each; empty for a pass.
    pub reasons: Vec<String>,
    /// Its numbers.
    pub metrics: Metrics,
    /// What weakens it.
    pub doubts: Vec<DoubtNote>,
    /// When it began.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// The hold, in seconds after the trial's start: metrics are taken from within it.
    pub hold_from_s: f64,
    /// The end of the hold, in seconds after the trial's start.
    pub hold_to_s: f64,
    /// What was sampled.
    #[serde(default)]
    pub series: Vec<Series>,
    /// What the workload says of it in its own words.
    #[serde(default, skip_serializing_if = "Account::is_empty")]
    pub account: Account,
}

/// What a workload says of a trial in its own words: what came of it, what held it back, the tables behind
/// both.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Account {
    /// What came of it, one sentence; absent where the load that was carried says it all.
    pub headline: Option<String>,
    /// The limit, if the workload's own counters show it.
    pub limit: Option<Limit>,
    /// What a reader may want to look up.
    pub tables: Vec<Table>,
    /// What a reader may want to see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
    /// Why it broke off, if it did: its measurements until then do not show how it would have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke_off: Option<String>,
    /// Whether the user ended it before its time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl Account {
    /// Whether the workload says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Trial {
    /// Whether it broke off before anything was measured, for example because a host was lost: it says
    /// nothing about the target or the measuring side.
    pub fn is_unmeasured(&self) -> bool {
        self.verdict == Verdict::Invalid && self.metrics.values().all(Option::is_none)
    }

    /// Whether it broke off, before or after something was measured in it.
    pub fn is_broken_off(&self) -> bool {
        self.is_unmeasured() || self.account.broke_off.is_some()
    }

    /// Whether others that used the CPUs made it invalid, so that the same load is worth another trial.
    pub fn is_disturbed(&self) -> bool {
        let is_invalid = self.verdict == Verdict::Invalid && !self.is_broken_off();
        is_invalid && self.doubts.iter().any(|note| note.doubt.is_of_others())
    }
}

/// The largest load that passed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// In `unit`; `None` when no load could be judged. Zero means that not even a load of one passed.
    pub value: Option<f64>,
    /// The load's unit.
    pub unit: String,
    /// Least and greatest value that the trials allow; `None` at the upper end means "this or more".
    pub interval: [Option<f64>; 2],
    /// How often that load passed.
    pub passes: u32,
    /// How often the next load failed.
    pub failures_above: u32,
}

impl Capacity {
    /// Whether it is only known that this much is carried, and not how much more.
    pub fn is_lower_bound(&self) -> bool {
        matches!(self.interval, [Some(_), None])
    }
}

/// How one resource grows with load, and where it would be used up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// Its unit.
    pub unit: String,
    /// Usage per unit of load: the slope.
    pub cost_per_load: f64,
    /// 95 % interval of the slope; `None` with fewer than three loads.
    pub cost_interval: Option<[f64; 2]>,
    /// Usage at no load: the line's intercept.
    pub usage_at_zero: f64,
    /// The most there is, where known.
    pub ceiling: Option<Ceiling>,
    /// The load at which the line meets the ceiling; `None` without a ceiling or a rising line.
    pub saturates_at: Option<f64>,
    /// 95 % interval of that load.
    pub saturates_interval: Option<[f64; 2]>,
    /// How many trials the line was fitted to.
    pub n: u32,
}

/// One observation that speaks for (or against) a resource being the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Of which resource it speaks.
    pub resource: Resource,
    /// The sentence, with its numbers and units.
    pub statement: String,
    /// Whether it was read from a counter, or inferred from other numbers.
    pub inferred: bool,
    /// The numbers of the sentence, each by a name with its unit last: `used_percent`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

impl Evidence {
    pub fn counted(resource: Resource, statement: impl Into<String>) -> Self {
        Self { resource, statement: statement.into(), inferred: false, values: BTreeMap::new() }
    }

    /// What was concluded from other numbers.
    pub fn inferred(resource: Resource, statement: impl Into<String>) -> Self {
        Self { inferred: true, ..Self::counted(resource, statement) }
    }

    /// The same with a number of its sentence.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Self {
        self.values.insert(name.into(), value);
        self
    }
}

/// The resource that set the capacity, and how that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Which one.
    pub resource: Resource,
    /// How sure: "confirmed" by a counter of its own, "predicted" from the slopes alone, or "unknown".
    pub certainty: Certainty,
    /// The reasons, strongest first.
    pub evidence: Vec<Evidence>,
}

impl Limit {
    /// Counters by which CPU time was lost to others: witnesses against any other limit.
    pub const WITNESSES: [&'static str; 3] = ["steal_percent", "cpu_wait_percent", "other_cpu_percent"];

    /// Counters of the CPU time that others than the target used, in % of one core, with their sentences.
    pub const CPU_USERS: [(&'static str, &'static str); 2] =
        [("other_cpu_percent", "other programs used"), ("steal_percent", "the hypervisor took")];

    /// Number of an evidence that shows a full link: no lost CPU time can fill one.
    pub const LINK_PERCENT: &'static str = "link_percent";

    /// The strongest witness against this limit: CPU time that was lost can be why the load failed.
    pub fn contested(&self) -> Option<&Evidence> {
        let is_witness = |piece: &&Evidence| {
            piece.resource == Resource::Cpu
                && Self::WITNESSES.iter().any(|name| piece.values.contains_key(*name))
        };
        let is_other = !matches!(self.resource, Resource::Cpu | Resource::Player | Resource::None);
        self.evidence.iter().filter(|_| is_other).find(is_witness)
    }

    /// Of a limit by the CPU: who else used a notable part of it, and how much of one core, in %.
    pub fn cpu_users(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let is_cpu = self.resource == Resource::Cpu;
        let used = move |(name, who): (&str, &'static str)| {
            let value = self.evidence.iter().find_map(|piece| piece.values.get(name))?;
            is_cpu.then_some((who, *value))
        };
        Self::CPU_USERS.into_iter().filter_map(used)
    }

    /// Whether something that was counted speaks for it, and not only a comparison with an assumed ceiling.
    pub fn is_counted(&self) -> bool {
        let is_own = |piece: &Evidence| piece.resource == self.resource;
        self.evidence.iter().enumerate().any(|(at, piece)| !piece.inferred && (at == 0 || is_own(piece)))
    }
}

/// How a limit is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Counters of the resource itself agree with the prediction.
    Confirmed,
    /// The slopes say so; no counter contradicts.
    Predicted,
    /// Neither.
    Unknown,
}

/// A metric's values at one load, one per repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadMetric {
    /// The metric, with its unit last.
    pub metric: String,
    /// Its value in each repetition that knows it, in their order.
    pub values: Vec<f64>,
}

impl LoadMetric {
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.values)
    }

    /// The least and the greatest of several repetitions.
    pub fn spread(&self) -> Option<[f64; 2]> {
        let values = Some(&self.values).filter(|values| values.len() > 1)?.iter().copied();
        values.clone().min_by(f64::total_cmp).zip(values.max_by(f64::total_cmp)).map(<[f64; 2]>::from)
    }
}

/// How the paragraph of a consideration begins that gives advice.
pub const ADVICE_LEAD: &str = "What would help:";

/// What came of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VariantOutcome {
    /// Its name.
    pub name: String,
    /// Median over the repetitions.
    pub capacity: Capacity,
    /// Of one load that says little of what came of it: the numbers that do, the main one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<LoadMetric>,
    /// The capacity of each repetition.
    pub repetitions: Vec<Capacity>,
    /// What set it.
    pub limit: Limit,
    /// Per resource.
    pub saturation: BTreeMap<Resource, Saturation>,
    /// Capacity as predicted from the slopes and ceilings alone.
    pub predicted: Option<f64>,
    /// The written consideration, a paragraph each; one begins with [`ADVICE_LEAD`].
    pub considerations: Vec<String>,
    /// What weakens this outcome.
    pub doubts: Vec<DoubtNote>,
    /// What the workload says of the trial that stands for this variant: of one load its median, of a search
    /// the largest load that was carried.
    #[serde(default, skip_serializing_if = "Account::is_empty")]
    pub account: Account,
    /// What the workload shows of all trials together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Still at work (or its process died).
    Running,
    /// To its end.
    Complete,
    /// By Ctrl-C; what was measured until then is here.
    Interrupted,
    /// It could not go on; what was measured until then is here.
    Failed,
}

/// The whole of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of kagiri that wrote it.
    pub kagiri: String,
    /// The run's id.
    pub run: String,
    /// What its owner calls it.
    pub name: String,
    /// Which workload.
    pub workload: String,
    /// How it ended.
    pub state: State,
    /// Why it could not go on, where it could not.
    pub failure: Option<String>,
    /// When it began.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When it ended.
    #[schemars(with = "Option<String>")]
    pub ended_at: Option<Timestamp>,
    /// Facts of the host: kernel, CPU, memory and so on.
    pub environment: BTreeMap<String, Value>,
    /// The resolved plan.
    pub plan: Value,
    /// All trials in the order in which they were made.
    pub trials: Vec<Trial>,
    /// The capacity of the first variant.
    pub capacity: Capacity,
    /// The limit of the first variant.
    pub limit: Limit,
    /// The saturation of the first variant.
    pub saturation: BTreeMap<Resource, Saturation>,
    /// Every variant's outcome, in the plan's order.
    pub variants: Vec<VariantOutcome>,
    /// What was required, and whether it held.
    pub requirements: Vec<Requirement>,
    /// What weakens the run as a whole.
    pub doubts: Vec<DoubtNote>,
}

impl Run {
    pub fn variant(&self, name: &str) -> Option<&VariantOutcome> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// The trials of one variant in the order in which they were made.
    pub fn trials_of<'a>(&'a self, variant: &'a str) -> impl Iterator<Item = &'a Trial> + 'a {
        self.trials.iter().filter(move |trial| trial.variant == variant)
    }
}
