//! The top of the page: the answer, key figures, all verdicts, and variants side by side.

use base::outcome::{LoadMetric, Resource, Run, VariantOutcome};
use base::verdict::Verdict;
use maud::{Markup, html};

use super::{Extras, bars, drawn, heading, number_cell, overlaid, row_verdict, side_by_side};
use crate::chart::for_screens;
use crate::digest::{self, Row};
use crate::text::{moment, unbroken};
use crate::words::{self, Answer, lower};
use crate::{doubts, findings, sweep, terminal};
use base::format::{UNKNOWN, capitalized, count, duration, number, plural, range};

/// Longer answers have their first sentence as a headline.
const HEADLINE_CHARS_MAX: usize = 110;
/// Metrics of single loads that are drawn, the main one first.
const FIGURES: usize = 4;

/// Title, answer and key figures. `first`: the number of the run's first variant on the page, which its
/// headings have.
pub(super) fn header(run: &Run, first: usize) -> Markup {
    let answers = words::answers(run);
    html! {
        header {
            div.kind { "kagiri " (run.workload) " · " (moment(run.started_at)) }
            h1 { (run.name) }
            @if let Some(state) = words::state(run) { p.state { (state) } }
            @match &answers[..] {
                [] => p.answer { (words::nothing_judged(run)) },
                [only] => (one(only)),
                several => {
                    @let swept = sweep::sentences(run);
                    @for sentence in &swept { (listed(sentence)) }
                    @if swept.is_empty() {
                        (each(several))
                    } @else {
                        details { summary { "Each variant" } (each(several)) }
                    }
                },
            }
            @if let [variant] = &run.variants[..] { (key_figures(run, variant, first)) }
        }
    }
}

/// What several groups reach, as a list.
fn listed(sentence: &str) -> Markup {
    let (head, parts) = sentence.split_once(": ").unwrap_or((sentence, ""));
    let parts: Vec<&str> = parts.trim_end_matches('.').split("; ").collect();
    html! {
        @match &parts[..] {
            [_] => p.answer.of-several { (unbroken(sentence)) },
            several => {
                p.answer.of-several { (unbroken(head)) ":" }
                ul.parts { @for part in several { li { (unbroken(part)) } } }
            }
        }
    }
}

fn each(answers: &[Answer]) -> Markup {
    html! { ul.answers { @for answer in answers { li { (one(answer)) } } } }
}

fn one(answer: &Answer) -> Markup {
    let carries = unbroken(&answer.carries);
    // What is more than a sentence is too long for a headline.
    let (first, rest) = match carries.split_once(". ") {
        Some((first, rest)) if carries.chars().count() > HEADLINE_CHARS_MAX => (format!("{first}."), rest),
        _ => (carries.clone(), ""),
    };
    html! {
        p.answer {
            @match &answer.variant {
                Some(name) => { (name) ": " (lower(&first)) },
                None => (first),
            }
        }
        @if !rest.is_empty() { p.also { (rest) } }
        p.because { (unbroken(&answer.limit)) }
    }
}

fn key_figures(run: &Run, variant: &VariantOutcome, first: usize) -> Markup {
    let unit = &variant.capacity.unit;
    let one_load = words::is_one_load(run, variant);
    let capacity = variant.capacity.value.map_or(UNKNOWN.to_owned(), |value| words::load(value, unit));
    let (predicted, predicted_note) = prediction(variant);
    let cost = variant.saturation.get(&variant.limit.resource).map(|s| {
        let interval = s.cost_interval.map(|ends| format!("95 % interval {}, ", range(Some(ends), &s.unit)));
        (words::cost(s), interval.unwrap_or_default() + &plural(s.n.into(), "trial"))
    });
    html! {
        dl.keys {
            @for found in &variant.findings {
                (figure(&findings::name(&found.metric), &findings::number(found), &findings::sureness(found)))
            }
            @if !variant.findings.is_empty() {
            } @else if one_load {
                (figure("capacity", UNKNOWN, "not searched: one load was measured"))
            } @else {
                (figure("capacity", &capacity, &format!("range: {}; {}",
                    words::interval(&variant.capacity), words::confirmation(&variant.capacity))))
            }
            @if variant.limit.resource != Resource::None {
                (limit_figure(run, variant))
            }
            @if !one_load && (variant.predicted.is_some() || words::prediction_doubt(variant).is_some()) {
                (figure("predicted", &predicted, &predicted_note))
            }
            @if let Some((cost, interval)) = cost {
                (figure(&format!("{} per {}", variant.limit.resource.label(), words::singular(unit)), &cost,
                    &interval))
            }
            (trials(run, first))
        }
    }
}

/// The limit, how sure it is, and the way to its evidence.
fn limit_figure(run: &Run, variant: &VariantOutcome) -> Markup {
    let limit = &variant.limit;
    html! { div {
        dt { "limit" }
        dd {
            (words::limit_word(limit.resource, limit.certainty))
            small {
                (words::certainty_word(limit.certainty))
                @if !limit.evidence.is_empty() { ", " a href={ "#" (evidence_id(run)) } { "evidence" } }
            }
        }
    } }
}

/// The element with the evidence of a run's limit, if the run has one variant.
pub(super) fn evidence_id(run: &Run) -> String {
    format!("evidence-{}", run.run)
}

/// How many trials, how long they took, and the number of doubts.
fn trials(run: &Run, first: usize) -> Markup {
    let doubts = doubts::doubts(run).len() as u64;
    html! { div {
        dt { "trials" }
        dd {
            (count(run.trials.len() as f64))
            small {
                @if let Some(s) = words::length_s(run) { (duration(s)) ", " }
                @match doubts {
                    0 => "no doubts",
                    n => a href={ "#doubts-" (first) } { (plural(n, "doubt")) },
                }
            }
        }
    } }
}

/// What the slopes predict, marked where it is doubtful, and how it is to be taken.
fn prediction(variant: &VariantOutcome) -> (String, String) {
    let unit = &variant.capacity.unit;
    let note = match (variant.predicted, words::prediction_doubt(variant)) {
        (None, Some(_)) => words::PREDICTION_REFUTED.to_owned(),
        (Some(_), Some(why)) => format!("{unit}, {}; doubtful: {why}", words::PREDICTED_FROM),
        (Some(_), None) => format!("{unit}, {}", words::PREDICTED_FROM),
        (None, None) => words::NOT_PREDICTED.to_owned(),
    };
    (words::predicted(variant), note)
}

fn figure(name: &str, value: &str, note: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) small { (note) } } } }
}

/// One table of all loads and variants: the verdict, and how it failed and after how long.
pub(super) fn verdicts(run: &Run, first: usize) -> Markup {
    // Of single loads the comparison has the verdicts.
    if run.variants.len() < 2 || run.trials.is_empty() || !findings::side_by_side(run).is_empty() {
        return html! {};
    }
    let all: Vec<Vec<Row>> = run.variants.iter().map(|variant| digest::rows(run, &variant.name)).collect();
    let mut loads: Vec<f64> = all.iter().flatten().map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    html! {
        (heading("verdicts", first, "Verdicts"))
        p.caption { "Per load and variant: trials with this verdict / all trials; how the load failed." }
        div.scroll { table {
            thead { tr {
                th.n scope="col" { (run.capacity.unit) }
                @for variant in &run.variants { th.name scope="col" { (variant.name) } }
            } }
            tbody { @for load in &loads { tr {
                th.n scope="row" { (number(*load)) }
                @for rows in &all { @match rows.iter().find(|row| row.load == *load) {
                    Some(row) => td { (how(row)) },
                    None => td.none { "not measured" },
                } }
            } } }
        } }
    }
}

/// A verdict with its count and how it came about.
fn how(row: &Row) -> Markup {
    html! {
        (row_verdict(row)) " "
        @if row.verdict != Verdict::Pass { (unbroken(&row.how())) }
    }
}

/// Variants side by side, where there are several.
pub(super) fn comparison(run: &Run, first: usize, extras: &Extras) -> Markup {
    if run.variants.len() < 2 {
        return html! {};
    }
    html! {
        (heading("comparison", first, "Comparison"))
        @match &findings::side_by_side(run)[..] {
            [] => (capacities(run)),
            rows => (found(run, rows, first)),
        }
        (drawn::all(&overlaid::figures(run), &format!("overlaid-{first}")))
        (side_by_side(&findings::tables(run)))
        (in_words(run, extras))
    }
}

/// What differs between the variants by more than the noise.
fn in_words(run: &Run, extras: &Extras) -> Markup {
    let compared = store::compare::compare(std::slice::from_ref(run), extras.specs);
    let style = terminal::Style { colour: false, width: 100, unicode: true };
    html! {
        details {
            summary { "Differences in words" }
            pre { (terminal::differences(&compared, style)) }
        }
    }
}

/// What came of one load in every variant.
fn found(run: &Run, rows: &[findings::Row], number: usize) -> Markup {
    let first = &run.variants[0];
    let verdicts = |variant: &str| digest::rows(run, variant).iter().map(how).collect::<Vec<_>>();
    let swept = sweep::figures(run);
    let figures = match swept.is_empty() {
        true => bars(run, rows),
        false => Some(drawn::swept(&swept, &format!("swept-{number}"), &sweep::ticks(run))),
    };
    let is_comparable = figures.is_some();
    html! {
        @if let Some(figures) = figures { (figures) }
        p.caption {
            "Medians of the repetitions (n)" @if is_repeated(rows) { ", below them minimum and maximum" }
            "." @if is_comparable { " Change: relative to " (first.name) "." }
        }
        div.scroll { table.compact {
            thead { tr {
                th scope="col" { "variant" }
                @for (at, row) in rows.iter().enumerate() {
                    th.n scope="col" title=(row.metric) { (findings::name(row.metric)) }
                    @if at == 0 { th.n scope="col" { "n" } }
                    @if at == 0 && is_comparable { th.n scope="col" { "change" } }
                }
                th scope="col" { "limit" }
                th scope="col" { "verdict" }
            } }
            tbody { @for (index, variant) in run.variants.iter().enumerate() { tr {
                th.name scope="row" { (variant.name) }
                @for (at, row) in rows.iter().enumerate() {
                    @let found = row.findings[index];
                    @match found {
                        None => (number_cell(UNKNOWN)),
                        Some(found) => td.n {
                            (findings::median(found))
                            @if findings::spread(found) != UNKNOWN { small { (findings::spread(found)) } }
                        },
                    }
                    @if at == 0 {
                        td.n { (found.map_or(0, |found| found.values.len())) }
                        @if !is_comparable {}
                        @else if index == 0 { td.n {} }
                        @else { (number_cell(&words::change(median_of(row, 0), median_of(row, index)))) }
                    }
                }
                td { (words::limit_cell(&variant.limit)) }
                td.wide { @for verdict in verdicts(&variant.name) { (verdict) } }
            } } }
        } }
    }
}

/// A bar for each variant, of metrics that all of them know; nothing where the variants answer different
/// questions.
fn bars(run: &Run, rows: &[findings::Row]) -> Option<Markup> {
    let is_common = |row: &&findings::Row| row.findings.iter().all(Option::is_some);
    let common: Vec<_> = rows.iter().filter(is_common).take(FIGURES).collect();
    let answers =
        |metric| run.variants.iter().any(|v| v.findings.first().is_some_and(|f| f.metric == metric));
    if !common.first().is_some_and(|main| answers(main.metric)) {
        return None;
    }
    let has_ceiling = |metric| run.variants.iter().any(|v| findings::ceiling(run, v, metric).is_some());
    Some(html! {
        @for (at, row) in common.iter().enumerate() { figure {
            figcaption {
                strong { (capitalized(&findings::name(row.metric))) " by variant" }
                @if at == 0 && is_repeated(rows) { " Bar: median; whisker: minimum to maximum of the \
                    repetitions (circles)." }
                @if has_ceiling(row.metric) { " Dashed: what the link can carry." }
            }
            (for_screens(|screen| bars::found(run, row, &format!("comparison-{at}"), screen)))
        } }
    })
}

fn is_repeated(rows: &[findings::Row]) -> bool {
    rows.iter().flat_map(|row| &row.findings).flatten().any(|found| found.values.len() > 1)
}

fn median_of(row: &findings::Row, index: usize) -> Option<f64> {
    row.findings[index].and_then(LoadMetric::median)
}

fn capacities(run: &Run) -> Markup {
    let first = &run.variants[0];
    let unit = &run.capacity.unit;
    html! {
        figure {
            figcaption { strong { "Capacity by variant" } " Bar: median of the repetitions; whisker: range; \
                          circles: repetitions that differ."
                @if bars::shows_prediction(run) {
                    " Dashed: the load at which the limiting resource is exhausted (predicted)." } }
            (for_screens(|screen| bars::comparison(run, screen)))
        }
        p.caption { "Capacity in " (unit) ". Change: relative to " (first.name) "." }
        div.scroll { table {
            thead { tr {
                th scope="col" { "variant" }
                @for head in ["capacity", "range", "repetitions", "change", "predicted"] {
                    th.n scope="col" { (head) } }
                th scope="col" { "limit" }
                @for resource in [Resource::Cpu, Resource::Disk, Resource::Network] {
                    th.n scope="col" { (resource) small { "per " (words::singular(unit)) } }
                }
            } }
            tbody { @for variant in &run.variants { tr {
                th.name scope="row" { (variant.name) }
                (number_cell(&variant.capacity.value.map_or(UNKNOWN.to_owned(), number)))
                (number_cell(&words::interval(&variant.capacity)))
                td.n { (variant.repetitions.len()) }
                @if variant.name == first.name { td.n {} }
                @else { (number_cell(&words::change(first.capacity.value, variant.capacity.value))) }
                (number_cell(&words::predicted(variant)))
                td { (words::limit_cell(&variant.limit)) }
                @for resource in [Resource::Cpu, Resource::Disk, Resource::Network] {
                    (number_cell(&variant.saturation.get(&resource).map_or(UNKNOWN.to_owned(), words::cost)))
                }
            } } }
        } }
    }
}

pub(super) fn footer(run: &Run) -> Markup {
    html! {
        footer {
            "Run " code { (run.run) } " of " (moment(run.started_at)) ", " (words::state_word(run.state))
                ", schema "
            (run.schema) ", written by kagiri " (run.kagiri) ". The page is self-contained."
        }
    }
}
