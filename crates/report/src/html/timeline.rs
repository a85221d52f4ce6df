//! The ramp over time: load, CPU, memory, disk, network and the least slack, trial after trial.

use base::outcome::{Resource, Run, Trial, VariantOutcome};
use base::verdict::Verdict;
use base::workload::Presentation;
use maud::Markup;

use super::figures::{ceiling_above, form};
use crate::chart::{
    Axis, Figure, Frame, Legend, Mark, Panel, Reading, Screen, Tick, on_screens, thinned, ticks, wide,
};
use crate::digest::{stall_times_s, trial_length_s};
use crate::{findings, words};
use base::format::{number, plural, quantity};

/// Least and greatest of this many intervals are drawn per panel and page: finer than a screen shows, and
/// small enough for a page of under a megabyte.
const BUCKETS_OF_PAGE: usize = 2400;
const BUCKETS_OF_NARROW_PAGE: usize = 1000;
/// The share of the axis between two trials.
const GAP_SHARE: f64 = 0.004;
const LEFT: f64 = 52.0;
/// What is used may be this much more than a ceiling by the error of sampling; more refutes the ceiling.
const REFUTED: f64 = 1.05;
const RIGHT: f64 = 18.0;

/// A trial and where it begins on the figure's axis, in seconds.
struct Placed<'a> {
    trial: &'a Trial,
    from_s: f64,
    length_s: f64,
}

struct Kind<'a> {
    title: String,
    /// The first of these that a trial has is drawn.
    series: &'a [&'a str],
    class: &'static str,
    resource: Option<Resource>,
    has_stalls: bool,
}

/// The panels of a workload and of its target's resources, from top to bottom.
fn kinds(presentation: &Presentation) -> Vec<Kind<'static>> {
    let own = |panels: &'static [base::workload::Panel], class| {
        panels.iter().map(move |panel| Kind {
            title: panel.title.to_owned(),
            series: panel.series,
            class,
            resource: None,
            has_stalls: panel.has_stalls,
        })
    };
    let target = presentation.target;
    let resources: [(String, &[&str], _, _); 4] = [
        (format!("{target} CPU"), &["server_cpu_percent"], "s1", Resource::Cpu),
        (format!("{target} memory"), &["server_memory_bytes"], "s5", Resource::Memory),
        ("disk".to_owned(), &["disk_bit_per_s"], "s4", Resource::Disk),
        ("network".to_owned(), &["network_bit_per_s"], "s3", Resource::Network),
    ];
    let resources = resources.into_iter().map(|(title, series, class, resource)| Kind {
        title,
        series,
        class,
        resource: Some(resource),
        has_stalls: false,
    });
    own(presentation.panels_above, "s2")
        .chain(resources)
        .chain(own(presentation.panels_below, "s6"))
        .collect()
}

/// The figure for both screens; `None` where no trial has a length.
pub(super) fn figure(
    run: &Run,
    variant: &VariantOutcome,
    index: usize,
    presentation: &Presentation,
) -> Option<Markup> {
    let draw = |screen| drawn(run, variant, index, presentation, screen);
    Some(on_screens(&draw(Screen::Wide)?, draw(Screen::Narrow)?))
}

fn drawn(
    run: &Run,
    variant: &VariantOutcome,
    index: usize,
    presentation: &Presentation,
    screen: Screen,
) -> Option<Figure> {
    let placed = place(run.trials_of(&variant.name).collect());
    let end_s = placed.last().map(|last| last.from_s + last.length_s).filter(|end| *end > 0.0)?;
    // The loads are drawn only if the variant has no findings.
    let shows_load = variant.findings.is_empty();
    let buckets = (screen.pick(BUCKETS_OF_PAGE, BUCKETS_OF_NARROW_PAGE) / run.variants.len().max(1))
        .clamp(60, screen.pick(500, 200));
    let x = time_axis(&placed, end_s, screen);
    let mut stack = Stack { run, variant, x, placed, screen, buckets, left: LEFT };
    let mut panels = stack.panels(presentation, shows_load);
    let labels = panels.iter().flat_map(|panel| &panel.y.ticks).map(|tick| wide(&tick.label));
    let left = labels.fold(0.0, f64::max) + 12.0;
    if left > LEFT {
        stack.left = left;
        panels = stack.panels(presentation, shows_load);
    }
    let last = panels.last_mut()?;
    last.x_labels = true;
    let height = last.frame.top + last.frame.height + 40.0;
    Some(Figure {
        id: format!("ramp-{index}"),
        width: screen.width(),
        height,
        title: format!("Ramp of {} over time", variant.name),
        description: described(&stack.placed, &variant.capacity.unit),
        legend: legend(&stack.placed, shows_load),
        panels,
    })
}

/// Put trials end to end with small gaps.
fn place(trials: Vec<&Trial>) -> Vec<Placed<'_>> {
    let total: f64 = trials.iter().map(|trial| trial_length_s(trial)).sum();
    let mut from_s = 0.0;
    let place = |trial| {
        let placed = Placed { trial, from_s, length_s: trial_length_s(trial) };
        from_s += placed.length_s + total * GAP_SHARE;
        placed
    };
    trials.into_iter().map(place).collect()
}

/// The time that was measured: what lies between trials does not count.
fn time_axis(placed: &[Placed], end_s: f64, screen: Screen) -> Axis {
    let measured: f64 = placed.iter().map(|p| p.length_s).sum();
    let (in_minutes, unit) = if measured > 300.0 { (60.0, "min") } else { (1.0, "s") };
    let at = |time_s: f64| {
        let mut before = 0.0;
        for p in placed {
            if time_s <= before + p.length_s {
                return p.from_s + time_s - before;
            }
            before += p.length_s;
        }
        end_s
    };
    let count = screen.pick(10, 5);
    let marked = ticks(0.0, measured / in_minutes, count).into_iter().filter(|t| t * in_minutes <= measured);
    Axis {
        title: format!("time measured ({unit})"),
        domain: [0.0, end_s],
        ticks: marked.map(|t| Tick { at: at(t * in_minutes), label: number(t) }).collect(),
        grid: false,
        // Between trials it has gaps, which its labels leave out.
        reading: (placed.len() == 1).then(|| Reading { unit: "s".to_owned(), is_log: false }),
    }
}

/// What lies behind every panel: holds, in the verdict's shade, and the gaps.
fn backdrop(placed: &[Placed]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (i, p) in placed.iter().enumerate() {
        let class = match p.trial.verdict {
            Verdict::Pass => "hold",
            Verdict::Fail => "bad-band",
            Verdict::Invalid => "odd-band",
        };
        let x = [p.from_s + p.trial.hold_from_s, p.from_s + p.trial.hold_to_s];
        marks.push(Mark::Band { x, y: None, class });
        if let Some(next) = placed.get(i + 1) {
            let middle = (p.from_s + p.length_s + next.from_s) / 2.0;
            marks.push(Mark::Drop { x: middle, class: "gap", label: String::new() });
        }
    }
    marks
}

fn stalls(placed: &[Placed], y: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    for p in placed {
        // A trial of thousands of stalls is as clear with its first hundred.
        for at_s in stall_times_s(p.trial).into_iter().take(100) {
            let label = format!("stall in trial {} after {}", p.trial.number, quantity(Some(at_s), "s"));
            let (shape, class) = (crate::chart::Shape::Triangle, "stall");
            marks.push(Mark::Point { at: (p.from_s + at_s, y), shape, class, label });
        }
    }
    marks
}

/// Panels below each other with the same time.
struct Stack<'a> {
    run: &'a Run,
    variant: &'a VariantOutcome,
    placed: Vec<Placed<'a>>,
    x: Axis,
    screen: Screen,
    /// Intervals of a line, at most.
    buckets: usize,
    /// Space for the labels of vertical axes.
    left: f64,
}

impl Stack<'_> {
    fn panels(&self, presentation: &Presentation, shows_load: bool) -> Vec<Panel> {
        let mut panels = Vec::from_iter(shows_load.then(|| self.load_panel()));
        for kind in kinds(presentation) {
            let end = panels.last().map(|panel: &Panel| panel.frame.top + panel.frame.height);
            panels.extend(self.series_panel(&kind, end.unwrap_or(-10.0) + 34.0));
        }
        panels
    }

    fn panel(&self, top: f64, height: f64, y: Axis, marks: Vec<Mark>) -> Panel {
        Panel {
            frame: Frame { left: self.left, top, width: self.width(), height },
            x: self.x.clone(),
            y,
            x_labels: false,
            backdrop: backdrop(&self.placed),
            marks,
        }
    }

    fn width(&self) -> f64 {
        self.screen.width() - self.left - RIGHT
    }

    fn load_panel(&self) -> Panel {
        let unit = &self.variant.capacity.unit;
        let most = self.placed.iter().map(|p| p.trial.load).fold(1.0, f64::max);
        let y = if unit.contains('/') {
            Axis::amount("load", unit, 0.0, most, 3)
        } else {
            Axis::whole(unit, 0.0, most, 3)
        }
        .with_room_above(most);
        let mut steps = Vec::new();
        for p in &self.placed {
            steps.push((p.from_s, Some(p.trial.load)));
            steps.push((p.from_s + p.length_s, None));
        }
        let mut marks = vec![Mark::Step { points: steps, class: "fit" }];
        marks.extend(self.placed.iter().map(|p| {
            let (shape, class) = form(p.trial.verdict);
            let label =
                format!("trial {}, {}, {}", p.trial.number, words::load(p.trial.load, unit), p.trial.verdict);
            Mark::Point { at: (p.from_s + p.length_s / 2.0, p.trial.load), shape, class, label }
        }));
        self.panel(24.0, 90.0, y, marks)
    }

    /// One resource over time; `None` where no trial sampled it.
    fn series_panel(&self, kind: &Kind<'_>, top: f64) -> Option<Panel> {
        let has = |p: &Placed, name: &str| p.trial.series.iter().any(|s| s.name == name);
        let name = kind.series.iter().find(|name| self.placed.iter().any(|p| has(p, name)))?;
        let (points, unit) = self.line(name);
        let most = points.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
        let known = points.iter().any(|(_, value)| value.is_some());
        let mut marks = Vec::new();
        let known_ceiling = match kind.resource {
            Some(resource) => self.ceiling(resource).filter(|ceiling| most <= ceiling * REFUTED),
            None => findings::ceiling(self.run, self.variant, name),
        };
        let ceiling = known_ceiling.filter(|ceiling| *ceiling <= most * 1.8);
        marks.push(Mark::Line { points, class: kind.class });
        if let Some(ceiling) = ceiling {
            let label = format!("ceiling {}", quantity(Some(ceiling), unit));
            marks.push(Mark::Rule { y: ceiling, class: "ceiling", label });
        }
        if kind.has_stalls {
            marks.extend(stalls(&self.placed, 0.0));
        }
        if !known {
            let text = "not sampled".to_owned();
            marks.push(Mark::Text { at: (0.0, 0.5), offset: (8.0, 4.0), class: "note", text });
        }
        let high = most.max(ceiling.unwrap_or(0.0));
        let mut y = Axis::amount(&kind.title, unit, 0.0, if known { high } else { 1.0 }, 2).cut(high);
        if let (true, None, Some(far)) = (known, ceiling, known_ceiling) {
            marks.push(ceiling_above(y.domain[1], &quantity(Some(far), unit), self.width()));
        }
        if !known {
            (y.title, y.ticks) = (kind.title.clone(), Vec::new());
        }
        Some(self.panel(top, if known { 62.0 } else { 24.0 }, y, marks))
    }

    /// What a resource can give at most: as fitted or given, or else as this machine has it.
    fn ceiling(&self, resource: Resource) -> Option<f64> {
        let fitted = self.variant.saturation.get(&resource).and_then(|fit| fit.ceiling.as_ref());
        let facts = &self.run.environment;
        let known =
            || facts.get("ceilings")?.get(&self.variant.name)?.get(resource.label())?.get("value")?.as_f64();
        // Other hosts have their own.
        let own = |name: &str| facts.get(name).filter(|_| !facts.contains_key("hosts"))?.as_f64();
        let of_machine = || match resource {
            Resource::Cpu => own("cpus_usable").map(|cpus| 100.0 * cpus),
            Resource::Memory => own("memory_bytes"),
            _ => None,
        };
        fitted.map(|ceiling| ceiling.value).or_else(known).or_else(of_machine)
    }

    /// A series of all trials, thinned, and its unit.
    fn line(&self, name: &str) -> (Vec<(f64, Option<f64>)>, &str) {
        let measured: f64 = self.placed.iter().map(|p| p.length_s).sum();
        let (mut points, mut unit) = (Vec::new(), "");
        for p in &self.placed {
            let Some(series) = p.trial.series.iter().find(|series| series.name == name) else { continue };
            unit = &series.unit;
            let share = ((p.length_s / measured * self.buckets as f64) as usize).max(8);
            let thin = thinned(&series.at_s, &series.values, share).into_iter();
            points.extend(thin.map(|(at_s, value)| (p.from_s + at_s, value.filter(|v| v.is_finite()))));
            points.push((p.from_s + p.length_s, None));
        }
        (points, unit)
    }
}

fn described(placed: &[Placed], unit: &str) -> String {
    let loads: Vec<_> =
        placed.iter().take(40).map(|p| format!("{} {}", number(p.trial.load), p.trial.verdict)).collect();
    let more = if placed.len() > 40 { ", and so on" } else { "" };
    format!(
        "{} in order, {unit} and verdict: {}{more}.",
        plural(placed.len() as u64, "trial"),
        loads.join(", ")
    )
}

fn legend(placed: &[Placed], shows_load: bool) -> Vec<Legend> {
    let mut all = Vec::new();
    if shows_load {
        all.push(Legend { class: "fit", shape: None, text: "load".into() });
    }
    let mut verdict = |verdict, text: &'static str| {
        if shows_load && placed.iter().any(|p| p.trial.verdict == verdict) {
            let (shape, class) = form(verdict);
            all.push(Legend { class, shape: Some(shape), text: text.into() });
        }
    };
    verdict(Verdict::Pass, "pass");
    verdict(Verdict::Fail, "fail");
    verdict(Verdict::Invalid, "invalid");
    if placed.iter().any(|p| !stall_times_s(p.trial).is_empty()) {
        all.push(Legend { class: "stall", shape: Some(crate::chart::Shape::Triangle), text: "stall".into() });
    }
    all
}
