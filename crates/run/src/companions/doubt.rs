//! What weakens a trial in parts that accompany it.

use base::doubt::WorkloadDoubt;
use base::format::quantity;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum CompanionDoubt {
    /// A link changed its rate later than its schedule says.
    StepLate { late_ms: f64 },
    /// The policy in force reported this.
    PolicyProblem { problem: String },
    /// At its end, the policy of a host followed no coordinator.
    HostAlone { problem: String },
    /// Steps of the coordinator came too late to measure.
    CoordinatorLate { late: u64, steps: u64 },
}

impl WorkloadDoubt for CompanionDoubt {
    fn message(&self) -> String {
        match self {
            Self::StepLate { late_ms } => {
                format!("a link changed its rate {} late", quantity(Some(late_ms / 1e3), "s"))
            }
            Self::PolicyProblem { problem } => {
                format!("the policy in force reported: {}", problem.trim_end_matches('.'))
            }
            Self::HostAlone { problem } => {
                format!("the policy's host continued without its coordinator: {problem}")
            }
            Self::CoordinatorLate { late, steps } => {
                format!("{late} of {steps} steps of the hosts' coordinator came too late to measure")
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::StepLate { .. } | Self::CoordinatorLate { .. } => "repeat on a quiet machine",
            Self::PolicyProblem { .. } => "fix this and measure again; docs/qos.md says what is enforced",
            Self::HostAlone { .. } => "check the path to the coordinator, and measure again",
        }
    }

    fn gravity(&self) -> f64 {
        match self {
            Self::StepLate { late_ms } => *late_ms,
            Self::PolicyProblem { .. } | Self::HostAlone { .. } => 0.0,
            Self::CoordinatorLate { late, .. } => *late as f64,
        }
    }
}
