//! Figures that a workload gave as data, drawn.

mod units;
mod way;

use std::borrow::Cow;

use base::outcome::{Figure as Data, Layer, Marks, Tone};
use maud::{Markup, html};

use crate::chart::{Axis, Figure, Frame, Legend, Mark, Panel, Shape, Tick, wide};
use crate::text::{plain, unbroken};
use crate::timeline;
use base::format::{capitalized, quantity};
use way::Way;

/// Colours of cells from the least to the greatest value.
const HEAT: [&str; 7] = ["heat1", "heat2", "heat3", "heat4", "heat5", "heat6", "heat7"];
/// From this ratio of greatest to least, colours part ratios evenly instead of differences.
const WIDE_RATIO: f64 = 20.0;
/// More lines than this could not be distinguished by their colours.
const LINES_MAX: usize = 6;
/// Space for the labels of a vertical axis, at least.
const LEFT_PX: f64 = 52.0;
const WIDTH_PX: f64 = 460.0;

/// All but timelines, two beside each other where there is room; `id` is theirs alone within the page.
pub(super) fn all(figures: &[Data], id: &str) -> Markup {
    swept(figures, id, &[])
}

/// The same, with these ticks on the horizontal axis.
pub(super) fn swept(figures: &[Data], id: &str, ticks: &[Tick]) -> Markup {
    let is_chart = |(_, figure): &(usize, &Data)| timeline::of_figure(figure, true).is_none();
    let charts: Vec<_> = figures.iter().enumerate().filter(is_chart).collect();
    html! {
        @if !charts.is_empty() { div.pair { @for (place, (at, figure)) in charts.iter().enumerate() {
            // What is the same of all stands at the first.
            @let is_known = place > 0 && charts[place - 1].1.note == figure.note;
            (captioned(figure, !is_known, &drawn(figure, &format!("{id}-{at}"), ticks).svg()))
        } } }
    }
}

/// Those that are timelines, one below the other; how to use them stands at the first.
pub(super) fn timelines(figures: &[Data]) -> Option<Markup> {
    let is_timeline = |figure: &&Data| timeline::of_figure(figure, true).is_some();
    let all: Vec<&Data> = figures.iter().filter(is_timeline).collect();
    let drawn =
        |(at, figure): (usize, &&Data)| Some(captioned(figure, true, &timeline::of_figure(figure, at == 0)?));
    (!all.is_empty()).then(|| html! { @for one in all.iter().enumerate().filter_map(drawn) { (one) } })
}

fn captioned(figure: &Data, has_note: bool, drawn: &Markup) -> Markup {
    html! { figure {
        figcaption {
            strong { (capitalized(&plain(&figure.title))) }
            @if has_note { " " (unbroken(&plain(&figure.note))) }
        }
        (drawn)
    } }
}

fn drawn(data: &Data, id: &str, ticks: &[Tick]) -> Figure {
    let data = units::in_base_units(data);
    let (x, y) = (Way::new(&data.x, &data, 0), Way::new(&data.y, &data, 1));
    let place = |at: [f64; 2]| Some((x.at(at[0])?, y.at(at[1])?));
    let are_many = data.layers.iter().filter(|layer| is_named_line(layer)).count() > LINES_MAX;
    let mut marks: Vec<Mark> =
        data.layers.iter().flat_map(|layer| marks(layer, &x, &y, &place, are_many)).collect();
    // A label at the top of the panel must not be drawn over.
    marks.sort_by_key(|mark| matches!(mark, Mark::Rule { .. } | Mark::Drop { .. }));
    let (mut across, upward) = (x.axis(6, false), y.axis(4, true));
    let widest = upward.ticks.iter().map(|tick| wide(&tick.label)).fold(0.0, f64::max);
    let left = LEFT_PX.max(widest + 12.0);
    let width = WIDTH_PX - 12.0 - left;
    if !ticks.is_empty() {
        across.ticks = apart(ticks.iter().filter_map(|tick| Some((x.at(tick.at)?, tick))), &across, width);
    }
    let is_labelled = marks.iter().any(|mark| matches!(mark, Mark::Drop { label, .. } if !label.is_empty()));
    let top = if is_labelled { 44.0 } else { 26.0 };
    Figure {
        id: id.to_owned(),
        width: WIDTH_PX,
        height: top + 190.0 + 40.0,
        title: plain(&data.title),
        description: plain(&data.note),
        panels: vec![Panel {
            frame: Frame { left, top, width, height: 190.0 },
            x: across,
            y: upward,
            x_labels: true,
            backdrop: Vec::new(),
            marks,
        }],
        legend: if are_many {
            legend_of_many(&data.layers)
        } else {
            data.layers.iter().flat_map(legend).collect()
        },
    }
}

/// The ticks, each with its place on an axis of this width, whose labels do not meet that of the one before.
fn apart<'a>(ticks: impl Iterator<Item = (f64, &'a Tick)>, axis: &Axis, width: f64) -> Vec<Tick> {
    let [low, high] = axis.domain;
    let mut end = f64::NEG_INFINITY;
    let has_room = |(at, tick): &(f64, &Tick)| {
        let (middle, half) = ((at - low) / (high - low) * width, wide(&tick.label) / 2.0);
        let is_free = middle - half > end;
        if is_free {
            end = middle + half + 4.0;
        }
        is_free
    };
    ticks.filter(has_room).map(|(at, tick)| Tick { at, label: tick.label.clone() }).collect()
}

const fn is_named_line(layer: &Layer) -> bool {
    matches!(layer.marks, Marks::Line { .. } | Marks::Steps { .. }) && !layer.name.is_empty()
}

fn marks(
    layer: &Layer,
    x: &Way,
    y: &Way,
    place: &impl Fn([f64; 2]) -> Option<(f64, f64)>,
    are_many: bool,
) -> Vec<Mark> {
    let mut of = classes(layer.tone);
    if are_many && is_named_line(layer) {
        of.line = MANY;
    }
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

/// Class names of a line among many.
const MANY: &str = "s1 many";

/// One entry for all lines: `50 lines: messages 1 to messages 50`.
fn legend_of_many(layers: &[Layer]) -> Vec<Legend> {
    let names: Vec<String> =
        layers.iter().filter(|layer| is_named_line(layer)).map(|layer| plain(&layer.name)).collect();
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return Vec::new() };
    let text = format!("{} lines: {first} to {last}", names.len());
    let others = layers.iter().filter(|layer| !is_named_line(layer)).flat_map(legend);
    std::iter::once(Legend { class: MANY, shape: None, text: text.into() }).chain(others).collect()
}

fn legend(layer: &Layer) -> Vec<Legend> {
    if let Marks::Cells { columns, quantity: of, unit, .. } = &layer.marks {
        let heat = Heat::of(columns);
        let text = |colour| quantity(Some(heat.from(colour)), &plain(unit));
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
