//! The answer in words: one place, so that terminal and page say the same.

pub mod calls;
mod costs;

use base::doubt::Doubt;
use base::metric::MetricSpec;
use base::objective::{Objective, Requirement};
use base::outcome::{Capacity, Certainty, Limit, Phase, Resource, Run, State, Trial, VariantOutcome};
use base::verdict::Verdict;
use serde_json::Value;

pub use costs::{at_no_load, cost, saturates_at, saturates_within};

use crate::digest::{self, Row};
use crate::text::{plain, without_error_numbers};
use base::format;
use base::format::{UNKNOWN, number, quantity};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The variant's name; `None` when the run has only one.
    pub variant: Option<String>,
    /// "carries 5 streams of 25 Mbit/s; with 6 streams, playback stalls."
    pub carries: String,
    /// "Limited by cpu (confirmed): ..."; empty when nothing is known.
    pub limit: String,
}

/// The answers of all variants in the plan's order.
pub fn answers(run: &Run) -> Vec<Answer> {
    let several = run.variants.len() > 1;
    let answer = |variant: &VariantOutcome| Answer {
        variant: several.then(|| variant.name.clone()),
        carries: carries(run, variant),
        limit: limit(&variant.limit),
    };
    run.variants.iter().map(answer).collect()
}

pub fn state(run: &Run) -> Option<String> {
    let is_finished = |trial: &&Trial| !trial.is_broken_off() && !trial.account.is_cut;
    let measured = match run.trials.iter().filter(is_finished).count() {
        0 => "no trial finished".to_owned(),
        n => format!("{} finished", format::plural(n as u64, "trial")),
    };
    match run.state {
        State::Complete => None,
        State::Running => Some(format!("Running, or its process died; {measured}.")),
        State::Interrupted => Some(format!("Interrupted; {measured}.")),
        State::Failed => {
            let why = run
                .failure
                .as_deref()
                .map(|why| format!(": {}", without_error_numbers(&plain(why)).trim_end_matches('.')));
            Some(format!("Failed{}; {measured}.", why.unwrap_or_default()))
        }
    }
}

pub const fn state_word(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Complete => "complete",
        State::Interrupted => "interrupted",
        State::Failed => "failed",
    }
}

pub const fn certainty_word(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Confirmed => "confirmed",
        Certainty::Predicted => "predicted",
        Certainty::Unknown => "not confirmed",
    }
}

pub const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Search => "search",
        Phase::Confirm => "confirm",
        Phase::RampDown => "ramp down",
        Phase::Single => "single",
    }
}

/// A load with its unit: `5 streams`, `1 stream`, `110 Mbit/s`. A stranger's unit is made safe to print.
pub fn load(value: f64, unit: &str) -> String {
    let unit = plain(unit);
    if unit.contains('/') || matches!(unit.as_str(), "B" | "s" | "%" | "") {
        return quantity(Some(value), &unit);
    }
    let several = if unit == "load" { "units of load" } else { &unit };
    format!("{} {}", number(value), if value == 1.0 { singular(&unit) } else { several })
}

/// `streams` without its s; a load without a unit is counted in units of load, and rates have no singular.
pub fn singular(unit: &str) -> &str {
    match unit {
        "" | "load" => "unit of load",
        _ if unit.contains('/') => unit,
        _ => unit.strip_suffix('s').unwrap_or(unit),
    }
}

/// Whether all trials of a variant were made at one load that was given: then nothing was searched for, and
/// nothing can be fitted.
pub fn is_one_load(run: &Run, variant: &VariantOutcome) -> bool {
    let mut trials = run.trials_of(&variant.name).peekable();
    let Some(load) = trials.peek().map(|trial| trial.load) else { return false };
    trials.all(|trial| trial.phase == Phase::Single && trial.load == load)
}

/// What stands in the place of the answers of a run without an outcome.
pub fn nothing_judged(run: &Run) -> String {
    match run.trials.len() {
        0 => "Capacity unknown: no trial was judged.".to_owned(),
        n => format!(
            "Capacity unknown: the run ended before its trials were evaluated; {} stored.",
            if n == 1 { "1 trial is".to_owned() } else { format!("{n} trials are") }
        ),
    }
}

/// Whether a single load was offered and passed without another result: a search would find the capacity.
pub fn wants_a_search(run: &Run, variant: &VariantOutcome) -> bool {
    let passed = run.trials_of(&variant.name).any(|trial| trial.verdict == Verdict::Pass);
    passed && variant.account.headline.is_none()
}

/// What stands in the place of a capacity where one load was offered.
pub const NOT_SEARCHED: &str = "not searched, because one load was given; to search, give --max instead";

/// The resolved settings of a variant as the stored plan has them.
pub fn settings<'a>(run: &'a Run, variant: &str) -> Option<&'a Value> {
    let variants = run.plan.get("variants")?.as_array()?;
    variants.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(variant))?.get("settings")
}

/// What one unit of load was worth: ` of 25 Mbit/s`, or nothing. As the content is, not as one was asked for:
/// a URL's content has its own rate.
fn each(run: &Run, variant: &str) -> String {
    let rate =
        run.trials_of(variant).find_map(|trial| trial.metrics.get("content_bit_per_s").copied().flatten());
    rate.map(|rate| format!(" of {}", quantity(Some(rate), "bit/s"))).unwrap_or_default()
}

/// The first sentence: how much it carries, and what the next load does.
pub fn carries(run: &Run, variant: &VariantOutcome) -> String {
    let rows = digest::rows(run, &variant.name);
    let each = each(run, &variant.name);
    let unit = &variant.capacity.unit;
    if let [row] = &rows[..]
        && is_one_load(run, variant)
    {
        if let Some(headline) = &variant.account.headline {
            return came_of(row, headline);
        }
        return single(row, &format!("{}{each}", load(row.load, unit)));
    }
    match variant.capacity.value {
        None => match rows.iter().find(|row| row.verdict == Verdict::Invalid) {
            Some(row) => format!(
                "Capacity unknown: {} could not be judged ({}).",
                load(row.load, unit),
                clause(&row.how())
            ),
            None => "Capacity unknown: no load was judged.".to_owned(),
        },
        Some(0.0) => format!("Does not carry even one {}{each}{}.", singular(unit), next(&rows, 0.0, unit)),
        Some(value) => {
            let is_open = variant.capacity.is_lower_bound();
            let is_search = |trial: &Trial| trial.phase == Phase::Search;
            let is_early = run.state == State::Interrupted && run.trials_of(&variant.name).all(is_search);
            // What failed among trials that could not be judged is no failure of the target's.
            let spoiled = rows.iter().find(|row| row.load > value && row.verdict == Verdict::Invalid);
            let beyond = match spoiled.filter(|_| is_open) {
                Some(row) => format!("; {} could not be judged", load(row.load, unit)),
                None if is_early && rows.iter().all(|row| row.load <= value) => {
                    "; interrupted before a larger load was measured".to_owned()
                }
                None => next(&rows, value, unit),
            };
            let least = if is_open { "at least " } else { "" };
            let sentence = format!("Carries {least}{}{each}{beyond}.", load(value, unit));
            match unconfirmed(variant) {
                Some(doubt) => format!("{doubt}: {}", lower(&sentence)),
                None => sentence,
            }
        }
    }
}

/// The doubt that comes before a capacity that did not pass as often as planned.
fn unconfirmed(variant: &VariantOutcome) -> Option<String> {
    variant.doubts.iter().find_map(|note| match note.doubt {
        Doubt::CapacityUnconfirmed { passed: 0, .. } => Some("Not confirmed".to_owned()),
        Doubt::CapacityUnconfirmed { passed, wanted } => {
            Some(format!("Confirmed only {passed} of {wanted} times"))
        }
        _ => None,
    })
}

/// A sentence without its full stop, to stand inside another.
fn clause(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}

/// What came of the one load that was offered, in the workload's own words, and why that is no pass.
fn came_of(row: &Row, headline: &str) -> String {
    let all = row.trials.len();
    let whose = match all {
        1 => String::new(),
        _ if all % 2 == 1 => format!(" (the median trial of {all})"),
        2 => " (one of 2 trials)".to_owned(),
        _ => format!(" (one of the two middle trials of {all})"),
    };
    let of_all =
        if row.agreeing == all { String::new() } else { format!(" in {} of {all} trials", row.agreeing) };
    let word = match row.verdict {
        Verdict::Pass => return format!("{headline}{whose}."),
        Verdict::Fail => "Failed",
        Verdict::Invalid => "Not judged",
    };
    format!("{headline}{whose}. {word}{of_all}: {}.", clause(&row.how()))
}

/// How the one load that was offered went: `Carried 3 streams of 25 Mbit/s in a single trial.`
fn single(row: &Row, offered: &str) -> String {
    let (n, all) = (row.agreeing, row.trials.len());
    let trials = match (n, all) {
        (1, 1) => "in a single trial".to_owned(),
        (n, all) if n == all => format!("in all {all} trials"),
        (n, all) => format!("in {n} of {all} trials"),
    };
    match row.verdict {
        Verdict::Pass => format!("Carried {offered} {trials}."),
        Verdict::Fail => format!("Did not carry {offered} {trials}: {}.", clause(&row.how())),
        Verdict::Invalid => format!("Could not judge {offered} {trials}: {}.", clause(&row.how())),
    }
}

/// What the least load above `value` that did not pass does.
fn next(rows: &[Row], value: f64, unit: &str) -> String {
    let above = |verdict| rows.iter().find(move |row| row.load > value && row.verdict == verdict);
    match (above(Verdict::Fail), above(Verdict::Invalid)) {
        (Some(_), _) if value == 0.0 => String::new(),
        (Some(row), _) => {
            let stalls =
                row.trials.iter().any(|t| matches!(t.metrics.get("stalls"), Some(Some(n)) if *n > 0.0));
            if stalls {
                return format!("; with {}, playback stalls", load(row.load, unit));
            }
            let fail = if unit.contains('/') { "fails" } else { "fail" };
            let why = row.trials.iter().find_map(|trial| trial.reasons.first());
            let why = why.map(|why| format!(" ({})", clause(why))).unwrap_or_default();
            format!("; {} {fail}{why}", load(row.load, unit))
        }
        (None, Some(row)) => format!("; {} could not be judged", load(row.load, unit)),
        (None, None) => "; no larger load was measured".to_owned(),
    }
}

/// A sentence that follows a name and a colon begins in lower case.
pub fn lower(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

/// The second sentence: what set the capacity, and the strongest evidence for it.
pub fn limit(limit: &Limit) -> String {
    let evidence = limit.evidence.first().map(|e| format!(": {}", clause(&e.statement))).unwrap_or_default();
    let but = limit.contested().map(|e| format!("; but {}", clause(&e.statement))).unwrap_or_default();
    format!("{}{evidence}{but}.", limited(limit))
}

/// What set the capacity, without evidence and full stop.
pub fn limited(limit: &Limit) -> String {
    let (certainty, users) = (certainty_word(limit.certainty), cpu_users(limit));
    match (limit.resource, limit.certainty) {
        (Resource::None, Certainty::Unknown) => "Limit unknown".to_owned(),
        (Resource::None, _) => "No limit found".to_owned(),
        (Resource::Player, Certainty::Unknown) => {
            "Limited by the measuring side or by other programs, not by the target".to_owned()
        }
        (Resource::Player, _) => format!("Limited by the measuring side, not by the target ({certainty})"),
        (Resource::Workload(spec), _) => format!("Limited by {} ({certainty})", spec.label),
        (resource, Certainty::Confirmed) if !limit.evidence.is_empty() && !limit.is_counted() => {
            format!("Probably limited by {resource}{users}")
        }
        (resource, Certainty::Predicted) if limit.contested().is_some() => {
            format!("Probably limited by {resource}")
        }
        (resource, Certainty::Unknown) => format!("Possibly limited by {resource}{users} (not confirmed)"),
        (resource, _) => format!("Limited by {resource}{users} ({certainty})"),
    }
}

/// Whose CPU it was, too: `, of which other programs used 85 % of a core`; nothing where it was the target's.
fn cpu_users(limit: &Limit) -> String {
    let one = |(who, percent)| format!("{who} {} of a core", quantity(Some(percent), "%"));
    let users: Vec<String> = limit.cpu_users().map(one).collect();
    if users.is_empty() { String::new() } else { format!(", of which {}", users.join(" and ")) }
}

/// The interval of a capacity: `5`, `4 to 5`, `5 or more`.
pub fn interval(capacity: &Capacity) -> String {
    match capacity.interval {
        [None, None] => UNKNOWN.to_owned(),
        [Some(least), Some(most)] if least == most => number(least),
        [Some(least), Some(most)] => format!("{} to {}", number(least), number(most)),
        [Some(least), None] => format!("{} or more", number(least)),
        [None, Some(most)] => format!("{} or less", number(most)),
    }
}

/// How often a capacity passed and the next load failed: `passed 3 times; the next load failed 2 times`.
pub fn confirmation(capacity: &Capacity) -> String {
    let times = |n: u32| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let next = match capacity.failures_above {
        0 => "no larger load failed".to_owned(),
        n => format!("the next load failed {}", times(n)),
    };
    format!("passed {}; {next}", times(capacity.passes))
}

pub const PREDICTION_REFUTED: &str = "none: the trials contradict what costs and ceilings predict";

/// Why nothing is predicted.
pub const NOT_PREDICTED: &str = "no resource has both a measurable cost and a known ceiling";

/// What a prediction rests on.
pub const PREDICTED_FROM: &str = "from costs and ceilings";

/// What limits, with its certainty.
pub fn limit_cell(limit: &Limit) -> String {
    let (resource, certainty) =
        (limit_word(limit.resource, limit.certainty), certainty_word(limit.certainty));
    if limit.resource == Resource::None { resource.to_owned() } else { format!("{resource} ({certainty})") }
}

/// What limits, in a word.
pub fn limit_word(resource: Resource, certainty: Certainty) -> &'static str {
    match (resource, certainty) {
        (Resource::None, Certainty::Unknown) => "unknown",
        (Resource::None, _) => "none found",
        (resource, _) => resource.label(),
    }
}

/// The prediction as a number, marked where it is doubtful.
pub fn predicted(variant: &VariantOutcome) -> String {
    let mark = if prediction_doubt(variant).is_some() { "?" } else { "" };
    variant.predicted.map_or(UNKNOWN.to_owned(), |load| number(load) + mark)
}

pub fn prediction_doubt(variant: &VariantOutcome) -> Option<String> {
    let why = |doubt: &Doubt| match doubt {
        Doubt::PredictionDisagrees { measured, .. } => Some(format!("{} was measured", number(*measured))),
        Doubt::FarPrediction { greatest, .. } => {
            Some(format!("no load above {} was measured", number(*greatest)))
        }
        _ => None,
    };
    let all = || variant.doubts.iter().map(|note| &note.doubt);
    // What was measured says more than what was not.
    let disagrees = all().find(|doubt| matches!(doubt, Doubt::PredictionDisagrees { .. }));
    disagrees.and_then(why).or_else(|| all().find_map(why))
}

/// How much `to` differs from `from`: `+12.5 %`; a dash where either is unknown or nothing can be divided by.
pub fn change(from: Option<f64>, to: Option<f64>) -> String {
    match (from, to) {
        (Some(from), Some(to)) if from > 0.0 => format!("{:+.1} %", (to / from - 1.0) * 100.0),
        _ => UNKNOWN.to_owned(),
    }
}

/// What was measured of what was required, in the unit of the metric that was meant: `goodput` is
/// `goodput_bit_per_s`.
pub fn measured(required: &Requirement, specs: &[MetricSpec]) -> String {
    let name = required.requirement.split(['<', '>', '=']).next().unwrap_or_default().trim();
    let meant = required.requirement.parse::<Objective>();
    let meant = meant.and_then(|objective| objective.find(specs.iter().map(|spec| spec.name)));
    format::metric(meant.unwrap_or(name), required.measured)
}

/// Seconds from the run's beginning to its end, or to the end of its last trial.
pub fn length_s(run: &Run) -> Option<f64> {
    let ended_s = run.ended_at.map(|end| end.duration_since(run.started_at).as_secs_f64());
    ended_s.or_else(|| {
        let last = run.trials.last()?;
        Some(last.started_at.duration_since(run.started_at).as_secs_f64() + digest::trial_length_s(last))
    })
}

#[cfg(test)]
mod tests;
