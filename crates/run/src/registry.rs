//! The workloads that this kagiri knows. A further one is one folder in `workload` and one line here.

use base::part::PartKind;
use base::plan::{Plan, PlanError};
use base::workload::Workload;
use serde_json::Value;

/// Every workload, in the order in which help lists them.
pub const WORKLOADS: &[&dyn Workload] =
    &[&workload::stream::Stream, &workload::transfer::Transfer, &workload::daq::Daq];

/// The workload of that name.
///
/// # Errors
/// There is none; the message lists those that there are.
pub fn workload(name: &str) -> Result<&'static dyn Workload, PlanError> {
    WORKLOADS.iter().copied().find(|workload| workload.name() == name).ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name()).collect();
        PlanError::of_key("workload", format!("there is no workload '{name}', only {}", names.join(", ")))
    })
}

/// Every kind of part: the workloads' and the samplers'.
pub fn kinds() -> Vec<PartKind> {
    let own = WORKLOADS.iter().flat_map(|workload| workload.parts());
    own.chain(observe::PARTS).copied().collect()
}

/// Read a plan for any known workload.
///
/// # Errors
/// See [`Plan::from_toml`].
pub fn read_plan(text: &str) -> Result<Plan, PlanError> {
    Plan::from_toml(text, resolve)
}

/// Check settings of a workload and fill in what was left out.
///
/// # Errors
/// See [`Workload::resolve`].
pub fn resolve(name: &str, settings: Value) -> Result<Value, PlanError> {
    workload(name)?.resolve(settings)
}
