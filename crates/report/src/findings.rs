//! What came of single loads, variant beside variant: of a transfer its goodput says what a capacity of one
//! flow cannot.

use std::cmp::Reverse;

use base::outcome::{Cell, Column, LoadMetric, Resource, Run, Table, Trial, VariantOutcome};
use base::statistics;

use crate::text::separated;
use base::format;
use base::format::UNKNOWN;

#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The metric, with its unit last.
    pub metric: &'a str,
    /// One a variant, in the run's order; `None` where it is not known.
    pub findings: Vec<Option<&'a LoadMetric>>,
}

impl Row<'_> {
    /// The median of each variant, in the metric's unit.
    pub fn medians(&self) -> impl Iterator<Item = Option<f64>> {
        self.findings.iter().map(|found| found.and_then(LoadMetric::median))
    }
}

/// The findings of all variants, in the order of the one that has most, those that all of them have first;
/// nothing where capacities are the answer.
pub fn side_by_side(run: &Run) -> Vec<Row<'_>> {
    let mut metrics: Vec<&str> = Vec::new();
    let mut fullest: Vec<&VariantOutcome> = run.variants.iter().collect();
    fullest.sort_by_key(|variant| Reverse(variant.findings.len()));
    for finding in fullest.into_iter().flat_map(|variant| &variant.findings) {
        if !metrics.contains(&finding.metric.as_str()) {
            metrics.push(&finding.metric);
        }
    }
    let of = |metric| {
        let found = |variant| find(variant, metric);
        Row { metric, findings: run.variants.iter().map(found).collect() }
    };
    let mut rows: Vec<Row> = metrics.into_iter().map(of).collect();
    // Only what every variant has compares them.
    rows.sort_by_key(|row| row.findings.iter().any(Option::is_none));
    rows
}

fn find<'a>(variant: &'a VariantOutcome, metric: &str) -> Option<&'a LoadMetric> {
    variant.findings.iter().find(|finding| finding.metric == metric)
}

/// The median with its unit: `941 Mbit/s`, `8619 events/s`.
pub fn median(finding: &LoadMetric) -> String {
    let text = separated(&format::metric(&finding.metric, finding.median()));
    // What is counted per second has its name for a unit.
    match (finding.metric.strip_suffix("_per_s"), text.strip_suffix(" /s")) {
        (Some(name), Some(number)) => format!("{number} {name}/s"),
        _ => text,
    }
}

/// A metric in words: what its name abbreviates is spelt out.
pub fn name(metric: &str) -> String {
    match format::metric_words(metric).as_str() {
        "mb" => "throughput".to_owned(),
        "ops" => "operations".to_owned(),
        "op mean" => "mean of an operation".to_owned(),
        words => words.replace(" per mib", " per MiB"),
    }
}

/// The same without what its metric's name says: `8619 /s`.
pub fn number(finding: &LoadMetric) -> String {
    separated(&format::metric(&finding.metric, finding.median()))
}

/// The most that a metric can be in a variant, in the metric's unit: what the link carries, in all directions
/// or in one, and what the port allows of events.
pub fn ceiling(run: &Run, variant: &VariantOutcome, metric: &str) -> Option<f64> {
    let median_of = |name: &str| {
        let value = |trial: &Trial| trial.metrics.get(name).copied().flatten();
        statistics::median(&run.trials_of(&variant.name).filter_map(value).collect::<Vec<_>>())
    };
    let each = || median_of("theoretical_bit_per_s").or_else(|| median_of("link_bit_per_s"));
    let ways = ["goodput_up_bit_per_s", "goodput_down_bit_per_s"];
    let ceiling = match metric {
        "goodput_bit_per_s" => each()? * ways.into_iter().filter_map(median_of).count().max(1) as f64,
        way if ways.contains(&way) => each()?,
        "events_per_s" => {
            100.0 * median_of(metric)? / median_of("ideal_percent").filter(|share| *share > 0.0)?
        }
        _ => return None,
    };
    // The 10 Gbit/s of a veth pair are nominal: what is more refutes them.
    let is_refuted = |value: f64| Resource::Network.rule().is_refuted(value / ceiling);
    (!median_of(metric).is_some_and(is_refuted)).then_some(ceiling)
}

/// The least and the greatest repetition: `939 to 943 Mbit/s`; a dash of a single one.
pub fn spread(finding: &LoadMetric) -> String {
    let (unit, factor) = format::unit_of(&finding.metric);
    format::range(finding.spread().map(|ends| ends.map(|end| end * factor)), unit)
}

/// How sure the median is: `939 to 943 Mbit/s, 3 trials`.
pub fn sureness(finding: &LoadMetric) -> String {
    let trials = format::plural(finding.values.len() as u64, "trial");
    match spread(finding).as_str() {
        UNKNOWN => trials,
        spread => format!("{spread}, {trials}"),
    }
}

type Named<'a> = (&'a str, &'a Table);

/// The workload's own tables of all variants, those of one title as one, in which each row begins with its
/// variant.
pub fn tables(run: &Run) -> Vec<Table> {
    let own = run.variants.iter().map(|variant| (variant.name.as_str(), &variant.account.tables));
    let all: Vec<Named> =
        own.flat_map(|(name, tables)| tables.iter().map(move |table| (name, table))).collect();
    let mut titles: Vec<&str> = Vec::new();
    for (_, table) in &all {
        if !titles.contains(&table.title.as_str()) {
            titles.push(&table.title);
        }
    }
    let alike =
        |title: &str| all.iter().filter(|(_, table)| table.title == title).copied().collect::<Vec<_>>();
    titles.into_iter().map(|title| as_one(&alike(title), run.variants.len())).collect()
}

/// Tables of one title as one; a column that one of them lacks is unknown of it.
fn as_one(tables: &[Named], variants: usize) -> Table {
    let mut widest: Vec<&Table> = tables.iter().map(|(_, table)| *table).collect();
    widest.sort_by_key(|table| Reverse(table.columns.len()));
    let mut columns: Vec<&Column> = Vec::new();
    for column in widest.iter().flat_map(|table| &table.columns) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let cell = |table: &Table, row: &[Cell], column: &Column| {
        let at = table.columns.iter().position(|known| known == column);
        at.and_then(|at| row.get(at)).map_or(Cell::Unknown, Cell::clone)
    };
    let row = |variant: &str, table: &Table, row: &[Cell]| {
        let cells = columns.iter().map(|column| cell(table, row, column));
        std::iter::once(variant.into()).chain(cells).collect::<Vec<_>>()
    };
    let rows =
        tables.iter().flat_map(|(variant, table)| table.rows.iter().map(|cells| row(variant, table, cells)));
    let variant = Column { title: "variant".to_owned(), ..Column::default() };
    Table {
        title: widest.first().map(|table| table.title.clone()).unwrap_or_default(),
        rows: rows.collect(),
        notes: notes(tables, variants),
        columns: std::iter::once(&variant).chain(columns).cloned().collect(),
    }
}

/// Each note once, after the names of the variants that have it; after none where all of them do.
fn notes(tables: &[Named], variants: usize) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, note) in
        tables.iter().flat_map(|(name, table)| table.notes.iter().map(move |note| (*name, note)))
    {
        match all.iter_mut().find(|(known, _)| *known == note.as_str()) {
            Some((_, names)) => names.push(name),
            None => all.push((note, vec![name])),
        }
    }
    let sentence = |(note, names): (&str, Vec<&str>)| match names.len() {
        n if n == variants => note.to_owned(),
        _ => format!("{}: {note}", names.join(", ")),
    };
    all.into_iter().map(sentence).collect()
}
