//! One `[[variant]]` of a plan, laid over what all have in common.

use serde_json::{Map, Value};

use super::{Variant, lay_over, policy, tuning};
use crate::near;
use crate::placement::{Wish, Wishes};
use crate::plan_error::PlanError;

/// What the variants of a plan have in common.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a> {
    pub(super) settings: &'a Value,
    pub(super) place: &'a Map<String, Value>,
    pub(super) qos: &'a Map<String, Value>,
    pub(super) tune: &'a Map<String, Value>,
}

/// One `[[variant]]`: its name, and its settings, places, policy and kernel settings laid over the shared
/// ones.
pub(super) fn variant(
    mut overlay: Map<String, Value>,
    shared: Shared<'_>,
    workload: &str,
    index: usize,
) -> Result<Variant, PlanError> {
    let name = match overlay.shift_remove("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => name,
        Some(_) => {
            return Err(PlanError::of_key(
                "variant.name",
                "a variant's name must be a text that is not empty",
            ));
        }
        None => format!("variant {}", index + 1),
    };
    let difference = overlay.shift_remove(workload);
    let (mut place, mut qos) = (shared.place.clone(), shared.qos.clone());
    match overlay.shift_remove("place") {
        Some(Value::Object(own)) => place.extend(own),
        Some(_) => return Err(PlanError::of_key("place", "expected a table of roles and hosts")),
        None => {}
    }
    match overlay.shift_remove("qos") {
        Some(Value::Object(own)) => qos.extend(own),
        Some(_) => return Err(PlanError::of_key("qos", "expected a table with policy and hosts")),
        None => {}
    }
    let mut tune = Value::Object(shared.tune.clone());
    match overlay.shift_remove("tune") {
        Some(own @ Value::Object(_)) => lay_over(&mut tune, own),
        Some(_) => return Err(PlanError::of_key("tune", "expected a table with settings and hosts")),
        None => {}
    }
    let tune = tune.as_object().cloned().unwrap_or_default();
    if let Some(unknown) = overlay.keys().next() {
        let problem = near::unknown_key(unknown, &["name", "place", "qos", "tune", workload], "");
        return Err(PlanError::of_key(unknown, format!("in variant '{name}': {problem}")));
    }
    let mut settings = shared.settings.clone();
    if let Some(difference) = difference {
        lay_over(&mut settings, difference);
    }
    Ok(Variant { name, settings, place: wishes(place)?, qos: policy::wish(qos)?, tune: tuning::wish(tune)? })
}

pub(super) fn wishes(table: Map<String, Value>) -> Result<Wishes, PlanError> {
    let read = |(role, value): (String, Value)| {
        let expected = "expected the hosts as a text, or { hosts = ..., count = ..., at_least = ... }";
        match serde_json::from_value::<Wish>(value) {
            Ok(wish) => Ok((role, wish)),
            Err(_) => Err(PlanError::of_key(&format!("place.{role}"), expected)),
        }
    };
    table.into_iter().map(read).collect()
}
