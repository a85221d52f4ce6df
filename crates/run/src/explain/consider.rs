//! The explanation in sentences, from the same numbers as the tables.

use base::doubt::{Doubt, DoubtNote};
use base::format;
use base::outcome::{Certainty, Resource, Saturation};

use super::Explanation;
use super::analysis::{ASSUMED, Analysis, INFERRED};
use super::words;

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
        next(analysis, explanation),
        help(analysis, explanation),
        Some(sureness(analysis, explanation)),
    ];
    paragraphs.into_iter().flatten().collect()
}

fn carried(analysis: &Analysis, explanation: &Explanation) -> String {
    let unit = &analysis.table.load_unit;
    let n = format!(
        "n = {} at {}",
        format::plural(analysis.table.rows.len() as u64, "trial"),
        format::plural(analysis.table.loads().len() as u64, "load")
    );
    let load = |load| words::load(load, unit);
    let predicted = match (explanation.predicted, explanation.capacity.value) {
        (Some(most), _) => {
            format!("the lines and ceilings predict a capacity of {} (inferred; {n})", load(most))
        }
        (None, Some(most)) => format!("usage grew with the load up to {} (inferred; {n})", load(most)),
        (None, None) => format!("no capacity can be predicted without a ceiling and two loads ({n})"),
    };
    if let Some(resource) = analysis.what_if {
        return format!(
            "The table was measured with more {} than the given ceiling, so its verdicts do not apply to \
             that ceiling; {predicted}.",
            words::subject(resource)
        );
    }
    let Some(measured) = analysis.verdicts() else {
        let bend =
            analysis.bend.map(|at| format!(" Usage stops growing with the load at {} (inferred).", load(at)));
        return format!("The table has no verdicts: {predicted}.{}", bend.unwrap_or_default());
    };
    let capacity = &explanation.capacity;
    let times = |n: u32| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let mut text = match (capacity.value, measured.failed) {
        (Some(value), _) if value > 0.0 => {
            format!("{} passed ({}; {n})", load(value), times(capacity.passes))
        }
        (_, Some(failed)) => format!("No load passed; {} failed ({n})", load(failed)),
        _ => format!("No trial could be judged ({n})"),
    };
    match (measured.failed, measured.invalid) {
        (Some(failed), _) if measured.carried.is_some() => {
            text += &format!(", {} failed ({})", load(failed), times(capacity.failures_above));
        }
        (None, Some(invalid)) => text += &format!("; at {} no trial was valid", load(invalid)),
        (None, None) if measured.carried.is_some() => {
            text += "; no load failed, so the capacity may be higher"
        }
        _ => {}
    }
    format::capitalized(&text) + "."
}

fn costs(analysis: &Analysis, explanation: &Explanation) -> Option<String> {
    let cost = |(resource, saturation): (&Resource, &Saturation)| {
        let interval = saturation
            .cost_interval
            .map(|ends| format!("95 %: {}, ", format::range(Some(ends), resource.unit())));
        format!(
            "{} ({}n = {})",
            words::cost(*resource, saturation.cost_per_load),
            interval.unwrap_or_default(),
            saturation.n
        )
    };
    // Usage that does not rise beyond its noise has no measurable cost.
    let rises =
        |s: &Saturation| s.cost_per_load > 0.0 && s.cost_interval.is_none_or(|[least, _]| least > 0.0);
    let costs: Vec<String> = explanation.saturation.iter().filter(|(_, s)| rises(s)).map(cost).collect();
    let unit = words::one(&analysis.table.load_unit);
    (!costs.is_empty()).then(|| format!("Each {unit} costs {} (slopes: inferred).", words::list(&costs)))
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
        (resource, Certainty::Confirmed) => {
            format!("The limit is {}, confirmed by counters", limited(resource))
        }
        // The limit is the workload's own, so there are no lines.
        (resource, _) if analysis.table.limit.is_some() => {
            format!("The limit is probably {}, which is nearest; no counter confirms it", limited(resource))
        }
        (resource, _) => format!("The limit is {}, as its line predicts (inferred)", limited(resource)),
    };
    let own = limit.evidence.iter().filter(|e| e.resource == limit.resource).take(2);
    let reasons: Vec<String> = own
        .map(|evidence| {
            format!(
                " {}{}.",
                format::capitalized(&evidence.statement),
                if evidence.inferred { " (inferred)" } else { "" }
            )
        })
        .collect();
    let sampled = analysis.ceilings.get(&limit.resource).filter(|_| analysis.table.limit.is_none());
    let guessed = sampled.and_then(|ceiling| {
        let value = words::amount(limit.resource, ceiling.value);
        let how = match &ceiling.source {
            source if source.starts_with(ASSUMED) => "an assumption",
            source if source.starts_with(INFERRED) => "inferred from where its usage stopped growing",
            _ => return None,
        };
        Some(format!(" Its ceiling of {value} is {how}; set the true ceiling with --ceiling."))
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
        .filter(|(resource, s)| {
            s.ceiling.is_none() && s.cost_per_load > 0.0 && **resource != Resource::Player
        })
        .map(|(resource, _)| words::subject(*resource).to_owned())
        .collect();
    let without = (!unknown.is_empty()).then(|| {
        let list = words::list(&unknown);
        match unknown.len() {
            1 => format!("the ceiling of {list} is unknown, so {list} could be exhausted earlier"),
            _ => format!("the ceilings of {list} are unknown, so any of them could be exhausted earlier"),
        }
    });
    let head = if explanation.limit.resource == Resource::None { "first" } else { "next" };
    match (others(explanation).first(), without) {
        (Some((resource, load)), without) => Some(format!(
            "The {head} limit would be {} at {} (inferred){}.",
            limited(*resource),
            words::load(*load, unit),
            without.map(|text| format!("; {text}")).unwrap_or_default()
        )),
        (None, Some(without)) => Some(format!("The next limit is unknown: {without}.")),
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
    let twice = explanation.saturation.get(&resource).and_then(|s| {
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
            .then(|| format!(" Twice the {} would carry about {end}{by} (inferred).", amount_of(resource)))
    });
    Some(format!("What would help: {advice}.{}", twice.unwrap_or_default()))
}

fn amount_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Disk => "disk throughput",
        Resource::Network => "network throughput",
        Resource::Player => "CPU of the players",
        _ => words::subject(resource),
    }
}

fn sureness(analysis: &Analysis, explanation: &Explanation) -> String {
    let unit = &analysis.table.load_unit;
    let mut text = String::new();
    if let (Some(predicted), Some(measured)) = (explanation.predicted, analysis.measured.as_ref())
        && let Some(value) = measured.capacity.value
    {
        text += &format!(
            "Predicted from all sound loads (inferred): {}; measured: {}. ",
            words::load(predicted, unit),
            words::load(value, unit)
        );
    }
    if let Some(forecast) = explanation.forecast {
        text += &format!(
            "From the loads up to {} alone, the prediction would be {} (inferred). ",
            words::load(forecast.loads_up_to, unit),
            words::load(forecast.predicted, unit)
        );
    }
    let doubts = weaknesses(&explanation.doubts);
    match doubts.is_empty() {
        true => text + "There are no doubts.",
        false => text + &format!("Doubts: {}.", doubts.join("; ")),
    }
}

/// The doubts in words, those of unknown ceilings as one.
fn weaknesses(doubts: &[DoubtNote]) -> Vec<String> {
    let unknown = |note: &DoubtNote| match &note.doubt {
        Doubt::CeilingUnknown { resource } => Some(resource.clone()),
        _ => None,
    };
    let ceilings: Vec<String> = doubts.iter().filter_map(unknown).collect();
    let is_other = |note: &&DoubtNote| ceilings.len() < 2 || unknown(note).is_none();
    let mut sentences: Vec<String> =
        doubts.iter().filter(is_other).map(|note| note.message.clone()).collect();
    if ceilings.len() > 1 {
        sentences.push(format!("the ceilings of {} are unknown", words::list(&ceilings)));
    }
    sentences
}
