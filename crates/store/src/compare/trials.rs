//! The metrics of two sides at the loads that both were offered.

use std::collections::{BTreeMap, BTreeSet};

use base::metric::MetricSpec;
use base::outcome::Trial;
use base::statistics::median;
use base::verdict::Verdict;

use super::judge::{Meaning, judge};
use super::{AtLoad, Difference, Of};

/// Holds whose lengths differ by less than this share count as equally long.
const HOLD_TOLERANCE: f64 = 0.05;

/// Both sides' numbers, load by load.
pub(super) fn at_loads(a: &Of<'_>, b: &Of<'_>, specs: &[MetricSpec]) -> Vec<AtLoad> {
    let (of_a, of_b) = (by_load(a), by_load(b));
    let mut found = Vec::new();
    for (key, (load, trials_a)) in &of_a {
        let Some((_, trials_b)) = of_b.get(key) else { continue };
        let (trials_a, trials_b, note) = same_hold(trials_a, trials_b);
        let metrics = names(&trials_a, &trials_b, specs)
            .into_iter()
            .map(|name| difference(&name, &trials_a, &trials_b, specs, note.as_deref()))
            .collect();
        found.push(AtLoad { load: *load, metrics });
    }
    found.sort_by(|a, b| a.load.total_cmp(&b.load));
    found
}

/// The trials that say something about the target, by load; equal numbers have equal bits but for zero.
fn by_load<'a>(side: &Of<'a>) -> BTreeMap<u64, (f64, Vec<&'a Trial>)> {
    let mut loads: BTreeMap<u64, (f64, Vec<&Trial>)> = BTreeMap::new();
    for trial in side.run.trials_of(&side.variant.name).filter(|t| t.verdict != Verdict::Invalid) {
        let load = trial.load + 0.0;
        loads.entry(load.to_bits()).or_insert_with(|| (load, Vec::new())).1.push(trial);
    }
    loads
}

fn hold_s(trial: &Trial) -> f64 {
    trial.hold_to_s - trial.hold_from_s
}

fn alike(a_s: f64, b_s: f64) -> bool {
    (a_s - b_s).abs() <= HOLD_TOLERANCE * a_s.abs().max(b_s.abs())
}

/// The trials of the longest hold that both sides have: a count grows with the hold, and a search holds for
/// less time than a confirmation. Without such a hold all trials, and a note.
fn same_hold<'a>(a: &[&'a Trial], b: &[&'a Trial]) -> (Vec<&'a Trial>, Vec<&'a Trial>, Option<String>) {
    let shared = a.iter().map(|t| hold_s(t)).filter(|&s| b.iter().any(|t| alike(hold_s(t), s)));
    let Some(hold) = shared.max_by(f64::total_cmp) else {
        let longest = |trials: &[&Trial]| trials.iter().map(|t| hold_s(t)).fold(0.0, f64::max);
        let note =
            format!("held for {:.1} s and for {:.1} s: counts cannot be compared", longest(a), longest(b));
        return (a.to_vec(), b.to_vec(), Some(note));
    };
    let of_hold = |trials: &[&'a Trial]| trials.iter().copied().filter(|t| alike(hold_s(t), hold)).collect();
    (of_hold(a), of_hold(b), None)
}

/// Every metric of either side: in the order of the workload's list, then by name.
fn names(a: &[&Trial], b: &[&Trial], specs: &[MetricSpec]) -> Vec<String> {
    let all: BTreeSet<&String> = a.iter().chain(b).flat_map(|trial| trial.metrics.keys()).collect();
    let rank = |name: &str| specs.iter().position(|spec| spec.name == name).unwrap_or(specs.len());
    let mut names: Vec<String> = all.into_iter().cloned().collect();
    names.sort_by_key(|name| rank(name));
    names
}

fn difference(
    name: &str,
    a: &[&Trial],
    b: &[&Trial],
    specs: &[MetricSpec],
    note: Option<&str>,
) -> Difference {
    let meaning = Meaning::of(name, specs);
    let mut found = judge(meaning, &per_repetition(a, name), &per_repetition(b, name), 0.0);
    if found.reason.is_none() {
        found.reason = note.map(str::to_owned);
    }
    found
}

/// One number per repetition: the median of its trials that know it.
fn per_repetition(trials: &[&Trial], name: &str) -> Vec<f64> {
    let mut known: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for trial in trials {
        if let Some(value) = trial.metrics.get(name).copied().flatten().filter(|v| v.is_finite()) {
            known.entry(trial.repetition).or_default().push(value);
        }
    }
    known.values().filter_map(|values| median(values)).collect()
}
