//! The JSON documents that kagiri prints.

use serde_json::Value;

/// A metric of one trial.
///
/// # Panics
/// The trial has no such number.
pub fn metric(trial: &Value, name: &str) -> f64 {
    trial["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", trial["metrics"]))
}
