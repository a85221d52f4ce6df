//! What differs between runs, or between the variants of one.

use base::metric::Better;
use base::outcome::Resource;
use serde_json::Value;
use store::compare::{Change, Comparison, Difference, Fact, Pair, RunFact, Sample, Side, TOO_FEW_TO_TELL};

use super::Style;
use super::paint::Tone;
use super::table::{Column, render};
use crate::text::{clipped, plain};
use crate::words;
use base::format::{UNKNOWN, capitalized, metric, metric_words, number, quantity, range, unit_of};

/// A comparison as text: per pair of sides the capacities in words, then the numbers that differ by more than
/// the noise, then what else differs and what to keep in mind. Ends with a line break.
pub fn differences(comparison: &Comparison, style: Style) -> String {
    let mut text = String::new();
    for pair in &comparison.pairs {
        let with_run = comparison.runs.len() > 1;
        text += &(heading(pair, with_run, &style) + &numbers(pair, with_run, &style));
        text += "\n";
    }
    text += &facts("Plan", &comparison.plan, &style);
    text += &facts("Environment", &comparison.environment, &style);
    for side in &comparison.unmatched {
        let sentence = format!("{} of run {} is in this run only", plain(&side.variant), plain(&side.run));
        text += &style.wrapped("Note: ", &sentence);
    }
    for note in &comparison.notes {
        text += &style.wrapped("Note: ", &plain(note));
    }
    text += &by_chance(comparison).map(|sentence| style.wrapped("Note: ", &sentence)).unwrap_or_default();
    style.spell(text)
}

fn by_chance(comparison: &Comparison) -> Option<String> {
    let sentence = format!(
        "with 95 % confidence each, about {} of all numbers compared seem to differ by chance alone",
        number(comparison.by_chance.round())
    );
    (comparison.by_chance >= 1.0).then_some(sentence)
}

/// What a page says beside a table of all numbers and the comparison's notes: the limits and settings of each
/// pair, what else differs, and how many numbers seem to differ by chance.
pub fn circumstances(comparison: &Comparison) -> Vec<String> {
    let has_many = comparison.pairs.len() > 1;
    let mut all = Vec::new();
    for pair in &comparison.pairs {
        let of = if has_many { side(&pair.b, comparison.runs.len() > 1) + ", " } else { String::new() };
        if pair.limits != [Resource::None; 2] {
            all.push(format!("{of}limit: {}", limits(pair.limits)));
        }
        all.extend(pair.settings.iter().map(|fact| format!("{of}setting {}", setting(fact))));
    }
    let run_facts = [("plan", &comparison.plan), ("environment", &comparison.environment)];
    let facts = run_facts.iter().flat_map(|(title, facts)| facts.iter().map(move |fact| (title, fact)));
    all.extend(facts.map(|(title, fact)| format!("{title}, {}", run_fact(fact))));
    all.extend(by_chance(comparison));
    all.iter().map(|sentence| capitalized(sentence)).collect()
}

/// What the store calls a capacity among the metrics.
const CAPACITY: &str = "capacity";

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

/// The result of a pair, its limits, and the settings that differ.
pub(super) fn heading(pair: &Pair, with_run: bool, style: &Style) -> String {
    let (a, b) = (side(&pair.a, with_run), side(&pair.b, with_run));
    let mut text = style.wrapped("", &format!("{b} against {a}"));
    text = text.lines().map(|line| style.paint(Tone::Bold, line) + "\n").collect();
    let main = pair.result();
    let lead = format!("{}: ", capitalized(&metric_words(&main.metric)));
    let lines = style.wrapped(&format!("{lead:<10}"), &sentence(main));
    text += &lines.lines().map(|line| style.paint(tone(main.change), line) + "\n").collect::<String>();
    text += &style.wrapped("Limit:    ", &limits(pair.limits));
    for fact in &pair.settings {
        text += &style.wrapped("Setting:  ", &setting(fact));
    }
    text
}

/// `8 streams (n = 3) against 10 streams (n = 3), -20.0 %: worse`.
fn sentence(main: &Difference) -> String {
    format!(
        "{} against {}{}: {}",
        value_of(main, &main.b),
        value_of(main, &main.a),
        percent(main),
        outcome(main),
    )
}

/// A sentence for each number that got worse beyond the noise, with the side that it concerns.
pub fn worse(comparison: &Comparison) -> Vec<String> {
    let with_run = comparison.runs.len() > 1;
    let of_pair = |pair: &Pair| {
        let of = side(&pair.b, with_run);
        let one = |found: &Difference| format!("{of}: {} {}", metric_words(&found.metric), sentence(found));
        pair.worse.iter().map(one).collect::<Vec<_>>()
    };
    comparison.pairs.iter().flat_map(of_pair).collect()
}

/// A sentence for each result that cannot be compared.
pub fn undecided(comparison: &Comparison) -> Vec<String> {
    let with_run = comparison.runs.len() > 1;
    let unknown = comparison.pairs.iter().filter(|pair| pair.result().change == Change::Unknown);
    let one = |pair: &Pair| {
        let result = pair.result();
        format!("{}: {} {}", side(&pair.b, with_run), metric_words(&result.metric), sentence(result))
    };
    unknown.map(one).collect()
}

/// What set each capacity, the first side's first.
fn limits([a, b]: [Resource; 2]) -> String {
    let met = |resource: Resource| match resource {
        Resource::None => "no limit found".to_owned(),
        found => found.label().to_owned(),
    };
    match (a, b) {
        (Resource::None, Resource::None) => "none found".to_owned(),
        _ => format!("{} against {}", met(b), met(a)),
    }
}

/// A capacity that is known from below only: no load failed.
fn is_open(sample: &Sample) -> bool {
    sample.median.is_some() && sample.interval[1].is_none()
}

fn value_of(main: &Difference, side: &Sample) -> String {
    let Some(value) = side.median else { return "unknown".to_owned() };
    let least = if is_open(side) { "at least " } else { "" };
    let sentence = match main.metric.as_str() {
        CAPACITY => words::load(value, &plain(&main.unit)),
        _ => amount(main, side.median),
    };
    format!("{least}{sentence} (n = {})", side.n)
}

/// How much the capacities differ; unknown for two lower bounds.
fn percent(capacity: &Difference) -> String {
    if is_open(&capacity.a) && is_open(&capacity.b) {
        return String::new();
    }
    capacity.difference_percent.map(|p| format!(", {p:+.1} %")).unwrap_or_default()
}

fn outcome(capacity: &Difference) -> String {
    let (word, reason) = (capacity.change.word(), capacity.reason.as_deref().map(plain));
    match (capacity.change, reason) {
        (Change::Unknown, _) if is_open(&capacity.a) && is_open(&capacity.b) => {
            "not comparable (both are lower bounds)".to_owned()
        }
        // How many there are stands beside each capacity.
        (Change::Unknown, Some(reason)) if reason.starts_with("n = ") => {
            "not comparable; use --repeat 5".to_owned()
        }
        (Change::Unknown, Some(reason)) if reason == TOO_FEW_TO_TELL => format!("{reason}; use --repeat 5"),
        (Change::Unknown, Some(reason)) => format!("not comparable ({reason})"),
        (_, Some(reason)) => format!("{word} ({reason})"),
        (_, None) => word.to_owned(),
    }
}

/// A value of the difference's metric; the unit of one without a specification follows from its name.
fn amount(difference: &Difference, value: Option<f64>) -> String {
    match difference.unit.as_str() {
        "" => metric(&difference.metric, value),
        unit => quantity(value, unit),
    }
}

/// The interval of the change: in % of the first side, as the change itself, where that is known.
fn ends(difference: &Difference) -> String {
    if let (Some(_), Some(first)) = (difference.difference_percent, difference.a.median) {
        let share = |end: f64| 100.0 * end / first.abs();
        return range(difference.interval.map(|ends| ends.map(share)), "%");
    }
    let (unit, factor) = match difference.unit.as_str() {
        "" => unit_of(&difference.metric),
        unit => (unit, 1.0),
    };
    range(difference.interval.map(|ends| ends.map(|end| end * factor)), unit)
}

/// The numbers that differ, and how many do not.
pub(super) fn numbers(pair: &Pair, with_run: bool, style: &Style) -> String {
    let all: Vec<(f64, &Difference)> =
        pair.loads.iter().flat_map(|at| at.metrics.iter().map(move |metric| (at.load, metric))).collect();
    let is_shown = |d: &Difference| matches!(d.change, Change::Better | Change::Worse | Change::Differs);
    let shown: Vec<_> = all.iter().filter(|(_, d)| is_shown(d) && d.matters()).collect();
    let mut text = String::new();
    if !shown.is_empty() {
        let cells = |f: &dyn Fn(&Difference) -> String| shown.iter().map(|(_, d)| f(d)).collect::<Vec<_>>();
        let head = |side: &Side| clipped(&plain(if with_run { &side.run } else { &side.variant }), 20);
        let columns = [
            Column::numbers(&["load"], shown.iter().map(|(load, _)| number(*load)).collect()),
            Column::words(&["metric"], cells(&|d| clipped(&plain(&d.metric), 26))),
            Column::numbers(&[&head(&pair.a)], cells(&|d| amount(d, d.a.median))),
            Column::numbers(&[&head(&pair.b)], cells(&|d| amount(d, d.b.median))),
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
            Column::numbers(&["95 % interval"], cells(&|d| ends(d))),
            Column::numbers(&["n"], cells(&|d| format!("{}+{}", d.a.n, d.b.n))),
        ];
        text += "\n";
        text += &render(&columns, 2, style);
    }
    text + &style.wrapped("", &judged(pair, shown.len()))
}

/// How many numbers differ and how many do not; where none could be compared, why.
fn judged(pair: &Pair, differ: usize) -> String {
    let all: Vec<&Difference> = pair.loads.iter().flat_map(|at| &at.metrics).collect();
    let unknown: Vec<_> = all.iter().filter(|d| d.change == Change::Unknown).collect();
    let mut reasons: Vec<String> = unknown.iter().filter_map(|d| d.reason.as_deref().map(plain)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let few = unknown.iter().any(|d| d.a.n.min(d.b.n) < 3 && d.a.n.max(d.b.n) > 0);
    let advice = if few { "; measure both with --repeat 5" } else { "" };
    match (all.len(), unknown.len()) {
        (0, _) => {
            "No number can be compared: the two have no judged load in common; measure both at the same loads"
                .to_owned()
        }
        (all, unknown) if all == unknown => {
            format!("None of the {all} numbers can be compared{reasons}{advice}")
        }
        (all, unknown) => {
            let verb = if differ == 1 { "differs" } else { "differ" };
            let rest = match unknown {
                0 => String::new(),
                n => format!("; {n} not comparable{reasons}"),
            };
            format!(
                "{differ} of {} {verb} by more than the noise, {} do not{rest}",
                counted(all),
                all - unknown - differ
            )
        }
    }
}

fn counted(n: usize) -> String {
    if n == 1 { "1 number".to_owned() } else { format!("{n} numbers") }
}

fn value(value: Option<&Value>) -> String {
    match value {
        None => "unset".to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(other) => plain(&other.to_string()),
    }
}

fn setting(fact: &Fact) -> String {
    format!("{}: {} -> {}", plain(&fact.key), value(fact.a.as_ref()), value(fact.b.as_ref()))
}

fn facts(title: &str, all: &[RunFact], style: &Style) -> String {
    all.iter().map(|fact| style.wrapped(&format!("{title}: "), &run_fact(fact))).collect()
}

fn run_fact(fact: &RunFact) -> String {
    let values: Vec<_> = fact.values.iter().map(|v| clipped(&value(v.as_ref()), 60)).collect();
    format!("{}: {}", plain(&fact.key), values.join(" -> "))
}
