//! The limit of the load and its evidence, from a run's trials or from a table measured elsewhere.
//!
//! Pure: a [`LoadTable`] goes in, an [`Explanation`] comes out. `docs/explain.md` describes the rules.

mod analysis;
pub mod ceiling;
mod consider;
pub mod csv;
mod doubts;
mod limit;
mod measured;
mod models;
mod signs;
mod table;
mod words;

use std::collections::BTreeMap;

use base::doubt::DoubtNote;
use base::outcome::{Capacity, Limit, Resource, Saturation};
use serde::{Deserialize, Serialize};

pub use self::csv::TableError;
pub use ceiling::CeilingError;
pub(crate) use measured::upper_end;
pub use models::scalability::Scalability;
pub use table::{LoadTable, RESOURCES, Row, Series};

use analysis::Analysis;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The capacity: measured where there are verdicts, else predicted.
    pub capacity: Capacity,
    /// What the lines and ceilings alone predict, in whole units where loads are counted; `None` also where
    /// a load far below it failed.
    pub predicted: Option<f64>,
    /// What would have been predicted without the loads just below the capacity.
    pub forecast: Option<Forecast>,
    pub limit: Limit,
    /// Per resource: its cost per unit of load, and where it is used up.
    pub saturation: BTreeMap<Resource, Saturation>,
    /// Where throughput bends rather than grow in a straight line.
    #[serde(default)]
    pub scalability: Option<Scalability>,
    /// The largest load in the table: a prediction beyond it was not measured.
    #[serde(default)]
    pub largest_load: Option<f64>,
    pub considerations: Vec<String>,
    pub doubts: Vec<DoubtNote>,
    pub ignored_columns: Vec<String>,
}

/// A prediction from lower loads alone, as a check of the method on this very table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Only loads up to this one were used: the measured capacity less two.
    pub loads_up_to: f64,
    pub predicted: f64,
}

pub fn explain(table: &LoadTable) -> Explanation {
    let mut analysis = Analysis::of(table);
    let decision = limit::decide(&analysis);
    if let Some(ceiling) = decision.inferred_ceiling {
        analysis.ceilings.insert(decision.limit.resource, ceiling);
    }
    let predicted = analysis.predicted();
    // The doubts and the considerations explain a refuted prediction; a number alone would mislead.
    let credible = predicted.filter(|load| !doubts::is_refuted(&analysis, *load));
    let capacity = match analysis.verdicts() {
        Some(measured) => measured.capacity.clone(),
        None => predicted_capacity(&analysis, credible),
    };
    let mut explanation = Explanation {
        forecast: analysis.verdicts().and_then(|_| forecast(table, capacity.value?)),
        capacity,
        predicted,
        limit: match &table.limit {
            Some(own) => signs::weigh_own(&analysis, own.clone()),
            None => signs::weigh(&analysis, decision.limit),
        },
        saturation: analysis.saturation(),
        scalability: analysis.scalability.clone(),
        largest_load: table.loads().last().copied(),
        considerations: Vec::new(),
        doubts: Vec::new(),
        ignored_columns: table.ignored_columns.clone(),
    };
    if let Some(bend) = &analysis.latency {
        // It is the reason why a load fails, where nothing else is known to be used up.
        let at = explanation.limit.evidence.len().min(1);
        explanation.limit.evidence.insert(at, bend.evidence(&table.load_unit));
    }
    explanation.doubts = doubts::of(&analysis, &explanation).into_iter().map(DoubtNote::from).collect();
    explanation.considerations = consider::consider(&analysis, &explanation);
    explanation.predicted = credible;
    explanation
}

/// See [`signs::with_cpu_users`]. Only for runs on one machine, as in a lab: the
/// counters are those of the target's host.
pub fn with_cpu_users(table: &LoadTable, limit: Limit) -> Limit {
    signs::with_cpu_users(&Analysis::of(table), limit)
}

/// The capacity of a table without verdicts.
fn predicted_capacity(analysis: &Analysis, predicted: Option<f64>) -> Capacity {
    let first = analysis.first_saturated();
    let interval = first.and_then(|(resource, _)| {
        let ceiling = analysis.ceilings.get(&resource)?;
        analysis.fits.get(&resource)?.meets_interval(ceiling.value)
    });
    // What the players can no longer offer is only a lower bound of what the target carries.
    let is_bound = first.is_some_and(|(resource, _)| resource == Resource::Player);
    let ends = interval.map(|ends| ends.map(|end| analysis.whole(end)));
    // Without any ceiling, the bend still shows up to which load everything grew.
    let below_bend = analysis.bend.and_then(|bend| {
        let lower = analysis.table.loads().into_iter().rev().find(|load| *load < bend)?;
        Some((lower, bend))
    });
    // Throughput falls beyond its peak, whatever is left of the resources.
    let peak = analysis.scalability.as_ref().and_then(|law| law.peak_load).map(f64::round);
    if let (None, None, Some(peak)) = (predicted, below_bend, peak) {
        let unit = analysis.table.load_unit.clone();
        return Capacity { value: Some(peak), unit, interval: [None, None], passes: 0, failures_above: 0 };
    }
    if let (None, Some((lower, bend))) = (predicted, below_bend) {
        let unit = analysis.table.load_unit.clone();
        let interval = [Some(lower), Some(bend)];
        return Capacity { value: Some(lower), unit, interval, passes: 0, failures_above: 0 };
    }
    Capacity {
        value: predicted,
        unit: analysis.table.load_unit.clone(),
        interval: [ends.map(|e| e[0]), ends.map(|e| e[1]).filter(|_| !is_bound)],
        passes: 0,
        failures_above: 0,
    }
}

/// The prediction from the loads up to `capacity` less two, if there are at least two such loads.
fn forecast(table: &LoadTable, capacity: f64) -> Option<Forecast> {
    let loads_up_to = capacity - 2.0;
    let lower = table.up_to(loads_up_to);
    let predicted = Analysis::of(&lower).predicted()?;
    Some(Forecast { loads_up_to, predicted })
}
