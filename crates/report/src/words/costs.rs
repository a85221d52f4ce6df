//! What a unit of load costs, and where a resource is used up.

use base::format::{self, UNKNOWN, number, quantity};
use base::outcome::Saturation;

use crate::text::plain;

/// What a unit of load costs of a resource. A slope that may as well be zero, or falls, is not a cost: its
/// digits are noise. Two loads show no slope, so a cost without an interval is unknown.
pub fn cost(saturation: &Saturation) -> String {
    match saturation.cost_interval {
        _ if costs_nothing(saturation) => "no measurable cost".to_owned(),
        None => UNKNOWN.to_owned(),
        Some(_) => quantity(Some(saturation.cost_per_load), &plain(&saturation.unit)),
    }
}

fn costs_nothing(saturation: &Saturation) -> bool {
    saturation.cost_per_load <= 0.0 || saturation.cost_interval.is_some_and(|[low, _]| low <= 0.0)
}

/// The load at which a resource is used up; a dash where it is not known, or where a unit of load costs
/// nothing of it.
pub fn saturates_at(saturation: &Saturation) -> String {
    let known = saturation.saturates_at.filter(|_| saturation.cost_interval.is_some());
    known.filter(|_| !costs_nothing(saturation)).map_or(UNKNOWN.to_owned(), number)
}

pub fn saturates_within(saturation: &Saturation) -> String {
    format::range(saturation.saturates_interval.filter(|_| !costs_nothing(saturation)), "")
}

/// What is used at no load. A fitted line may begin below zero, which no usage can.
pub fn at_no_load(saturation: &Saturation) -> String {
    match saturation.usage_at_zero {
        negative if negative < 0.0 => "about 0".to_owned(),
        usage => quantity(Some(usage), &saturation.unit),
    }
}
