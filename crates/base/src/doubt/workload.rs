//! Doubts that workloads bring with them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Doubt;

/// A kind of doubts that a workload brings with it: an enum whose variants are tagged by `kind`.
pub trait WorkloadDoubt: Serialize {
    /// What weakens the result, as a clause with its numbers.
    fn message(&self) -> String;
    /// What to do about it, as an imperative sentence.
    fn advice(&self) -> &'static str;
    /// How grave it is among doubts of its own kind: the larger, the graver.
    fn gravity(&self) -> f64 {
        0.0
    }
}

/// A workload's doubt as data: its kind and its facts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StoredDoubt {
    kind: String,
    #[serde(flatten)]
    facts: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "is_zero")]
    gravity: f64,
    /// Both stand in the [`DoubtNote`], where a stored one is read from.
    #[serde(skip)]
    message: String,
    #[serde(skip)]
    advice: &'static str,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(gravity: &f64) -> bool {
    *gravity == 0.0
}

impl StoredDoubt {
    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    pub(super) fn gravity(&self) -> f64 {
        self.gravity
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn advice(&self) -> &'static str {
        self.advice
    }
}

impl PartialEq for StoredDoubt {
    fn eq(&self, other: &Self) -> bool {
        (&self.kind, &self.facts) == (&other.kind, &other.facts)
    }
}

impl<T: WorkloadDoubt> From<T> for Doubt {
    fn from(doubt: T) -> Self {
        const PROVEN: &str = "an enum of named fields, tagged by its kind";
        let mut stored: StoredDoubt =
            serde_json::to_value(&doubt).and_then(serde_json::from_value).expect(PROVEN);
        (stored.gravity, stored.message, stored.advice) = (doubt.gravity(), doubt.message(), doubt.advice());
        Self::Workload(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DoubtNote;
    use super::*;

    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum EchoDoubt {
        AnswersLate { late_ms_max: f64 },
        ClientsGone,
    }

    impl WorkloadDoubt for EchoDoubt {
        fn message(&self) -> String {
            match self {
                Self::AnswersLate { late_ms_max } => format!("answers were up to {late_ms_max} ms late"),
                Self::ClientsGone => "clients went away".to_owned(),
            }
        }

        fn advice(&self) -> &'static str {
            "use fewer clients"
        }

        fn gravity(&self) -> f64 {
            if let Self::AnswersLate { late_ms_max } = self { *late_ms_max } else { 0.0 }
        }
    }

    #[test]
    fn doubt_of_a_workload_is_stored_as_a_general_one_is() {
        let late = |late_ms_max| Doubt::from(EchoDoubt::AnswersLate { late_ms_max });
        let note = DoubtNote::from(late(2.5));
        let json = serde_json::to_value(&note).unwrap();
        let stored = serde_json::json!({
            "kind": "answers_late", "late_ms_max": 2.5, "gravity": 2.5,
            "message": "answers were up to 2.5 ms late", "advice": "use fewer clients"
        });
        assert_eq!(json, stored);
        let read: DoubtNote = serde_json::from_value(json).unwrap();
        assert_eq!((&read, read.doubt.gravity()), (&note, 2.5));
        assert!(late(1.0).is_same_kind(&read.doubt) && late(1.0) != read.doubt);
        assert!(!late(1.0).is_same_kind(&EchoDoubt::ClientsGone.into()));
        assert!(!late(1.0).is_same_kind(&Doubt::Interrupted));
    }

    #[test]
    fn doubt_of_a_workload_that_this_version_does_not_know_is_kept() {
        let stored = serde_json::json!({
            "kind": "cpus_shared", "message": "builder and sources shared the CPUs",
                "advice": "use other hosts"
        });
        let read: DoubtNote = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
    }
}
