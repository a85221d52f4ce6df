//! One direction of a figure, and its axis.

use base::format::{Scale, capitalized, number, quantity};
use base::outcome::{Axis as Quantity, Figure as Data, Marks};

use crate::chart::{Axis, Reading, Tick, ticks};
use crate::text::{plain, separated};

/// Decades that a logarithmic axis has at most: what is less is drawn at its beginning.
const DECADES_MAX: f64 = 12.0;

/// One direction of a figure: what is logarithmic is drawn by its logarithm.
pub(super) struct Way<'a> {
    quantity: &'a Quantity,
    pub(super) low: f64,
    high: f64,
    is_given: bool,
    /// Whether all values are whole numbers without a unit.
    is_count: bool,
}

impl<'a> Way<'a> {
    pub(super) fn new(quantity: &'a Quantity, data: &Data, direction: usize) -> Self {
        let apt = |value: &f64| value.is_finite() && (!quantity.is_log || *value > 0.0);
        let values = || data.layers.iter().flat_map(|layer| extent(&layer.marks, direction)).filter(apt);
        let given = |end: Option<f64>| end.filter(|end| apt(end));
        let most = given(quantity.to).or_else(|| values().max_by(f64::total_cmp)).unwrap_or(1.0);
        let least = given(quantity.from).or_else(|| {
            let least = values().min_by(f64::total_cmp);
            if quantity.is_log { least } else { Some(least.unwrap_or(0.0).min(0.0)) }
        });
        let is_count = quantity.unit.is_empty() && values().all(|value| value.fract() == 0.0);
        let mut way = Self { quantity, low: 0.0, high: 1.0, is_given: quantity.to.is_some(), is_count };
        let (low, high) = (way.at(least.unwrap_or(most)), way.at(most));
        if let (Some(low), Some(high)) = (low, high) {
            let low = if quantity.is_log { low.max(high - DECADES_MAX) } else { low };
            (way.low, way.high) = if low < high { (low, high) } else { (low.min(high), low.min(high) + 1.0) };
            // What is least and what is greatest does not lie on the panel's edges.
            if quantity.is_log && direction == 1 && !way.is_given {
                let room = (way.high - way.low) * 0.04;
                (way.low, way.high) = (way.low - room, way.high + room);
            }
        }
        way
    }

    /// Where a value lies; a logarithmic way has no place for zero.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        match self.quantity.is_log {
            true => (value > 0.0).then(|| value.log10()),
            false => Some(value),
        }
        .filter(|value| value.is_finite())
    }

    /// Its axis with about `count` ticks, `rounded` to end at a tick unless its end is given.
    pub(super) fn axis(&self, count: usize, rounded: bool) -> Axis {
        let Self { quantity, low, high, .. } = *self;
        let (name, unit) = (capitalized(&plain(&quantity.quantity)), plain(&quantity.unit));
        if quantity.is_log {
            return self.log_axis(&name, &unit, count);
        }
        let mut axis = Axis::amount(&name, &unit, low, high, count);
        if !rounded || self.is_given || low > 0.0 {
            if low > 0.0 {
                let scale = Scale::for_largest(&unit, high);
                let at = ticks(low / scale.factor, high / scale.factor, count);
                let tick = |v: f64| Tick { at: v * scale.factor, label: separated(&number(v)) };
                axis.ticks = at.into_iter().map(tick).collect();
            }
            axis.ticks.retain(|tick| (low..=high).contains(&tick.at));
            axis.domain = [low, high];
        }
        if self.is_count {
            axis.ticks.retain(|tick| tick.at.fract() == 0.0);
        }
        axis.grid = rounded;
        axis
    }

    /// Ticks at powers of ten, and between them where there are few. If they differ in the prefix of their
    /// unit, each has its own.
    fn log_axis(&self, name: &str, unit: &str, count: usize) -> Axis {
        let Self { low, high, .. } = *self;
        let scale = Scale::for_largest(unit, 10f64.powf(high));
        let is_one_prefix = Scale::for_largest(unit, 10f64.powf(low)).unit == scale.unit;
        let label = |value: f64| match is_one_prefix {
            true => small(value / scale.factor),
            false => quantity(Some(value), unit),
        };
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let decades = usize::try_from(last - first).unwrap_or(1).max(1);
        let between: &[f64] = if high - low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let at = (first..=last)
            .step_by(decades.div_ceil(count.max(1)))
            .flat_map(|power| between.iter().filter_map(move |digit| power_of_ten(*digit, power)));
        let tick = |value: f64| Tick { at: value.log10(), label: label(value) };
        let within = |tick: &Tick| (low - 1e-9..=high + 1e-9).contains(&tick.at);
        let has_unit = is_one_prefix && !scale.unit.is_empty();
        let title = if has_unit { format!("{name} ({})", scale.unit) } else { name.to_owned() };
        Axis {
            title,
            domain: [low, high],
            ticks: at.map(tick).filter(within).collect(),
            grid: true,
            reading: Some(Reading { unit: unit.to_owned(), is_log: true }),
        }
    }
}

/// Read as text, it is exact, and keeps its prefix.
fn power_of_ten(digit: f64, power: i32) -> Option<f64> {
    format!("{digit}e{power}").parse().ok()
}

/// A number on a logarithmic axis, which may be far less than any that stands in a table.
fn small(value: f64) -> String {
    if value >= 0.001 { separated(&number(value)) } else { format!("{value:e}") }
}

/// All values of marks in one direction: 0 along x, 1 along y.
fn extent(marks: &Marks, direction: usize) -> Vec<f64> {
    let way = |at: &[(f64, Option<f64>)]| match direction {
        0 => at.iter().map(|point| point.0).collect(),
        _ => at.iter().filter_map(|point| point.1).collect(),
    };
    match marks {
        Marks::Points { at } => at.iter().map(|point| point[direction]).collect(),
        Marks::Line { at } | Marks::Steps { at } => way(at),
        Marks::Band { at } if direction == 0 => at.iter().map(|row| row[0]).collect(),
        Marks::Band { at } => at.iter().flat_map(|row| [row[1], row[2]]).collect(),
        Marks::Bars { at, width } if direction == 0 => {
            at.iter().flat_map(|bar| [bar[0] - width / 2.0, bar[0] + width / 2.0]).collect()
        }
        Marks::Bars { at, .. } => at.iter().map(|bar| bar[1]).collect(),
        Marks::Spans { at } if direction == 0 => at.iter().flat_map(|span| [span[1], span[2]]).collect(),
        Marks::Spans { at } => at.iter().map(|span| span[0]).collect(),
        Marks::Cells { across, upward, .. } => if direction == 0 { across } else { upward }.to_vec(),
        Marks::Across { y, .. } if direction == 1 => vec![*y],
        Marks::Down { x, .. } if direction == 0 => vec![*x],
        Marks::Across { .. } | Marks::Down { .. } => Vec::new(),
    }
}
