//! Why a run failed.

use base::part::PartError;
use base::plan::PlanError;
use fleet::BusError;

/// Why a run could not be made or went no further.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    pub message: String,
    /// Whether the plan was at fault.
    pub usage: bool,
}

impl RunError {
    /// Not the plan's fault.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), usage: false }
    }
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        Self { usage: true, message: error.to_string() }
    }
}

impl From<PartError> for RunError {
    fn from(error: PartError) -> Self {
        Self { usage: error.usage, message: error.message }
    }
}

impl From<BusError> for RunError {
    fn from(error: BusError) -> Self {
        Self { usage: error.is_usage(), message: error.to_string() }
    }
}

impl From<store::StoreError> for RunError {
    fn from(error: store::StoreError) -> Self {
        Self::new(error)
    }
}
