//! The section of one variant: limit, figures, tables, consideration.

use base::metric::MetricSpec;
use base::outcome::{Limit, Resource, Run, Table, VariantOutcome};
use maud::{Markup, html};

use super::{Extras, drawn, figures, number_cell, timeline, verdict};
use crate::digest::{self, Row};
use crate::tables::printed;
use crate::text::unbroken;
use crate::words;
use base::format::{Scale, UNKNOWN, capitalized, number, quantity, range};

/// Everything about one variant.
pub(super) fn section(run: &Run, variant: &VariantOutcome, index: usize, extras: &Extras) -> Markup {
    let rows = digest::rows(run, &variant.name);
    let several = run.variants.len() > 1;
    html! {
        section {
            @if several { h2 { (variant.name) } } @else { h2 { "What was measured" } }
            @if rows.is_empty() {
                p { "No trial was made." }
            } @else {
                // Several variants have theirs together, above.
                @if !several { (side_by_side(&variant.account.tables)) }
                h3 { "Per load" }
                (loads(run, variant, &rows, extras.specs))
                @if words::is_one_load(run, variant) {
                    @if words::wants_a_search(run, variant) { p { "Capacity: " (words::NOT_SEARCHED) "." } }
                } @else {
                    h3 { "The search" }
                    figure {
                        figcaption { "The load of every trial in the order in which they were made, and its verdict; dotted lines part the repetitions." }
                        (figures::search(run, variant, index).svg())
                    }
                }
                (pictures(run, variant, index))
                (usage(run, variant, index))
                (saturation(variant))
            }
            (limit(&variant.limit))
            @if !variant.considerations.is_empty() {
                h3 { "Consideration" }
                p.caption { "Written from the tables above; what was concluded rather than read from a counter is marked as inferred." }
                @for paragraph in &variant.considerations { p { (consideration(paragraph)) } }
            }
            @if let Some(figure) = timeline::figure(run, variant, index, extras.presentation) {
                h3 { @if words::is_one_load(run, variant) { "Over time" } @else { "Up and down the ramp" } }
                figure {
                    figcaption { "All trials of this variant end to end; time between trials is cut out at the dotted lines. The shaded part of each trial is its hold, over which the table's numbers are taken." }
                    (figure.svg())
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
            h3 { "Against the load" }
            (drawn::all(&variant.figures, &format!("loads-{index}")))
        }
        @if !variant.account.figures.is_empty() {
            h3 { @if is_one { "What was seen" } @else { "What was seen at the load that was carried" } }
            (drawn::all(&variant.account.figures, &format!("seen-{index}")))
        }
    }
}

/// The workload's own tables, beside one another as far as there is room.
pub(super) fn side_by_side(tables: &[Table]) -> Markup {
    if tables.is_empty() {
        return html! {};
    }
    html! {
        div.beside { @for table in tables.iter().map(printed) { section {
            h3 { (table.title) }
            div.scroll { table {
                thead { tr { @for column in &table.columns {
                    @if column.is_number { th.n scope="col" { (column.title) } } @else { th scope="col" { (column.title) } }
                } } }
                tbody { @for row in &table.rows { tr { @for (at, cell) in row.iter().enumerate() {
                    @if at == 0 { th scope="row" { (unbroken(cell)) } }
                    @else if table.columns[at].is_number { (number_cell(cell)) }
                    @else { td { (unbroken(cell)) } }
                } } } }
            } }
            @for note in table.notes { p.caption { (capitalized(note)) } }
        } } }
    }
}

/// The table per load, as in the reference report with the margin and the evidence added.
fn loads(run: &Run, variant: &VariantOutcome, rows: &[Row], specs: &[MetricSpec]) -> Markup {
    let columns: Vec<_> = digest::columns(run, specs)
        .into_iter()
        .map(|column| {
            let values: Vec<_> = rows.iter().map(|row| row.value(&column)).collect();
            let scale = Scale::for_values(column.unit, values.iter().copied().flatten());
            (column, values, scale)
        })
        .collect();
    let evidence: Vec<_> = rows.iter().map(Row::evidence).collect();
    html! {
        div.scroll { table {
            caption {
                "Medians over the hold of the valid trials at each load (slack: the least; stalls and start-up: the most). "
                "CPU is in % of one core. The verdict counts the trials that came to it, of n. " (UNKNOWN) " is not known."
            }
            thead { tr {
                th.n scope="col" { (variant.capacity.unit) }
                th scope="col" { "verdict" }
                @for (column, _, scale) in &columns {
                    th.n scope="col" title=(column.metric) { (column.heading) small { (scale.unit) } }
                }
                th scope="col" { "how it went, evidence" }
            } }
            tbody { @for (i, row) in rows.iter().enumerate() { tr {
                th.n scope="row" { (number(row.load)) }
                td { (verdict(row.verdict, &row.verdict_words())) }
                @for (_, values, scale) in &columns { (number_cell(&scale.number(values[i]))) }
                td.wide { (unbroken(&row.how())) @for counter in &evidence[i] { "; " (unbroken(counter)) } }
            } } }
        } }
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
            "Every point is a trial. The line is fitted to the loads that speak for themselves (n in the table below); where it meets the ceiling, the resource is used up."
        }
        div.pair { @for (figure, ceiling) in &drawn { figure {
            (figure.svg())
            @if let Some(ceiling) = ceiling { figcaption { (unbroken(ceiling)) } }
        } } }
        (figures::usage_legend())
    }
}

/// The lines as numbers.
fn saturation(variant: &VariantOutcome) -> Markup {
    if variant.saturation.is_empty() {
        return html! {};
    }
    let unit = &variant.capacity.unit;
    html! {
        div.scroll { table {
            caption { "Cost of a " (words::singular(unit)) " and the load at which each resource is used up, with 95 % intervals. CPU is in % of one core. A cost whose interval holds zero cannot be measured; a line that begins below zero begins at about 0." }
            thead { tr {
                th scope="col" { "resource" }
                th.n scope="col" { "cost per " (words::singular(unit)) }
                th.n scope="col" { "95 %" }
                th.n scope="col" { "at no load" }
                th.n scope="col" { "ceiling" }
                th scope="col" { "known from" }
                th.n scope="col" { "saturates at" small { (unit) } }
                th.n scope="col" { "95 %" }
                th.n scope="col" { "n" }
            } }
            tbody { @for (resource, s) in &variant.saturation { tr {
                th scope="row" { (resource) }
                (number_cell(&words::cost(s)))
                (number_cell(&range(s.cost_interval, &s.unit)))
                (number_cell(&words::at_no_load(s)))
                (number_cell(&quantity(s.ceiling.as_ref().map(|c| c.value), &s.unit)))
                td { @match &s.ceiling { Some(ceiling) => (ceiling.source), None => span.none { "not known" } } }
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
                span.tag { @if piece.resource != Resource::None { (piece.resource) ", " } @if piece.inferred { "inferred" } @else { "read from a counter" } }
            } } }
        }
    }
}

/// A paragraph with its marks of inference set off.
fn consideration(paragraph: &str) -> Markup {
    let paragraph = unbroken(paragraph);
    let mut pieces = paragraph.split("(inferred)");
    html! {
        (pieces.next().unwrap_or_default())
        @for piece in pieces { span.tag { "inferred" } (piece) }
    }
}
