//! The section of one variant: limit, figures, tables, explanation.

use base::outcome::{Certainty, Evidence, Limit, Resource, Run, VariantOutcome};
use base::verdict::Verdict;
use maud::{Markup, html};

use super::overview::evidence_id;
use super::{Extras, drawn, figures, heading, number_cell, row_verdict, side_by_side, timeline};
use crate::chart::for_screens;
use crate::digest::{self, Fold, Row, trial_length_s};
use crate::text::unbroken;
use crate::words;
use base::format::{Scale, UNKNOWN, capitalized, number, plural, quantity, range};

/// The decisive figures come first, then the evidence; tables come last, and are folded. Of several variants
/// the comparison has the decisive figures, and each section is folded.
pub(super) fn section(run: &Run, variant: &VariantOutcome, index: usize, extras: &Extras) -> Markup {
    let content = content(run, variant, index, extras);
    html! {
        section {
            @if run.variants.len() > 1 {
                (heading("variant", index, &variant.name))
                details {
                    summary { "Limit, evidence and trials of this variant" }
                    (content)
                }
            } @else {
                (heading("variant", index, "Measurement"))
                (content)
            }
        }
    }
}

fn content(run: &Run, variant: &VariantOutcome, index: usize, extras: &Extras) -> Markup {
    let rows = digest::rows(run, &variant.name);
    let is_one = words::is_one_load(run, variant);
    let over_time = timeline::figure(run, variant, index, extras.presentation);
    let over_time = over_time.map(|figure| trials_over_time(run, variant, &figure));
    html! {
        @if rows.is_empty() {
            p { "No trials." }
        } @else {
            (pictures(run, variant, index))
            @if is_one {
                @if words::wants_a_search(run, variant) { p { "Capacity: " (words::NOT_SEARCHED) "." } }
                @if let Some(over_time) = &over_time { (over_time) }
            } @else {
                h3 { "The search" }
                figure {
                    figcaption { (searched(run, variant)) }
                    (for_screens(|screen| figures::search(run, variant, index, screen)))
                }
            }
            (usage(run, variant, index))
        }
        (limit(run, variant))
        (explanation(variant))
        @if let Some(timelines) = drawn::timelines(&variant.account.figures) {
            h3 { "Calls one by one" }
            (timelines)
        }
        @if !is_one { @if let Some(over_time) = &over_time { (over_time) } }
        @if !rows.is_empty() {
            // Several variants have the workload's tables together, above.
            @if run.variants.len() == 1 { (side_by_side(&variant.account.tables)) }
            (saturation(variant))
            details {
                summary { @if is_one { "All metrics" } @else { "Metrics of each load" } }
                (loads(run, variant, &rows, extras))
            }
        }
    }
}

/// What the figure of a search shows.
fn searched(run: &Run, variant: &VariantOutcome) -> String {
    let repetitions = run.trials_of(&variant.name).map(|trial| trial.repetition).max().unwrap_or(1);
    let parts = if repetitions > 1 { " Dotted lines separate the repetitions." } else { "" };
    format!(
        "Load and verdict of each of {}, in order, by its number in the table of all trials.{parts}",
        plural(run.trials_of(&variant.name).count() as u64, "trial")
    )
}

fn trials_over_time(run: &Run, variant: &VariantOutcome, figure: &Markup) -> Markup {
    let trials: Vec<_> = run.trials_of(&variant.name).collect();
    let is_part =
        trials.iter().any(|trial| trial.hold_from_s > 0.0 || trial.hold_to_s + 0.05 < trial_length_s(trial));
    html! {
        h3 { @if words::is_one_load(run, variant) { "Over time" } @else { "Trials over time" } }
        figure {
            figcaption {
                @match trials.len() {
                    1 => "The trial (n = 1).",
                    n => { (n) " trials in order; a dotted line stands where the next begins." }
                }
                @if is_part { " Shaded: the judged time, which the tables cover." }
            }
            (figure)
        }
    }
}

/// The workload's own figures: of all trials, then of the one that stands for them.
fn pictures(run: &Run, variant: &VariantOutcome, index: usize) -> Markup {
    let is_one = words::is_one_load(run, variant);
    let (all, one) = (
        drawn::all(&variant.figures, &format!("loads-{index}")),
        drawn::all(&variant.account.figures, &format!("seen-{index}")),
    );
    let whose = match run.trials_of(&variant.name).count() {
        1 => "Details",
        _ if is_one => "Details of the median trial",
        _ => "Details of a trial at the capacity",
    };
    html! {
        @if !all.0.is_empty() { h3 { "Results against load" } (all) }
        @if !one.0.is_empty() { h3 { (whose) } (one) }
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
    let columns = digest::columns(run, extras.specs);
    let folded = |fold, what| {
        let of = columns.iter().filter(|column| column.fold == fold).map(|column| column.heading.as_str());
        let of: Vec<_> = of.collect();
        (!of.is_empty()).then(|| format!("{}: {what}", of.join(", ")))
    };
    let folded: Vec<_> =
        [folded(Fold::Least, "minimum"), folded(Fold::Most, "maximum")].into_iter().flatten().collect();
    html! {
        p.caption {
            @if run.trials_of(&variant.name).count() > 1 { "Medians of the valid trials" }
                @else { "The trial" } ", over the judged time"
            @if !folded.is_empty() { " (" (folded.join("; ")) ")" }
            ". CPU is in % of one core. Verdict: trials with this verdict / all trials. " (UNKNOWN)
                " = unknown. " (capitalized(extras.presentation.columns_note))
        }
        div.scroll { table {
            thead { tr {
                th scope="col" { (unit) }
                @for row in rows { th.n scope="col" { (number(row.load)) } }
            } }
            tbody {
                tr {
                    th scope="row" { "verdict" }
                    @for row in rows { td.n { (row_verdict(row)) } }
                }
                @for column in &columns {
                    @let values: Vec<_> = rows.iter().map(|row| row.value(column)).collect();
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
            figcaption { (unbroken(ceiling.as_deref().unwrap_or("No ceiling is known."))) }
        } } }
        (figures::usage_legend(run, variant))
    }
}

fn saturation(variant: &VariantOutcome) -> Markup {
    if variant.saturation.is_empty() {
        return html! {};
    }
    let unit = &variant.capacity.unit;
    html! { details {
        summary { "Cost of a " (words::singular(unit)) " and ceilings" }
        p.caption {
            "What a " (words::singular(unit)) " costs, and the load at which each resource is exhausted, \
             with 95 % intervals. CPU is in % of one core. If the interval contains zero, the cost is not \
             measurable. A negative use at no load is shown as about 0."
        }
        div.scroll { table {
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
    } }
}

/// What it means that a limit is predicted.
const PREDICTED: &str = "Predicted: what was measured points to it; that it was exhausted was not counted.";

/// The evidence for the limit. Of a single variant the answer at the top of the page says what the limit is.
fn limit(run: &Run, variant: &VariantOutcome) -> Markup {
    let limit = &variant.limit;
    let several = run.variants.len() > 1;
    if limit.evidence.is_empty() && !several {
        return html! {};
    }
    html! {
        h3 id=[(!several).then(|| evidence_id(run))] {
            @if several { "The limit" } @else if limit.resource == Resource::None { "What was seen" }
            @else { "Evidence for the limit" }
        }
        @if limit.certainty == Certainty::Predicted && limit.resource != Resource::None {
            p.caption { (PREDICTED) }
        }
        @if several { p { (words::limited(limit)) "." } }
        @if !limit.evidence.is_empty() {
            ul.plain { @for piece in &limit.evidence { li {
                (unbroken(&capitalized(&piece.statement)))
                @if let Some(badge) = badge(limit, piece) { " " span.tag { (badge) } }
            } } }
        }
    }
}

/// What sets a piece of evidence apart: another resource than that which limits, or that it was computed.
fn badge(limit: &Limit, piece: &Evidence) -> Option<String> {
    let is_other = piece.resource != Resource::None && piece.resource != limit.resource;
    let words = [is_other.then(|| piece.resource.label()), piece.inferred.then_some("computed")];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn explanation(variant: &VariantOutcome) -> Markup {
    let limit = words::limit(&variant.limit);
    let is_new = |paragraph: &&String| !is_said(paragraph, &limit);
    let paragraphs: Vec<&String> = variant.considerations.iter().filter(is_new).collect();
    html! {
        @if !paragraphs.is_empty() {
            h3 { "Explanation" }
            @if paragraphs.iter().any(|paragraph| paragraph.contains("(computed)")) {
                p.caption { "What was computed, and not measured, is marked 'computed'." }
            }
            @for paragraph in paragraphs { p { (consideration(paragraph)) } }
        }
    }
}

/// Whether a paragraph only repeats that there was no limit.
fn is_said(paragraph: &str, limit: &str) -> bool {
    let why = paragraph.strip_prefix("No limit was found. ").map(words::lower);
    why.is_some_and(|why| limit.strip_prefix("No limit found: ") == Some(why.as_str()))
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

#[cfg(test)]
mod tests {
    use base::outcome::Certainty;

    use super::*;

    #[test]
    fn limit_is_not_repeated_by_the_explanation() {
        let limit = "No limit found: all loads up to 50 clients passed.";
        assert!(is_said("No limit was found. All loads up to 50 clients passed.", limit));
        assert!(!is_said("No limit was found. The link was idle.", limit));
        assert!(!is_said("What each client costs is unknown.", limit));
    }

    #[test]
    fn badge_sets_apart_what_was_computed_and_other_resources() {
        let limit = Limit { resource: Resource::Cpu, certainty: Certainty::Confirmed, evidence: Vec::new() };
        let pieces = [
            Evidence::counted(Resource::Cpu, "busy"),
            Evidence::inferred(Resource::Cpu, "busy"),
            Evidence::counted(Resource::Disk, "idle"),
        ];
        let badges = pieces.map(|piece| badge(&limit, &piece));
        assert_eq!(badges, [None, Some("computed".to_owned()), Some("disk".to_owned())]);
    }
}
