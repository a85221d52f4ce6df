//! The table from which a limit is read: one row per trial, usage against load.

use std::collections::BTreeMap;

use base::outcome::{Capacity, Ceiling, Limit, Resource, Trial};
use base::statistics::median;
use base::verdict::Verdict;
use serde::{Deserialize, Serialize};

/// The resources whose usage a row can hold, in the order in which they are spoken of.
pub const RESOURCES: [Resource; 5] =
    [Resource::Cpu, Resource::Disk, Resource::Network, Resource::Memory, Resource::Player];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The load that was offered, in the table's `load_unit`.
    pub load: f64,
    pub verdict: Option<Verdict>,
    /// Usage per resource, in [`Resource::unit`]; what is not known is absent, not zero.
    pub usage: BTreeMap<Resource, f64>,
    /// Every other number by its name with the unit last, such as `throttled_percent`.
    pub counters: BTreeMap<String, f64>,
}

/// Usage against load, with what is known of the ceilings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadTable {
    /// In the order in which they were measured; a load may occur more than once.
    pub rows: Vec<Row>,
    /// The most that there is of each resource, where known.
    pub ceilings: BTreeMap<Resource, Ceiling>,
    /// What a load counts: "streams".
    pub load_unit: String,
    /// Whether the table was measured elsewhere: a ceiling that is given then may be another machine's.
    pub elsewhere: bool,
    /// The capacity, where a search has found it: the verdicts are then not read a second time by another
    /// rule.
    pub capacity: Option<Capacity>,
    /// The limit by the workload's own counters, which are better evidence than samples.
    #[serde(default)]
    pub limit: Option<Limit>,
    /// Counters that say how long a request took.
    #[serde(default)]
    pub latencies: Vec<Series>,
    /// Counters that say how much was carried.
    #[serde(default)]
    pub throughputs: Vec<Series>,
    /// Columns of the text that the explanation does not use.
    pub ignored_columns: Vec<String>,
}

/// A counter of the rows that a column of a table holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Its name among the counters of a row; times are in ms.
    pub counter: String,
    /// As the table names it.
    pub header: String,
    /// The header names the unit of a time.
    pub has_unit: bool,
}

impl LoadTable {
    /// The table of one variant's trials. Metrics that are unknown stay absent, and so do trials in which
    /// nothing was measured.
    pub fn from_trials<'a>(
        trials: impl IntoIterator<Item = &'a Trial>,
        ceilings: BTreeMap<Resource, Ceiling>,
        load_unit: &str,
    ) -> Self {
        let measured = trials.into_iter().filter(|trial| !trial.is_unmeasured());
        let rows = measured.map(Row::from_trial).collect();
        Self { rows, ceilings, load_unit: load_unit.to_owned(), ..Self::default() }
    }

    /// The same table without the rows above `load`: what was known before those loads were tried, and before
    /// the capacity was.
    pub fn up_to(&self, load: f64) -> Self {
        let mut lower = Self { capacity: None, limit: None, ..self.clone() };
        lower.rows.retain(|row| row.load <= load);
        lower
    }

    pub fn loads(&self) -> Vec<f64> {
        distinct(self.rows.iter().map(|row| row.load))
    }

    /// The median of a counter at each load, ascending, without the trials that something disturbed.
    pub fn counter_by_load(&self, counter: &str) -> Vec<(f64, f64)> {
        let valid = self.rows.iter().filter(|row| row.verdict != Some(Verdict::Invalid));
        let mut points: Vec<(f64, f64)> =
            valid.filter_map(|row| Some((row.load, *row.counters.get(counter)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let middle = |at: &[(f64, f64)]| {
            Some((at.first()?.0, median(&at.iter().map(|point| point.1).collect::<Vec<_>>())?))
        };
        points.chunk_by(|a, b| a.0 == b.0).filter_map(middle).collect()
    }

    /// Whether loads are counted in whole units, so that a capacity is a whole number too.
    pub fn is_counted(&self) -> bool {
        self.rows.iter().all(|row| row.load.fract() == 0.0)
    }
}

/// Players that do their work this much later than intended are at their own limit.
const PLAYER_LATE_MS: f64 = 100.0;

impl Row {
    /// The trial is invalid because its players were at their own limit.
    pub fn is_spoiled_by_players(&self) -> bool {
        let full = self
            .usage
            .get(&Resource::Player)
            .is_some_and(|used| Resource::Player.rule().is_used_up(used / 100.0));
        let late = self.counters.get("tick_late_max_ms").is_some_and(|late| *late >= PLAYER_LATE_MS);
        self.verdict == Some(Verdict::Invalid) && (full || late)
    }

    pub(super) fn from_trial(trial: &Trial) -> Self {
        let known = |name: &str| trial.metrics.get(name).copied().flatten().filter(|v| v.is_finite());
        let usage: BTreeMap<_, _> = RESOURCES
            .into_iter()
            .filter_map(|resource| Some((resource, known(resource.metric()?)?)))
            .collect();
        let is_usage = |name: &str| RESOURCES.iter().any(|resource| resource.metric() == Some(name));
        let counters = trial.metrics.keys().filter(|name| !is_usage(name));
        let counters = counters.filter_map(|name| Some((name.clone(), known(name)?))).collect();
        Self { load: trial.load, verdict: Some(trial.verdict), usage, counters }
    }
}

/// The different values, ascending.
pub(super) fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}
