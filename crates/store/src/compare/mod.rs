//! What differs between runs, or between the variants of one run, and whether it is more than noise.
//!
//! The unit of repeatability is the repetition, not the trial: of a repetition's trials at a load the median
//! counts, and `n` is the number of repetitions. Trials that were judged invalid say nothing and are left
//! out.

mod facts;
mod judge;
mod trials;

use base::metric::{Better, MetricSpec};
use base::objective::Objective;
use base::outcome::{Resource, Run, VariantOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use facts::{Fact, RunFact, environments};

pub const CONFIDENCE: f64 = 0.95;
/// Why two samples of fewer than three repetitions are not called equal.
pub const TOO_FEW_TO_TELL: &str = "not enough repetitions to tell";

/// What a difference amounts to, seen from the first side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The second side is better by more than the noise.
    Better,
    /// The second side is worse by more than the noise.
    Worse,
    /// The sides differ by more than the noise in a number that is a fact and not a merit.
    Differs,
    /// The sides differ by less than the noise.
    Equal,
    /// It cannot be decided; the reason says why.
    Unknown,
}

impl Change {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Differs => "differs",
            Self::Equal => "no difference beyond the noise",
            Self::Unknown => "unknown",
        }
    }
}

/// One variant of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// The run's id.
    pub run: String,
    /// The run's name.
    pub name: String,
    /// The variant's name.
    pub variant: String,
}

/// The repetitions of one number on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Median over the repetitions; `None` when it is not known in any.
    pub median: Option<f64>,
    /// Of a capacity: the least and greatest value that the trials allow, `None` at the upper end for "this
    /// or more". Of a metric: the least and greatest repetition.
    pub interval: [Option<f64>; 2],
    /// How many repetitions know it.
    pub n: u32,
}

/// One number on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The metric's name; `capacity` for the capacity.
    pub metric: String,
    /// Its unit as printed.
    pub unit: String,
    /// Which direction is better.
    pub better: Better,
    /// The first side.
    pub a: Sample,
    /// The second side.
    pub b: Sample,
    /// The median of `b` less that of `a`, in `unit`.
    pub difference: Option<f64>,
    /// The same in % of the median of `a`; `None` where that is zero.
    pub difference_percent: Option<f64>,
    /// Welch's 95 % interval of the difference of the means, in `unit`; `None` below two repetitions a side.
    pub interval: Option<[f64; 2]>,
    /// What it amounts to.
    pub change: Change,
    /// Why it cannot be decided, or what to keep in mind.
    pub reason: Option<String>,
    /// Whether it cannot be decided because there are too few repetitions. Documents have the reason instead.
    #[serde(skip)]
    pub has_too_few: bool,
}

impl Difference {
    /// Whether it is large enough to be of interest: a count of bytes may differ by three of a billion,
    /// beyond all noise.
    pub fn matters(&self) -> bool {
        self.difference_percent.is_none_or(|percent| percent.abs() >= 0.05)
    }
}

/// All metrics at one load that both sides were offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtLoad {
    /// The load, in the workload's unit.
    pub load: f64,
    /// One difference per metric, in the order of the workload's list, then by name.
    pub metrics: Vec<Difference>,
}

/// Two sides, number by number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// What is compared with.
    pub a: Side,
    /// What is compared.
    pub b: Side,
    /// The capacities.
    pub capacity: Difference,
    /// The result of one load on both sides, if it is not a capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Difference>,
    /// What set each capacity, the first side's first.
    pub limits: [Resource; 2],
    /// The metrics at the loads that both have, least load first.
    pub loads: Vec<AtLoad>,
    /// Settings of the variants that differ.
    pub settings: Vec<Fact>,
    /// What got worse beyond the noise: the result (the capacity, or the main number of one load), and at the
    /// largest load of both sides each metric that a plan requires something of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worse: Vec<Difference>,
}

impl Pair {
    /// The result: the main number of one load, else the capacity.
    pub fn result(&self) -> &Difference {
        self.finding.as_ref().unwrap_or(&self.capacity)
    }
}

/// Runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The runs' ids in the order given.
    pub runs: Vec<String>,
    /// Every later run with the first, variant by variant; for a single run every later variant with the
    /// first.
    pub pairs: Vec<Pair>,
    /// What differs between the hosts and circumstances of the runs.
    pub environment: Vec<RunFact>,
    /// What differs between the plans, variants' settings apart.
    pub plan: Vec<RunFact>,
    /// Variants that no other run has.
    pub unmatched: Vec<Side>,
    /// How many of the numbers judged would seem to differ by chance alone, at 95 % confidence each.
    pub by_chance: f64,
    /// What to keep in mind.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy)]
struct Of<'a> {
    run: &'a Run,
    variant: &'a VariantOutcome,
}

impl Of<'_> {
    fn side(&self) -> Side {
        Side { run: self.run.run.clone(), name: self.run.name.clone(), variant: self.variant.name.clone() }
    }
}

/// Compare runs with the first of them, or the variants of a single run with its first. `specs` give units
/// and directions of the metrics; a metric that they do not name is a fact without a direction. A metric that
/// is declared without a direction has that of the plans' requirements.
pub fn compare(runs: &[Run], specs: &[MetricSpec]) -> Comparison {
    let (matched, unmatched) = match_sides(runs);
    let required = required(runs, specs);
    let specs: Vec<MetricSpec> = specs.iter().map(|spec| directed(*spec, &required)).collect();
    let pairs: Vec<_> = matched.iter().map(|(a, b)| pair(a, b, &specs, &required)).collect();
    let judged = pairs
        .iter()
        .flat_map(|pair| std::iter::once(&pair.capacity).chain(pair.loads.iter().flat_map(|at| &at.metrics)));
    let judged = judged.filter(|d| d.interval.is_some_and(|[low, high]| low < high)).count();
    let environment = facts::between_runs(runs, facts::environment);
    let notes = notes(runs, &pairs, !environment.is_empty());
    Comparison {
        runs: runs.iter().map(|run| run.run.clone()).collect(),
        environment,
        plan: facts::between_runs(runs, facts::plan),
        unmatched: unmatched.iter().map(Of::side).collect(),
        by_chance: judged as f64 * (1.0 - CONFIDENCE),
        pairs,
        notes,
    }
}

/// Which variants are compared: those of one name, and single ones whatever their names.
fn match_sides(runs: &[Run]) -> (Vec<(Of<'_>, Of<'_>)>, Vec<Of<'_>>) {
    let sides = |run| -> Vec<Of<'_>> {
        let run: &Run = run;
        run.variants.iter().map(|variant| Of { run, variant }).collect()
    };
    let (mut matched, mut unmatched) = (Vec::new(), Vec::new());
    let Some((first, others)) = runs.split_first() else { return (matched, unmatched) };
    let base = sides(first);
    if others.is_empty() {
        matched.extend(base.iter().skip(1).map(|b| (base[0], *b)));
        return (matched, unmatched);
    }
    let mut met = vec![false; base.len()];
    for run in others {
        let theirs = sides(run);
        let single = base.len() == 1 && theirs.len() == 1;
        for b in theirs {
            match base.iter().position(|a| single || a.variant.name == b.variant.name) {
                Some(index) => {
                    met[index] = true;
                    matched.push((base[index], b));
                }
                None => unmatched.push(b),
            }
        }
    }
    let alone = base.iter().zip(&met).filter(|(_, met)| !**met).map(|(a, _)| *a);
    (matched, alone.chain(unmatched).collect())
}

/// A metric that a plan requires something of, and the direction that the requirement asks for.
type Required = (&'static str, Better);

/// The metrics that the runs' plans require something of.
fn required(runs: &[Run], specs: &[MetricSpec]) -> Vec<Required> {
    let texts = runs.iter().filter_map(|run| run.plan.get("require")?.as_array()).flatten();
    let objectives = texts.filter_map(|text| text.as_str()?.parse::<Objective>().ok());
    let named = |objective: Objective| {
        let name = objective.find(specs.iter().map(|spec| spec.name)).ok()?;
        Some((name, direction(&objective)))
    };
    objectives.filter_map(named).collect()
}

/// The direction that a requirement asks for: of `response_p99<=50ms` less.
fn direction(objective: &Objective) -> Better {
    let text = objective.to_string();
    match text.chars().find(|sign| matches!(sign, '<' | '>' | '=')) {
        Some('<') => Better::Lower,
        Some('>') => Better::Higher,
        _ => Better::Neither,
    }
}

fn directed(spec: MetricSpec, required: &[Required]) -> MetricSpec {
    let asked = required.iter().find(|(name, _)| *name == spec.name).map(|(_, better)| *better);
    match spec.better {
        Better::Neither => MetricSpec { better: asked.unwrap_or(Better::Neither), ..spec },
        Better::Higher | Better::Lower => spec,
    }
}

fn pair(a: &Of<'_>, b: &Of<'_>, specs: &[MetricSpec], required: &[Required]) -> Pair {
    let mut pair = Pair {
        a: a.side(),
        b: b.side(),
        capacity: judge::capacity(a.variant, b.variant),
        finding: judge::finding(a.variant, b.variant, specs),
        limits: [a.variant.limit.resource, b.variant.limit.resource],
        // Loads of different units are not the same load, whatever their numbers.
        loads: if a.variant.capacity.unit == b.variant.capacity.unit {
            trials::at_loads(a, b, specs)
        } else {
            Vec::new()
        },
        settings: facts::between(
            &facts::settings(a.run, &a.variant.name),
            &facts::settings(b.run, &b.variant.name),
        ),
        worse: Vec::new(),
    };
    pair.worse = worse(&pair, required);
    pair
}

/// See [`Pair::worse`]. Other metrics do not count: of some fifty, two or three seem worse by chance alone.
fn worse(pair: &Pair, required: &[Required]) -> Vec<Difference> {
    let result = pair.result();
    let is_required = |metric: &&Difference| required.iter().any(|(name, _)| *name == metric.metric);
    let others = pair.loads.last().into_iter().flat_map(|at| &at.metrics).filter(is_required);
    let others = others.filter(|metric| metric.metric != result.metric);
    let is_worse = |difference: &&Difference| difference.change == Change::Worse && difference.matters();
    std::iter::once(result).chain(others).filter(is_worse).cloned().collect()
}

fn notes(runs: &[Run], pairs: &[Pair], elsewhere: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if pairs.is_empty() {
        notes.push(match runs {
            [] => "there is no run to compare".to_owned(),
            [_] => "the run has one variant, so there is nothing to compare it with; name a second run"
                .to_owned(),
            _ => "no variant of the first run has a namesake in another one".to_owned(),
        });
    }
    if let Some(other) = runs.iter().find(|run| run.workload != runs[0].workload) {
        notes.push(format!(
            "the workloads differ ({} and {}): equal names may mean different things",
            runs[0].workload, other.workload
        ));
    }
    if elsewhere {
        notes.push(
            "the runs were made in different environments, so not only the target may differ".to_owned(),
        );
    }
    for run in runs.iter().filter(|run| run.state != base::outcome::State::Complete) {
        notes.push(format!("run {} is not complete ({})", run.run, crate::word::word(&run.state)));
    }
    notes
}
