//! Doubts as they are reported: each once, and those of a kind together.

use base::doubt::{Doubt, DoubtNote};
use base::outcome::{Run, VariantOutcome};

use crate::words;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubtGroup<'a> {
    /// The variants that it concerns; none where it concerns them all.
    pub about: Vec<&'a str>,
    pub message: String,
    pub advice: String,
}

/// Every doubt of the run and its variants once, with the names of the variants that it concerns; no name
/// where it concerns them all. Unknown ceilings of the same variants are one doubt. Where one load was given,
/// that it was one is no doubt but the plan, and [`crate::words::NOT_SEARCHED`] says it.
pub fn doubts(run: &Run) -> Vec<DoubtGroup<'_>> {
    grouped(found(run))
}

/// Those for a short answer: without what the answer says itself, and without those of a predicted load,
/// which it does not mention. Those of a kind that several variants have are one doubt, the gravest of them.
pub fn of_short_answer(run: &Run) -> Vec<DoubtGroup<'_>> {
    let mut all: Vec<(Vec<&str>, &DoubtNote)> = Vec::new();
    let mut spread: Vec<usize> = Vec::new();
    for (names, note) in found(run).into_iter().filter(|(_, note)| !is_beside_answer(&note.doubt)) {
        let alike = |(known, other): &(Vec<&str>, &DoubtNote)| {
            !known.is_empty()
                && !names.is_empty()
                && !names.iter().any(|name| known.contains(name))
                && has_degrees(&note.doubt)
                && other.doubt.is_same_kind(&note.doubt)
                && is_of_same_part(&other.doubt, &note.doubt)
        };
        match all.iter().position(alike) {
            Some(at) => {
                all[at].0.extend(names);
                if note.doubt.gravity() > all[at].1.doubt.gravity() {
                    all[at].1 = note;
                }
                spread.push(at);
            }
            None => all.push((names, note)),
        }
    }
    let spread: Vec<&str> = spread.into_iter().map(|at| all[at].1.message.as_str()).collect();
    let mut groups = grouped(all);
    for group in groups.iter_mut().filter(|group| spread.contains(&group.message.as_str())) {
        let DoubtGroup { about, message, .. } = group;
        if about.len() == run.variants.len() {
            about.clear();
        }
        if !message.contains(WORST) {
            *message += &format!(" ({WORST})");
        }
    }
    groups
}

/// What stands beside a number that is one of several.
const WORST: &str = "the worst is given";

/// Whether one may stand for others of its kind.
fn has_degrees(doubt: &Doubt) -> bool {
    !matches!(doubt, Doubt::OnHost { .. }) && doubt.gravity() > 0.0
}

/// Whether two doubts of a kind are of the same resource or host.
fn is_of_same_part(one: &Doubt, other: &Doubt) -> bool {
    match (one, other) {
        (Doubt::SamplesMissing { resource: of, .. }, Doubt::SamplesMissing { resource, .. }) => {
            of == resource
        }
        (Doubt::ClockUncertain { host: of, .. }, Doubt::ClockUncertain { host, .. }) => of == host,
        _ => true,
    }
}

fn is_beside_answer(doubt: &Doubt) -> bool {
    match doubt {
        Doubt::Interrupted | Doubt::FarPrediction { .. } | Doubt::NotLinear { .. } => true,
        Doubt::OnHost { doubt, .. } => is_beside_answer(doubt),
        _ => false,
    }
}

/// Every doubt once, with the variants that it concerns.
fn found(run: &Run) -> Vec<(Vec<&str>, &DoubtNote)> {
    let mut found: Vec<(Vec<&str>, &DoubtNote)> =
        run.doubts.iter().map(|doubt| (Vec::new(), doubt)).collect();
    let general = found.len();
    for variant in &run.variants {
        let one_load = words::is_one_load(run, variant);
        for doubt in variant.doubts.iter().filter(|note| !(one_load && is_of_a_search(&note.doubt))) {
            match found[general..].iter_mut().find(|(_, known)| *known == doubt) {
                Some((names, _)) => names.push(&variant.name),
                None => found.push((vec![&variant.name], doubt)),
            }
        }
    }
    for (names, _) in &mut found[general..] {
        if names.len() == run.variants.len() {
            names.clear();
        }
    }
    found
}

/// How many doubts concern this variant, those of the whole run included.
pub fn of_variant(run: &Run, variant: &VariantOutcome) -> usize {
    let concerns = |group: &DoubtGroup<'_>| group.about.is_empty() || group.about.contains(&&*variant.name);
    doubts(run).iter().filter(|group| concerns(group)).count()
}

/// What only a search can mend.
fn is_of_a_search(doubt: &Doubt) -> bool {
    matches!(doubt, Doubt::FewLoads { .. } | Doubt::CapacityIsLowerBound { .. })
}

/// The doubts in words, those of unknown ceilings together in the place of the first of them.
pub fn grouped<'a>(found: Vec<(Vec<&'a str>, &DoubtNote)>) -> Vec<DoubtGroup<'a>> {
    let mut all: Vec<(DoubtGroup<'a>, Vec<&str>)> = Vec::new();
    for (about, note) in found {
        let resource = match &note.doubt {
            Doubt::CeilingUnknown { resource } => Some(resource.as_str()),
            _ => None,
        };
        let known = all.iter_mut().find(|(group, ceilings)| !ceilings.is_empty() && group.about == about);
        match (resource, known) {
            (Some(resource), Some((_, ceilings))) => ceilings.push(resource),
            _ => {
                let group = DoubtGroup { about, message: note.message.clone(), advice: note.advice.clone() };
                all.push((group, resource.into_iter().collect()));
            }
        }
    }
    for (group, ceilings) in &mut all {
        if let [first @ .., last] = &ceilings[..]
            && !first.is_empty()
        {
            group.message = format!("the ceilings of {} and {last} are unknown", first.join(", "));
            group.advice = group.advice.replacen("give it", "give them", 1);
        }
    }
    all.into_iter().map(|(group, _)| group).collect()
}
