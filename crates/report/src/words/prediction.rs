//! What the slopes and ceilings predict, and whether to believe it.

use base::doubt::Doubt;
use base::outcome::VariantOutcome;

use base::format::{UNKNOWN, number};

/// What stands where a prediction was left out.
pub const PREDICTION_REFUTED: &str = "none: where slopes and ceilings alone put it, far smaller loads failed";

/// The prediction as a number, marked where it is doubtful.
pub fn predicted(variant: &VariantOutcome) -> String {
    let mark = if prediction_doubt(variant).is_some() { "?" } else { "" };
    variant.predicted.map_or(UNKNOWN.to_owned(), |load| number(load) + mark)
}

/// Why the prediction is doubtful, if it is.
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
