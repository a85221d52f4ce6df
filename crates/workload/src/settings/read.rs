//! Reading settings so that the message names the key at fault.

use std::fmt::Display;
use std::str::FromStr;

use base::near;
use base::plan::PlanError;
use base::units::{BitRate, ByteSize, Span};
use serde_json::{Map, Value, json};

use super::declaration::{Declaration, Kind, Settings, declarations, plain, schema};

/// Reads and checks settings, and fills in the defaults of what they leave out.
pub fn read<S: Settings>(settings: &Value) -> Result<S, PlanError> {
    let settings = known_keys::<S>(schema::<S>(), settings, "")?;
    let read: S = parse(&settings)?;
    declarations::<S>().iter().try_for_each(|declared| within(declared, &settings))?;
    read.check()?;
    Ok(read)
}

/// Checks that the type of one setting reads this value, without any other setting.
pub fn one<S: Settings>(key: &str, value: &Value) -> Result<(), PlanError> {
    let alone = key.rsplit('.').fold(value.clone(), |below, key| json!({ key: below }));
    parse::<S>(&alone).map(|_| ())
}

fn parse<S: Settings>(settings: &Value) -> Result<S, PlanError> {
    serde_path_to_error::deserialize(settings).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        if path == "." { PlanError::new(problem.to_string()) } else { PlanError::of_key(&path, problem) }
    })
}

/// The same settings, each under its first name.
fn known_keys<S: Settings>(schema: &Value, settings: &Value, table: &str) -> Result<Value, PlanError> {
    let (Some(known), Value::Object(given)) = (schema["properties"].as_object(), settings) else {
        return Ok(settings.clone());
    };
    let is_alias = |declared: &Value, key: &str| {
        declared["x-aliases"].as_array().is_some_and(|names| names.iter().any(|name| name == key))
    };
    let mut read = Map::new();
    for (key, value) in given {
        let path = format!("{table}{key}");
        let found = known.get_key_value(key);
        let Some((name, declared)) = found.or_else(|| known.iter().find(|(_, one)| is_alias(one, key)))
        else {
            let advice = S::advice(key).map(|advice| format!("; {advice}")).unwrap_or_default();
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(PlanError::of_key(&path, unknown::<S>(key, &known) + &advice));
        };
        let value = known_keys::<S>(declared, value, &format!("{path}."))?;
        if read.insert(name.clone(), value).is_some() {
            return Err(PlanError::of_key(&path, format!("it is the same setting as `{table}{name}`")));
        }
    }
    Ok(Value::Object(read))
}

/// What is wrong with a key that a table does not have.
fn unknown<S: Settings>(key: &str, known: &[&str]) -> String {
    let is_there = |declared: &&Declaration| declared.key.rsplit('.').next() == Some(key);
    match declarations::<S>().iter().find(is_there) {
        // It is in another table.
        Some(declared) => format!("unknown key; did you mean '{}'?", declared.key),
        None => near::unknown_key(key, known, "'kagiri plan schema WORKLOAD --markdown' lists all keys"),
    }
}

/// Checks a setting that is given against the range that its schema declares.
fn within(declared: &Declaration, settings: &Value) -> Result<(), PlanError> {
    let value = declared.key.split('.').try_fold(settings, |table, key| table.get(key));
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(()) };
    let text = |bound: &Option<Value>| bound.as_ref().and_then(Value::as_str).map(str::to_owned);
    let (min, max) = (text(&declared.min), text(&declared.max));
    let (said, is_within) = match (&declared.kind, value) {
        (Kind::Quantity(format), Value::String(text)) => match format.as_str() {
            "span" => quantity::<Span>(text, min, max),
            "byte-size" => quantity::<ByteSize>(text, min, max),
            "bit-rate" => quantity::<BitRate>(text, min, max),
            _ => return Ok(()),
        },
        (_, Value::Number(number)) => {
            let bound = |bound: &Option<Value>| bound.as_ref().and_then(Value::as_f64);
            let value = number.as_f64().unwrap_or(f64::NAN);
            let is_enough = bound(&declared.min).is_none_or(|min| value >= min);
            (plain(number), is_enough && bound(&declared.max).is_none_or(|max| value <= max))
        }
        _ => return Ok(()),
    };
    match (is_within, declared.range_text()) {
        (false, Some(range)) => {
            Err(PlanError::of_key(&declared.key, format!("{said} is not within {range}")))
        }
        _ => Ok(()),
    }
}

fn quantity<Q: FromStr + Ord + Display>(
    text: &str,
    min: Option<String>,
    max: Option<String>,
) -> (String, bool) {
    let bound = |bound: Option<String>| bound.and_then(|bound| bound.parse::<Q>().ok());
    // What is no quantity at all has been refused before.
    let Ok(value) = text.parse::<Q>() else { return (text.to_owned(), true) };
    let is_enough = bound(min).is_none_or(|min| value >= min);
    (value.to_string(), is_enough && bound(max).is_none_or(|max| value <= max))
}
