//! One run on a terminal.

use std::collections::BTreeMap;

use base::metric::MetricSpec;
use base::objective::Requirement;
use base::outcome::{Account, Evidence, Limit, LoadMetric, Resource, Run, Saturation, VariantOutcome};
use base::verdict::Verdict;

use super::Style;
use super::paint::Tone;
use super::table::{Column, render, render_apart};
use crate::digest::{self, Row};
use crate::doubts::DoubtGroup;
use crate::extras::Extras;
use crate::tables::{PrintedColumn, printed};
use crate::text::{clipped, moment, plain};
use crate::{doubts, findings, words};
use base::format::{Scale, UNKNOWN, duration, metric_words, number, quantity, unit_of};

/// How many pieces of evidence are printed; the page has them all.
const EVIDENCE_MAX: usize = 4;

/// The run as text: the answer in words, a table of the variants if there are several, for each variant a
/// table of its loads (trials combined by each metric's own fold) and one of saturation; then requirements,
/// doubts and the path of the report, if `page` names it. Ends with a line break.
pub fn summary(run: &Run, extras: &Extras, style: Style, page: Option<&str>) -> String {
    let mut text = answer(run, &style);
    if run.variants.len() > 1 {
        text += "\n";
        text += &variants(run, &style);
    }
    for variant in &run.variants {
        text += &one_variant(run, variant, extras, &style);
    }
    text += &requirements(run, extras.specs, &style);
    text += &doubt_lines(run, &style);
    text += &footer(run, &style, page);
    style.spell(text)
}

pub(super) fn answer(run: &Run, style: &Style) -> String {
    let mut text = String::new();
    if let Some(state) = words::state(run) {
        text += &toned(style, Tone::Odd, "", &state);
    }
    let answers = words::answers(run);
    if answers.is_empty() {
        text += &toned(style, Tone::Bold, "", &words::nothing_judged(run));
    }
    for answer in answers {
        let (first, indent) = match &answer.variant {
            Some(name) => (format!("{}: {}", plain(name), words::lower(&plain(&answer.carries))), "  "),
            None => (plain(&answer.carries), ""),
        };
        text += &toned(style, Tone::Bold, "", &first);
        text += &style.wrapped(indent, &plain(&answer.limit));
    }
    text
}

/// Wrapped lines, each in the tone by itself: a pager resets colours at line ends.
pub(super) fn toned(style: &Style, tone: Tone, lead: &str, text: &str) -> String {
    style.wrapped(lead, text).lines().map(|line| style.paint(tone, line) + "\n").collect()
}

fn variants(run: &Run, style: &Style) -> String {
    render(&variant_columns(run, true), 1, style)
}

/// The table of variants: name, main number, further numbers, limit.
/// One row per variant. `has_ranges`: the spread of every metric, not only of the main one.
pub(super) fn variant_columns(run: &Run, has_ranges: bool) -> Vec<Column> {
    let shown = |f: &dyn Fn(&VariantOutcome) -> String| run.variants.iter().map(f).collect::<Vec<_>>();
    let name = Column::words(&["variant"], shown(&|v| clipped(&plain(&v.name), 28)));
    let limit = Column::words(&["limit"], shown(&|v| words::limit_cell(&v.limit)));
    let found = findings::side_by_side(run);
    if !found.is_empty() {
        let columns = found.iter().enumerate().flat_map(|(at, row)| found_columns(row, at == 0, has_ranges));
        return [name].into_iter().chain(columns).chain([limit]).collect();
    }
    vec![
        name,
        Column::numbers(&["capacity"], shown(&|v| v.capacity.value.map_or(UNKNOWN.to_owned(), number))),
        Column::numbers(&["range"], shown(&|v| words::interval(&v.capacity))),
        Column::numbers(&["repetitions"], shown(&|v| v.repetitions.len().to_string())),
        Column::numbers(&["predicted"], shown(&words::predicted)),
        limit,
    ]
}

/// Columns of one metric over all variants: the median, and its spread if there are several repetitions; for
/// the main metric also their number, and the change.
fn found_columns(row: &findings::Row, is_main: bool, has_range: bool) -> Vec<Column> {
    let (unit, factor) = unit_of(row.metric);
    let medians: Vec<_> = row.medians().map(|median| median.map(|median| median * factor)).collect();
    let scale = Scale::for_values(unit, medians.iter().copied().flatten());
    let heading = metric_words(row.metric);
    let numbers = medians.iter().map(|median| scale.number(*median)).collect();
    let mut columns = vec![Column::numbers(&[&heading, &scale.unit], numbers)];
    let each = |of: &dyn Fn(&LoadMetric) -> String| {
        row.findings.iter().map(|found| found.map_or(UNKNOWN.to_owned(), of)).collect::<Vec<_>>()
    };
    let ends = |[least, most]: [f64; 2]| {
        format!("{} to {}", scale.number(Some(least * factor)), scale.number(Some(most * factor)))
    };
    let spread = |found: &LoadMetric| found.spread().map_or(UNKNOWN.to_owned(), ends);
    let is_repeated = row.findings.iter().flatten().any(|found| found.values.len() > 1);
    if is_repeated && (is_main || has_range) {
        columns.push(Column::numbers(&["range"], each(&spread)));
    }
    if is_main {
        if is_repeated {
            columns.push(Column::numbers(&["repetitions"], each(&|found| found.values.len().to_string())));
        }
        let first = medians.first().copied().flatten();
        let change = medians.iter().map(|median| words::change(first, *median)).collect();
        columns.push(Column::numbers(&["change"], change));
    }
    columns
}

fn one_variant(run: &Run, variant: &VariantOutcome, extras: &Extras, style: &Style) -> String {
    let mut text = "\n".to_owned();
    if run.variants.len() > 1 {
        text += &toned(style, Tone::Bold, "", &plain(&variant.name));
    }
    // The tables of one load's trial say more than a row of its metrics.
    if !(words::is_one_load(run, variant) && print_tables(&variant.account, style, &mut text)) {
        text += &loads(run, variant, extras, style);
    }
    if !variant.saturation.is_empty() {
        text += "\n";
        text += &saturation(&variant.saturation, &variant.capacity.unit, style);
    }
    text += "\n";
    text += &predicted_capacity(run, variant, style);
    // Omit evidence about costs, which the saturation table shows.
    let mut limit = variant.limit.clone();
    let is_cost = |piece: &Evidence| piece.inferred && piece.values.contains_key("saturates_at_load");
    let first = limit.evidence.first().cloned();
    limit.evidence.retain(|piece| Some(piece) == first.as_ref() || !is_cost(piece));
    text + &evidence(&limit, EVIDENCE_MAX, style)
}

/// Evidence of a limit after the first piece, which the answer contains.
pub(super) fn evidence(limit: &Limit, most: usize, style: &Style) -> String {
    let one = |(i, piece): (usize, &Evidence)| {
        let mark = if piece.inferred { " (computed)" } else { "" };
        let lead = if i == 0 { "Evidence:  - " } else { "           - " };
        style.wrapped(lead, &format!("{}{mark}", plain(&piece.statement).trim_end_matches('.')))
    };
    limit.evidence.iter().skip(1).take(most).enumerate().map(one).collect()
}

/// Prints the workload's own tables; `false` if it has none.
fn print_tables(account: &Account, style: &Style, text: &mut String) -> bool {
    for (number, table) in account.tables.iter().map(printed).enumerate() {
        if number > 0 {
            *text += "\n";
            *text += &toned(style, Tone::Bold, "", &plain(table.title));
        }
        let cells = |at: usize| {
            table.rows.iter().map(move |row| row.get(at).map_or_else(String::new, |cell| plain(cell)))
        };
        let column = |(at, column): (usize, &PrintedColumn<'_>)| match column.is_number {
            true => Column::numbers(&[column.title], cells(at).collect()),
            false => Column::words(&[column.title], cells(at).collect()),
        };
        let columns: Vec<_> = table.columns.iter().enumerate().map(column).collect();
        *text += &render_apart(&columns, style);
        for note in table.notes {
            *text += &style.wrapped("", &plain(note));
        }
    }
    !account.tables.is_empty()
}

/// The predicted capacity, or why there is none.
fn predicted_capacity(run: &Run, variant: &VariantOutcome, style: &Style) -> String {
    match variant.predicted {
        _ if words::is_one_load(run, variant) && !words::wants_a_search(run, variant) => String::new(),
        _ if words::is_one_load(run, variant) => style.wrapped("Capacity: ", words::NOT_SEARCHED),
        Some(load) => {
            let load = words::load(load, &variant.capacity.unit);
            let doubt = words::prediction_doubt(variant).map(|why| format!("; doubtful: {why}"));
            let (from, doubt) = (words::PREDICTED_FROM, doubt.unwrap_or_default());
            style.wrapped("Predicted capacity: ", &format!("{load}, {from}{doubt}"))
        }
        None if words::prediction_doubt(variant).is_some() => {
            style.wrapped("Predicted capacity: ", words::PREDICTION_REFUTED)
        }
        None => style.wrapped("Predicted capacity: ", &format!("unknown ({})", words::NOT_PREDICTED)),
    }
}

fn loads(run: &Run, variant: &VariantOutcome, extras: &Extras, style: &Style) -> String {
    let rows = digest::rows(run, &variant.name);
    if rows.is_empty() {
        return "No trials.\n".to_owned();
    }
    let unit = plain(&variant.capacity.unit);
    let head = if unit.is_empty() { "load" } else { unit.as_str() };
    let load = Scale::for_values(prefixable_unit(&unit), rows.iter().map(|row| row.load));
    let mut columns = vec![
        Column::numbers(&["", head], rows.iter().map(|row| load.number(Some(row.load))).collect()),
        Column::words(&["", "verdict"], rows.iter().map(Row::verdict_words).collect()),
    ];
    if head != load.unit && !load.unit.is_empty() {
        columns[0].head = vec!["load".to_owned(), load.unit.clone()];
    }
    for column in digest::columns(run, extras.specs).into_iter().filter(|column| !column.spare) {
        let values: Vec<_> = rows.iter().map(|row| row.value(&column)).collect();
        let scale = Scale::for_values(column.unit, values.iter().copied().flatten());
        let cells = values.iter().map(|value| scale.number(*value)).collect();
        columns.push(Column::numbers(&[&column.heading, &scale.unit], cells));
    }
    let note = extras.presentation.columns_note;
    let note = if note.is_empty() { String::new() } else { style.wrapped("", note) };
    coloured(&render(&columns, 2, style), style) + &note
}

/// The load's unit if it takes SI prefixes, else empty.
fn prefixable_unit(unit: &str) -> &'static str {
    match unit {
        "bit/s" => "bit/s",
        "B" => "B",
        "s" => "s",
        _ => "",
    }
}

/// Colours the verdict in each row; no other cell contains words.
fn coloured(table: &str, style: &Style) -> String {
    let paint = |line: &str| {
        let found = [Verdict::Pass, Verdict::Fail, Verdict::Invalid].into_iter();
        let mut found = found.filter(|verdict| line.contains(&format!("{verdict} ")));
        match found.next() {
            Some(verdict) => {
                // "pass 1/4" is no good news: the trials contradict each other.
                let count = line.split(&format!("{verdict} ")).nth(1).unwrap_or_default();
                let count = count.split(' ').next().unwrap_or_default();
                let is_unanimous = count.split_once('/').is_none_or(|(n, all)| n == all);
                let tone = if is_unanimous { Tone::of(verdict) } else { Tone::Odd };
                line.replacen(verdict.word(), &style.paint(tone, verdict.word()), 1) + "\n"
            }
            None => format!("{line}\n"),
        }
    };
    table.lines().map(paint).collect()
}

pub(super) fn saturation(all: &BTreeMap<Resource, Saturation>, unit: &str, style: &Style) -> String {
    let columns = saturation_columns(&all.iter().collect::<Vec<_>>(), unit);
    // A ceiling's source is a sentence, too long for a column.
    let known = all.iter().filter_map(|(resource, s)| Some((resource, s.ceiling.as_ref()?)));
    let sources = known.map(|(resource, ceiling)| {
        style.wrapped(&format!("Ceiling of {}: ", resource.label()), &plain(&ceiling.source))
    });
    render(&columns, 1, style) + &sources.collect::<String>()
}

/// One row per resource.
pub(super) fn saturation_columns(all: &[(&Resource, &Saturation)], unit: &str) -> [Column; 6] {
    let shown = |f: &dyn Fn(&Saturation) -> String| all.iter().map(|(_, s)| f(s)).collect::<Vec<_>>();
    let ceiling = |s: &Saturation| quantity(s.ceiling.as_ref().map(|ceiling| ceiling.value), &plain(&s.unit));
    let each = format!("per {}", plain(words::singular(unit)));
    [
        Column::words(&["resource"], all.iter().map(|(resource, _)| resource.label().to_owned()).collect()),
        Column::numbers(&[&each], shown(&words::cost)),
        Column::numbers(&["ceiling"], shown(&ceiling)),
        Column::numbers(&["exhausted at"], shown(&words::saturates_at)),
        Column::numbers(&["95 % interval"], shown(&words::saturates_within)),
        Column::numbers(&["passes"], shown(&|s| s.n.to_string())),
    ]
}

fn requirements(run: &Run, specs: &[MetricSpec], style: &Style) -> String {
    let text: String = run.requirements.iter().map(|required| requirement(required, specs, style)).collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

pub(super) fn requirement(required: &Requirement, specs: &[MetricSpec], style: &Style) -> String {
    let (tone, word) = match (required.held, &required.unknown) {
        (true, _) => (Tone::Good, "met"),
        (false, Some(_)) => (Tone::Bad, "unknown"),
        (false, None) => (Tone::Bad, "not met"),
    };
    let why = required.unknown.as_ref().map(|why| format!("; {}", plain(why))).unwrap_or_default();
    let line = format!(
        "{}: {word} (measured {}{why})",
        plain(&required.requirement),
        words::measured(required, specs)
    );
    toned(style, tone, "Requirement ", &line)
}

/// The doubts as sentences, each with its advice.
pub(super) fn doubt_texts(doubts: Vec<DoubtGroup<'_>>) -> Vec<String> {
    let text = |doubt: DoubtGroup<'_>| {
        let about = if doubt.about.is_empty() {
            String::new()
        } else {
            format!("{}: ", plain(&doubt.about.join(", ")))
        };
        format!("{about}{}; {}", plain(&doubt.message), plain(&doubt.advice))
    };
    doubts.into_iter().map(text).collect()
}

pub(super) fn doubt_lines(run: &Run, style: &Style) -> String {
    let lines = doubt_texts(doubts::doubts(run))
        .iter()
        .map(|text| toned(style, Tone::Odd, "Doubt: ", text))
        .collect::<Vec<_>>();
    let text = lines.concat();
    if text.is_empty() { text } else { format!("\n{text}") }
}

fn footer(run: &Run, style: &Style, page: Option<&str>) -> String {
    let length = words::length_s(run).map(|s| format!(", {}", duration(s))).unwrap_or_default();
    let n = run.trials.len();
    let line = format!(
        "run {} ({}), {n} trial{}{length}, {}, kagiri {}",
        plain(&run.run),
        plain(&run.name),
        if n == 1 { "" } else { "s" },
        moment(run.started_at),
        plain(&run.kagiri),
    );
    let mut text = format!("\n{}", toned(style, Tone::Faint, "", &line));
    if let Some(path) = page {
        // Not wrapped: a path that is broken cannot be copied.
        text += &format!("Report: {}\n", plain(path));
    }
    text
}
