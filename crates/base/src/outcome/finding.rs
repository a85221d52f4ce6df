//! What came of one load, in numbers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::statistics;

/// A number that tells what came of one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The metric, with its unit last.
    pub metric: String,
    /// Its value in each repetition that knows it, in their order.
    pub values: Vec<f64>,
}

impl Finding {
    /// The median of the repetitions.
    pub fn median(&self) -> Option<f64> {
        statistics::median(&self.values)
    }

    /// The least and the greatest of several repetitions.
    pub fn spread(&self) -> Option<[f64; 2]> {
        let values = Some(&self.values).filter(|values| values.len() > 1)?.iter().copied();
        values.clone().min_by(f64::total_cmp).zip(values.max_by(f64::total_cmp)).map(<[f64; 2]>::from)
    }
}
