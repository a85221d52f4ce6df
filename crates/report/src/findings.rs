//! What came of single loads, variant beside variant: of a transfer its goodput says what a capacity of one flow cannot.

use base::outcome::{Finding, Run, Table, VariantOutcome};

use crate::units::{self, UNKNOWN};

/// One number of all variants.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// The metric, with its unit last.
    pub metric: &'a str,
    /// One a variant, in the run's order; `None` where it is not known.
    pub findings: Vec<Option<&'a Finding>>,
}

impl Row<'_> {
    /// The median of each variant, in the metric's unit.
    pub fn medians(&self) -> impl Iterator<Item = Option<f64>> {
        self.findings.iter().map(|found| found.and_then(Finding::median))
    }
}

/// The findings of all variants, the main ones first; nothing where capacities are the answer.
pub fn side_by_side(run: &Run) -> Vec<Row<'_>> {
    let mut metrics: Vec<&str> = Vec::new();
    for finding in run.variants.iter().flat_map(|variant| &variant.findings) {
        if !metrics.contains(&finding.metric.as_str()) {
            metrics.push(&finding.metric);
        }
    }
    let of = |metric| {
        let found = |variant| find(variant, metric);
        Row { metric, findings: run.variants.iter().map(found).collect() }
    };
    metrics.into_iter().map(of).collect()
}

/// What a variant has found of a metric.
fn find<'a>(variant: &'a VariantOutcome, metric: &str) -> Option<&'a Finding> {
    variant.findings.iter().find(|finding| finding.metric == metric)
}

/// The median with its unit: `941 Mbit/s`.
pub fn median(finding: &Finding) -> String {
    units::metric(&finding.metric, finding.median())
}

/// The least and the greatest repetition: `939 to 943 Mbit/s`; a dash of a single one.
pub fn spread(finding: &Finding) -> String {
    let (unit, factor) = units::unit_of(&finding.metric);
    units::range(finding.spread().map(|ends| ends.map(|end| end * factor)), unit)
}

/// How sure the median is: `939 to 943 Mbit/s, n = 3`.
pub fn sureness(finding: &Finding) -> String {
    let n = finding.values.len();
    match spread(finding).as_str() {
        UNKNOWN => format!("n = {n}"),
        spread => format!("{spread}, n = {n}"),
    }
}

/// The workload's own tables of all variants, those of one title and form as one, in which each row begins with its
/// variant.
pub fn tables(run: &Run) -> Vec<Table> {
    let all = || {
        run.variants.iter().flat_map(|v| v.account.tables.iter().map(move |table| (v.name.as_str(), table)))
    };
    let mut forms: Vec<&Table> = Vec::new();
    for (_, table) in all() {
        if !forms.iter().any(|known| is_alike(known, table)) {
            forms.push(table);
        }
    }
    let merged = |form: &Table| {
        let alike: Vec<(&str, &Table)> = all().filter(|(_, table)| is_alike(form, table)).collect();
        let named = |name: &str, row: &[String]| [&[name.to_owned()], row].concat();
        let rows = alike.iter().flat_map(|(name, table)| table.rows.iter().map(|row| named(name, row)));
        Table {
            title: form.title.clone(),
            head: named("variant", &form.head),
            rows: rows.collect(),
            notes: notes(&alike, run.variants.len()),
        }
    };
    forms.into_iter().map(merged).collect()
}

fn is_alike(one: &Table, other: &Table) -> bool {
    one.title == other.title && one.head == other.head
}

/// Each note once, after the names of the variants that have it; after none where all of them do.
fn notes(tables: &[(&str, &Table)], variants: usize) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, note) in
        tables.iter().flat_map(|(name, table)| table.notes.iter().map(move |note| (*name, note)))
    {
        match all.iter_mut().find(|(known, _)| *known == note.as_str()) {
            Some((_, names)) => names.push(name),
            None => all.push((note, vec![name])),
        }
    }
    let told = |(note, names): (&str, Vec<&str>)| match names.len() {
        n if n == variants => note.to_owned(),
        _ => format!("{}: {note}", names.join(", ")),
    };
    all.into_iter().map(told).collect()
}
