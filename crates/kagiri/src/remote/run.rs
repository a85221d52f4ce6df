//! `kagiri run` on a console: of a plan file, and of what is left of a run that broke off.

use std::path::Path;

use base::outcome::Run;
use base::plan::Plan;
use report::text::plain;
use run::engine::{self, RunError};
use run::registry::BUILT_IN;
use web::client::{Cause, Changes, Client, ClientError, JobView};

use super::follow::{Expected, Followed, Follower};
use super::{command_of, failure, id_among};
use crate::args::MeasureArgs;
use crate::estimate::Estimate;
use crate::exit::{Code, Failure, Outcome};
use crate::json_lines::JsonLines;
use crate::session::{check_out, conclude, run_failure};
use crate::stop::stop_flag;
use crate::{output, resume};

/// Exit code of the console's process for a wrong plan.
const USAGE: i32 = Code::Usage as i32;

/// Runs a plan file on a console, and prints the result. `is_dry`: only checks it, and prints the resolved
/// plan. `text`: what is in `file`.
pub fn run_plan(client: &Client, file: &Path, text: &str, is_dry: bool, common: &MeasureArgs) -> Outcome {
    let plan = accepted(client, file, text, common)?;
    if is_dry {
        output::print(&(serde_json::to_string_pretty(&plan.resolved)? + "\n"))?;
        return Ok(Code::Measured);
    }
    measure(client, &plan.resolved, None, common, || client.submit(&plan.toml))
}

/// Lets a console measure what is left of a run that broke off there, and prints the result. `name`: the
/// run's id, the beginning of it, `last` or `last~1`.
pub fn resume_run(client: &Client, name: &str, common: &MeasureArgs) -> Outcome {
    let runs = client.runs().map_err(failure)?;
    let stored = client.run(&id_among(client, &runs, name)?).map_err(failure)?;
    let plan = resume::plan_of(&stored)?;
    measure(client, &plan, Some(&stored), common, || client.resume(&stored.run))
}

/// `stored`: the run of this plan that is continued. `begin` asks the console for the job.
fn measure(
    client: &Client,
    plan: &Plan,
    stored: Option<&Run>,
    common: &MeasureArgs,
    begin: impl FnOnce() -> Result<JobView, ClientError>,
) -> Outcome {
    // Before the run begins there: nothing may be lost for want of a place here.
    check_out(common)?;
    let json_lines = JsonLines::open(common)?;
    let stop = stop_flag()?;
    let workload = BUILT_IN.workload(&plan.workload).map_err(Failure::usage)?;
    let variants = engine::configure(plan, workload).map_err(run_failure)?;
    let estimate = Estimate::of_plan(plan, &variants);
    let expected = Expected { plan, presentation: workload.presentation(), estimate, stored };
    let job = begin().map_err(failure)?;
    let (address, id) = (client.address(), &job.id);
    output::say_unless(common.quiet)(&match stored {
        None => format!("console {address} has the plan as job {id}"),
        Some(stored) => {
            let (run, trials) = (plain(&stored.run), resume::kept_trials(stored));
            format!("console {address} continues run {run} after {trials}, as job {id}")
        }
    });
    let followed = Follower::new(client, job, expected, common.quiet, json_lines, stop).follow()?;
    present(client, followed, common)
}

/// A plan that the console accepts.
struct Accepted {
    /// For the console: its host has the files that it names.
    toml: String,
    /// With all settings, as this program reads it.
    resolved: Plan,
}

/// Checks a plan on the console, as it is in its file and then with what the command line says.
/// Errors: it is not accepted: with its file and line.
fn accepted(client: &Client, file: &Path, text: &str, common: &MeasureArgs) -> Result<Accepted, Failure> {
    let file = file.display();
    let place = || format!("on console {}", client.address());
    if let Some(problem) = client.check(text).map_err(failure)? {
        let line = problem.line.map(|line| format!("{line}:")).unwrap_or_default();
        return Err(Failure::usage(format!("{file}:{line} {}{}", problem.message, of_console(client))));
    }
    let changes = Changes { repeats: common.repeat, seed: common.seed, require: &common.require };
    let toml = match changes.is_empty() {
        true => text.to_owned(),
        false => {
            let toml = changes.over(text).map_err(|why| Failure::usage(format!("{file}: {why}")))?;
            if let Some(problem) = client.check(&toml).map_err(failure)? {
                return Err(Failure::usage(format!("{} ({})", problem.message, place())));
            }
            toml
        }
    };
    let resolved = BUILT_IN.read_plan(&toml).map_err(|error| {
        let (its, own) = (&client.facts().version, env!("CARGO_PKG_VERSION"));
        Failure::usage(format!(
            "{file}: {}; the console accepts the plan (it runs kagiri {its}, this is kagiri {own}): use the \
             same version here",
            error.without_line()
        ))
    })?;
    Ok(Accepted { toml, resolved })
}

/// What the reader of a refusal has to know: who refuses, and where files of a plan are looked for.
fn of_console(client: &Client) -> String {
    let (its, own) = (&client.facts().version, env!("CARGO_PKG_VERSION"));
    let version =
        if its == own { String::new() } else { format!(", which runs kagiri {its}, this is {own}") };
    format!(" (console {}{version}; files that a plan names are those of its host)", client.address())
}

/// Prints what came of the run.
fn present(client: &Client, followed: Followed, common: &MeasureArgs) -> Outcome {
    let Followed { job, lines, has_ended } = followed;
    let Some(id) = &job.run else { return Err(without_run(client, &job)) };
    let again = |error: ClientError| {
        let command = command_of(client);
        match error.cause {
            Cause::Unreachable => Failure::runtime(format!(
                "{error}; the run has ended, get its result later: {command} runs show {id}"
            )),
            _ => failure(error),
        }
    };
    let run = client.run(id).map_err(again)?;
    if let Some(lines) = &lines {
        lines.end(&run);
    }
    let say = output::say_unless(common.quiet);
    let command = command_of(client);
    if let Some(resume) = resume::command(&run, &command) {
        say(&format!("Go on with '{resume}'; finished trials are kept there"));
    }
    // A process that was killed, or did not get to measure, leaves the run as it was.
    let has_failed = job.state == "failed" && !has_ended;
    let error = run.failure.clone().or_else(|| job.message.clone().filter(|_| has_failed));
    let error = error.map(|message| RunError { message, usage: job.exit_code == Some(USAGE) });
    let outcome = conclude(&run, error, common.has_json_on_stdout(), || {
        output::present_of_console(&run, common, &command)
    });
    if common.out.is_none() && !run.trials.is_empty() {
        say(&format!("its report: {command} report {}", run.run));
    }
    outcome
}

/// Why a job ended before it had a run.
fn without_run(client: &Client, job: &JobView) -> Failure {
    let address = client.address();
    let message = job.message.as_deref().unwrap_or("it ended before its run began, without a message");
    match (job.state.as_str(), job.exit_code) {
        ("interrupted", _) => {
            Failure::Interrupted(format!("interrupted before the first trial ended: {message}"))
        }
        (_, Some(USAGE)) => Failure::usage(format!("console {address}: {message}")),
        _ => Failure::runtime(format!("console {address}: {message}")),
    }
}
