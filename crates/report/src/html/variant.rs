//! The section of one variant: limit, figures, tables, explanation.

use base::outcome::{Limit, Resource, Run, VariantOutcome};
use base::verdict::Verdict;
use maud::{Markup, html};

use super::{Extras, drawn, figures, heading, number_cell, row_verdict, side_by_side, timeline};
use crate::digest::{self, Row};
use crate::text::unbroken;
use crate::words;
use base::format::{Scale, UNKNOWN, capitalized, number, quantity, range};

/// Figures and the limit come first; tables come last, and are folded.
pub(super) fn section(run: &Run, variant: &VariantOutcome, index: usize, extras: &Extras) -> Markup {
    let rows = digest::rows(run, &variant.name);
    let several = run.variants.len() > 1;
    html! {
        section {
            (heading("variant", index, if several { &variant.name } else { "Measurement" }))
            @if rows.is_empty() {
                p { "No trials." }
            } @else {
                @let has_pictures = !variant.figures.is_empty() || !variant.account.figures.is_empty();
                @if several && has_pictures {
                    details { summary { "Figures of this variant" } (pictures(run, variant, index)) }
                } @else {
                    (pictures(run, variant, index))
                }
                @if words::is_one_load(run, variant) {
                    @if words::wants_a_search(run, variant) { p { "Capacity: " (words::NOT_SEARCHED) "." } }
                } @else {
                    h3 { "The search" }
                    figure {
                        figcaption { "Load and verdict of every trial, in order, by its number in the table \
                                      of all trials. Dotted lines separate the repetitions." }
                        (figures::search(run, variant, index).svg())
                    }
                }
                (usage(run, variant, index))
                (saturation(variant))
            }
            (limit(&variant.limit))
            @if !variant.considerations.is_empty() {
                h3 { "Explanation" }
                p.caption { "What was computed, and not measured, is marked 'computed'." }
                @for paragraph in &variant.considerations { p { (consideration(paragraph)) } }
            }
            @if let Some(figure) = timeline::figure(run, variant, index, extras.presentation) {
                h3 { @if words::is_one_load(run, variant) { "Over time" } @else { "Trials over time" } }
                figure {
                    figcaption {
                        "All trials of this variant in order; a dotted line stands where the next begins. "
                        "The shaded part of a trial is its judged time, which the tables cover."
                    }
                    (figure.svg())
                }
            }
            @if !rows.is_empty() {
                // Several variants have the workload's tables together, above.
                @if !several { (side_by_side(&variant.account.tables)) }
                details open[!words::is_one_load(run, variant)] {
                    summary { "Metrics of each load" }
                    (loads(run, variant, &rows, extras))
                }
            }
        }
    }
}

/// The workload's own figures: of all trials, then of the one that stands for them.
fn pictures(run: &Run, variant: &VariantOutcome, index: usize) -> Markup {
    let is_one = words::is_one_load(run, variant);
    html! {
        @if !variant.figures.is_empty() {
            h3 { "Results against load" }
            (drawn::all(&variant.figures, &format!("loads-{index}")))
        }
        @if !variant.account.figures.is_empty() {
            h3 { @if is_one { "Details" } @else { "Details at the capacity" } }
            (drawn::all(&variant.account.figures, &format!("seen-{index}")))
        }
    }
}

/// A column for each load, so that no metric is cut off; what is noted of a load stands below.
fn loads(run: &Run, variant: &VariantOutcome, rows: &[Row], extras: &Extras) -> Markup {
    let unit = &variant.capacity.unit;
    let notes = |row: &Row| {
        let why = (row.verdict != Verdict::Pass).then(|| row.how());
        why.into_iter().chain(row.evidence()).collect::<Vec<_>>().join("; ")
    };
    let noted: Vec<_> =
        rows.iter().map(|row| (row.load, notes(row))).filter(|(_, note)| !note.is_empty()).collect();
    html! {
        div.scroll { table {
            caption {
                "Medians of the valid trials at each load, over their judged time (slack: minimum; stalls \
                 and start-up: maximum). "
                "CPU is in % of one core. Verdict: trials with this verdict / all trials. " (UNKNOWN)
                    " = unknown. " (capitalized(extras.presentation.columns_note))
            }
            thead { tr {
                th scope="col" { (unit) }
                @for row in rows { th.n scope="col" { (number(row.load)) } }
            } }
            tbody {
                tr {
                    th scope="row" { "verdict" }
                    @for row in rows { td.n { (row_verdict(row)) } }
                }
                @for column in digest::columns(run, extras.specs) {
                    @let values: Vec<_> = rows.iter().map(|row| row.value(&column)).collect();
                    @let scale = Scale::for_values(column.unit, values.iter().copied().flatten());
                    tr {
                        th scope="row" title=(column.metric) {
                            (column.heading) @if !scale.unit.is_empty() { " (" (scale.unit) ")" }
                        }
                        @for value in &values { (number_cell(&scale.number(*value))) }
                    }
                }
            }
        } }
        @if !noted.is_empty() {
            ul.plain { @for (load, note) in &noted { li {
                strong { (words::load(*load, unit)) ": " } (unbroken(note))
            } } }
        }
    }
}

/// Usage against load for every resource that was fitted.
fn usage(run: &Run, variant: &VariantOutcome, index: usize) -> Markup {
    let drawn: Vec<_> = variant
        .saturation
        .iter()
        .filter_map(|(r, s)| Some((figures::usage(run, variant, *r, s, index)?, figures::ceiling_words(s))))
        .collect();
    if drawn.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Usage against load" }
        p.caption {
            "Every point is a trial. The line is fitted to the trials that passed. "
            "Where it meets the ceiling, the resource is exhausted."
        }
        div.pair { @for (figure, ceiling) in &drawn { figure {
            (figure.svg())
            @if let Some(ceiling) = ceiling { figcaption { (unbroken(ceiling)) } }
        } } }
        (figures::usage_legend())
    }
}

fn saturation(variant: &VariantOutcome) -> Markup {
    if variant.saturation.is_empty() {
        return html! {};
    }
    let unit = &variant.capacity.unit;
    html! {
        div.scroll { table {
            caption {
                "Cost of a " (words::singular(unit)) " and the load at which each resource is exhausted, \
                                                      with 95 % "
                "intervals. CPU is in % of one core. If the interval contains zero, the cost is not \
                 measurable. "
                "A negative use at no load is shown as about 0."
            }
            thead { tr {
                th scope="col" { "resource" }
                th.n scope="col" { "cost per " (words::singular(unit)) }
                th.n scope="col" { "95 % interval" }
                th.n scope="col" { "at no load" }
                th.n scope="col" { "ceiling" }
                th scope="col" { "source of the ceiling" }
                th.n scope="col" { "exhausted at" small { (unit) } }
                th.n scope="col" { "95 % interval" }
                th.n scope="col" { "passed trials" }
            } }
            tbody { @for (resource, s) in &variant.saturation { tr {
                th scope="row" { (resource.label()) }
                (number_cell(&words::cost(s)))
                (number_cell(&range(s.cost_interval, &s.unit)))
                (number_cell(&words::at_no_load(s)))
                (number_cell(&quantity(s.ceiling.as_ref().map(|c| c.value), &s.unit)))
                td { @match &s.ceiling { Some(ceiling) => (ceiling.source), None =>
                    span.none { "unknown" } } }
                (number_cell(&words::saturates_at(s)))
                (number_cell(&words::saturates_within(s)))
                td.n { (s.n) }
            } } }
        } }
    }
}

fn limit(limit: &Limit) -> Markup {
    html! {
        h3 { "The limit" }
        p { (words::limited(limit)) "." }
        @if !limit.evidence.is_empty() {
            ul.plain { @for piece in &limit.evidence { li {
                (unbroken(&capitalized(&piece.statement))) " "
                span.tag { @if piece.resource != Resource::None { (piece.resource.label()) ", " }
                    @if piece.inferred { "computed" } @else { "measured" } }
            } } }
        }
    }
}

/// A paragraph with its marks of inference set off.
fn consideration(paragraph: &str) -> Markup {
    let paragraph = unbroken(paragraph);
    let mut pieces = paragraph.split("(computed)");
    html! {
        (pieces.next().unwrap_or_default())
        @for piece in pieces { span.tag { "computed" } (piece) }
    }
}
