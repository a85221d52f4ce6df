//! Numbers and loads as a reader expects them in a sentence.

use base::outcome::Resource;

/// A number with about three digits that matter, without zeros at its end.
pub fn number(value: f64) -> String {
    let text = digits(value);
    match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e15 => format!("{value:.2e}"),
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.1 => format!("{value:.3}"),
        v if v >= 1e-4 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// The decimal prefix under which `value` has one to three digits before the point.
fn prefix(value: f64) -> (&'static str, f64) {
    let prefixes = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    prefixes.into_iter().find(|(_, factor)| value.abs() >= *factor).unwrap_or(("", 1.0))
}

/// An amount of a resource with its unit, and what a percentage is of: "14.2 % of a core", "24.9 Mbit/s", "2.61 MB".
pub fn amount(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu | Resource::Player => format!("{} of a core", figure(resource, value)),
        _ => figure(resource, value),
    }
}

/// The same where a sentence has said before what a percentage is of: "14.2 %".
pub fn figure(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu | Resource::Player => format!("{} %", number(value)),
        Resource::None => number(value),
        Resource::Disk
        | Resource::Network
        | Resource::Memory
        | Resource::Window
        | Resource::SendBuffer
        | Resource::Buffer => {
            let (prefix, factor) = prefix(value);
            format!("{} {prefix}{}", number(value / factor), resource.unit())
        }
    }
}

/// What was used of a resource: "14.2 % of a core", "24.9 Mbit/s of disk".
pub fn cost(resource: Resource, value: f64) -> String {
    match resource {
        Resource::Cpu => amount(resource, value),
        Resource::Player => format!("{} of a player's core", figure(resource, value)),
        _ => format!("{} of {}", amount(resource, value), subject(resource)),
    }
}

/// Both ends of an interval in the unit of the larger: "13.6..14.9 %".
pub fn range(resource: Resource, [low, high]: [f64; 2]) -> String {
    match resource {
        Resource::Cpu | Resource::Player => format!("{}..{} %", number(low), number(high)),
        Resource::None => format!("{}..{}", number(low), number(high)),
        Resource::Disk
        | Resource::Network
        | Resource::Memory
        | Resource::Window
        | Resource::SendBuffer
        | Resource::Buffer => {
            let (prefix, factor) = prefix(low.abs().max(high.abs()));
            format!("{}..{} {prefix}{}", number(low / factor), number(high / factor), resource.unit())
        }
    }
}

/// A resource as the subject of a sentence.
pub fn subject(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Disk => "disk",
        Resource::Network => "network",
        Resource::Memory => "memory",
        Resource::Window => "the receiver's window",
        Resource::SendBuffer => "the sender's buffer",
        Resource::Buffer => "the buffer of the port",
        Resource::Player => "the players' CPU",
        Resource::None => "nothing",
    }
}

/// `text` with its first letter in upper case.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
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
    let figure = match value.abs() {
        v if v >= 1e15 => format!("{value:.2e}"),
        _ if is_whole => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    };
    match unit {
        _ if value == 1.0 => format!("{figure} {}", one(unit)),
        "" | "load" => format!("{figure} units of load"),
        _ => format!("{figure} {unit}"),
    }
}

/// A load as the subject of what happened to it: "1 stream was", "5 streams were".
pub fn were(value: f64, unit: &str) -> String {
    format!("{} {}", load(value, unit), if value == 1.0 { "was" } else { "were" })
}

/// A count with its noun: "1 trial", "3 trials".
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// "a", "a and b", "a, b and c".
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
