//! Figures that a workload gave as data, drawn.

use std::borrow::Cow;

use base::outcome::{Axis as Quantity, Figure as Data, Layer, Marks, Tone};
use maud::{Markup, html};

use crate::chart::{Axis, Figure, Frame, Legend, Mark, Panel, Reading, Shape, Tick, ticks};
use crate::text::{plain, separated, unbroken};
use crate::timeline;
use base::format::{Scale, capitalized, number, quantity};

/// Colours of cells from the least to the greatest value.
const HEAT: [&str; 7] = ["heat1", "heat2", "heat3", "heat4", "heat5", "heat6", "heat7"];
/// From this ratio of greatest to least, colours part ratios evenly instead of differences.
const WIDE_RATIO: f64 = 20.0;
/// Decades that a logarithmic axis has at most: what is less is drawn at its beginning.
const DECADES_MAX: f64 = 12.0;

/// All of them, two beside each other where there is room; `id` is theirs alone within the page. Below them,
/// those that are timelines.
pub(super) fn all(figures: &[Data], id: &str) -> Markup {
    let (mut charts, mut timelines) = (Vec::new(), Vec::new());
    for (at, figure) in figures.iter().enumerate() {
        match timeline::of_figure(figure) {
            Some(timeline) => timelines.push((figure, timeline)),
            None => charts.push((figure, drawn(figure, &format!("{id}-{at}")).svg())),
        }
    }
    let each = |(figure, drawn): &(&Data, Markup)| {
        html! { figure {
            figcaption {
                strong { (capitalized(&plain(&figure.title))) } " " (unbroken(&plain(&figure.note)))
            }
            (drawn)
        } }
    };
    html! {
        @if !charts.is_empty() { div.pair { @for chart in &charts { (each(chart)) } } }
        @for timeline in &timelines { (each(timeline)) }
    }
}

fn drawn(data: &Data, id: &str) -> Figure {
    let (x, y) = (Way::new(&data.x, data, 0), Way::new(&data.y, data, 1));
    let place = |at: [f64; 2]| Some((x.at(at[0])?, y.at(at[1])?));
    let mut marks: Vec<Mark> = data.layers.iter().flat_map(|layer| marks(layer, &x, &y, &place)).collect();
    // A label at the top of the panel must not be drawn over.
    marks.sort_by_key(|mark| matches!(mark, Mark::Rule { .. } | Mark::Drop { .. }));
    Figure {
        id: id.to_owned(),
        width: 460.0,
        height: 282.0,
        title: plain(&data.title),
        description: plain(&data.note),
        panels: vec![Panel {
            frame: Frame { left: 52.0, top: 48.0, width: 396.0, height: 190.0 },
            x: x.axis(6, false),
            y: y.axis(4, true),
            x_labels: true,
            backdrop: Vec::new(),
            marks,
        }],
        legend: data.layers.iter().flat_map(legend).collect(),
    }
}

/// One direction of a figure: what is logarithmic is drawn by its logarithm.
struct Way<'a> {
    quantity: &'a Quantity,
    low: f64,
    high: f64,
    is_given: bool,
}

impl<'a> Way<'a> {
    fn new(quantity: &'a Quantity, data: &Data, direction: usize) -> Self {
        let apt = |value: &f64| value.is_finite() && (!quantity.is_log || *value > 0.0);
        let values = || data.layers.iter().flat_map(|layer| extent(&layer.marks, direction)).filter(apt);
        let given = |end: Option<f64>| end.filter(|end| apt(end));
        let most = given(quantity.to).or_else(|| values().max_by(f64::total_cmp)).unwrap_or(1.0);
        let least = given(quantity.from).or_else(|| {
            let least = values().min_by(f64::total_cmp);
            if quantity.is_log { least } else { Some(least.unwrap_or(0.0).min(0.0)) }
        });
        let mut way = Self { quantity, low: 0.0, high: 1.0, is_given: quantity.to.is_some() };
        let (low, high) = (way.at(least.unwrap_or(most)), way.at(most));
        if let (Some(low), Some(high)) = (low, high) {
            let low = if quantity.is_log { low.max(high - DECADES_MAX) } else { low };
            (way.low, way.high) = if low < high { (low, high) } else { (low.min(high), low.min(high) + 1.0) };
        }
        way
    }

    /// Where a value lies; a logarithmic way has no place for zero.
    fn at(&self, value: f64) -> Option<f64> {
        match self.quantity.is_log {
            true => (value > 0.0).then(|| value.log10()),
            false => Some(value),
        }
        .filter(|value| value.is_finite())
    }

    /// Its axis with about `count` ticks, `rounded` to end at a tick unless its end is given.
    fn axis(&self, count: usize, rounded: bool) -> Axis {
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
        axis.grid = rounded;
        axis
    }

    /// Ticks at powers of ten, and between them where there are few.
    fn log_axis(&self, name: &str, unit: &str, count: usize) -> Axis {
        let Self { low, high, .. } = *self;
        let scale = Scale::for_largest(unit, 10f64.powf(high));
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let decades = usize::try_from(last - first).unwrap_or(1).max(1);
        let between: &[f64] = if high - low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let at = (first..=last)
            .step_by(decades.div_ceil(count.max(1)))
            .flat_map(|power| between.iter().map(move |digit| digit * 10f64.powi(power)));
        let tick = |value: f64| Tick { at: value.log10(), label: small(value / scale.factor) };
        let within = |tick: &Tick| (low - 1e-9..=high + 1e-9).contains(&tick.at);
        let title = if scale.unit.is_empty() { name.to_owned() } else { format!("{name} ({})", scale.unit) };
        Axis {
            title,
            domain: [low, high],
            ticks: at.map(tick).filter(within).collect(),
            grid: true,
            reading: Some(Reading { factor: scale.factor, is_log: true }),
        }
    }
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

fn marks(layer: &Layer, x: &Way, y: &Way, place: &impl Fn([f64; 2]) -> Option<(f64, f64)>) -> Vec<Mark> {
    let of = classes(layer.tone);
    let way = |at: &[(f64, Option<f64>)]| {
        at.iter().filter_map(|&(at, value)| Some((x.at(at)?, value.and_then(|value| y.at(value))))).collect()
    };
    let mark = match &layer.marks {
        Marks::Points { at } => {
            Mark::Dots { at: at.iter().filter_map(|&at| place(at)).collect(), class: of.dot }
        }
        Marks::Line { at } => Mark::Line { points: way(at), class: of.line },
        Marks::Steps { at } => Mark::Step { points: way(at), class: of.line },
        Marks::Band { at } => {
            let edge =
                |&[at, low, high]: &[f64; 3]| Some((x.at(at)?, y.at(low).unwrap_or(y.low), y.at(high)?));
            Mark::Area { at: at.iter().filter_map(edge).collect(), class: of.area }
        }
        Marks::Bars { at, width } => {
            let bar = |&[at, value]: &[f64; 2]| {
                let (left, right) = (x.at(at - width / 2.0)?, x.at(at + width / 2.0)?);
                Some([(left, y.at(0.0).unwrap_or(y.low)), (right, y.at(value)?)])
            };
            Mark::Boxes { at: at.iter().filter_map(bar).collect(), class: of.fill }
        }
        Marks::Spans { at } => {
            let span = |&[row, from, to]: &[f64; 3]| Some([place([from, row])?, place([to, row])?]);
            Mark::Strokes { at: at.iter().filter_map(span).collect(), class: of.span }
        }
        Marks::Cells { across, upward, columns, .. } => return cells(*across, *upward, columns, place),
        Marks::Across { y: at, label } => match y.at(*at) {
            Some(y) => Mark::Rule { y, class: "meets", label: plain(label) },
            None => return Vec::new(),
        },
        Marks::Down { x: at, label } => match x.at(*at) {
            Some(x) => Mark::Drop { x, class: "meets", label: plain(label) },
            None => return Vec::new(),
        },
    };
    vec![mark]
}

fn cells(
    across: [f64; 2],
    upward: [f64; 2],
    columns: &[Vec<Option<f64>>],
    place: &impl Fn([f64; 2]) -> Option<(f64, f64)>,
) -> Vec<Mark> {
    let heat = Heat::of(columns);
    let wide = (across[1] - across[0]) / columns.len().max(1) as f64;
    let mut boxes: [Vec<[(f64, f64); 2]>; HEAT.len()] = Default::default();
    for (column, values) in columns.iter().enumerate() {
        let high = (upward[1] - upward[0]) / values.len().max(1) as f64;
        for (row, value) in values.iter().enumerate() {
            let corner = |column: usize, row: usize| {
                place([across[0] + wide * column as f64, upward[0] + high * row as f64])
            };
            let ends = corner(column, row).zip(corner(column + 1, row + 1));
            if let (Some(value), Some((from, to))) = (value.filter(|value| value.is_finite()), ends) {
                boxes[heat.colour(value)].push([from, to]);
            }
        }
    }
    let coloured = boxes.into_iter().zip(HEAT).filter(|(at, _)| !at.is_empty());
    coloured.map(|(at, class)| Mark::Boxes { at, class }).collect()
}

struct Heat {
    least: f64,
    greatest: f64,
    by_ratio: bool,
}

impl Heat {
    fn of(columns: &[Vec<Option<f64>>]) -> Self {
        let known = || columns.iter().flatten().flatten().copied().filter(|value| value.is_finite());
        let least = known().min_by(f64::total_cmp).unwrap_or(0.0);
        let greatest = known().max_by(f64::total_cmp).unwrap_or(0.0);
        Self { least, greatest, by_ratio: least > 0.0 && greatest / least > WIDE_RATIO }
    }

    fn colour(&self, value: f64) -> usize {
        let Self { least, greatest, by_ratio } = *self;
        let share = match by_ratio {
            true => (value / least).ln() / (greatest / least).ln(),
            false => (value - least) / (greatest - least).max(f64::MIN_POSITIVE),
        };
        ((share * HEAT.len() as f64) as usize).min(HEAT.len() - 1)
    }

    fn from(&self, colour: usize) -> f64 {
        let share = colour as f64 / HEAT.len() as f64;
        match self.by_ratio {
            true => self.least * (self.greatest / self.least).powf(share),
            false => self.least + (self.greatest - self.least) * share,
        }
    }
}

fn legend(layer: &Layer) -> Vec<Legend> {
    if let Marks::Cells { columns, quantity: of, unit, .. } = &layer.marks {
        let heat = Heat::of(columns);
        let text = |colour| quantity(Some(heat.from(colour)), unit);
        let entry = |(colour, class): (usize, &'static str)| Legend {
            class,
            shape: None,
            text: match colour {
                0 => format!("{} from {}", plain(of), text(0)).into(),
                _ => text(colour).into(),
            },
        };
        return HEAT.into_iter().enumerate().step_by(2).map(entry).collect();
    }
    if layer.name.is_empty() {
        return Vec::new();
    }
    let of = classes(layer.tone);
    let (class, shape) = match &layer.marks {
        Marks::Points { .. } => (of.fill, Some(Shape::Circle)),
        Marks::Band { .. } | Marks::Bars { .. } => (of.area, None),
        _ => (of.line, None),
    };
    vec![Legend { class, shape, text: Cow::Owned(plain(&layer.name)) }]
}

/// The class names of a tone.
struct Classes {
    line: &'static str,
    dot: &'static str,
    span: &'static str,
    fill: &'static str,
    area: &'static str,
}

const fn classes(tone: Tone) -> Classes {
    macro_rules! of {
        ($n:literal) => {
            Classes {
                line: concat!("s", $n),
                dot: concat!("dot s", $n),
                span: concat!("span s", $n),
                fill: concat!("f", $n),
                area: concat!("area f", $n),
            }
        };
    }
    match tone {
        Tone::First => of!("1"),
        Tone::Second => of!("2"),
        Tone::Third => of!("3"),
        Tone::Fourth => of!("4"),
        Tone::Fifth => of!("5"),
        Tone::Sixth => of!("6"),
        Tone::Soft => of!("0"),
    }
}
