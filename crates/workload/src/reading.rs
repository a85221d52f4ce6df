//! Reading a workload's settings so that whoever wrote them learns which key is at fault.

use base::plan::PlanError;
use base::units::Span;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads settings; `of_elsewhere` gives advice for a key that another room has (or an earlier version had).
///
/// # Errors
/// An unknown key or a wrong unit, with the key named.
pub fn read<T: DeserializeOwned>(
    settings: &Value,
    of_elsewhere: impl Fn(&str) -> Option<&'static str>,
) -> Result<T, PlanError> {
    serde_json::from_value(settings.clone()).map_err(|error| {
        let message = error.to_string();
        if message.starts_with("unknown field") {
            let key = message.split('`').nth(1).map(str::to_owned);
            let advice = key.as_deref().and_then(&of_elsewhere).unwrap_or_default();
            return PlanError { key, ..PlanError::new(format!("{message}{advice}")) };
        }
        match at_fault::<T>(settings, &mut Vec::new(), &message) {
            Some(key) => PlanError::of_key(&key, &message),
            None => PlanError::new(message),
        }
    })
}

/// serde does not say where in a tree it failed: the first value that fails in the same words when it stands alone.
fn at_fault<T: DeserializeOwned>(tree: &Value, path: &mut Vec<String>, message: &str) -> Option<String> {
    if let Value::Object(table) = tree {
        return table.iter().find_map(|(key, value)| {
            path.push(key.clone());
            let found = at_fault::<T>(value, path, message);
            path.pop();
            found
        });
    }
    let alone = path.iter().rev().fold(tree.clone(), |below, key| serde_json::json!({ key: below }));
    let fails = serde_json::from_value::<T>(alone).is_err_and(|error| error.to_string() == message);
    fails.then(|| path.join("."))
}

/// Errors when `value` of `key` is not within `least..=most`; `words` say that range.
///
/// # Errors
/// As said.
pub fn within(key: &str, value: u64, least: u64, most: u64, words: &str) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PlanError::of_key(key, format!("{value} is not within {words}")))
}

/// Errors when `value` of `key` is not a number within `least..=most`.
///
/// # Errors
/// As said.
pub fn ranged(key: &str, value: f64, least: f64, most: f64) -> Result<(), PlanError> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PlanError::of_key(key, format!("{value} is not within {least} to {most}")))
}

/// Errors when a span of `key` is not within `least_s..=most_s`.
///
/// # Errors
/// As said.
pub fn span(key: &str, value: Span, least_s: u64, most_s: u64) -> Result<(), PlanError> {
    if (Span::from_s(least_s)..=Span::from_s(most_s)).contains(&value) {
        return Ok(());
    }
    Err(PlanError::of_key(key, format!("{value} is not within {least_s}s to {most_s}s")))
}
