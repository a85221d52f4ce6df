//! What limits, explained on a terminal: for a stored run, and for a table that was measured elsewhere.

use base::outcome::{Run, VariantOutcome};

use super::Style;
use super::paint::Tone;
use super::summary::{doubt_lines, evidence, saturation, toned};
use crate::text::plain;
use crate::{doubts, words};

/// An outcome without its trials as text: the answer, cost and saturation per resource, the written
/// consideration, doubts, and the columns of the table that were not used. Ends with a line break.
pub fn explanation(outcome: &VariantOutcome, ignored_columns: &[String], style: Style) -> String {
    let unit = plain(&outcome.capacity.unit);
    let least = if let [Some(_), None] = outcome.capacity.interval { "at least " } else { "" };
    let carried = match (outcome.capacity.value, outcome.predicted) {
        (Some(value), Some(predicted)) if value != predicted => {
            format!(
                "Carries {least}{}; predicted {}: {}.",
                words::load(value, &unit),
                words::PREDICTED_FROM,
                words::load(predicted, &unit)
            )
        }
        (Some(value), None) => format!("Carries {least}{}.", words::load(value, &unit)),
        // A table without verdicts has no load that passed.
        (Some(value), Some(_)) if outcome.capacity.passes > 0 => {
            format!("Carries {least}{}.", words::load(value, &unit))
        }
        (_, Some(predicted)) => format!("Predicted capacity: {}.", words::load(predicted, &unit)),
        (None, None) => "Capacity unknown: the table has too few loads.".to_owned(),
    };
    let mut text = toned(&style, Tone::Bold, "", &carried);
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
    for doubt in doubts::grouped(outcome.doubts.iter().map(|note| (Vec::new(), note)).collect()) {
        let sentence = format!("{}; {}", plain(&doubt.message), plain(&doubt.advice));
        text += &toned(&style, Tone::Odd, "Doubt: ", &sentence);
    }
    if !ignored_columns.is_empty() {
        let names = plain(&ignored_columns.join(", "));
        text += &toned(&style, Tone::Odd, "", &format!("Unused columns: {names}"));
    }
    style.spell(text)
}

/// A stored run as text: per variant the answer, everything that speaks for the limit, and the written
/// consideration with its advice; then the doubts. Ends with a line break.
pub fn explained(run: &Run, style: Style) -> String {
    let mut text = words::state(run).map(|state| toned(&style, Tone::Odd, "", &state)).unwrap_or_default();
    if run.variants.is_empty() {
        text += &toned(&style, Tone::Bold, "", words::NOTHING_JUDGED);
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
