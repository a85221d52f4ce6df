//! What set a capacity, with the evidence.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resource::Resource;

/// One observation that speaks for (or against) a resource being the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Of which resource it speaks.
    pub resource: Resource,
    /// The sentence, with its numbers and units.
    pub statement: String,
    /// Whether it was read from a counter, or inferred from other numbers.
    pub inferred: bool,
    /// The numbers of the sentence, each by a name with its unit last: `used_percent`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, f64>,
}

impl Evidence {
    pub fn counted(resource: Resource, statement: impl Into<String>) -> Self {
        Self { resource, statement: statement.into(), inferred: false, values: BTreeMap::new() }
    }

    /// What was concluded from other numbers.
    pub fn inferred(resource: Resource, statement: impl Into<String>) -> Self {
        Self { inferred: true, ..Self::counted(resource, statement) }
    }

    /// The same with a number of its sentence.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Self {
        self.values.insert(name.into(), value);
        self
    }
}

/// The resource that set the capacity, and how that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Which one.
    pub resource: Resource,
    /// How sure: "confirmed" by a counter of its own, "predicted" from the slopes alone, or "unknown".
    pub certainty: Certainty,
    /// The reasons, strongest first.
    pub evidence: Vec<Evidence>,
}

/// How a limit is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Counters of the resource itself agree with the prediction.
    Confirmed,
    /// The slopes say so; no counter contradicts.
    Predicted,
    /// Neither.
    Unknown,
}
