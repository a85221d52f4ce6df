//! Variants that differ in one number: their results as figures against that number.
//!
//! What else differs between the variants, such as a pattern, groups them: each group has a line of its own.

use std::collections::{BTreeMap, BTreeSet};

use base::format::{capitalized, metric_words, number, quantity as spelt, unit_of};
use base::outcome::{Axis, Figure, Layer, Marks, Resource, Run, Tone, Trial, VariantOutcome};
use base::statistics::median;
use base::units::{BitRate, ByteSize, Span};
use base::verdict::Verdict;
use serde_json::Value;

use crate::chart::Tick;
use crate::{findings, words};

/// Different numbers that make a line.
const NUMBERS_MIN: usize = 3;
/// Up to this multiple of the greatest value, a ceiling is on the scale.
const CEILING_NEAR: f64 = 1.6;
/// From this ratio of greatest to least on, the axis is logarithmic.
const WIDE_RATIO: f64 = 20.0;
/// The longest value of a setting that can name a group.
const NAME_CHARS_MAX: usize = 24;
const TONES: [Tone; 6] = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth, Tone::Fifth, Tone::Sixth];

/// The variants of a run by the number in which they differ.
#[derive(Debug, Clone, PartialEq)]
struct Sweep {
    /// The setting: `size`.
    name: String,
    unit: &'static str,
    /// By the name of the group, which is empty for a single one: the number and the name of each variant.
    groups: BTreeMap<String, Vec<Point>>,
}

/// A variant of a sweep.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    number: f64,
    /// The number as it stands in the plan: `64KiB`.
    spelt: String,
    variant: String,
}

/// A value of a setting that has a number: `poisson 60/s`.
#[derive(Debug, Clone, PartialEq)]
struct Quantity {
    /// What stands before it: `poisson`.
    before: String,
    number: f64,
    /// The number as it stands: `60/s`.
    spelt: String,
    unit: &'static str,
}

/// The results of the variants against the number in which they differ; none if there is no such number, or
/// several.
pub fn figures(run: &Run) -> Vec<Figure> {
    let Some(sweep) = sweep(run) else { return Vec::new() };
    let rows = findings::side_by_side(run);
    let mut units: Vec<Vec<&str>> = Vec::new();
    for metric in rows.iter().map(|row| row.metric) {
        let unit = unit_of(metric);
        // Metrics of one unit share a figure while their lines can be distinguished.
        let has_room = |known: &&mut Vec<&str>| {
            unit_of(known[0]) == unit && !unit.0.is_empty() && (known.len() + 1) * sweep.groups.len() <= 3
        };
        match units.iter_mut().find(has_room) {
            Some(known) => known.push(metric),
            None => units.push(vec![metric]),
        }
    }
    units.iter().filter_map(|metrics| figure(run, &sweep, metrics)?.kept()).collect()
}

/// The numbers in which the variants differ, as the plan has them: `64KiB`.
pub fn ticks(run: &Run) -> Vec<Tick> {
    let Some(sweep) = sweep(run) else { return Vec::new() };
    let mut all: Vec<&Point> = sweep.groups.values().flatten().collect();
    all.sort_by(|one, other| one.number.total_cmp(&other.number));
    all.dedup_by(|one, other| one.number == other.number);
    all.into_iter().map(|point| Tick { at: point.number, label: point.spelt.clone() }).collect()
}

/// What the groups reach at the greatest number and at the least, as sentences, the best first; nothing if
/// there is no such number, or no metric that all variants know.
pub fn sentences(run: &Run) -> Vec<String> {
    let Some(sweep) = sweep(run) else { return Vec::new() };
    let rows = findings::side_by_side(run);
    let Some(row) = rows.iter().find(|row| row.findings.iter().all(Option::is_some)) else {
        return Vec::new();
    };
    let is_common = |point: &&Point| {
        sweep.groups.values().all(|group| group.iter().any(|one| one.number == point.number))
    };
    let common: Vec<&Point> = sweep.groups.values().next().into_iter().flatten().filter(is_common).collect();
    let ends = [common.last(), common.first().filter(|_| common.len() > 1)];
    ends.into_iter().flatten().map(|point| at(run, &sweep, row.metric, point)).collect()
}

/// `Goodput at size 1MiB: bulk: 956 Mbit/s, limited by network; push: 610 Mbit/s (64 % of that).`
fn at(run: &Run, sweep: &Sweep, metric: &str, at: &Point) -> String {
    let found = |(group, points): (&String, &Vec<Point>)| {
        let point = points.iter().find(|point| point.number == at.number)?;
        let variant = run.variants.iter().find(|variant| variant.name == point.variant)?;
        let finding = variant.findings.iter().find(|finding| finding.metric == metric)?;
        Some((group.clone(), finding.median()?, findings::median(finding), variant))
    };
    let mut found: Vec<_> = sweep.groups.iter().filter_map(found).collect();
    found.sort_by(|one, other| other.1.total_cmp(&one.1));
    let most = found.first().map_or(0.0, |best| best.1);
    let part = |(place, (group, value, text, variant)): (usize, (String, f64, String, &VariantOutcome))| {
        let share =
            (place > 0 && most > 0.0).then(|| format!(" ({} % of that)", number(100.0 * value / most)));
        let (share, limit) = (share.unwrap_or_default(), limited(variant));
        let group = if group.is_empty() { group } else { group + ": " };
        format!("{group}{text}{share}{limit}")
    };
    let parts: Vec<String> = found.into_iter().enumerate().map(part).collect();
    format!("{} at {} {}: {}.", capitalized(&metric_words(metric)), sweep.name, at.spelt, parts.join("; "))
}

/// `, limited by network (confirmed)`; nothing where no limit is known.
fn limited(variant: &VariantOutcome) -> String {
    match variant.limit.resource {
        Resource::None => String::new(),
        _ => format!(", limited by {}", words::limit_cell(&variant.limit)),
    }
}

fn figure(run: &Run, sweep: &Sweep, metrics: &[&str]) -> Option<Figure> {
    let parts: Vec<String> = metrics.iter().flat_map(|metric| with_parts(run, metric)).collect();
    let metrics = match parts.len() * sweep.groups.len() > TONES.len() {
        true => metrics.iter().map(|metric| (*metric).to_owned()).collect(),
        false => parts,
    };
    let (unit, factor) = unit_of(&metrics[0]);
    let is_crowded = metrics.len() * sweep.groups.len() > TONES.len();
    let (mut tones, mut layers) = (TONES.into_iter(), Vec::new());
    for (group, variants) in &sweep.groups {
        for metric in &metrics {
            let points = points(run, variants, metric, factor);
            // A group without points keeps its tone: others have the same one as in other figures.
            let tone = if is_crowded && points.is_empty() { None } else { tones.next() };
            let (false, tone) = (points.is_empty(), tone) else { continue };
            // More lines than tones could not be distinguished.
            let tone = tone?;
            let name = match (group.is_empty(), metrics.len()) {
                (true, 1) => String::new(),
                (true, _) => metric_words(metric),
                (false, 1) => group.clone(),
                (false, _) => format!("{group}: {}", metric_words(metric)),
            };
            if let Some(at) = spans(&points) {
                layers.push(Layer::new("", tone, Marks::Band { at }));
            }
            layers.push(Layer::new("", tone, Marks::Points { at: points.clone() }));
            layers.push(Layer::new(&name, tone, Marks::Line { at: medians(&points) }));
        }
    }
    // That nothing happened in any variant is said by the table.
    if layers.iter().flat_map(|layer| tops(&layer.marks)).all(|top| top == 0.0) {
        return None;
    }
    let has_band = layers.iter().any(|layer| matches!(layer.marks, Marks::Band { .. }));
    let mut note = "Each point is a trial of a variant, the line joins the medians".to_owned();
    note += if has_band { ", the band spans the trials." } else { "." };
    if let [metric] = &metrics[..]
        && let Some(ceiling) = ceiling(run, metric).map(|ceiling| ceiling * factor)
    {
        let most = layers.iter().flat_map(|layer| tops(&layer.marks)).fold(0.0, f64::max);
        let text = format!("ceiling {}", spelt(Some(ceiling), unit));
        if ceiling <= most * CEILING_NEAR {
            layers.push(Layer::new("", Tone::Soft, Marks::Across { y: ceiling, label: text }));
        } else {
            note += &format!(" \u{2191} {}, above the scale.", capitalized(&text));
        }
    }
    let numbers = || sweep.groups.values().flatten().map(|point| point.number);
    let (least, most) = (numbers().fold(f64::INFINITY, f64::min), numbers().fold(0.0, f64::max));
    let is_wide = least > 0.0 && most / least >= WIDE_RATIO;
    let x = Axis { is_log: is_wide, ..Axis::of(&sweep.name, sweep.unit) };
    let quantity = match (metrics.len(), unit) {
        (1, _) => metric_words(&metrics[0]),
        (_, "bit/s") => "rate".into(),
        (_, "s" | "ms" | "us") => "time".into(),
        _ => metrics.iter().map(|metric| metric_words(metric)).collect::<Vec<_>>().join(", "),
    };
    Some(Figure {
        title: format!("{} against {}", capitalized(&quantity), sweep.name),
        note,
        x,
        y: Axis::of(&quantity, unit),
        layers,
    })
}

/// A metric, and the same of the parts of a trial, if they are few: `source_1_goodput_bit_per_s` of clients,
/// `alarm_response_p99_ms` of classes.
fn with_parts(run: &Run, metric: &str) -> Vec<String> {
    let ending = format!("_{metric}");
    let known: BTreeSet<&String> = run.trials.iter().flat_map(|trial| trial.metrics.keys()).collect();
    let of_part = |name: &&&String| {
        let part = name.strip_suffix(&ending);
        // `idle_response_p50_us` is a result of its own.
        part.is_some() && run.variants.iter().all(|v| v.findings.iter().all(|f| f.metric != ***name))
    };
    let parts: Vec<String> = known.iter().filter(of_part).map(|name| (*name).clone()).collect();
    match parts.len() {
        2..=4 => parts,
        _ => vec![metric.to_owned()],
    }
}

/// A metric of every trial that counts and knows it, against the variants' numbers.
fn points(run: &Run, variants: &[Point], metric: &str, factor: f64) -> Vec<[f64; 2]> {
    let value = |trial: &Trial| Some(trial.metrics.get(metric).copied().flatten()? * factor);
    let of_variant = |Point { number, variant, .. }: &Point| {
        let trials = run.trials.iter().filter(|trial| trial.variant == *variant);
        let counted = trials.filter(|trial| trial.verdict != Verdict::Invalid);
        counted.filter_map(value).map(|value| [*number, value]).collect::<Vec<_>>()
    };
    variants.iter().flat_map(of_variant).collect()
}

/// The least and the greatest of the points of each number; `None` unless each has several.
fn spans(points: &[[f64; 2]]) -> Option<Vec<[f64; 3]>> {
    let of_number = |same: &[[f64; 2]]| {
        let values = same.iter().map(|point| point[1]);
        let (least, most) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max));
        (same.len() > 1).then_some([same[0][0], least, most])
    };
    points.chunk_by(|one, next| one[0] == next[0]).map(of_number).collect()
}

/// The ceiling that all variants share, to 1 %.
fn ceiling(run: &Run, metric: &str) -> Option<f64> {
    let all: Vec<f64> =
        run.variants.iter().map(|variant| findings::ceiling(run, variant, metric)).collect::<Option<_>>()?;
    let first = *all.first()?;
    all.iter().all(|one| (one / first - 1.0).abs() < 0.01).then_some(first)
}

/// The heights of points.
fn tops(marks: &Marks) -> impl Iterator<Item = f64> {
    let at = if let Marks::Points { at } = marks { &at[..] } else { &[] };
    at.iter().map(|point| point[1])
}

/// The medians of points, which are in the order of their numbers.
fn medians(points: &[[f64; 2]]) -> Vec<(f64, Option<f64>)> {
    let of_number = |same: &[[f64; 2]]| {
        let values: Vec<f64> = same.iter().map(|point| point[1]).collect();
        (same[0][0], median(&values))
    };
    points.chunk_by(|one, next| one[0] == next[0]).map(of_number).collect()
}

fn sweep(run: &Run) -> Option<Sweep> {
    let variants = run.plan.get("variants")?.as_array()?;
    if variants.len() != run.variants.len() || variants.len() < NUMBERS_MIN {
        return None;
    }
    let names: Vec<&str> = variants.iter().map(|one| one.get("name")?.as_str()).collect::<Option<_>>()?;
    let all: Vec<BTreeMap<String, &Value>> = variants.iter().map(settings).collect();
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&&String| all.iter().any(|one| one.get(**key) != all[0].get(**key));
    let differing: Vec<&String> = keys.iter().filter(differs).copied().collect();
    let as_number = |key: &&String| {
        let numbers: Vec<Quantity> =
            all.iter().map(|one| quantity(one.get(*key)?)).collect::<Option<Vec<_>>>()?;
        let is_one_unit = numbers.iter().all(|one| one.unit == numbers[0].unit);
        let different: BTreeSet<u64> = numbers.iter().map(|one| one.number.to_bits()).collect();
        (is_one_unit && different.len() >= NUMBERS_MIN).then(|| ((*key).clone(), numbers))
    };
    let mut numbers = differing.iter().filter_map(as_number);
    let (Some((key, numbers)), None) = (numbers.next(), numbers.next()) else { return None };
    let is_worded = numbers.iter().any(|one| one.before != numbers[0].before);
    let mut groups: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for (at, number) in numbers.iter().enumerate() {
        let mut words = Vec::from_iter(is_worded.then(|| number.before.clone()));
        for other in differing.iter().filter(|other| **other != &key) {
            words.push(word(other, all[at].get(*other).copied())?);
        }
        words.retain(|word| !word.is_empty());
        let Quantity { number, spelt, .. } = number.clone();
        let point = Point { number, spelt, variant: names[at].to_owned() };
        groups.entry(words.join(", ")).or_default().push(point);
    }
    for group in groups.values_mut() {
        group.sort_by(|one, other| one.number.total_cmp(&other.number));
        // Two variants of one number differ in something that the plan does not show.
        if group.len() < 2 || group.windows(2).any(|pair| pair[0].number == pair[1].number) {
            return None;
        }
    }
    let name = key.strip_prefix("settings.").unwrap_or(&key).replace(['_', '.'], " ");
    let groups = named(groups);
    (groups.len() <= TONES.len()).then_some(Sweep { name, unit: numbers[0].unit, groups })
}

/// The groups by what the names of their variants begin with, up to the last comma, if that tells them apart:
/// a plan's own words are better than the names of settings.
fn named(groups: BTreeMap<String, Vec<Point>>) -> BTreeMap<String, Vec<Point>> {
    let own = |points: &Vec<Point>| {
        let mut names = points.iter().map(|point| point.variant.rsplit_once(", ").map(|(name, _)| name));
        let first = names.next()??;
        names.all(|name| name == Some(first)).then(|| first.to_owned())
    };
    let names: Option<BTreeSet<String>> = groups.values().map(own).collect();
    if names.is_none_or(|names| names.len() < groups.len()) {
        return groups;
    }
    groups.into_values().filter_map(|points| Some((own(&points)?, points))).collect()
}

/// All settings of a variant by their keys, `settings.requests.size`.
fn settings(variant: &Value) -> BTreeMap<String, &Value> {
    let mut all = BTreeMap::new();
    let mut open = vec![(String::new(), variant)];
    while let Some((key, value)) = open.pop() {
        match value.as_object() {
            Some(table) => open.extend(table.iter().map(|(name, value)| {
                (if key.is_empty() { name.clone() } else { format!("{key}.{name}") }, value)
            })),
            None if key != "name" && !value.is_null() => drop(all.insert(key, value)),
            None => {}
        }
    }
    all
}

fn quantity(value: &Value) -> Option<Quantity> {
    if let Some(number) = value.as_f64() {
        return Some(Quantity {
            before: String::new(),
            number,
            spelt: base::format::number(number),
            unit: "",
        });
    }
    let text = value.as_str()?;
    let (before, last) = text.rsplit_once(' ').unwrap_or(("", text));
    let (number, unit) = if let Some(rate) = last.strip_suffix("/s").and_then(|rate| rate.parse::<f64>().ok())
    {
        (rate, "/s")
    } else if let Ok(size) = last.parse::<ByteSize>() {
        (size.bytes() as f64, "B")
    } else if let Ok(rate) = last.parse::<BitRate>() {
        (rate.bit_per_s() as f64, "bit/s")
    } else {
        (last.parse::<Span>().ok()?.s(), "s")
    };
    Some(Quantity { before: before.to_owned(), number, spelt: last.to_owned(), unit })
}

/// The value of a setting as part of a group's name; `None` if it is no word.
fn word(key: &str, value: Option<&Value>) -> Option<String> {
    let name = key.rsplit('.').next().unwrap_or(key).replace('_', " ");
    match value {
        None | Some(Value::Bool(false)) => Some(String::new()),
        Some(Value::Bool(true)) => Some(name),
        Some(Value::Number(number)) => Some(format!("{name} {number}")),
        Some(Value::String(text)) if text.chars().count() <= NAME_CHARS_MAX => Some(text.clone()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_of_settings_are_read_with_their_units() {
        for (value, before, number, spelt, unit) in [
            (json!(17), "", 17.0, "17", ""),
            (json!("1KiB"), "", 1024.0, "1KiB", "B"),
            (json!("poisson 60/s"), "poisson", 60.0, "60/s", "/s"),
            (json!("50Mbit/s"), "", 50e6, "50Mbit/s", "bit/s"),
            (json!("20ms"), "", 0.02, "20ms", "s"),
        ] {
            let expected = Quantity { before: before.to_owned(), number, spelt: spelt.to_owned(), unit };
            assert_eq!(quantity(&value), Some(expected), "{value}");
        }
        for value in [json!("push"), json!(true), json!([1]), json!("reno")] {
            assert_eq!(quantity(&value), None, "{value}");
        }
    }

    #[test]
    fn group_is_named_after_what_else_differs() {
        assert_eq!(word("settings.pattern", Some(&json!("push"))).as_deref(), Some("push"));
        assert_eq!(word("settings.no_delay", Some(&json!(true))).as_deref(), Some("no delay"));
        assert_eq!(word("settings.window", Some(&json!(4))).as_deref(), Some("window 4"));
        assert_eq!(word("qos.policy", Some(&json!("[bottleneck]\ninterface = 'eth0'\n"))), None);
    }
}
