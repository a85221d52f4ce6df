//! A run that broke off and is continued: what is kept of it, and what has changed since.

use std::collections::BTreeMap;
use std::time::Duration;

use base::doubt::{Doubt, WorkloadDoubt};
use base::outcome::{Run, State, Trial};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use store::compare::{Fact, environments};

use crate::run_error::RunError;
use crate::search;
use crate::time_budget::TimeBudget;

/// The environment's list of the times at which a run was continued.
const RESUMED: &str = "resumed";
/// Facts that hold the text of files that a plan names. Other files would be another plan.
const FILES: [(&str, &str); 2] = [("lab", "the plan's lab"), ("qos", "a policy of the plan")];
/// Differences that a doubt names; the environment lists them all.
const NAMED_MAX: usize = 4;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ResumeDoubt {
    /// Trials before and after the break had other circumstances.
    EnvironmentChanged { differences: Vec<String> },
}

impl WorkloadDoubt for ResumeDoubt {
    fn message(&self) -> String {
        let Self::EnvironmentChanged { differences } = self;
        let named = &differences[..differences.len().min(NAMED_MAX)];
        let more = match differences.len() - named.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("the run broke off and went on in another environment: {}{more}", named.join("; "))
    }

    fn advice(&self) -> &'static str {
        "measure again from the start if the trials are to be comparable"
    }
}

/// Checks that the files that a plan names are still those of the stored run.
/// Errors: one has another text.
pub fn check_files(stored: &Run, environment: &BTreeMap<String, Value>) -> Result<(), RunError> {
    for (key, what) in FILES {
        let (then, now) = (stored.environment.get(key), environment.get(key));
        if then.is_some() && now.is_some() && then != now {
            let id = &stored.run;
            let message = format!(
                "{what} has changed since run {id} began, so that its trials would not be comparable; \
                 restore it ('kagiri runs show {id} --json' has its text in environment.{key}), or begin a \
                 new run"
            );
            return Err(RunError { message, usage: true });
        }
    }
    Ok(())
}

/// The run as it was before it broke off: without a result, and without the trials of its last search that
/// did not end. A changed environment is a doubt.
pub(crate) fn reopened(stored: &Run, environment: &BTreeMap<String, Value>, version: &str) -> Run {
    let mut run = stored.clone();
    remove_cut_trials(&mut run.trials);
    let mut differences: Vec<String> =
        environments(&run.environment, environment).iter().map(sentence).collect();
    if run.kagiri != version {
        differences.insert(0, format!("kagiri was {}, and is {version}", run.kagiri));
    }
    let resumed = run.environment.entry(RESUMED.to_owned()).or_insert_with(|| json!([]));
    if let Value::Array(times) = resumed {
        let at = Timestamp::now().to_string();
        times.push(json!({ "at": at, "trials_before": run.trials.len(), "differences": differences }));
    }
    run.doubts.retain(|note| note.doubt != Doubt::Interrupted);
    if !differences.is_empty() {
        let note = Doubt::from(ResumeDoubt::EnvironmentChanged { differences }).into();
        if !run.doubts.contains(&note) {
            run.doubts.push(note);
        }
    }
    let (capacity, limit) = (search::unknown_capacity(&run.capacity.unit), crate::outcome::unknown_limit());
    Run {
        state: State::Running,
        failure: None,
        ended_at: None,
        capacity,
        limit,
        saturation: BTreeMap::new(),
        variants: Vec::new(),
        requirements: Vec::new(),
        ..run
    }
}

/// What the samplers of an earlier part could not sample; it is said once, at the end.
pub(crate) fn take_unavailable(run: &mut Run) -> Vec<String> {
    let mut found = Vec::new();
    run.doubts.retain(|note| match &note.doubt {
        Doubt::NotSampled { what } => {
            found.extend(what.iter().cloned());
            false
        }
        _ => true,
    });
    found
}

/// Trials that were cut, or broke off, count only for searches that continued after them.
fn remove_cut_trials(trials: &mut Vec<Trial>) {
    let Some(last) = trials.last() else { return };
    let (variant, repetition) = (last.variant.clone(), last.repetition);
    let is_of_last = |trial: &Trial| trial.variant == variant && trial.repetition == repetition;
    trials.retain(|trial| !(is_of_last(trial) && (trial.account.is_cut || trial.is_broken_off())));
}

/// The time budget of a search, and what it has used of it.
pub(crate) fn budget_after(whole: Option<Duration>, kept: &[&Trial]) -> (TimeBudget, Duration) {
    let s = |s: f64| Duration::try_from_secs_f64(s).unwrap_or_default();
    let hold = |trial: &Trial| s(trial.hold_to_s - trial.hold_from_s);
    let mut budget = TimeBudget::new(whole);
    let mut spent = Duration::ZERO;
    for pair in kept.windows(2) {
        let took = s(pair[1].started_at.duration_since(pair[0].started_at).as_secs_f64());
        budget.note(took, hold(pair[0]));
        spent += took;
    }
    let last = kept.last().map(|trial| s(trial.hold_to_s)).unwrap_or_default();
    (budget, spent + last)
}

fn sentence(fact: &Fact) -> String {
    let text = |value: &Option<Value>| match value {
        None => "unknown".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    format!("{} was {}, and is {}", fact.key, text(&fact.a), text(&fact.b))
}
