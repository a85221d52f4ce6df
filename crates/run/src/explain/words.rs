//! Numbers and loads as a reader expects them in a sentence.

use base::format;
use base::outcome::Resource;

/// An amount of a resource with its unit, and what a percentage is of: "14.2 % of a core", "24.9 Mbit/s",
/// "2.61 MB".
pub fn amount(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu | Resource::Player => format!("{} of a core", figure(resource, value)),
        _ => figure(resource, value),
    }
}

/// The same where a sentence has said before what a percentage is of: "14.2 %".
pub fn figure(resource: Resource, value: f64) -> String {
    match resource {
        Resource::None => format::number(value),
        _ => format::quantity(Some(value), resource.unit()),
    }
}

/// What was used of a resource: "14.2 % of a core", "24.9 Mbit/s of disk".
pub fn cost(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu => amount(resource, value),
        Resource::Player => format!("{} of the measuring side", amount(resource, value)),
        _ => format!("{} of {}", amount(resource, value), subject(resource)),
    }
}

/// The same with its interval and the number of trials: "14.2 % of a core (95 % interval 13.7 to 14.7 %, 5
/// trials)".
pub fn cost_with_interval(resource: Resource, value: f64, interval: Option<[f64; 2]>, n: u32) -> String {
    let interval =
        interval.map(|ends| format!("95 % interval {}, ", format::range(Some(ends), resource.unit())));
    let trials = format::plural(n.into(), "trial");
    format!("{} ({}{trials})", cost(resource, value), interval.unwrap_or_default())
}

/// A resource as the subject of a sentence.
pub fn subject(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Disk => "disk",
        Resource::Network => "network",
        Resource::Memory => "memory",
        Resource::Workload(spec) => spec.label,
        Resource::Player => "the measuring side's CPU",
        Resource::None => "nothing",
    }
}

/// One unit of load: "stream" of "streams"; rates have no singular.
pub fn one(unit: &str) -> String {
    match unit {
        "" | "load" => "unit of load".to_owned(),
        _ if unit.contains('/') || unit.ends_with("ss") => unit.to_owned(),
        _ => unit.strip_suffix('s').unwrap_or(unit).to_owned(),
    }
}

/// A load with its unit: "1 stream", "5.5 streams".
pub fn load(value: f64, unit: &str) -> String {
    let is_whole = value.fract() == 0.0 || value.abs() >= 100.0;
    let figure = if is_whole { format::count(value) } else { format::fixed(value, 1) };
    match unit {
        _ if value == 1.0 => format!("{figure} {}", one(unit)),
        "" | "load" => format!("{figure} units of load"),
        _ => format!("{figure} {unit}"),
    }
}

/// "a", "a and b", "a, b and c".
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
