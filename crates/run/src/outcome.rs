//! From trials to the outcome: capacity, limit, explanation, requirements. Pure: needs only the stored run.

use std::collections::{BTreeMap, BTreeSet};

use base::doubt::{Doubt, DoubtNote, lower_bound};
use base::limit_rules::REFUTED_BY_A_PASS;
use base::metric::{Better, MetricSpec, Metrics};
use base::objective::{Objective, Requirement};
use base::outcome::{
    Capacity, Ceiling, Certainty, Limit, LoadMetric, Phase, Resource, Run, State, Trial, VariantOutcome,
};
use base::plan::{LoadPlan, Plan, Variant};
use base::statistics;
use base::verdict::Verdict;
use serde::Deserialize;
use workload::ConfiguredWorkload;

use crate::explain::{self, LoadTable};
use crate::run_error::RunError;
use crate::search::{self, TrialResult, unknown_capacity};

/// A variant of a plan, with its workload that has read its settings.
pub struct ConfiguredVariant<'a> {
    pub variant: &'a Variant,
    pub workload: Box<dyn ConfiguredWorkload + 'a>,
}

/// The limit before anything was measured.
pub fn unknown_limit() -> Limit {
    Limit { resource: Resource::None, certainty: Certainty::Unknown, evidence: Vec::new() }
}

/// Make sure, before anything is measured, that the requirements can be checked.
pub fn check_requirements(plan: &Plan, metrics: &[MetricSpec]) -> Result<(), RunError> {
    let names = metrics.iter().map(|spec| spec.name).chain(["capacity"]);
    // The error has an example for every workload; add one for this workload.
    let own = example(metrics).map(|own| format!(" or '{own}'")).unwrap_or_default();
    for text in &plan.require {
        let checked = text.parse::<Objective>().and_then(|objective| objective.check_names(names.clone()));
        checked.map_err(|error| RunError { message: format!("{error}{own}"), usage: true })?;
    }
    Ok(())
}

/// A requirement on the first of the workload's metrics that is the extreme of a time and has a better
/// direction.
fn example(metrics: &[MetricSpec]) -> Option<String> {
    let names = metrics.iter().map(|spec| spec.name);
    let of = |spec: &MetricSpec| {
        let sign = match spec.better {
            Better::Higher => ">=",
            Better::Lower => "<=",
            Better::Neither => return None,
        };
        let example = format!("{}{sign}500ms", spec.name.rsplit_once('_')?.0);
        example.parse::<Objective>().ok()?.check_names(names.clone()).is_ok().then_some(example)
    };
    let is_extreme = |name: &str| ["_min_", "_max_", "_p99_"].iter().any(|part| name.contains(part));
    metrics.iter().filter(|spec| is_extreme(spec.name)).find_map(of)
}

/// The failure of a run whose trials all broke off.
pub fn nothing_measured(trials: &[Trial]) -> Option<RunError> {
    if trials.is_empty() || !trials.iter().all(Trial::is_broken_off) {
        return None;
    }
    let why = |trial: &Trial| {
        trial.account.broke_off.clone().map_or_else(|| trial.reasons.clone(), |why| vec![why])
    };
    let mut reasons: Vec<String> = trials.iter().flat_map(why).collect();
    reasons.dedup();
    let so = if trials.iter().all(Trial::is_unmeasured) { ", so nothing was measured" } else { "" };
    Some(RunError::new(format!(
        "no trial could be finished{so}: {}; fix this and measure again",
        reasons.join("; ")
    )))
}

/// Fill in everything that follows from the run's trials.
/// Errors: The run's environment has ceilings that cannot be read.
pub fn conclude(run: &mut Run, plan: &Plan, variants: &[ConfiguredVariant<'_>]) -> Result<(), RunError> {
    let outcomes = variants.iter().map(|variant| variant_outcome(run, variant, plan));
    run.variants = outcomes.collect::<Result<_, _>>()?;
    if let Some(first) = run.variants.first() {
        run.capacity = first.capacity.clone();
        run.limit = first.limit.clone();
        run.saturation = first.saturation.clone();
    }
    run.requirements =
        requirements(run, plan, variants.first().map_or(&[], |variant| variant.workload.metrics()));
    Ok(())
}

fn variant_outcome(
    run: &Run,
    ConfiguredVariant { variant, workload }: &ConfiguredVariant<'_>,
    plan: &Plan,
) -> Result<VariantOutcome, RunError> {
    let trials: Vec<&Trial> = run.trials_of(&variant.name).collect();
    let loads = workload.load_plan();
    let unit = workload.load_unit();
    let repetitions: Vec<Capacity> =
        (1..=plan.repeats).map(|n| repetition_capacity(&trials, n, &loads, unit)).collect();
    let capacity = median_capacity(&repetitions, &trials, unit);
    let (ceilings, refuted) = ceilings(run, &variant.name)?;
    let mut table = LoadTable::from_trials(trials.iter().copied(), ceilings, &capacity.unit);
    table.capacity = Some(capacity.clone());
    let account = representative(&trials, &capacity, workload.metrics())
        .map(|trial| trial.account.clone())
        .unwrap_or_default();
    let headline_metrics = workload.headline_metrics();
    if loads.fixed.is_some() {
        // A single load that passes does not show that there is no limit.
        table.limit = account.limit.clone().or_else(|| (!headline_metrics.is_empty()).then(unknown_limit));
    }
    let mut explanation = explain::explain(&table);
    if loads.fixed.is_none()
        && let Some(own) = limit_above(&trials, &capacity).filter(|own| is_surer(own, &explanation.limit))
    {
        table.limit = Some(own);
        explanation = explain::explain(&table);
    }
    if plan.lab.is_some() || variant.place.is_empty() {
        explanation.limit = explain::with_cpu_users(&table, explanation.limit);
    }
    let unconfirmed = unconfirmed(&repetitions, &trials, &loads);
    // A search that had to end in time has a doubt of its own.
    let unconfirmed = unconfirmed.filter(|_| workload.time_budget().is_none());
    let mut doubts: Vec<DoubtNote> = unconfirmed.into_iter().map(Into::into).collect();
    // What concerns every trial comes before what was concluded from them: short answers show the first
    // doubts.
    let (of_all, of_some): (Vec<_>, Vec<_>) =
        trial_doubts(&trials).into_iter().partition(|(_, is_of_all)| *is_of_all);
    doubts.extend(of_all.into_iter().map(|(note, _)| note));
    let apt = |note: &DoubtNote| is_apt(&note.doubt, run.state, &loads, !workload.ceiling_keys().is_empty());
    doubts.extend(explanation.doubts.into_iter().filter(apt));
    doubts.retain(|note| !is_said_by(&refuted, &note.doubt));
    doubts.extend(refuted.into_iter().map(Into::into));
    doubts.extend(capacity_doubts(&repetitions, &trials).into_iter().map(Into::into));
    doubts.extend(of_some.into_iter().map(|(note, _)| note));
    Ok(VariantOutcome {
        name: variant.name.clone(),
        capacity,
        findings: if loads.fixed.is_some() { findings(&trials, headline_metrics) } else { Vec::new() },
        repetitions,
        limit: explanation.limit,
        saturation: explanation.saturation,
        predicted: explanation.predicted,
        considerations: explanation.considerations,
        doubts,
        account,
        figures: workload.figures(&trials),
    })
}

/// The trial that represents the capacity (or the offered load, if none passed): the median by the workload's
/// first metric that is better when higher.
fn representative<'a>(
    trials: &[&'a Trial],
    capacity: &Capacity,
    metrics: &[MetricSpec],
) -> Option<&'a Trial> {
    let merit = metrics.iter().find(|spec| spec.better == Better::Higher)?;
    let of = |trial: &Trial| trial.metrics.get(merit.name).copied().flatten();
    let carried = |trial: &&&Trial| trial.verdict == Verdict::Pass && Some(trial.load) == capacity.value;
    let mut alike: Vec<&'a Trial> = trials.iter().filter(carried).copied().collect();
    if alike.is_empty() {
        alike = trials.to_vec();
    }
    alike.sort_by(|a, b| of(a).unwrap_or(0.0).total_cmp(&of(b).unwrap_or(0.0)));
    alike.get(alike.len().saturating_sub(1) / 2).copied()
}

/// The headline metrics of a single load, from its valid and complete trials, or from all if there are none.
/// Empty if the first metric is unknown.
fn findings(trials: &[&Trial], headline_metrics: &[&str]) -> Vec<LoadMetric> {
    let is_whole = |trial: &&&Trial| trial.verdict != Verdict::Invalid && !trial.is_broken_off();
    let mut counted: Vec<&Trial> = trials.iter().filter(is_whole).copied().collect();
    if counted.is_empty() {
        counted = trials.to_vec();
    }
    let of = |name: &&str| LoadMetric {
        metric: (*name).to_owned(),
        values: counted.iter().filter_map(|trial| trial.metrics.get(*name).copied().flatten()).collect(),
    };
    let all: Vec<LoadMetric> = headline_metrics.iter().map(of).collect();
    let is_known = |finding: &LoadMetric| !finding.values.is_empty();
    if all.first().is_some_and(is_known) { all.into_iter().filter(is_known).collect() } else { Vec::new() }
}

/// The limit by the workload's own counters at the lowest load that failed above the capacity: as a higher
/// load confirms it, if only that does.
fn limit_above(trials: &[&Trial], capacity: &Capacity) -> Option<Limit> {
    let above = |trial: &&&Trial| trial.verdict == Verdict::Fail && Some(trial.load) > capacity.value;
    let mut failed: Vec<&Trial> = trials.iter().filter(above).copied().collect();
    failed.sort_by(|a, b| a.load.total_cmp(&b.load));
    let limits: Vec<&Limit> = failed.iter().filter_map(|trial| trial.account.limit.as_ref()).collect();
    let nearest = *limits.first()?;
    let confirms =
        |limit: &&Limit| limit.resource == nearest.resource && limit.certainty == Certainty::Confirmed;
    let limit = limits.iter().copied().find(confirms).unwrap_or(nearest);
    let is_known = limit.resource != Resource::None && limit.certainty != Certainty::Unknown;
    is_known.then(|| limit.clone())
}

/// Whether the workload's own counters say more than the lines of the explanation: a counter confirms what a
/// line only predicts.
fn is_surer(own: &Limit, explained: &Limit) -> bool {
    match explained.certainty {
        Certainty::Confirmed => false,
        Certainty::Predicted => own.certainty == Certainty::Confirmed,
        Certainty::Unknown => true,
    }
}

type KnownCeilings = (BTreeMap<Resource, Ceiling>, Vec<Doubt>);

/// The known ceilings of a variant, and a doubt for each that is left out because its trials used more: a
/// calibration beside other programs finds too little.
fn ceilings(run: &Run, variant: &str) -> Result<KnownCeilings, RunError> {
    let stored = run.environment.get("ceilings").and_then(|all| all.get(variant));
    let stored = stored.map(BTreeMap::<Resource, Ceiling>::deserialize).transpose().map_err(|error| {
        RunError::new(format!("the ceilings of variant {variant} cannot be read: {error}"))
    })?;
    let used = |resource: Resource| {
        let passed = run.trials_of(variant).filter(|trial| trial.verdict == Verdict::Pass);
        let usage = passed.filter_map(|trial| trial.metrics.get(resource.metric()?).copied().flatten());
        usage.max_by(f64::total_cmp).unwrap_or(0.0)
    };
    let (mut known, mut doubts) = (BTreeMap::new(), Vec::new());
    for (resource, ceiling) in stored.unwrap_or_default() {
        let most_used = used(resource);
        if most_used > ceiling.value * REFUTED_BY_A_PASS {
            doubts.push(Doubt::CeilingRefuted { resource, ceiling, most_used });
        } else {
            known.insert(resource, ceiling);
        }
    }
    Ok((known, doubts))
}

/// A refuted ceiling is unknown, too; one doubt is enough.
fn is_said_by(refuted: &[Doubt], doubt: &Doubt) -> bool {
    let Doubt::CeilingUnknown { resource: unknown } = doubt else { return false };
    let names = |doubt: &Doubt| match doubt {
        Doubt::CeilingRefuted { resource, .. } => resource.word() == unknown.as_str(),
        _ => false,
    };
    refuted.iter().any(names)
}

fn repetition_capacity(trials: &[&Trial], repetition: u32, loads: &LoadPlan, unit: &str) -> Capacity {
    let of_repetition = trials.iter().filter(|trial| trial.repetition == repetition);
    let results: Vec<TrialResult> = of_repetition.map(|trial| TrialResult::from(*trial)).collect();
    let mut capacity = search::capacity(loads, &results, unit);
    if let [Some(_), Some(_)] = capacity.interval {
        let of_repetition = trials.iter().filter(|trial| trial.repetition == repetition).copied();
        capacity.interval[1] = capacity.value.and_then(|value| explain::upper_end(of_repetition, value));
    }
    capacity
}

/// The median over the repetitions, with the widest interval that any of them allows. Of an even number the
/// lower of the two middle ones: a load that was offered, and that at least half of the repetitions carried.
fn median_capacity(repetitions: &[Capacity], trials: &[&Trial], unit: &str) -> Capacity {
    let known: Vec<&Capacity> = repetitions.iter().filter(|capacity| capacity.value.is_some()).collect();
    let mut values: Vec<f64> = known.iter().filter_map(|capacity| capacity.value).collect();
    values.sort_by(f64::total_cmp);
    let Some(&value) = values.get(values.len().saturating_sub(1) / 2) else { return unknown_capacity(unit) };
    let lower = known.iter().filter_map(|capacity| capacity.interval[0]).min_by(f64::total_cmp);
    // One repetition without an upper end leaves the whole without one.
    let uppers: Option<Vec<f64>> = known.iter().map(|capacity| capacity.interval[1]).collect();
    let upper = uppers.and_then(|uppers| uppers.into_iter().max_by(f64::total_cmp));
    // Counted at this load and the next that failed, whichever repetition tried them.
    let all: Vec<TrialResult> = trials.iter().map(|trial| TrialResult::from(*trial)).collect();
    let (passes, failures_above) = search::counts(&all, value);
    Capacity { value: Some(value), unit: unit.to_owned(), interval: [lower, upper], passes, failures_above }
}

/// The doubts of single trials for the summary, each kind once, with its worst value, and whether it concerns
/// all of several trials.
fn trial_doubts(trials: &[&Trial]) -> Vec<(DoubtNote, bool)> {
    let mut worst: Vec<(DoubtNote, usize)> = Vec::new();
    for note in trials.iter().flat_map(|trial| &trial.doubts) {
        let same = |known: &&mut (DoubtNote, usize)| known.0.doubt.is_same_kind(&note.doubt);
        match worst.iter_mut().find(same) {
            Some((known, count)) => {
                *count += 1;
                if note.doubt.gravity() > known.doubt.gravity() {
                    *known = note.clone();
                }
            }
            None => worst.push((note.clone(), 1)),
        }
    }
    let all = trials.len();
    for (note, count) in worst.iter_mut().filter(|_| all > 1) {
        let worst = if note.doubt.gravity() > 0.0 { "; the worst is given" } else { "" };
        note.message = format!("{} (in {count} of {all} trials{worst})", note.message);
    }
    worst.into_iter().map(|(note, count)| (note, all > 1 && count == all)).collect()
}

/// Repetitions with a valid trial, whatever its verdict.
fn judged_repetitions(trials: &[&Trial]) -> usize {
    let valid = trials.iter().filter(|trial| trial.verdict != Verdict::Invalid);
    valid.map(|trial| trial.repetition).collect::<BTreeSet<_>>().len()
}

fn capacity_doubts(repetitions: &[Capacity], trials: &[&Trial]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let values: Vec<f64> = repetitions.iter().filter_map(|capacity| capacity.value).collect();
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    match (least, most) {
        (Some(least), Some(most)) if least < most => doubts.push(Doubt::RepetitionsDisagree { least, most }),
        (Some(_), _) if judged_repetitions(trials) == 1 => doubts.push(Doubt::SingleRepetition),
        _ => {}
    }
    doubts
}

/// Whether a doubt of the explanation applies to this kind of run: a fixed load needs no advice on a search,
/// an interrupted search did not reach its upper end, and some workloads take no ceilings.
fn is_apt(doubt: &Doubt, state: State, loads: &LoadPlan, takes_ceilings: bool) -> bool {
    match doubt {
        Doubt::CeilingUnknown { .. } => takes_ceilings,
        Doubt::FewLoads { .. } => loads.fixed.is_none(),
        Doubt::CapacityIsLowerBound { reason } if reason == lower_bound::NO_LOAD_FAILED => {
            loads.fixed.is_none() && state == State::Complete
        }
        _ => true,
    }
}

/// The least number of confirmations of a repetition's own capacity, if fewer than planned.
fn unconfirmed(repetitions: &[Capacity], trials: &[&Trial], loads: &LoadPlan) -> Option<Doubt> {
    let wanted = if loads.fixed.is_some() { 0 } else { loads.confirmations };
    let passed = |(repetition, capacity): (u32, &Capacity)| {
        let value = capacity.value.filter(|value| *value > 0.0)?;
        let confirming = trials.iter().filter(|trial| {
            trial.repetition == repetition && trial.phase == Phase::Confirm && trial.load == value
        });
        Some(confirming.filter(|trial| trial.verdict == Verdict::Pass).count() as u32)
    };
    let passed = (1..).zip(repetitions).filter_map(passed).min()?;
    (passed < wanted).then_some(Doubt::CapacityUnconfirmed { passed, wanted })
}

/// Checks every requirement: `capacity` against the outcome, other metrics against the full-length trials at
/// the capacity (or at the only load).
fn requirements(run: &Run, plan: &Plan, metrics: &[MetricSpec]) -> Vec<Requirement> {
    let mut all = Vec::new();
    for text in &plan.require {
        for variant in &run.variants {
            let open = variant.capacity.is_lower_bound().then_some("capacity");
            let checked = text
                .parse::<Objective>()
                .and_then(|objective| objective.check(&decisive_metrics(run, variant, metrics), open));
            let mut requirement = checked.unwrap_or_else(|error| Requirement {
                requirement: text.clone(),
                measured: None,
                held: false,
                unknown: Some(error.to_string()),
            });
            if run.variants.len() > 1 {
                requirement.requirement = format!("{} ({})", requirement.requirement, variant.name);
            }
            all.push(requirement);
        }
    }
    all
}

/// The capacity of a variant, and its metrics over the decisive trials: the worst value of a metric that has
/// a better direction, otherwise the median.
fn decisive_metrics(run: &Run, variant: &VariantOutcome, specs: &[MetricSpec]) -> Metrics {
    let full = |trial: &&Trial| crate::trial::is_full_hold(trial.phase) && trial.verdict != Verdict::Invalid;
    let decisive: Vec<&Trial> = run
        .trials_of(&variant.name)
        .filter(full)
        .filter(|trial| trial.phase == Phase::Single || Some(trial.load) == variant.capacity.value)
        .collect();
    let folded = |spec: &MetricSpec| {
        let known = decisive.iter().filter_map(|trial| trial.metrics.get(spec.name).copied().flatten());
        let value = match spec.better {
            Better::Lower => known.max_by(f64::total_cmp),
            Better::Higher => known.min_by(f64::total_cmp),
            Better::Neither => statistics::median(&known.collect::<Vec<_>>()),
        };
        (spec.name.to_owned(), value)
    };
    // Only the metrics that requirements were checked against before: a sampled one could be ambiguous.
    let mut metrics: Metrics = specs.iter().map(folded).collect();
    metrics.insert("capacity".into(), variant.capacity.value);
    metrics
}

#[cfg(test)]
mod tests;
