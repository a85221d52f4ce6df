//! Says that a run broke off, and how to continue it (`kagiri run --resume`).

use base::format::plural;
use base::outcome::{Run, State};
use base::plan::Plan;
use report::text::plain;
use store::{Filter, RunSummary, Store};

use crate::exit::Failure;
use crate::hosts::HostArgs;
use crate::output;

/// Whether a run has trials, and is not complete.
pub fn is_broken_off(summary: &RunSummary) -> bool {
    summary.trials > 0 && matches!(summary.state, State::Interrupted | State::Failed)
}

/// The command that continues a run that broke off after its first trial; `None` for any other run.
/// `program`: how commands begin that are done where the run is stored.
pub fn command(run: &Run, program: &str) -> Option<String> {
    let broke_off = matches!(run.state, State::Interrupted | State::Failed) && !run.trials.is_empty();
    broke_off.then(|| format!("{program} run --resume {}", plain(&run.run)))
}

/// The plan of a stored run.
/// Errors: it cannot be read, such as one of a newer version.
pub fn plan_of(run: &Run) -> Result<Plan, Failure> {
    serde_json::from_value(run.plan.clone())
        .map_err(|error| Failure::runtime(format!("the plan of run {} cannot be read: {error}", run.run)))
}

/// How many trials a run keeps that is continued: `3 trials`.
pub fn kept_trials(run: &Run) -> String {
    plural(run.trials.iter().filter(|trial| !trial.account.is_cut).count() as u64, "trial")
}

/// Says how to go on with a run that broke off.
pub fn say_how(run: &Run, hosts: &HostArgs, quiet: bool) {
    if let Some(command) = command(run, "kagiri").filter(|_| !quiet) {
        let same =
            if hosts.listen.is_some() || hosts.via.is_some() { " and the same options of hosts" } else { "" };
        output::say(&format!("Go on with '{command}'{same}; finished trials are kept"));
    }
}

/// Says that the process of the newest run died, once: the run that begins now is the newest then.
pub fn say_of_newest(store: &Store, say: &dyn Fn(&str)) -> Result<(), Failure> {
    let newest = store.list(&Filter { count_max: Some(1), ..Filter::default() })?;
    let died = |run: &&RunSummary| is_broken_off(run) && run.ended_at.is_none();
    if let Some(run) = newest.iter().find(died) {
        let (id, name) = (plain(&run.run), plain(&run.name));
        say(&format!(
            "run {id} ({name}) broke off: its process died; go on with it later: 'kagiri run --resume {id}'"
        ));
    }
    Ok(())
}
