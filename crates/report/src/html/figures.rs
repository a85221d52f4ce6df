//! The figures of the page, apart from the timeline.

use base::outcome::{Resource, Run, Saturation, Trial, VariantOutcome};
use base::verdict::Verdict;
use maud::{Markup, html};

use crate::chart::{Axis, Figure, Frame, Legend, Mark, Panel, Screen, Shape, Tick};
use crate::words;
use base::format::{number, quantity};

/// Width of the panel of a usage figure.
const USAGE_PX: f64 = 400.0;
/// The usual width of a letter.
const LETTER_PX: f64 = 6.5;

pub(super) const fn form(verdict: Verdict) -> (Shape, &'static str) {
    match verdict {
        Verdict::Pass => (Shape::Circle, "pass"),
        Verdict::Fail => (Shape::Cross, "fail"),
        Verdict::Invalid => (Shape::Diamond, "invalid"),
    }
}

/// The verdicts that a variant's trials have.
fn verdict_legend(run: &Run, variant: &VariantOutcome) -> Vec<Legend> {
    let all = [
        (Verdict::Pass, "pass"),
        (Verdict::Fail, "fail"),
        (Verdict::Invalid, "invalid (fault of the measuring side)"),
    ];
    let has = |verdict| run.trials_of(&variant.name).any(|trial| trial.verdict == verdict);
    let known = all.into_iter().filter(|(verdict, _)| has(*verdict));
    let entry = |(verdict, text): (Verdict, &'static str)| {
        let (shape, class) = form(verdict);
        Legend { class, shape: Some(shape), text: text.into() }
    };
    known.map(entry).collect()
}

/// What a trial says when pointed at.
fn trial_label(trial: &Trial, unit: &str) -> String {
    let reasons =
        if trial.reasons.is_empty() { String::new() } else { format!(": {}", trial.reasons.join("; ")) };
    format!("trial {}, {}, {}{reasons}", trial.number, words::load(trial.load, unit), trial.verdict)
}

/// Trials beside each other, each labelled with its number in the run, which other variants share.
fn trial_axis(trials: &[&Trial], screen: Screen) -> Axis {
    let step = trials.len().div_ceil(screen.pick(20, 8)).max(1);
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
pub(super) fn search(run: &Run, variant: &VariantOutcome, index: usize, screen: Screen) -> Figure {
    let trials: Vec<_> = run.trials_of(&variant.name).collect();
    let unit = &variant.capacity.unit;
    let most = trials.iter().map(|t| t.load).fold(1.0, f64::max);
    let x = trial_axis(&trials, screen);
    let y = if unit.contains('/') {
        Axis::amount("load", unit, 0.0, most, 4)
    } else {
        Axis::whole(unit, 0.0, most, 5)
    }
    .with_room_above(most);
    let mut marks = Vec::new();
    if let Some(value) = variant.capacity.value.filter(|_| trials.len() > 1) {
        let label = format!("capacity {}", words::load(value, unit));
        marks.push(Mark::Rule { y: value, class: "meets", label });
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
        width: screen.width(),
        height: height + 70.0,
        title: if run.variants.len() > 1 {
            format!("Search of {}", variant.name)
        } else {
            "Search".to_owned()
        },
        description: words::carries(run, variant),
        panels: vec![Panel {
            frame: Frame { left: 52.0, top: 30.0, width: screen.width() - 70.0, height },
            x,
            y,
            x_labels: true,
            backdrop: Vec::new(),
            marks,
        }],
        legend: verdict_legend(run, variant),
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
    let name = if resource == Resource::Cpu { "CPU" } else { resource.label() };
    let mut x = Axis::whole(unit, 0.0, loads_to, 8);
    x.ticks.retain(|tick| tick.at <= loads_to);
    (x.domain, x.grid) = ([0.0, loads_to], false);
    let mut marks = usage_lines(fit, ceiling.map(|c| c.value), meets, x.domain[1]);
    let y = Axis::amount(name, &fit.unit, 0.0, top, 4);
    if let (None, Some(far)) = (ceiling, &fit.ceiling) {
        marks.push(ceiling_above(y.domain[1], &quantity(Some(far.value), &fit.unit), USAGE_PX));
    }
    marks.extend(points.iter().map(|(trial, usage)| {
        let (shape, class) = form(trial.verdict);
        let label = format!("{}, {}", trial_label(trial, unit), quantity(Some(*usage), &fit.unit));
        Mark::Point { at: (trial.load, *usage), shape, class, label }
    }));
    let above_px = if meets.is_some() { 44.0 } else { 28.0 };
    Some(Figure {
        id: format!("usage-{index}-{resource}"),
        width: 460.0,
        height: above_px + 230.0,
        title: format!("{name} against load, {}", variant.name),
        description: usage_words(fit, unit),
        panels: vec![Panel {
            frame: Frame { left: 48.0, top: above_px, width: USAGE_PX, height: 190.0 },
            x,
            y,
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

pub(super) fn usage_legend(run: &Run, variant: &VariantOutcome) -> Markup {
    let mut legend = verdict_legend(run, variant);
    let any = |known: fn(&Saturation) -> bool| variant.saturation.values().any(known);
    let mut line = |is_shown: bool, class, text: &'static str| {
        if is_shown {
            legend.push(Legend { class, shape: None, text: text.into() });
        }
    };
    line(true, "fit", "fitted line");
    line(any(|fit| fit.ceiling.is_some()), "ceiling", "ceiling");
    line(any(|fit| fit.saturates_at.is_some()), "meets", "load at which it is exhausted (predicted)");
    line(any(|fit| fit.saturates_interval.is_some()), "band", "its 95 % interval");
    html! { (crate::chart::legend(&legend)) }
}
