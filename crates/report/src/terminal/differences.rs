//! What differs between runs, or between the variants of one.

use base::metric::Better;
use serde_json::Value;
use store::compare::{Change, Comparison, Difference, Fact, Pair, RunFact, Sample, Side};

use super::Style;
use super::paint::Tone;
use super::table::{Column, render};
use crate::units::{UNKNOWN, clipped, metric, plain, quantity, range, tidy, unit_of};

/// A comparison as text: per pair of sides the capacities in words, then the numbers that differ by more than the
/// noise, then what else differs and what to keep in mind. Ends with a line break.
pub fn differences(comparison: &Comparison, style: Style) -> String {
    let mut text = String::new();
    for pair in &comparison.pairs {
        text += &one_pair(pair, comparison.runs.len() > 1, &style);
        text += "\n";
    }
    text += &facts("Plan", &comparison.plan, &style);
    text += &facts("Environment", &comparison.environment, &style);
    for side in &comparison.unmatched {
        let sentence = format!("{} of run {} has no counterpart", plain(&side.variant), plain(&side.run));
        text += &style.wrapped("Note: ", &sentence);
    }
    for note in &comparison.notes {
        text += &style.wrapped("Note: ", &plain(note));
    }
    if comparison.by_chance >= 1.0 {
        let sentence = format!(
            "about {} of these numbers would seem to differ by chance alone (95 % confidence each)",
            tidy(comparison.by_chance.round())
        );
        text += &style.wrapped("Note: ", &sentence);
    }
    style.spell(text)
}

fn side(side: &Side, with_run: bool) -> String {
    match with_run {
        true => format!("{} ({})", plain(&side.run), plain(&side.variant)),
        false => plain(&side.variant),
    }
}

fn tone(change: Change) -> Tone {
    match change {
        Change::Better => Tone::Good,
        Change::Worse => Tone::Bad,
        Change::Differs | Change::Equal | Change::Unknown => Tone::Bold,
    }
}

fn one_pair(pair: &Pair, with_run: bool, style: &Style) -> String {
    let (a, b) = (side(&pair.a, with_run), side(&pair.b, with_run));
    let mut text = style.wrapped("", &format!("{b} against {a}"));
    text = text.lines().map(|line| style.paint(Tone::Bold, line) + "\n").collect();
    let capacity = &pair.capacity;
    let sentence = format!(
        "{} against {}{}: {}{}",
        capacity_of(&capacity.b, &capacity.unit),
        capacity_of(&capacity.a, &capacity.unit),
        percent(capacity),
        capacity.change.word(),
        capacity.reason.as_deref().map(|reason| format!(" ({})", plain(reason))).unwrap_or_default(),
    );
    let lines = style.wrapped("Capacity: ", &sentence);
    text += &lines.lines().map(|line| style.paint(tone(capacity.change), line) + "\n").collect::<String>();
    text += &style.wrapped("Limit:    ", &format!("{} against {}", pair.limits[1], pair.limits[0]));
    for fact in &pair.settings {
        text += &style.wrapped("Setting:  ", &setting(fact));
    }
    text + &numbers(pair, style)
}

fn capacity_of(sample: &Sample, unit: &str) -> String {
    let value = quantity(sample.median, if unit.contains('/') { unit } else { "" });
    let unit = if unit.contains('/') { String::new() } else { format!(" {}", plain(unit)) };
    format!("{value}{unit} (n = {})", sample.n)
}

fn percent(difference: &Difference) -> String {
    difference.difference_percent.map(|p| format!(", {p:+.1} %")).unwrap_or_default()
}

/// A value of the difference's metric; the unit of one without a specification follows from its name.
fn amount(difference: &Difference, value: Option<f64>) -> String {
    match difference.unit.as_str() {
        "" => metric(&difference.metric, value),
        unit => quantity(value, unit),
    }
}

fn ends(difference: &Difference) -> String {
    let (unit, factor) = match difference.unit.as_str() {
        "" => unit_of(&difference.metric),
        unit => (unit, 1.0),
    };
    range(difference.interval.map(|ends| ends.map(|end| end * factor)), unit)
}

/// The numbers that differ, and how many do not.
fn numbers(pair: &Pair, style: &Style) -> String {
    let all: Vec<(f64, &Difference)> =
        pair.loads.iter().flat_map(|at| at.metrics.iter().map(move |metric| (at.load, metric))).collect();
    let told = |change| matches!(change, Change::Better | Change::Worse | Change::Differs);
    let shown: Vec<_> = all.iter().filter(|(_, d)| told(d.change)).collect();
    let count = |change| all.iter().filter(|(_, d)| d.change == change).count();
    let mut text = String::new();
    if !shown.is_empty() {
        let cells = |f: &dyn Fn(&Difference) -> String| shown.iter().map(|(_, d)| f(d)).collect::<Vec<_>>();
        let columns = [
            Column::numbers(&["load"], shown.iter().map(|(load, _)| tidy(*load)).collect()),
            Column::words(&["metric"], cells(&|d| clipped(&plain(&d.metric), 26))),
            Column::numbers(&["against"], cells(&|d| amount(d, d.a.median))),
            Column::numbers(&["now"], cells(&|d| amount(d, d.b.median))),
            Column::numbers(
                &["change"],
                cells(&|d| d.difference_percent.map_or(UNKNOWN.to_owned(), |p| format!("{p:+.1} %"))),
            ),
            Column::words(
                &[""],
                cells(&|d| {
                    if d.better == Better::Neither { String::new() } else { d.change.word().to_owned() }
                }),
            ),
            Column::numbers(&["95 % of change"], cells(&|d| ends(d))),
            Column::numbers(&["n"], cells(&|d| format!("{}+{}", d.a.n, d.b.n))),
        ];
        text += "\n";
        text += &render(&columns, 2, style);
    }
    let sentence = format!(
        "{} numbers differ by more than the noise, {} do not, of {} it cannot be told",
        shown.len(),
        count(Change::Equal),
        count(Change::Unknown)
    );
    text + &style.wrapped("", &sentence)
}

fn value(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(other) => plain(&other.to_string()),
    }
}

fn setting(fact: &Fact) -> String {
    format!("{} = {} against {}", plain(&fact.key), value(fact.b.as_ref()), value(fact.a.as_ref()))
}

fn facts(title: &str, all: &[RunFact], style: &Style) -> String {
    let lines = all.iter().map(|fact| {
        let values: Vec<_> = fact.values.iter().map(|v| clipped(&value(v.as_ref()), 60)).collect();
        style.wrapped(&format!("{title}: "), &format!("{}: {}", plain(&fact.key), values.join(" | ")))
    });
    lines.collect()
}
