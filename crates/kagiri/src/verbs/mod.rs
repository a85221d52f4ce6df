//! One file per verb.

pub mod agent;
pub mod completions;
pub mod content;
pub mod daq;
pub mod explain;
pub mod fleet;
pub mod lab;
pub mod report;
pub mod run;
pub mod runs;
pub mod stream;
pub mod survey;
pub mod timeline;
pub mod transfer;
pub mod undo;

use crate::cli::Verb;
use crate::exit::Outcome;

/// Perform a verb.
pub fn perform(verb: Verb) -> Outcome {
    match verb {
        Verb::Survey(verb) => verb.perform(),
        Verb::Stream(verb) => verb.perform(),
        Verb::Transfer(verb) => verb.perform(),
        Verb::Daq(verb) => verb.perform(),
        Verb::Timeline(verb) => verb.perform(),
        Verb::Explain(verb) => verb.perform(),
        Verb::Run(verb) => verb.perform(),
        Verb::Runs(verb) => verb.perform(),
        Verb::Report(verb) => verb.perform(),
        Verb::Content(verb) => verb.perform(),
        Verb::Fleet(verb) => verb.perform(),
        Verb::Agent(verb) => verb.perform(),
        Verb::Lab(verb) => verb.perform(),
        Verb::Undo(verb) => verb.perform(),
        Verb::Completions(verb) => verb.perform(),
        Verb::Man(verb) => verb.perform(),
    }
}
