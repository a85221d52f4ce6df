//! A run before its next trial: a new one, or one that broke off and is continued.

use std::collections::BTreeMap;

use base::outcome::{Run, State};
use base::plan::Plan;
use fleet::Bus;
use jiff::Timestamp;
use serde_json::Value;
use store::Store;

use crate::companions::Beside;
use crate::outcome::{ConfiguredVariant, unknown_limit};
use crate::run_error::RunError;
use crate::{resume, search, tuning};

/// Version, id and environment of a run.
pub struct Setting<'a> {
    pub version: &'a str,
    pub id: String,
    pub environment: BTreeMap<String, Value>,
    /// What accompanies the trials.
    pub beside: Beside,
    /// The stored run to continue, which has this id.
    pub stored: Option<Run>,
}

/// Begins a run, or takes over the stored one, and stores it.
/// Errors: The policies or settings of its variants are not possible; it cannot be stored; the stored run
/// cannot go on.
pub(crate) fn started(
    plan: &Plan,
    variants: &[ConfiguredVariant<'_>],
    mut setting: Setting<'_>,
    bus: &mut dyn Bus,
    store: &mut Store,
) -> Result<Run, RunError> {
    let hosts = bus.facts();
    if !hosts.is_empty() {
        setting.environment.insert("hosts".into(), hosts.into_iter().collect());
    }
    let beside = &setting.beside;
    setting.environment.extend(beside.fact().map(|fact| ("qos".to_owned(), fact)));
    setting.environment.extend(tuning::fact(&beside.tunings).map(|fact| ("tune".to_owned(), fact)));
    match &setting.stored {
        Some(stored) => {
            resume::check_files(stored, &setting.environment)?;
            beside.check(bus)?;
            let run = resume::reopened(stored, &setting.environment, setting.version);
            store.resume(&run)?;
            Ok(run)
        }
        None => {
            beside.check(bus)?;
            let run = new(plan, variants, setting)?;
            store.begin(&run)?;
            Ok(run)
        }
    }
}

fn new(plan: &Plan, variants: &[ConfiguredVariant<'_>], setting: Setting<'_>) -> Result<Run, RunError> {
    Ok(Run {
        schema: base::outcome::SCHEMA,
        kagiri: setting.version.to_owned(),
        run: setting.id,
        name: plan.name.clone(),
        workload: plan.workload.clone(),
        state: State::Running,
        failure: None,
        started_at: Timestamp::now(),
        ended_at: None,
        environment: setting.environment,
        plan: serde_json::to_value(plan).map_err(RunError::new)?,
        trials: Vec::new(),
        capacity: search::unknown_capacity(variants.first().map_or("", |first| first.workload.load_unit())),
        limit: unknown_limit(),
        saturation: BTreeMap::new(),
        variants: Vec::new(),
        requirements: Vec::new(),
        doubts: Vec::new(),
    })
}
