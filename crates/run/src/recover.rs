//! The outcome of a run whose process died before it could evaluate the trials that it had stored.

use base::outcome::{Run, State};
use base::plan::Plan;
use store::{RunSummary, Store, StoreError};

use crate::registry::Registry;
use crate::{engine, outcome};

/// Evaluate the stored trials of a run that has no outcome. Whether it has one then: it has none if nothing
/// was measured, or if its plan is none of this program's workloads.
pub fn evaluate(run: &mut Run, registry: &Registry) -> bool {
    if run.variants.is_empty() && !run.trials.is_empty() {
        let Ok(plan) = serde_json::from_value::<Plan>(run.plan.clone()) else { return false };
        let Ok(workload) = registry.workload(&run.workload) else { return false };
        let Ok(variants) = engine::configure(&plan, workload) else { return false };
        // What cannot be concluded leaves the run as it was.
        let mut evaluated = run.clone();
        if outcome::conclude(&mut evaluated, &plan, &variants).is_ok() {
            *run = evaluated;
        }
    }
    !run.variants.is_empty()
}

/// Adds the result to the summary of a run whose process died before it could evaluate its trials.
/// Errors: the run cannot be read.
pub fn complete_summary(
    store: &Store,
    summary: &mut RunSummary,
    registry: &Registry,
) -> Result<(), StoreError> {
    if summary.is_evaluated || summary.trials == 0 || summary.state == State::Running {
        return Ok(());
    }
    match store.load_without_series(&summary.run) {
        Ok(mut run) => {
            evaluate(&mut run, registry);
            summary.set_result(&run);
            Ok(())
        }
        // It was removed meanwhile.
        Err(StoreError::NoRun { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
