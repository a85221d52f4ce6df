//! The tests of the language.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod errors;
mod programs;
mod properties;

use wml::syntax::{parse, parse_value};
use wml::{Evaluation, Program, WmlError};

/// Evaluates a text with overridden variables.
fn evaluate(text: &str, set: &[(&str, &str)]) -> Result<Program, WmlError> {
    let load = |name: &str| match name {
        "shared" => Some("set $nfiles=10\ndefine fileset name=a,entries=$nfiles\n"),
        "timed" => Some("set $nfiles=10\ndefine fileset name=a,entries=$nfiles\nrun 60\n"),
        _ => None,
    };
    let presets = vec![("dir".to_owned(), parse_value("/data"))];
    let overrides = set.iter().map(|(name, value)| ((*name).to_owned(), parse_value(value))).collect();
    let evaluation = Evaluation { presets, overrides, load: &load };
    Program::evaluate("a.f", &parse("a.f", text)?, &evaluation)
}
