//! Axes: a domain, its ticks and what they are called.

use super::scale::{Linear, px, ticks};
use crate::text::separated;
use base::format::{Scale, number};

/// A last tick beyond this multiple of the greatest value leaves too much of a panel empty.
const FAR_ABOVE: f64 = 1.3;

#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Where, in the axis's values.
    pub at: f64,
    pub label: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub title: String,
    /// The values at its two ends.
    pub domain: [f64; 2],
    /// Its ticks, within the domain.
    pub ticks: Vec<Tick>,
    /// Whether a faint line runs through the panel at every tick.
    pub grid: bool,
    /// How the page's script reads a number off it; `None`: its places are no numbers.
    pub reading: Option<Reading>,
}

/// From a place on an axis to a number with its unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// The unit of the axis's values, without a prefix; may be empty.
    pub unit: String,
    /// Whether places are logarithms to base 10 of the values.
    pub is_log: bool,
}

impl Axis {
    /// An axis from zero (or below, if values are) to a round value at or above `high`, in the unit's prefix.
    pub fn amount(name: &str, unit: &str, low: f64, high: f64, count: usize) -> Self {
        let scale = Scale::for_largest(unit, high);
        let at = ticks((low / scale.factor).min(0.0), high / scale.factor, count);
        let title = if scale.unit.is_empty() { name.to_owned() } else { format!("{name} ({})", scale.unit) };
        let axis = Self::through(
            title,
            at.into_iter().map(|v| Tick { at: v * scale.factor, label: separated(&number(v)) }).collect(),
        );
        Self { reading: Some(Reading { unit: unit.to_owned(), is_log: false }), ..axis }
    }

    /// An axis of whole numbers from `low` to `high`, both within, at most about `count` of them labelled.
    pub fn whole(title: &str, low: f64, high: f64, count: usize) -> Self {
        let at = ticks(low, high.max(low + 1.0), count);
        let mut whole: Vec<_> = at.into_iter().filter(|v| v.fract() == 0.0).collect();
        if whole.len() < 2 {
            whole = vec![low.floor(), high.ceil().max(low.floor() + 1.0)];
        }
        let labelled = whole.into_iter().map(|v| Tick { at: v, label: separated(&number(v)) });
        Self::through(title.to_owned(), labelled.collect())
    }

    /// Names at 0, 1, 2 and so on, from the top when used as y.
    pub fn names(names: &[String]) -> Self {
        let ticks = names.iter().enumerate().map(|(i, name)| Tick { at: i as f64, label: name.clone() });
        Self {
            title: String::new(),
            domain: [names.len() as f64 - 0.5, -0.5],
            ticks: ticks.collect(),
            grid: false,
            reading: None,
        }
    }

    /// An axis that ends at the greatest value, `high`, where its last tick is far above it.
    #[must_use]
    pub fn cut(mut self, high: f64) -> Self {
        let [low, last] = self.domain;
        let end = low + (high - low) * 1.06;
        if high > low && last > low + (high - low) * FAR_ABOVE && self.ticks.len() > 2 {
            self.ticks.retain(|tick| tick.at <= end);
            self.domain[1] = end;
        }
        self
    }

    /// The axis with some room above the greatest value, so that neither a point nor a label is at its end.
    #[must_use]
    pub fn with_room_above(mut self, high: f64) -> Self {
        let [low, end] = self.domain;
        self.domain[1] = end.max(high + (high - low) * 0.12);
        self
    }

    /// What the page's script needs to read it: its two ends in pixels and in values, 1 if the values are
    /// logarithms, and the unit. Without a reading, only the pixels.
    pub(super) fn read(&self, line: &Linear) -> String {
        let [from, to] = line.range.map(px);
        match &self.reading {
            Some(Reading { unit, is_log }) => {
                let [low, high] = line.domain;
                format!("{from} {to} {low} {high} {} {unit}", u8::from(*is_log))
            }
            None => format!("{from} {to}"),
        }
    }

    /// An axis that ends at its outermost ticks.
    fn through(title: String, ticks: Vec<Tick>) -> Self {
        let ends = [ticks.first(), ticks.last()].map(|tick| tick.map(|tick| tick.at));
        let domain = [ends[0].unwrap_or(0.0), ends[1].unwrap_or(1.0)];
        Self { title, domain, ticks, grid: true, reading: Some(Reading::default()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_uses_prefix_of_its_largest_value() {
        let axis = Axis::amount("network", "bit/s", 0.0, 133e6, 3);
        let labels: Vec<_> = axis.ticks.iter().map(|tick| tick.label.as_str()).collect();
        assert_eq!((axis.title.as_str(), labels), ("network (Mbit/s)", vec!["0", "50", "100", "150"]));
        assert_eq!(axis.domain, [0.0, 150e6]);
    }

    #[test]
    fn axis_is_cut_where_its_last_tick_is_far_above_the_values() {
        let of = |high| {
            let axis = Axis::amount("CPU", "%", 0.0, high, 2).cut(high);
            (axis.domain[1].round(), axis.ticks.len())
        };
        assert_eq!([201.0, 190.0].map(of), [(213.0, 2), (200.0, 3)]);
        assert_eq!(Axis::amount("CPU", "%", 0.0, 0.0, 2).cut(0.0).domain[1], 1.0);
    }

    #[test]
    fn loads_are_labelled_with_whole_numbers_only() {
        let axis = Axis::whole("streams", 0.0, 2.0, 6);
        assert!(axis.ticks.iter().all(|tick| !tick.label.contains('.')), "{:?}", axis.ticks);
    }
}
