//! A metric of one load, with its value in each repetition.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics;

/// A metric's values at one load, one per repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadMetric {
    /// The metric, with its unit last.
    pub metric: String,
    /// Its value in each repetition that knows it, in their order.
    pub values: Vec<f64>,
}

impl LoadMetric {
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.values)
    }

    /// The least and the greatest of several repetitions.
    pub fn spread(&self) -> Option<[f64; 2]> {
        let values = Some(&self.values).filter(|values| values.len() > 1)?.iter().copied();
        values.clone().min_by(f64::total_cmp).zip(values.max_by(f64::total_cmp)).map(<[f64; 2]>::from)
    }
}
