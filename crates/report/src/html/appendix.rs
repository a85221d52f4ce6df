//! The rest: requirements, doubts, how to repeat the run, all trials and settings.

use base::metric::{Better, MetricSpec};
use base::outcome::Run;
use maud::{Markup, html};
use serde_json::Value;

use super::{heading, number_cell, verdict};
use crate::text::moment;
use crate::{doubts, words};
use base::format::{capitalized, duration, metric, number, plural, unit_of};

/// More trials than this are left to the CSV export: they are too many to read on a page.
const TRIALS_MAX: usize = 500;

pub(super) fn requirements(run: &Run, specs: &[MetricSpec], first: usize) -> Markup {
    if run.requirements.is_empty() {
        return html! {};
    }
    html! {
        (heading("requirements", first, "Requirements"))
        div.scroll { table {
            thead { tr { th scope="col" { "required" } th.n scope="col" { "measured" }
                th scope="col" { "result" } } }
            tbody { @for required in &run.requirements {
                tr {
                    th.name scope="row" { code { (required.requirement) } }
                    (number_cell(&words::measured(required, specs)))
                    td {
                        @if required.held { span.v.v-pass { "met" } }
                        @else if let Some(why) = &required.unknown { span.v.v-fail { "unknown" }
                            small { (capitalized(why)) } }
                        @else { span.v.v-fail { "not met" } }
                    }
                }
            } }
        } }
    }
}

/// What weakens the result, with advice.
pub(super) fn doubt_list(run: &Run, first: usize) -> Markup {
    let all = doubts::doubts(run);
    html! {
        (heading("doubts", first, "Doubts"))
        @if all.is_empty() {
            p { "Nothing weakens this result." }
        } @else {
            p.caption { "What weakens this result, and what to do." }
            ul.plain { @for doubt in &all { li {
                @if !doubt.about.is_empty() { strong { (doubt.about.join(", ")) ": " } }
                (if doubt.about.is_empty() { capitalized(&doubt.message) } else { doubt.message.clone() })
                    small { (capitalized(&doubt.advice)) }
            } } }
        }
    }
}

/// How to make such a run again.
pub(super) fn reproduce(run: &Run, command: Option<&str>, first: usize) -> Markup {
    html! {
        (heading("repeat", first, "Repeat this run"))
        @if let Some(command) = command { pre.command { code { (command) } } }
        p {
            "The stored run " code { (run.run) } " contains the resolved plan (below), the environment and \
                                                  every sample. "
            code { "kagiri report " (run.run) } " writes this page again without measuring."
        }
    }
}

pub(super) fn trials(run: &Run, first: usize) -> Markup {
    html! {
        (heading("trials", first, "All trials and settings"))
        details {
            summary { (plural(run.trials.len() as u64, "trial")) }
            @if run.trials.len() > TRIALS_MAX {
                p.caption { "The first " (TRIALS_MAX) "; the CSV export has all of them." }
            }
            div.scroll { table {
                thead { tr {
                    @for head in ["trial", "repetition"] { th.n scope="col" { (head) } }
                    th scope="col" { "variant" }
                    th scope="col" { "phase" }
                    th.n scope="col" { (run.capacity.unit) }
                    th scope="col" { "verdict" }
                    th scope="col" { "started" }
                    th.n scope="col" { "judged time" }
                    th scope="col" { "reasons and doubts" }
                } }
                tbody { @for trial in run.trials.iter().take(TRIALS_MAX) { tr {
                    th.n scope="row" { (trial.number) }
                    td.n { (trial.repetition) }
                    td.name { (trial.variant) }
                    td { (words::phase_word(trial.phase)) }
                    td.n { (number(trial.load)) }
                    td { (verdict(trial.verdict, trial.verdict.word())) }
                    td.n { (moment(trial.started_at)) }
                    td.n { (duration(trial.hold_to_s - trial.hold_from_s)) }
                    td.wide {
                        (trial.reasons.iter().chain(trial.doubts.iter().map(|d|
                            &d.message)).map(String::as_str).collect::<Vec<_>>().join("; "))
                    }
                } } }
            } }
        }
    }
}

pub(super) fn meanings(run: &Run, specs: &[MetricSpec]) -> Markup {
    let used = |spec: &&MetricSpec| run.trials.iter().any(|trial| trial.metrics.contains_key(spec.name));
    let specs: Vec<_> = specs.iter().filter(used).collect();
    if specs.is_empty() {
        return html! {};
    }
    html! {
        details {
            summary { "Metrics" }
            div.scroll { table {
                thead { tr { @for head in ["metric", "unit", "better", "meaning"] {
                    th scope="col" { (head) } } } }
                tbody { @for spec in specs { tr {
                    th scope="row" { code { (spec.name) } }
                    td { (spec.unit) }
                    td { (match spec.better { Better::Higher => "more", Better::Lower => "less",
                        Better::Neither => "" }) }
                    td.wide { (spec.meaning) }
                } } }
            } }
        }
    }
}

pub(super) fn environment(run: &Run) -> Markup {
    html! {
        details {
            summary { "Environment" }
            div.scroll { table { tbody { @for (name, value) in &run.environment { tr {
                th scope="row" { (name) }
                td.wide { (fact(name, value)) }
            } } } } }
        }
    }
}

/// A fact as text: the facts of a tree on a line each, what is deeper in brackets.
fn fact(name: &str, value: &Value) -> Markup {
    match value {
        Value::Object(facts) => html! {
            @for (i, (name, value)) in facts.iter().enumerate() {
                @if i > 0 { br; }
                (name) ": " (flat(name, value))
            }
        },
        other => html! { (flat(name, other)) },
    }
}

fn flat(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if unit_of(name) != ("", 1.0) => metric(name, number.as_f64()),
        Value::Object(facts) => {
            let all: Vec<_> =
                facts.iter().map(|(name, value)| format!("{name} {}", inner(name, value))).collect();
            all.join(", ")
        }
        Value::Array(items) => items.iter().map(|item| inner(name, item)).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// A fact within another.
fn inner(name: &str, value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => format!("({})", flat(name, value)),
        other => flat(name, other),
    }
}

pub(super) fn plan(run: &Run) -> Markup {
    let text = serde_json::to_string_pretty(&run.plan).unwrap_or_else(|_| run.plan.to_string());
    html! { details { summary { "Resolved plan" } pre { code { (text) } } } }
}
