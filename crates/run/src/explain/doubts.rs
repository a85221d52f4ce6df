//! What weakens an explanation.

use base::doubt::{Doubt, lower_bound as bound};
use base::outcome::{Certainty, Resource};

use super::Explanation;
use super::analysis::{ASSUMED, Analysis, COMPUTED};
use super::models::fit::Fit;
use super::table::RESOURCES;

/// A prediction beyond this many times the greatest measured load is a guess.
const FAR: f64 = 4.0;
/// A prediction below this share of a load that passed is wrong, rather than inexact.
const MUCH_LESS: f64 = 0.6;
/// Departures from the line below this share (in %) do not matter for a prediction of a whole number.
const LINEAR_PERCENT: f64 = 10.0;
/// A resource that uses less than this share of its ceiling does not become the limit by not being linear.
const SMALL: f64 = 0.1;

/// The doubts, in the order in which a reader needs them.
pub fn of(analysis: &Analysis, explanation: &Explanation) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let loads = analysis.sound_loads();
    if loads < 3 {
        doubts.push(Doubt::FewLoads { loads: loads as u64 });
    }
    doubts.extend(far(analysis, explanation));
    doubts.extend(disagreement(analysis, explanation));
    doubts.extend(lower_bound(analysis, explanation));
    doubts.extend(RESOURCES.into_iter().filter_map(|r| not_linear(analysis, explanation, r)));
    let unknown = |resource: &Resource| {
        let ceiling = analysis.ceilings.get(resource);
        let is_known = ceiling.is_some_and(|c| !c.source.starts_with(COMPUTED));
        let rises = analysis.fits.get(resource).is_some_and(rises);
        *resource != Resource::Player && rises && !is_known
    };
    let unknown = RESOURCES.into_iter().filter(unknown);
    doubts.extend(unknown.map(|resource| Doubt::CeilingUnknown { resource: resource.word().to_owned() }));
    doubts
}

/// Whether a resource grows with load beyond its noise. One that does not cannot be the limit, so an unknown
/// ceiling of it does not weaken the result.
fn rises(fit: &Fit) -> bool {
    fit.line.slope > 0.0 && fit.slope_interval().is_none_or(|[least, _]| least > 0.0)
}

/// The prediction misses what was measured by more than one (or 5 % of a large capacity). A prediction above
/// a load that never failed is no contradiction.
fn disagreement(analysis: &Analysis, explanation: &Explanation) -> Option<Doubt> {
    let measured = analysis.measured.as_ref()?;
    let (predicted, value) = (explanation.predicted?, measured.capacity.value?);
    let is_open = measured.failed.is_none() && predicted >= value;
    let disagrees = (predicted - value).abs() > tolerance(analysis, value) && !is_open;
    disagrees.then_some(Doubt::PredictionDisagrees { predicted, measured: value })
}

/// Whether trials contradict a prediction: a smaller load failed, or a much larger one passed.
pub fn is_refuted(analysis: &Analysis, predicted: f64) -> bool {
    if turned_before(analysis, predicted).is_some() {
        return true;
    }
    let Some(measured) = analysis.verdicts() else { return false };
    let failed = measured.failed.is_some_and(|failed| predicted - failed > tolerance(analysis, failed));
    let passed = measured.carried.is_some_and(|carried| {
        predicted < MUCH_LESS * carried && carried - predicted > tolerance(analysis, carried)
    });
    failed || passed
}

/// How far a prediction may miss a load: one unit of it, or 5 % of a large one.
fn tolerance(analysis: &Analysis, load: f64) -> f64 {
    (0.05 * load).max(if analysis.table.is_counted() { 1.0 } else { 0.0 })
}

/// Without verdicts: what turned at a load that a prediction lies beyond.
pub fn turned_before(analysis: &Analysis, predicted: f64) -> Option<&'static str> {
    let is_beyond = |load: Option<f64>| analysis.measured.is_none() && load.is_some_and(|l| predicted >= l);
    let peak = analysis.scalability.as_ref().and_then(|law| law.peak_load);
    match () {
        () if is_beyond(analysis.latency.as_ref().map(|bend| bend.load)) => Some("latency bends"),
        () if is_beyond(peak) => Some("throughput peaks"),
        () => None,
    }
}

/// The prediction is far above the measured loads.
fn far(analysis: &Analysis, explanation: &Explanation) -> Option<Doubt> {
    // A refuted prediction is no advice to measure larger loads.
    let predicted = explanation.predicted.filter(|load| !is_refuted(analysis, *load))?;
    let greatest = analysis.sound_rows().map(|row| row.load).max_by(f64::total_cmp)?;
    (greatest > 0.0 && predicted > FAR * greatest).then_some(Doubt::FarPrediction { predicted, greatest })
}

fn lower_bound(analysis: &Analysis, explanation: &Explanation) -> Option<Doubt> {
    let reason = match (explanation.limit.resource, analysis.verdicts()) {
        // Without a capacity there is nothing that it bounds.
        (Resource::Player, Some(measured)) if measured.carried.is_none() => return None,
        (Resource::Player, Some(_)) if explanation.limit.certainty == Certainty::Unknown => bound::OTHERS,
        (Resource::Player, Some(_)) => bound::PLAYERS,
        (Resource::Player, None) if explanation.predicted.is_none() => return None,
        (Resource::Player, None) => bound::PLAYERS_FIRST,
        (Resource::None, Some(measured)) if measured.failed.is_none() && measured.carried.is_some() => {
            bound::NO_LOAD_FAILED
        }
        _ => return None,
    };
    Some(Doubt::CapacityIsLowerBound { reason: reason.to_owned() })
}

fn not_linear(analysis: &Analysis, explanation: &Explanation, resource: Resource) -> Option<Doubt> {
    let fit = analysis.fits.get(&resource)?;
    let matters = match resource {
        Resource::Cpu | Resource::Disk | Resource::Network => {
            let highest = analysis.sound_rows().map(|row| row.load).max_by(f64::total_cmp)?;
            let ceiling = analysis.ceilings.get(&resource).filter(|c| !c.source.starts_with(ASSUMED));
            ceiling.is_none_or(|c| fit.line.at(highest) > SMALL * c.value)
        }
        _ => explanation.limit.resource == resource,
    };
    let crooked = rises(fit) && fit.scatter.is_some() && fit.error_percent > LINEAR_PERCENT && matters;
    let (resource, error_percent) = (resource.word().to_owned(), fit.error_percent.min(1e6));
    crooked.then_some(Doubt::NotLinear { resource, error_percent })
}
