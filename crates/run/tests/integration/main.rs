//! What limits a system, explained from tables and trials.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::collections::BTreeMap;

use base::outcome::{Ceiling, Resource};
use run::explain::{Explanation, csv, explain};

mod explain_csv;
mod explain_network;
mod explain_player;
mod explain_reference;
mod explain_synthetic;
mod explain_table;
mod recovered;

fn explained(text: &str, ceilings: &[(Resource, Ceiling)]) -> Explanation {
    let ceilings: BTreeMap<Resource, Ceiling> = ceilings.iter().cloned().collect();
    explain(&csv::read(text.as_bytes(), ceilings).expect("a table of this test"))
}
