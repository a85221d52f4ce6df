//! Searches of servers whose limit is known.
//!
//! They are the ready plans with shorter holds, fewer confirmations (the disk plan: one variant) and a search
//! from just below the known limit to just above it, so that each takes about a minute.

use std::fs;
use std::time::Duration;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::{MachineLock, World, undisturbed, workspace};

const PATIENCE: Duration = Duration::from_secs(420);

/// A ready plan, made shorter, with its lab's path made absolute; its search begins at `first` streams.
pub fn shortened(name: &str, first: u32, search_hold: &str, hold: &str, warm_up: Option<&str>) -> Table {
    let text = fs::read_to_string(workspace().join("plans").join(name)).expect("a ready plan");
    let mut plan: Table = text.parse().expect("TOML");
    let shorter = format!(
        "first = {first}\nhold = '{hold}'\nsearch_hold = '{search_hold}'\nconfirmations = 1\n{}",
        warm_up.map(|warm_up| format!("player.warm_up = '{warm_up}'\n")).unwrap_or_default()
    );
    let stream = plan["stream"].as_table_mut().expect("the workload's settings");
    stream.extend(shorter.parse::<Table>().expect("TOML"));
    if let Some(Value::String(lab)) = plan.get_mut("lab") {
        *lab = workspace().join("plans").join(&*lab).to_string_lossy().into_owned();
    }
    plan
}

/// Runs the plan until the result is as wanted, or was undisturbed by other programs, or attempts run out.
pub fn search(_lock: MachineLock, plan: &Table, wanted: impl Fn(&Json) -> bool) -> Json {
    let measure = || {
        let world = World::new();
        world.write("plan.toml", plan.to_string());
        world.measure(&["run", "plan.toml", "--json"], PATIENCE)
    };
    let (ended, document) = undisturbed(wanted, measure);
    eprintln!("{}", ended.stderr);
    ended.code(0);
    document
}

/// The capacity and the limiting resource.
pub fn found(document: &Json) -> (f64, &str) {
    let value = document["capacity"]["value"].as_f64().unwrap_or(f64::NAN);
    (value, document["limit"]["resource"].as_str().expect("a word"))
}
