//! The explanation in sentences, from the same numbers as the tables.

use base::doubt::{Doubt, DoubtNote};
use base::format;
use base::outcome::{ADVICE_LEAD, Certainty, Resource, Saturation};

use super::Explanation;
use super::analysis::{ASSUMED, Analysis, COMPUTED};
use super::{doubts, words};

/// The paragraphs, in the order of a reader's questions.
pub fn consider(analysis: &Analysis, explanation: &Explanation) -> Vec<String> {
    // One load whose limit the workload's own counters show needs no lines: its evidence is enough.
    if analysis.table.limit.is_some() && analysis.table.loads().len() == 1 {
        return help(analysis, explanation).into_iter().collect();
    }
    let paragraphs = [
        Some(carried(analysis, explanation)),
        costs(analysis, explanation),
        Some(limit(analysis, explanation)),
        bends(analysis, explanation),
        next(analysis, explanation),
        help(analysis, explanation),
        sureness(analysis, explanation),
    ];
    paragraphs.into_iter().flatten().collect()
}

fn carried(analysis: &Analysis, explanation: &Explanation) -> String {
    let unit = &analysis.table.load_unit;
    let n = format!(
        "{} at {}",
        format::plural(analysis.table.rows.len() as u64, "trial"),
        format::plural(analysis.table.loads().len() as u64, "load")
    );
    let load = |load| words::load(load, unit);
    let turned = explanation.predicted.and_then(|most| doubts::turned_before(analysis, most));
    let predicted = match (explanation.predicted, explanation.capacity.value) {
        (Some(most), _) => {
            let but = turned.map(|turned| format!(", but {turned} before"));
            let but = but.unwrap_or_default();
            format!("the costs and ceilings predict a capacity of {} (computed from {n}){but}", load(most))
        }
        (None, Some(most)) => format!("usage grew with the load up to {} (computed from {n})", load(most)),
        (None, None) => format!("no capacity can be predicted without a ceiling and three loads ({n})"),
    };
    if let Some(resource) = analysis.what_if {
        return format!(
            "The table was measured with more {} than the given ceiling, so its verdicts do not apply to \
             that ceiling; {predicted}.",
            words::subject(resource)
        );
    }
    let Some(measured) = analysis.verdicts() else {
        let latency = analysis.latency.as_ref();
        let bend = analysis.bend.filter(|at| latency.is_none_or(|bend| bend.load != *at));
        let bend = bend.map(|at| format!(" Usage stops growing with the load at {} (computed).", load(at)));
        return format!("The table has no verdicts: {predicted}.{}", bend.unwrap_or_default());
    };
    let capacity = &explanation.capacity;
    let trials = |n: u32| format::plural(n.into(), "trial");
    let mut text = match (capacity.value, measured.failed) {
        (Some(value), _) if value > 0.0 => {
            format!("{} passed ({})", load(value), trials(capacity.passes))
        }
        (_, Some(failed)) => format!("No load passed; {} failed", load(failed)),
        _ => "No trial could be judged".to_owned(),
    };
    match (measured.failed, measured.invalid) {
        (Some(failed), _) if measured.carried.is_some() => {
            text += &format!(", {} failed ({})", load(failed), trials(capacity.failures_above));
        }
        (None, Some(invalid)) => text += &format!("; at {} no trial was valid", load(invalid)),
        (None, None) if measured.carried.is_some() => {
            text += "; no load failed, so the capacity may be higher"
        }
        _ => {}
    }
    format!("{}; {n} in all.", format::capitalized(&text))
}

fn costs(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let cost = |(resource, saturation): (&Resource, &Saturation)| {
        let Saturation { cost_per_load, cost_interval, n, .. } = saturation;
        words::cost_with_interval(*resource, *cost_per_load, *cost_interval, *n)
    };
    // Usage that does not rise beyond its noise has no measurable cost.
    let costs: Vec<String> = explanation.saturation.iter().filter(|(_, s)| rises(s)).map(cost).collect();
    let unit = words::one(&analysis.table.load_unit);
    let has_usage = analysis.table.rows.iter().any(|row| !row.usage.is_empty());
    if explanation.saturation.is_empty() && has_usage && analysis.table.loads().len() > 1 {
        return Some(format!(
            "What each {unit} costs is unknown: a slope takes three loads that passed, and there {}.",
            match analysis.sound_loads() {
                1 => "is 1".to_owned(),
                n => format!("are {n}"),
            }
        ));
    }
    (!costs.is_empty()).then(|| format!("By fitted lines, each {unit} costs {}.", words::list(&costs)))
}

fn rises(saturation: &Saturation) -> bool {
    saturation.cost_per_load > 0.0 && saturation.cost_interval.is_none_or(|[least, _]| least > 0.0)
}

/// The load at which latency bends, and how throughput does.
fn bends(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let unit = &analysis.table.load_unit;
    let latency = analysis.latency.as_ref();
    let latency = latency.map(|bend| format::capitalized(&bend.evidence(unit).statement) + ".");
    let law = explanation.scalability.as_ref().zip(explanation.largest_load);
    let law = law.map(|(law, greatest)| law.sentence(unit, greatest));
    let sentences: Vec<String> = latency.into_iter().chain(law).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The limit, with the two strongest reasons.
fn limit(analysis: &Analysis, explanation: &Explanation) -> String {
    let limit = &explanation.limit;
    let head = match (limit.resource, limit.certainty) {
        (Resource::None, Certainty::Unknown) => "The limit is unknown".to_owned(),
        (Resource::None, _) => "No limit was found".to_owned(),
        (Resource::Player, Certainty::Confirmed) => {
            "The measuring side was the limit; the target may carry more".to_owned()
        }
        (Resource::Player, Certainty::Unknown) => {
            "The target's limit is unknown: other programs, or the measuring side, disturbed the trials \
             above this load"
                .to_owned()
        }
        (resource, Certainty::Unknown) => {
            format!(
                "The limit may be {}: one counter suggests it, and nothing confirms it",
                limited(resource)
            )
        }
        (resource, Certainty::Confirmed) if limit.is_counted() => {
            format!("The limit is {}, confirmed by counters", limited(resource))
        }
        (resource, Certainty::Confirmed) => format!("The limit is probably {}", limited(resource)),
        (resource, _) if limit.contested().is_some() => format!(
            "The limit is probably {}; CPU time that was lost is another possible cause",
            limited(resource)
        ),
        // The limit is the workload's own, so there are no lines.
        (resource, _) if analysis.table.limit.is_some() => {
            format!("The limit is probably {}, which is nearest; no counter confirms it", limited(resource))
        }
        (resource, _) => format!("The limit is {}, by its cost and ceiling (computed)", limited(resource)),
    };
    let own = limit.evidence.iter().filter(|e| e.resource == limit.resource).take(2);
    let own = own.chain(limit.contested());
    let reasons: Vec<String> = own
        .map(|evidence| {
            format!(
                " {}{}.",
                format::capitalized(&evidence.statement),
                if evidence.inferred { " (computed)" } else { "" }
            )
        })
        .collect();
    let sampled = analysis.ceilings.get(&limit.resource).filter(|_| analysis.table.limit.is_none());
    let guessed = sampled.and_then(|ceiling| {
        let value = words::amount(limit.resource, ceiling.value);
        let how = match &ceiling.source {
            source if source.starts_with(ASSUMED) => "an assumption",
            source if source.starts_with(COMPUTED) => "where its usage stopped growing (computed)",
            _ => return None,
        };
        Some(format!(" The ceiling of {value} is {how}; set the true one with --ceiling."))
    });
    format!("{head}.{}{}", reasons.concat(), guessed.unwrap_or_default())
}

/// The limit with its article.
fn limited(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "the CPU",
        Resource::Disk => "the disk",
        Resource::Network => "the network",
        _ => words::subject(resource),
    }
}

/// The other resources' saturation loads, ascending.
fn others(explanation: &Explanation) -> Vec<(Resource, f64)> {
    let known =
        explanation.saturation.iter().filter(|(resource, _)| **resource != explanation.limit.resource);
    let mut others: Vec<_> = known.filter_map(|(resource, s)| Some((*resource, s.saturates_at?))).collect();
    others.sort_by(|a, b| a.1.total_cmp(&b.1));
    others
}

/// The limit after the first one.
fn next(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let unit = &analysis.table.load_unit;
    let unknown: Vec<String> = explanation
        .saturation
        .iter()
        .filter(|(resource, s)| s.ceiling.is_none() && rises(s) && **resource != Resource::Player)
        .map(|(resource, _)| words::subject(*resource).to_owned())
        .collect();
    let without = (!unknown.is_empty()).then(|| {
        let list = words::list(&unknown);
        match unknown.len() {
            1 => format!("the ceiling of {list} is unknown, so {list} may be exhausted first"),
            _ => format!("the ceilings of {list} are unknown, so any of them may be exhausted first"),
        }
    });
    let head = match (explanation.limit.resource, &analysis.latency) {
        (Resource::None, None) => "first",
        (Resource::None, Some(_)) => "next known",
        _ => "next",
    };
    match (others(explanation).first(), without) {
        (Some((resource, load)), without) => Some(format!(
            "The {head} limit would be {} at {} (computed){}.",
            limited(*resource),
            words::load(*load, unit),
            without.map(|text| format!("; {text}")).unwrap_or_default()
        )),
        (None, Some(without)) => Some(format!("The {head} limit is unknown: {without}.")),
        (None, None) => None,
    }
}

/// Advice, and its effect on the capacity.
fn help(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let resource = explanation.limit.resource;
    let advice = match resource {
        Resource::Player if explanation.limit.certainty == Certainty::Unknown => {
            "a quiet host, or the measuring side on another one"
        }
        Resource::Cpu => "fewer CPU cycles per byte (zero copy, offload), or more CPU",
        Resource::Disk => "a faster device, several devices, longer reads, or more of the content in memory",
        Resource::Network if analysis.table.limit.is_some() => "a faster link, or several links",
        Resource::Network => "a faster link, several links, or a lower bit rate",
        Resource::Memory => "more memory, or smaller buffers",
        Resource::Player => "the measuring side on another host or on several, or more cores for it",
        Resource::Workload(spec) if !spec.remedy.is_empty() => spec.remedy,
        Resource::Workload(_) | Resource::None => return None,
    };
    // A prediction that the measurement refutes must not be doubled.
    let disagrees = |note: &DoubtNote| matches!(note.doubt, Doubt::PredictionDisagrees { .. });
    let saturation = explanation.saturation.get(&resource);
    let twice = saturation.filter(|_| !explanation.doubts.iter().any(disagrees)).and_then(|s| {
        let ceiling = s.ceiling.as_ref()?.value;
        let load = (2.0 * ceiling - s.usage_at_zero) / s.cost_per_load;
        let (end, by) = match others(explanation).first() {
            Some((other, first)) if *first < load => {
                (*first, format!(", where {} becomes the limit", limited(*other)))
            }
            _ if others(explanation).is_empty() => {
                (load, " if no other resource is exhausted first".to_owned())
            }
            _ => (load, String::new()),
        };
        let unit = &analysis.table.load_unit;
        let end = words::load(analysis.whole(end), unit);
        (s.cost_per_load > 0.0 && load.is_finite())
            .then(|| format!(" Twice the {} would carry about {end}{by} (computed).", amount_of(resource)))
    });
    Some(format!("{ADVICE_LEAD} {advice}.{}", twice.unwrap_or_default()))
}

fn amount_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Disk => "disk throughput",
        Resource::Network => "network throughput",
        Resource::Player => "CPU of the measuring side",
        _ => words::subject(resource),
    }
}

/// The prediction beside the measurement, where there are both.
fn sureness(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let unit = &analysis.table.load_unit;
    let mut sentences = Vec::new();
    if let (Some(predicted), Some(measured)) = (explanation.predicted, analysis.measured.as_ref())
        && let Some(value) = measured.capacity.value
    {
        sentences.push(format!(
            "Predicted from all loads that passed (computed): {}; measured: {}.",
            words::load(predicted, unit),
            words::load(value, unit)
        ));
    }
    // The largest load that was used.
    let loads = analysis.table.loads();
    let used = |up_to: f64| loads.iter().copied().filter(|load| *load <= up_to).max_by(f64::total_cmp);
    if let Some(forecast) = explanation.forecast
        && let Some(most) = used(forecast.loads_up_to)
    {
        sentences.push(format!(
            "Predicted from the loads up to {} alone (computed): {}.",
            words::load(most, unit),
            words::load(forecast.predicted, unit)
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}
