//! What limits, in at most [`LINES`] lines of [`COLUMNS`] columns: for a table, and for a stored run.

use base::outcome::{ADVICE_LEAD, Resource, Run, Saturation, VariantOutcome};

use super::Style;
use super::brief::{COLUMNS, EVERYTHING, LINES, TABLE_LINES, as_fits, first_lines, variant_table};
use super::explanation::{headline, table_doubts};
use super::paint::Tone;
use super::summary::{answer, doubt_texts, evidence, saturation_columns, toned};
use super::table::render;
use crate::text::plain;
use crate::{doubts, words};

/// Lines of the answer with its decisive evidence.
const ANSWER_LINES: usize = 6;
/// Resources of the table of costs, those that are exhausted first in front.
const RESOURCES_MAX: usize = 4;
/// Further evidence of a run's limit.
const EVIDENCE_MAX: usize = 3;

/// [`super::explanation`] of a table: the answer, what each unit of load costs, what would help, as many
/// doubts as there is room for. Ends with a line break.
pub fn brief_explanation(
    outcome: &VariantOutcome,
    largest_load: Option<f64>,
    ignored_columns: &[String],
    style: Style,
) -> String {
    let style = narrow(style);
    let unit = plain(&outcome.capacity.unit);
    let headline = toned(&style, Tone::Bold, "", &headline(outcome, largest_load, &unit));
    let answer = headline + &style.wrapped("", &plain(&words::limit(&outcome.limit)));
    let (help, doubts) = (help(outcome, &style), table_doubts(outcome, ignored_columns, &style));
    // Fewer resources, so that there is room for what would help.
    let used = answer.lines().count().min(ANSWER_LINES) + help.lines().count() + 2;
    let mut tables = (1..=RESOURCES_MAX).rev().map(|most| costs(outcome, most, &unit, &style));
    let costs = tables.find(|table| used + table.lines().count() <= LINES);
    fitted(&answer, &[costs.unwrap_or_default(), help], &doubts, style)
}

/// [`super::explained`] of a run: the answer with its evidence and what would help, or a table of the
/// variants, and as many doubts as there is room for. Ends with a line break.
pub fn brief_explained(run: &Run, style: Style) -> String {
    let style = narrow(style);
    let doubts: Vec<_> = doubt_texts(doubts::of_short_answer(run))
        .iter()
        .map(|text| toned(&style, Tone::Odd, "Doubt: ", text))
        .collect();
    if run.variants.len() > 1 {
        return fitted("", &[variant_table(run, &style, TABLE_LINES)], &doubts, style);
    }
    let of_limit = |variant: &VariantOutcome| {
        [evidence(&variant.limit, EVIDENCE_MAX, &style), help(variant, &style)].to_vec()
    };
    let blocks = run.variants.first().map(of_limit).unwrap_or_default();
    fitted(&answer(run, &style), &blocks, &doubts, style)
}

fn narrow(style: Style) -> Style {
    Style { width: style.width.min(COLUMNS), ..style }
}

/// The blocks that fit, in their order, and as many doubts as there is room for.
fn fitted(answer: &str, blocks: &[String], doubts: &[String], style: Style) -> String {
    let rest = style.paint(Tone::Faint, EVERYTHING) + "\n";
    let mut text = first_lines(answer, ANSWER_LINES);
    // The line of the doubts that are left out.
    let reserved = 1 + usize::from(!doubts.is_empty());
    for block in blocks {
        if text.lines().count() + block.lines().count() + reserved <= LINES {
            text += block;
        }
    }
    let used = text.lines().count() + 1;
    text += &as_fits(doubts, "doubt", LINES.saturating_sub(used));
    style.spell(text + &rest)
}

/// The table of resources, of at most the given number.
fn costs(outcome: &VariantOutcome, most: usize, unit: &str, style: &Style) -> String {
    let mut all: Vec<(&Resource, &Saturation)> = outcome.saturation.iter().collect();
    let exhausted_at = |(_, one): &(&Resource, &Saturation)| one.saturates_at.unwrap_or(f64::INFINITY);
    all.sort_by(|a, b| exhausted_at(a).total_cmp(&exhausted_at(b)));
    all.truncate(most);
    if all.is_empty() { String::new() } else { render(&saturation_columns(&all, unit), 1, style) }
}

fn help(outcome: &VariantOutcome, style: &Style) -> String {
    let found = outcome.considerations.iter().find(|paragraph| paragraph.starts_with(ADVICE_LEAD));
    found.map(|paragraph| style.wrapped("", &plain(paragraph))).unwrap_or_default()
}
