//! What differs around the numbers: environments, plans, settings.

use std::collections::{BTreeMap, BTreeSet};

use base::outcome::Run;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Deeper than settings ever are; what lies below is compared as a whole.
const DEPTH_MAX: u32 = 16;

/// What is measured of a host anew for each run: no setting, and never twice the same.
const MEASURED_OF_HOSTS: [&str; 2] = ["calendar_clock_off_s", "clock"];

/// Facts by key, `server.disk.file_system`.
type Facts = BTreeMap<String, Value>;

/// A fact of two sides that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// Its key, levels joined by dots.
    pub key: String,
    /// On the first side; `None` where it is not given.
    pub a: Option<Value>,
    /// On the second side.
    pub b: Option<Value>,
}

/// A fact that is not the same in all runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunFact {
    /// Its key, levels joined by dots.
    pub key: String,
    /// One value per run in the runs' order; `None` where it is not given.
    pub values: Vec<Option<Value>>,
}

/// The facts of a run's hosts, without what was measured of them.
pub(super) fn environment(run: &Run) -> Facts {
    facts_of(&run.environment)
}

/// What differs between a stored environment and the facts that are known now; other facts are not compared.
pub fn environments(stored: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>) -> Vec<Fact> {
    let stored = stored.iter().filter(|(key, _)| now.contains_key(*key));
    let stored = stored.map(|(key, value)| (key.clone(), value.clone())).collect();
    between(&facts_of(&stored), &facts_of(now))
}

fn facts_of(environment: &BTreeMap<String, Value>) -> Facts {
    let mut facts = Facts::new();
    for (key, value) in environment {
        match (key.as_str(), value) {
            // What a survey measured before this run, when it was continued, and the order of its trials
            // are no circumstances of it.
            ("survey" | "resumed" | "trial_order", _) => {}
            ("hosts", Value::Object(hosts)) => {
                hosts.iter().for_each(|(name, host)| of_host(&format!("{key}.{name}"), host, &mut facts));
            }
            _ => flatten(key, value, DEPTH_MAX, &mut facts),
        }
    }
    facts
}

fn of_host(key: &str, host: &Value, facts: &mut Facts) {
    match host {
        Value::Object(entries) => {
            let set = entries.iter().filter(|(key, _)| !MEASURED_OF_HOSTS.contains(&key.as_str()));
            flatten_all(key, set, DEPTH_MAX, facts);
            // The agent's process is another one for each run in a lab.
            facts.remove(&format!("{key}.environment.pid"));
        }
        other => flatten(key, other, DEPTH_MAX, facts),
    }
}

/// The plan without its variants, whose settings are compared pair by pair.
pub(super) fn plan(run: &Run) -> Facts {
    let mut facts = Facts::new();
    if let Value::Object(plan) = &run.plan {
        flatten_all("", plan.iter().filter(|(key, _)| *key != "variants"), DEPTH_MAX, &mut facts);
    }
    facts
}

pub(super) fn settings(run: &Run, variant: &str) -> Facts {
    let variants = run.plan.get("variants").and_then(Value::as_array);
    let found = variants.into_iter().flatten().find(|plan| plan.get("name").is_some_and(|n| n == variant));
    let mut facts = Facts::new();
    if let Some(Value::Object(settings)) = found.and_then(|plan| plan.get("settings")) {
        flatten_all("", settings, DEPTH_MAX, &mut facts);
    }
    facts
}

fn flatten_all<'a>(
    prefix: &str,
    entries: impl IntoIterator<Item = (&'a String, &'a Value)>,
    depth: u32,
    facts: &mut Facts,
) {
    for (key, value) in entries {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        flatten(&key, value, depth, facts);
    }
}

fn flatten(key: &str, value: &Value, depth: u32, facts: &mut Facts) {
    match value {
        Value::Object(entries) if depth > 0 && !Map::is_empty(entries) => {
            flatten_all(key, entries, depth - 1, facts);
        }
        // Null is how JSON says that a fact is not known, which is no other fact.
        Value::Null => {}
        leaf => {
            facts.insert(key.to_owned(), leaf.clone());
        }
    }
}

/// What differs between two sides, by key.
pub(super) fn between(a: &Facts, b: &Facts) -> Vec<Fact> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = keys.into_iter().filter(|key| a.get(*key) != b.get(*key));
    differing.map(|key| Fact { key: key.clone(), a: a.get(key).cloned(), b: b.get(key).cloned() }).collect()
}

/// What is not the same in all runs, by key.
pub(super) fn between_runs(runs: &[Run], facts_of: impl Fn(&Run) -> Facts) -> Vec<RunFact> {
    let all: Vec<Facts> = runs.iter().map(facts_of).collect();
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let mut found = Vec::new();
    for key in keys {
        let values: Vec<Option<Value>> = all.iter().map(|facts| facts.get(key).cloned()).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            found.push(RunFact { key: key.clone(), values });
        }
    }
    found
}
