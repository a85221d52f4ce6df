//! What limits, explained on a terminal: for a stored run, and for a table that was measured elsewhere.

use base::doubt::{Doubt, DoubtNote};
use base::outcome::{Run, VariantOutcome};

use super::Style;
use super::paint::Tone;
use super::summary::{doubt_lines, evidence, saturation, toned};
use crate::text::plain;
use crate::{doubts, words};

/// An outcome without its trials as text: the answer, cost and saturation per resource, the written
/// consideration, doubts, and the columns of the table that were not used. Ends with a line break.
pub fn explanation(
    outcome: &VariantOutcome,
    largest_load: Option<f64>,
    ignored_columns: &[String],
    style: Style,
) -> String {
    let unit = plain(&outcome.capacity.unit);
    let mut text = toned(&style, Tone::Bold, "", &headline(outcome, largest_load, &unit));
    text += &style.wrapped("", &plain(&words::limit(&outcome.limit)));
    if !outcome.saturation.is_empty() {
        text += "\n";
        text += &saturation(&outcome.saturation, &unit, &style);
    }
    for paragraph in &outcome.considerations {
        text += "\n";
        text += &style.wrapped("", &plain(paragraph));
    }
    text += "\n";
    text += &table_doubts(outcome, ignored_columns, &style).concat();
    style.spell(text)
}

/// The doubts about a table, and its columns that were not used.
pub(super) fn table_doubts(outcome: &VariantOutcome, ignored: &[String], style: &Style) -> Vec<String> {
    let grouped = doubts::grouped(outcome.doubts.iter().map(|note| (Vec::new(), note)).collect());
    let doubts = grouped.into_iter().map(|doubt| {
        let sentence = format!("{}; {}", plain(&doubt.message), plain(&doubt.advice));
        toned(style, Tone::Odd, "Doubt: ", &sentence)
    });
    let unused = (!ignored.is_empty()).then(|| {
        let names = plain(&ignored.join(", "));
        toned(style, Tone::Odd, "", &format!("Unused columns: {names}"))
    });
    doubts.chain(unused).collect()
}

/// The capacity of a table: only a load that passed is carried, any other one is predicted.
pub(super) fn headline(outcome: &VariantOutcome, largest_load: Option<f64>, unit: &str) -> String {
    let capacity = &outcome.capacity;
    let predicted = outcome.predicted.map(|predicted| match largest_load {
        Some(largest) if predicted > largest => format!(
            "about {}, beyond the largest load measured ({})",
            words::load(predicted, unit),
            words::load(largest, unit)
        ),
        _ => words::load(predicted, unit),
    });
    let least = if capacity.is_lower_bound() { "at least " } else { "" };
    match (capacity.value, predicted, capacity.interval) {
        (Some(value), predicted, _) if capacity.passes > 0 => {
            let predicted = predicted.filter(|_| outcome.predicted != Some(value));
            let predicted = predicted.map(|load| format!("; predicted {}: {load}", words::PREDICTED_FROM));
            format!("Carries {least}{}{}.", words::load(value, unit), predicted.unwrap_or_default())
        }
        (Some(0.0), ..) if capacity.failures_above > 0 => {
            format!("Does not carry even one {}.", words::singular(unit))
        }
        (None, ..) if capacity.failures_above > 0 => {
            "Capacity unknown: the smallest load in the table failed; measure smaller ones.".to_owned()
        }
        (_, Some(predicted), _) => format!("Predicted capacity: {predicted}."),
        (Some(value), None, [Some(lower), Some(upper)]) if value == lower && lower < upper => format!(
            "Predicted capacity: from {} to less than {}, where usage or latency bends.",
            words::load(lower, unit),
            words::load(upper, unit)
        ),
        (Some(value), None, _) => format!("Predicted capacity: {}.", words::load(value, unit)),
        (None, None, _) => {
            let is_few = |note: &DoubtNote| matches!(note.doubt, Doubt::FewLoads { .. });
            match outcome.doubts.iter().any(is_few) {
                true => "Capacity unknown: the table has too few loads for a prediction, which takes three, \
                         and no verdict or error column."
                    .to_owned(),
                false => "Capacity unknown: the table has no verdict or error column, and no resource that \
                          grows with the load has a known ceiling."
                    .to_owned(),
            }
        }
    }
}

/// A stored run as text: per variant the answer, everything that speaks for the limit, and the written
/// consideration with its advice; then the doubts. Ends with a line break.
pub fn explained(run: &Run, style: Style) -> String {
    let mut text = words::state(run).map(|state| toned(&style, Tone::Odd, "", &state)).unwrap_or_default();
    if run.variants.is_empty() {
        text += &toned(&style, Tone::Bold, "", &words::nothing_judged(run));
    }
    for (number, variant) in run.variants.iter().enumerate() {
        if number > 0 {
            text += "\n";
        }
        if run.variants.len() > 1 {
            text += &toned(&style, Tone::Bold, "", &plain(&variant.name));
        }
        text += &toned(&style, Tone::Bold, "", &plain(&words::carries(run, variant)));
        text += &style.wrapped("", &plain(&words::limit(&variant.limit)));
        text += &evidence(&variant.limit, usize::MAX, &style);
        for paragraph in &variant.considerations {
            text += "\n";
            text += &style.wrapped("", &plain(paragraph));
        }
    }
    text += &doubt_lines(run, &style);
    style.spell(text)
}
