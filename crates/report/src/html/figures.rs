//! The figures of the page, apart from the timeline.

use base::outcome::{LoadMetric, Resource, Run, Saturation, Trial, VariantOutcome};
use base::statistics::median;
use base::verdict::Verdict;
use maud::{Markup, html};

use crate::chart::{Axis, Figure, Frame, Legend, Mark, Panel, Shape, Tick};
use crate::findings::{self, Row};
use crate::text::clipped;
use crate::words;
use base::format::{capitalized, metric_words, number, quantity, unit_of};

/// Up to this multiple of the longest bar, ceilings are on the scale of the bars.
const CEILING_NEAR: f64 = 1.6;
/// Width of the panel of a usage figure.
const USAGE_PX: f64 = 400.0;
/// The usual width of a letter.
const LETTER_PX: f64 = 6.5;
/// Numbers of trials along an axis, at most.
const TRIAL_TICKS_MAX: usize = 20;

pub(super) const fn form(verdict: Verdict) -> (Shape, &'static str) {
    match verdict {
        Verdict::Pass => (Shape::Circle, "pass"),
        Verdict::Fail => (Shape::Cross, "fail"),
        Verdict::Invalid => (Shape::Diamond, "invalid"),
    }
}

fn verdict_legend() -> Vec<Legend> {
    let entry = |verdict, text: &'static str| {
        let (shape, class) = form(verdict);
        Legend { class, shape: Some(shape), text: text.into() }
    };
    vec![
        entry(Verdict::Pass, "pass"),
        entry(Verdict::Fail, "fail"),
        entry(Verdict::Invalid, "invalid (fault of the measuring side)"),
    ]
}

/// What a trial says when pointed at.
fn trial_label(trial: &Trial, unit: &str) -> String {
    let reasons =
        if trial.reasons.is_empty() { String::new() } else { format!(": {}", trial.reasons.join("; ")) };
    format!("trial {}, {}, {}{reasons}", trial.number, words::load(trial.load, unit), trial.verdict)
}

/// Trials beside each other, each labelled with its number in the run, which other variants share.
fn trial_axis(trials: &[&Trial]) -> Axis {
    let step = trials.len().div_ceil(TRIAL_TICKS_MAX).max(1);
    let tick = |(i, trial): (usize, &&Trial)| Tick { at: i as f64 + 1.0, label: trial.number.to_string() };
    let last = trials.len().max(1) as f64;
    Axis {
        title: "trial".to_owned(),
        domain: [0.3, last + 0.7],
        ticks: trials.iter().enumerate().step_by(step).map(tick).collect(),
        grid: true,
        // A place is that of a trial, whose number may differ.
        reading: None,
    }
}

/// Load against trial, with every verdict.
pub(super) fn search(run: &Run, variant: &VariantOutcome, index: usize) -> Figure {
    let trials: Vec<_> = run.trials_of(&variant.name).collect();
    let unit = &variant.capacity.unit;
    let most = trials.iter().map(|t| t.load).fold(1.0, f64::max);
    let x = trial_axis(&trials);
    let y = if unit.contains('/') {
        Axis::amount("load", unit, 0.0, most, 4)
    } else {
        Axis::whole(unit, 0.0, most, 5)
    };
    let mut marks = Vec::new();
    if let Some(value) = variant.capacity.value.filter(|_| trials.len() > 1) {
        marks.push(Mark::Rule { y: value, class: "meets", label: String::new() });
        let text = format!("capacity {}", number(value));
        marks.push(Mark::Text { at: (0.0, value), offset: (6.0, -5.0), class: "note", text });
    }
    let mut way = Vec::new();
    for (i, pair) in trials.iter().zip(trials.iter().skip(1).map(Some).chain([None])).enumerate() {
        let at = i as f64 + 1.0;
        way.push((at, Some(pair.0.load)));
        // Every repetition is a search of its own.
        if pair.1.is_some_and(|next| next.repetition != pair.0.repetition) {
            way.push((at, None));
            marks.push(Mark::Drop { x: at + 0.5, class: "gap", label: String::new() });
        }
    }
    marks.push(Mark::Line { points: way, class: "way" });
    marks.extend(trials.iter().enumerate().map(|(i, trial)| {
        let (shape, class) = form(trial.verdict);
        Mark::Point { at: (i as f64 + 1.0, trial.load), shape, class, label: trial_label(trial, unit) }
    }));
    let height = if trials.len() > 1 { 180.0 } else { 90.0 };
    Figure {
        id: format!("search-{index}"),
        width: 960.0,
        height: height + 70.0,
        title: if run.variants.len() > 1 {
            format!("Search of {}", variant.name)
        } else {
            "Search".to_owned()
        },
        description: words::carries(run, variant),
        panels: vec![Panel {
            frame: Frame { left: 52.0, top: 30.0, width: 890.0, height },
            x,
            y,
            x_labels: true,
            backdrop: Vec::new(),
            marks,
        }],
        legend: verdict_legend(),
    }
}

/// Usage of one resource against load, with its line, its ceiling and the load at which they meet; `None`
/// without a known point.
pub(super) fn usage(
    run: &Run,
    variant: &VariantOutcome,
    resource: Resource,
    fit: &Saturation,
    index: usize,
) -> Option<Figure> {
    let points = usage_points(run, variant, resource);
    let most_load = points.iter().map(|(trial, _)| trial.load).fold(f64::NAN, f64::max);
    if most_load.is_nan() {
        return None;
    }
    // A ceiling far away would squeeze the points into a corner: an arrow then points to it.
    let near = |load: &f64| *load <= most_load * 2.5;
    let meets = fit.saturates_at.filter(near);
    let loads_to = meets.map_or(most_load, |load| load.max(most_load)) * 1.04;
    let line = |load: f64| fit.usage_at_zero + fit.cost_per_load * load;
    let most_usage = points.iter().map(|(_, usage)| *usage).fold(line(loads_to).max(0.0), f64::max);
    let ceiling = fit.ceiling.as_ref().filter(|c| c.value <= most_usage * 1.6);
    let top = most_usage.max(ceiling.map_or(0.0, |c| c.value * 1.04));
    let unit = &variant.capacity.unit;
    let mut x = Axis::whole(unit, 0.0, loads_to, 8);
    x.ticks.retain(|tick| tick.at <= loads_to);
    (x.domain, x.grid) = ([0.0, loads_to], false);
    let mut marks = usage_lines(fit, ceiling.map(|c| c.value), meets, x.domain[1]);
    if let (None, Some(far)) = (ceiling, &fit.ceiling) {
        marks.push(ceiling_above(top, &quantity(Some(far.value), &fit.unit), USAGE_PX));
    }
    marks.extend(points.iter().map(|(trial, usage)| {
        let (shape, class) = form(trial.verdict);
        let label = format!("{}, {}", trial_label(trial, unit), quantity(Some(*usage), &fit.unit));
        Mark::Point { at: (trial.load, *usage), shape, class, label }
    }));
    let name = if resource == Resource::Cpu { "CPU" } else { resource.label() };
    Some(Figure {
        id: format!("usage-{index}-{resource}"),
        width: 460.0,
        height: 282.0,
        title: format!("{name} against load, {}", variant.name),
        description: usage_words(fit, unit),
        panels: vec![Panel {
            frame: Frame { left: 48.0, top: 48.0, width: USAGE_PX, height: 190.0 },
            x,
            y: Axis::amount(name, &fit.unit, 0.0, top, 4),
            x_labels: true,
            backdrop: Vec::new(),
            marks,
        }],
        legend: Vec::new(),
    })
}

/// An arrow over the right end of a panel of this width, which ends at `top`: the ceiling is above it. Within
/// the panel a line could run through it.
pub(super) fn ceiling_above(top: f64, ceiling: &str, width: f64) -> Mark {
    let text = format!("\u{2191} ceiling {ceiling}");
    let left = width - text.chars().count() as f64 * LETTER_PX;
    Mark::Text { at: (0.0, top), offset: (left, -5.0), class: "note", text }
}

fn usage_points<'a>(run: &'a Run, variant: &'a VariantOutcome, resource: Resource) -> Vec<(&'a Trial, f64)> {
    let usage = |trial: &Trial| trial.metrics.get(resource.metric()?).copied().flatten();
    run.trials_of(&variant.name).filter_map(|trial| Some((trial, usage(trial)?))).collect()
}

fn usage_lines(fit: &Saturation, ceiling: Option<f64>, meets: Option<f64>, to: f64) -> Vec<Mark> {
    let line = |load: f64| fit.usage_at_zero + fit.cost_per_load * load;
    let mut marks = Vec::new();
    if let (Some([from, until]), Some(_)) = (fit.saturates_interval, meets) {
        marks.push(Mark::Band { x: [from, until], y: None, class: "band" });
    }
    // The line stops where the ceiling does not let it go on.
    let end = meets.unwrap_or(to).min(to);
    let start =
        if line(0.0) < 0.0 && fit.cost_per_load > 0.0 { -fit.usage_at_zero / fit.cost_per_load } else { 0.0 };
    if start < end {
        marks.push(Mark::Line {
            points: vec![(start, Some(line(start))), (end, Some(line(end)))],
            class: "fit",
        });
    }
    // What it is stands beneath the figure: here it would run through the points.
    marks.extend(ceiling.map(|y| Mark::Rule { y, class: "ceiling", label: String::new() }));
    if let Some(load) = meets {
        marks.push(Mark::Drop { x: load, class: "meets", label: format!("{} predicted", number(load)) });
    }
    marks
}

/// What the ceiling is and where it is known from, to stand beneath the figure; `None` where none is known.
pub(super) fn ceiling_words(fit: &Saturation) -> Option<String> {
    let ceiling = fit.ceiling.as_ref()?;
    Some(format!("Ceiling {} ({})", quantity(Some(ceiling.value), &fit.unit), ceiling.source))
}

fn usage_words(fit: &Saturation, unit: &str) -> String {
    let cost = words::cost(fit);
    let ceiling = fit.ceiling.as_ref().map_or("the ceiling is unknown".to_owned(), |c| {
        format!("the ceiling is {} ({})", quantity(Some(c.value), &fit.unit), c.source)
    });
    let meets =
        fit.saturates_at.map_or(String::new(), |load| format!("; exhausted at {}", words::load(load, unit)));
    format!("{cost} per {}; {ceiling}{meets}.", words::singular(unit))
}

pub(super) fn usage_legend() -> Markup {
    let mut legend = verdict_legend();
    legend.extend([
        Legend { class: "fit", shape: None, text: "fitted line".into() },
        Legend { class: "ceiling", shape: None, text: "ceiling".into() },
        Legend { class: "meets", shape: None, text: "load at which it is exhausted (predicted)".into() },
        Legend { class: "band", shape: None, text: "its 95 % interval".into() },
    ]);
    html! { (crate::chart::legend(&legend)) }
}

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

/// Bars of capacity with their intervals.
pub(super) fn comparison(run: &Run) -> Figure {
    let unit = &run.capacity.unit;
    let ends = run.variants.iter().flat_map(|v| [v.capacity.value, v.capacity.interval[1], v.predicted]);
    let most = ends.flatten().filter(|v| v.is_finite()).fold(1.0, f64::max);
    let x = if unit.contains('/') {
        Axis::amount("capacity", unit, 0.0, most, 6)
    } else {
        Axis::whole(unit, 0.0, most, 8)
    };
    let bar = |variant: &VariantOutcome| {
        let value = variant.capacity.value;
        let open = if variant.capacity.interval[1].is_none() { " or more" } else { "" };
        Bar {
            name: variant.name.clone(),
            value,
            ends: variant.capacity.interval,
            repetitions: variant.repetitions.iter().filter_map(|r| r.value).collect(),
            ceiling: variant.predicted,
            text: format!(
                "{}{open} (n = {})",
                value.map_or_else(String::new, number),
                variant.repetitions.len()
            ),
            label: format!("{}: {}", variant.name, words::interval(&variant.capacity)),
        }
    };
    bars(run, "Capacity of every variant", x, &run.variants.iter().map(bar).collect::<Vec<_>>())
}

/// Bars of what came of one load, with the spread of the repetitions.
pub(super) fn found(run: &Run, row: &Row, id: &str) -> Figure {
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
    let heading = capitalized(&metric_words(row.metric));
    let title = format!("{heading} of every variant");
    Figure { id: id.to_owned(), ..bars(run, &title, Axis::amount(&heading, unit, 0.0, most, 6), &rows) }
}

fn bars(run: &Run, title: &str, x: Axis, rows: &[Bar]) -> Figure {
    let names: Vec<String> = rows.iter().map(|bar| clipped(&bar.name, 28)).collect();
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let left = (widest * 7.0 + 20.0).max(60.0);
    // The longest bar may end at the end of the axis, with its value beside it.
    let longest = rows.iter().map(|bar| bar.text.chars().count()).max().unwrap_or(0) as f64;
    let right = longest * 7.0 + 16.0;
    let height = rows.len() as f64 * 34.0;
    let sentences: Vec<_> =
        run.variants.iter().map(|v| format!("{}: {}", v.name, words::carries(run, v))).collect();
    Figure {
        id: "comparison".into(),
        width: 960.0,
        height: height + 56.0,
        title: title.into(),
        description: sentences.join(" "),
        panels: vec![Panel {
            frame: Frame { left, top: 12.0, width: (960.0 - left - right).max(240.0), height },
            x,
            y: Axis::names(&names),
            x_labels: true,
            backdrop: Vec::new(),
            marks: rows.iter().enumerate().flat_map(|(i, bar)| bar_marks(bar, i as f64)).collect(),
        }],
        legend: Vec::new(),
    }
}

fn bar_marks(bar: &Bar, y: f64) -> Vec<Mark> {
    let Some(value) = bar.value else {
        return vec![Mark::Text { at: (0.0, y), offset: (6.0, 4.0), class: "note", text: "unknown".into() }];
    };
    let [least, most] = bar.ends;
    let mut marks = vec![Mark::Bar { y, value, class: "bar", label: bar.label.clone() }];
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
        shape: Shape::Diamond,
        class: "invalid",
        label: format!("a repetition: {}", number(v)),
    }));
    let end = [most, bar.ceiling].into_iter().flatten().fold(value, f64::max);
    marks.push(Mark::Text { at: (end, y), offset: (8.0, 4.0), class: "value", text: bar.text.clone() });
    marks
}
