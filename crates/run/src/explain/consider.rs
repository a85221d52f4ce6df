//! The written consideration: what the tables say, in sentences made from the same numbers.

use base::doubt::{Doubt, DoubtNote};
use base::format;
use base::outcome::{Certainty, Resource, Saturation};

use super::Explanation;
use super::analysis::{ASSUMED, Analysis, INFERRED};
use super::words;

/// The paragraphs, in the order of a reader's questions.
pub fn consider(analysis: &Analysis, explanation: &Explanation) -> Vec<String> {
    // Of one load whose own counters tell what held it back nothing can be drawn: its evidence says it all.
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

/// What was carried.
fn carried(analysis: &Analysis, explanation: &Explanation) -> String {
    let unit = &analysis.table.load_unit;
    let n = format!(
        "n = {} at {}",
        format::plural(analysis.table.rows.len() as u64, "trial"),
        format::plural(analysis.table.loads().len() as u64, "load")
    );
    let predicted = match explanation.predicted {
        Some(load) => {
            format!("the lines and ceilings predict a capacity of {} (inferred)", words::load(load, unit))
        }
        None => match explanation.capacity.value {
            Some(load) => format!("usage grew in step up to {} (inferred)", words::load(load, unit)),
            None => "no capacity can be predicted without a ceiling and two loads".to_owned(),
        },
    };
    if let Some(resource) = analysis.what_if {
        return format!(
            "The table was measured with more {} than the ceiling that is given, so its verdicts do not answer \
             for that ceiling; {predicted} ({n}).",
            words::subject(resource)
        );
    }
    let Some(measured) = analysis.verdicts() else {
        let bend = analysis.bend.map(|load| {
            format!(" Usage no longer grows in step from {} on (inferred).", words::load(load, unit))
        });
        return format!("The table has no verdicts: {predicted} ({n}).{}", bend.unwrap_or_default());
    };
    let capacity = &explanation.capacity;
    let times =
        |n: u32, word: &str| if n == 1 { format!("{word} once") } else { format!("{word} {n} times") };
    let mut text = match (capacity.value, measured.failed) {
        (Some(value), _) if value > 0.0 => {
            format!("{} carried ({}; {n})", words::were(value, unit), times(capacity.passes, "passed"))
        }
        (_, Some(failed)) => format!("No load passed: {} failed already ({n})", words::load(failed, unit)),
        _ => format!("No trial could be judged ({n})"),
    };
    match (measured.failed, measured.invalid) {
        (Some(failed), _) if measured.carried.is_some() => {
            let failures = times(capacity.failures_above, "failed");
            text += &format!(", {} did not ({failures})", words::load(failed, unit));
        }
        (None, Some(invalid)) => text += &format!("; at {} no trial was valid", words::load(invalid, unit)),
        (None, None) if measured.carried.is_some() => text += "; no load failed, so it may be more",
        _ => {}
    }
    format::capitalized(&text) + "."
}

/// What a unit of load costs.
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
    // What does not rise beyond its noise costs nothing that could be told.
    let rises =
        |s: &Saturation| s.cost_per_load > 0.0 && s.cost_interval.is_none_or(|[least, _]| least > 0.0);
    let costs: Vec<String> = explanation.saturation.iter().filter(|(_, s)| rises(s)).map(cost).collect();
    let unit = words::one(&analysis.table.load_unit);
    (!costs.is_empty()).then(|| format!("Each {unit} costs {} (slopes: inferred).", words::list(&costs)))
}

/// What sets the capacity, with the two strongest reasons.
fn limit(analysis: &Analysis, explanation: &Explanation) -> String {
    let limit = &explanation.limit;
    let head = match (limit.resource, limit.certainty) {
        (Resource::None, Certainty::Unknown) => "What sets the capacity is not known".to_owned(),
        (Resource::None, _) => "No limit was met".to_owned(),
        (Resource::Player, Certainty::Confirmed) => {
            "The measuring side was the limit, so nothing was learnt about the target beyond this load"
                .to_owned()
        }
        (Resource::Player, Certainty::Unknown) => {
            "Nothing was learnt about the target beyond this load, as the measuring side, or more likely a \
             neighbour, spoiled the trials"
                .to_owned()
        }
        (resource, Certainty::Unknown) => format!(
            "Perhaps the limit is {}, of which a single sign speaks; nothing confirms it",
            limited(resource)
        ),
        (resource, Certainty::Confirmed) => {
            format!("The limit is {}, confirmed by counters", limited(resource))
        }
        // The workload's own: nothing was drawn through anything.
        (resource, _) if analysis.table.limit.is_some() => {
            format!("The limit is probably {}, which comes nearest; no counter proves it", limited(resource))
        }
        (resource, _) => format!("The limit is {}, as predicted from its line (inferred)", limited(resource)),
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
        Some(format!(" Its ceiling of {value} is {how}; give the true one with --ceiling."))
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

/// What would stop the load if the first limit were lifted.
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
            1 => format!("the ceiling of {list} is not known, so it could come earlier"),
            _ => format!("the ceilings of {list} are not known, so any of them could come earlier"),
        }
    });
    let head =
        if explanation.limit.resource == Resource::None { "The first" } else { "After that, the next" };
    match (others(explanation).first(), without) {
        (Some((resource, load)), without) => Some(format!(
            "{head} to be used up would be {} at {} (inferred){}.",
            limited(*resource),
            words::load(*load, unit),
            without.map(|text| format!("; {text}")).unwrap_or_default()
        )),
        (None, Some(without)) => Some(format!("What would come next cannot be said: {without}.")),
        (None, None) => None,
    }
}

/// What would help, with what it would bring.
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
            Some((other, first)) if *first < load => (*first, format!(", where {} ends it", limited(*other))),
            _ if others(explanation).is_empty() => (load, ", if nothing else ends it before".to_owned()),
            _ => (load, String::new()),
        };
        let unit = &analysis.table.load_unit;
        let end = words::load(analysis.whole(end), unit);
        (s.cost_per_load > 0.0 && load.is_finite())
            .then(|| format!(" Twice as much of it would carry about {end}{by} (inferred)."))
    });
    Some(format!("What would help: {advice}.{}", twice.unwrap_or_default()))
}

/// How sure all this is.
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
            "The loads up to {} alone would have predicted {} (inferred). ",
            words::load(forecast.loads_up_to, unit),
            words::load(forecast.predicted, unit)
        );
    }
    let doubts = weaknesses(&explanation.doubts);
    match doubts.is_empty() {
        true => text + "Nothing in the table weakens this.",
        false => text + &format!("What weakens this: {}.", doubts.join("; ")),
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
    let mut told: Vec<String> = doubts.iter().filter(is_other).map(|note| note.message.clone()).collect();
    if ceilings.len() > 1 {
        told.push(format!("the ceilings of {} are not known", words::list(&ceilings)));
    }
    told
}
