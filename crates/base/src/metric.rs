//! Named numbers of a trial, and what each of them means.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether more of a metric is better: what a comparison needs in order to say "improved".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: a fact, not a merit.
    Neither,
}

/// One metric of a workload: the name ends in its unit (`slack_min_s`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricSpec {
    /// Its key in JSON, with the unit last.
    pub name: &'static str,
    /// Its unit as printed ("s", "%", "bit/s"; empty for a count).
    pub unit: &'static str,
    pub better: Better,
    /// Its meaning in one sentence.
    pub meaning: &'static str,
}

/// One row of a workload's table of metrics.
pub const fn metric(
    name: &'static str,
    unit: &'static str,
    better: Better,
    meaning: &'static str,
) -> MetricSpec {
    MetricSpec { name, unit, better, meaning }
}

/// The numbers of one trial. `None` (JSON `null`) is a number that could not be read: unknown is not zero.
pub type Metrics = BTreeMap<String, Option<f64>>;
