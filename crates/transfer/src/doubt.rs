//! Doubts of transfers.

use base::doubt::WorkloadDoubt;
use base::format::number;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum TransferDoubt {
    /// Requests were sent later than intended: how many, and the latest by how much.
    RequestsLate { late_percent: f64, late_ms_max: f64 },
    /// All bytes moved within so short a time that it gives no rate.
    TransferTooShort { moved_ms: f64 },
}

impl WorkloadDoubt for TransferDoubt {
    fn message(&self) -> String {
        match self {
            Self::RequestsLate { late_percent, late_ms_max } => format!(
                "{} % of the requests were sent late, the latest by {} ms",
                number(*late_percent),
                number(*late_ms_max)
            ),
            Self::TransferTooShort { moved_ms } => {
                format!("all bytes moved within {} ms, too short for a rate or a limit", number(*moved_ms))
            }
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::RequestsLate { .. } => {
                "use a lower --requests-per-s or fewer flows; response times include the delay"
            }
            Self::TransferTooShort { .. } => {
                "transfer more bytes (--bytes 1GiB), or for a fixed time (--time 5s)"
            }
        }
    }

    fn gravity(&self) -> f64 {
        if let Self::RequestsLate { late_ms_max, .. } = self { *late_ms_max } else { 0.0 }
    }
}
