//! Ceilings as people write them: `disk=110Mbit/s`, `cpu=2cores`.

use base::outcome::{Ceiling, Resource};
use base::units::{BitRate, ByteSize};
use serde_json::{Value, json};

/// The source of a ceiling that a person gave.
pub const GIVEN: &str = "given";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ceiling '{text}' cannot be used: {problem}; examples: disk=110Mbit/s, cpu=200%, cpu=2cores, \
     network=1Gbit/s, memory=512MiB"
)]
pub struct CeilingError {
    text: String,
    problem: String,
}

/// Read `NAME=VALUE`.
/// Errors: No `=`, an unknown resource, a value without its unit or with another resource's, zero.
pub fn parse(text: &str) -> Result<(Resource, Ceiling), CeilingError> {
    let error = |problem: String| CeilingError { text: text.to_owned(), problem };
    let (name, value) = text.split_once('=').ok_or_else(|| error("'=' is missing".into()))?;
    let resource: Resource = name.parse().map_err(error)?;
    let value = match resource {
        Resource::Cpu | Resource::Player => percent(value.trim()).map_err(error)?,
        Resource::Disk | Resource::Network => {
            value.parse::<BitRate>().map_err(|e| error(e.without_example()))?.bit_per_s() as f64
        }
        Resource::Memory => value.parse::<ByteSize>().map_err(|e| error(e.without_example()))?.bytes() as f64,
        Resource::Workload(_) | Resource::None => {
            return Err(error(format!("'{resource}' has no ceiling")));
        }
    };
    if value <= 0.0 {
        return Err(error("it must be above zero".into()));
    }
    Ok((resource, Ceiling { value, source: GIVEN.to_owned() }))
}

/// A ceiling as the value of a setting.
pub fn setting(resource: Resource, ceiling: &Ceiling) -> Value {
    match resource {
        Resource::Disk | Resource::Network => json!(BitRate::from_bit_per_s(ceiling.value as u64)),
        Resource::Memory => json!(ByteSize::from_bytes(ceiling.value as u64)),
        Resource::Cpu | Resource::Player | Resource::Workload(_) | Resource::None => json!(ceiling.value),
    }
}

/// CPU time in % of one core, from `200%` or `2cores`.
fn percent(text: &str) -> Result<f64, String> {
    let units = [("%", 1.0), ("percent", 1.0), ("cores", 100.0), ("core", 100.0)];
    let found = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim(), factor)));
    let (number, factor) =
        found.ok_or_else(|| format!("'{text}' has neither '%' nor 'cores' as its unit"))?;
    let value: f64 = number.parse().map_err(|_| format!("'{number}' is not a number"))?;
    match value.is_finite() && value < 1e9 {
        true => Ok(value * factor),
        false => Err(format!("'{number}' is not a possible amount of CPU")),
    }
}
