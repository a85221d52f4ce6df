//! What is to be seen of a trial ([`of_trial`]), and of all trials of a variant ([`of_trials`]).

mod event_timeline;
mod latency;
mod loads;
#[cfg(test)]
mod tests;
mod times;

use base::outcome::{Figure, Tone};

use super::report::{BuilderReport, SourcesReport};

pub use loads::of_trials;

const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

/// Colours of several builders or kinds, in turn.
const TONES: [Tone; 6] = [Tone::First, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Sixth, Tone::Second];

/// The figures of one trial; empty ones are left out.
pub fn of_trial(builders: &[&BuilderReport], sources: &[SourcesReport]) -> Vec<Figure> {
    let mut all = vec![latency::completion(builders, sources), latency::by_source(builders)];
    all.extend(event_timeline::waterfalls(builders));
    all.extend([
        event_timeline::heat(builders),
        latency::skew(builders),
        latency::skew_histogram(builders),
        times::events(builders),
        times::dead(builders),
        times::slowest(builders),
        times::credits(builders),
    ]);
    all.into_iter().filter_map(|figure| figure?.kept()).collect()
}

/// A builder's name in a legend; none if it is the only one.
fn name(builders: &[&BuilderReport], builder: &BuilderReport, what: &str) -> String {
    match (builders.len() > 1, what) {
        (false, what) => what.to_owned(),
        (true, "") => format!("builder {}", builder.builder),
        (true, what) => format!("{what}, builder {}", builder.builder),
    }
}

/// The colour of the `at`-th of several.
fn tone(at: usize) -> Tone {
    TONES[at % TONES.len()]
}
