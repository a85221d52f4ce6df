//! Variants beside each other, a bar for each.

use base::outcome::{LoadMetric, Run, VariantOutcome};
use base::statistics::median;

use crate::chart::{Axis, Figure, Frame, Mark, Panel, Screen, Shape};
use crate::findings::{self, Row};
use crate::text::clipped;
use crate::words;
use base::format::{capitalized, number, quantity, unit_of};

/// Up to this multiple of the longest bar, ceilings are on the scale of the bars.
const CEILING_NEAR: f64 = 1.6;

/// A variant beside others.
struct Bar {
    name: String,
    value: Option<f64>,
    /// Within which it lies; `None` at the upper end for "this or more".
    ends: [Option<f64>; 2],
    repetitions: Vec<f64>,
    /// The most there can be, where it is known.
    ceiling: Option<f64>,
    /// The value as it stands beside the bar.
    text: String,
    /// What the bar says when pointed at.
    label: String,
}

/// Up to this load, predictions are on the scale of the bars of capacity.
fn near_max(run: &Run) -> f64 {
    let ends = run.variants.iter().flat_map(|v| [v.capacity.value, v.capacity.interval[1]]).flatten();
    ends.filter(|end| end.is_finite()).fold(1.0, f64::max) * CEILING_NEAR
}

/// Whether a prediction is drawn among the bars of capacity.
pub(super) fn shows_prediction(run: &Run) -> bool {
    let most = near_max(run);
    run.variants.iter().filter_map(|variant| variant.predicted).any(|load| load <= most)
}

/// Bars of capacity with their intervals.
pub(super) fn comparison(run: &Run, screen: Screen) -> Figure {
    let unit = &run.capacity.unit;
    let near_max = near_max(run);
    let near = |load: &f64| *load <= near_max;
    let predicted = run.variants.iter().filter_map(|variant| variant.predicted.filter(near));
    let most = predicted.fold(near_max / CEILING_NEAR, f64::max);
    let x = if unit.contains('/') {
        Axis::amount("capacity", unit, 0.0, most, screen.pick(6, 4))
    } else {
        Axis::whole(unit, 0.0, most, screen.pick(8, 6))
    };
    let bar = |variant: &VariantOutcome| {
        let value = variant.capacity.value;
        let open = if variant.capacity.interval[1].is_none() { " or more" } else { "" };
        Bar {
            name: variant.name.clone(),
            value,
            ends: variant.capacity.interval,
            repetitions: variant.repetitions.iter().filter_map(|r| r.value).collect(),
            ceiling: variant.predicted.filter(near),
            text: format!(
                "{}{open} (n = {}){}",
                value.map_or_else(String::new, number),
                variant.repetitions.len(),
                match variant.predicted.is_some_and(|load| !near(&load)) {
                    true => format!(" \u{2192} predicted {}", words::predicted(variant)),
                    false => String::new(),
                }
            ),
            label: format!("{}: {}", variant.name, words::interval(&variant.capacity)),
        }
    };
    bars(run, "Capacity of every variant", x, &run.variants.iter().map(bar).collect::<Vec<_>>(), screen)
}

/// Bars of what came of one load, with the spread of the repetitions.
pub(super) fn found(run: &Run, row: &Row, id: &str, screen: Screen) -> Figure {
    let (unit, factor) = unit_of(row.metric);
    let bar = |(variant, found): (&VariantOutcome, &Option<&LoadMetric>)| {
        let values: Vec<f64> =
            found.iter().flat_map(|found| &found.values).map(|value| value * factor).collect();
        let text = found.map(|found| format!("{} (n = {})", findings::median(found), values.len()));
        Bar {
            name: variant.name.clone(),
            value: median(&values),
            ends: found
                .and_then(LoadMetric::spread)
                .map_or([None; 2], |ends| ends.map(|end| Some(end * factor))),
            label: format!("{}: {}", variant.name, found.map(findings::sureness).unwrap_or_default()),
            text: text.unwrap_or_default(),
            repetitions: values,
            ceiling: findings::ceiling(run, variant, row.metric).map(|ceiling| ceiling * factor),
        }
    };
    let mut rows: Vec<Bar> = run.variants.iter().zip(&row.findings).map(bar).collect();
    let most = rows.iter().flat_map(|bar| &bar.repetitions).copied().fold(0.0, f64::max);
    // Ceilings far away would squeeze the bars: an arrow then points to them.
    for bar in &mut rows {
        if let Some(far) = bar.ceiling.take_if(|ceiling| *ceiling > most * CEILING_NEAR) {
            bar.text += &format!(" \u{2192} ceiling {}", quantity(Some(far), unit));
        }
    }
    let most = rows.iter().filter_map(|bar| bar.ceiling).fold(most, f64::max);
    let heading = capitalized(&findings::name(row.metric));
    let title = format!("{heading} of every variant");
    let x = Axis::amount(&heading, unit, 0.0, most, screen.pick(6, 4));
    Figure { id: id.to_owned(), ..bars(run, &title, x, &rows, screen) }
}

fn bars(run: &Run, title: &str, x: Axis, rows: &[Bar], screen: Screen) -> Figure {
    let names: Vec<String> = rows.iter().map(|bar| clipped(&bar.name, 40)).collect();
    let letters = |texts: &mut dyn Iterator<Item = &str>| {
        texts.map(|text| text.chars().count()).max().unwrap_or(0) as f64
    };
    // The longest bar may end at the end of the axis, with its value beside it.
    let (left, right) = match screen {
        Screen::Wide => (
            (letters(&mut names.iter().map(String::as_str)) * 7.0 + 20.0).max(60.0),
            letters(&mut rows.iter().map(|bar| bar.text.as_str())) * 7.0 + 16.0,
        ),
        // Name and value stand above and below the bar.
        Screen::Narrow => (10.0, 14.0),
    };
    let height = rows.len() as f64 * screen.pick(34.0, 64.0);
    let mut y = Axis::names(&names);
    if screen == Screen::Narrow {
        y.ticks.clear();
    }
    let sentences: Vec<_> =
        run.variants.iter().map(|v| format!("{}: {}", v.name, words::carries(run, v))).collect();
    let marks = |(at, bar)| bar_marks(bar, at as f64, screen);
    Figure {
        id: "comparison".into(),
        width: screen.width(),
        height: height + 56.0,
        title: title.into(),
        description: sentences.join(" "),
        panels: vec![Panel {
            frame: Frame { left, top: 12.0, width: (screen.width() - left - right).max(240.0), height },
            x,
            y,
            x_labels: true,
            backdrop: Vec::new(),
            marks: rows.iter().enumerate().flat_map(marks).collect(),
        }],
        legend: Vec::new(),
    }
}

fn bar_marks(bar: &Bar, y: f64, screen: Screen) -> Vec<Mark> {
    let text = |at, offset, class, text: &str| Mark::Text { at, offset, class, text: text.to_owned() };
    let mut marks = Vec::new();
    if screen == Screen::Narrow {
        marks.push(text((0.0, y), (2.0, -14.0), "tick", &clipped(&bar.name, 50)));
    }
    let Some(value) = bar.value else {
        marks.push(text((0.0, y), (6.0, 4.0), "note", "unknown"));
        return marks;
    };
    marks.push(Mark::Bar { y, value, class: "bar", label: bar.label.clone() });
    let [least, most] = bar.ends;
    if let (Some(least), Some(most)) = (least, most)
        && least < most
    {
        marks.push(Mark::Whisker { y, x: [least, most], class: "whisker" });
    }
    marks.extend(bar.ceiling.map(|ceiling| Mark::Whisker { y, x: [ceiling; 2], class: "ceiling" }));
    // Points that fall on the bar's end would hide it; only repetitions that differ are shown.
    let apart = bar.repetitions.iter().copied().filter(|v| *v != value);
    marks.extend(apart.map(|v| Mark::Point {
        at: (v, y),
        shape: Shape::Circle,
        class: "repeat",
        label: format!("a repetition: {}", number(v)),
    }));
    let end = [most, bar.ceiling].into_iter().flatten().fold(value, f64::max);
    marks.push(match screen {
        Screen::Wide => text((end, y), (8.0, 4.0), "value", &bar.text),
        Screen::Narrow => text((0.0, y), (2.0, 23.0), "value", &bar.text),
    });
    marks
}
