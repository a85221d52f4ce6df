//! `kagiri run`: runs a plan file of any workload.

use std::path::{Path, PathBuf};

use base::plan::Plan;
use clap::Args;
use web::client::Client;

use crate::args::MeasureArgs;
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::HostArgs;
use crate::lab_for_run::{LabForRun, check_hosts};
use crate::placement_check::Places;
use crate::{dirs, output, remote, resume, session};

/// Run a plan file: a workload with variants and repetitions.
#[derive(Args)]
#[command(after_help = "A plan names a workload, its settings, and variants to compare:\n\n  \
    name = 'two servers'\n  \
    workload = 'stream'\n  \
    repeats = 3\n  \
    [stream]\n  \
    bitrate = '25Mbit/s'\n  \
    max = 500\n  \
    [[variant]]\n  \
    name = 'embedded'\n  \
    [[variant]]\n  \
    name = 'nginx'\n  \
    stream.server.kind = 'nginx'\n\n\
    Examples:\n  \
    kagiri run plans/servers.toml --dry-run     show all settings, measure nothing\n  \
    kagiri run plans/servers.toml --repeat 5\n  \
    kagiri run --resume last                    go on with a run that broke off\n  \
    kagiri run plan.toml --console https://nas  measure there, answer here\n  \
    kagiri runs show last --plan > again.toml   the plan of a stored run")]
#[command(mut_arg("repeat", |arg| arg.help("Repeat the variants N times [default: as in the plan]")))]
#[command(mut_arg("seed", |arg| arg.help("Seed of the random numbers [default: as in the plan]")))]
pub struct RunPlan {
    /// Plan file (TOML); examples are in plans/ of kagiri's sources
    #[arg(value_name = "PLAN.toml", required_unless_present = "resume")]
    plan: Option<PathBuf>,
    /// Go on with a run that broke off (Ctrl-C, crash, full disk): an id or its prefix, 'last' or 'last~1'.
    /// Its finished trials are kept; plan, seed and id stay
    #[arg(long, value_name = "RUN", conflicts_with_all = ["plan", "dry_run", "repeat", "seed", "require"])]
    resume: Option<String>,
    /// Print the resolved plan as JSON and measure nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    common: MeasureArgs,
}

impl RunPlan {
    pub fn run(self) -> Outcome {
        let (plan, common) = match (&self.plan, &self.resume) {
            (_, Some(run)) => return go_on(run, &self.common, &self.hosts),
            (Some(plan), None) => (plan, &self.common),
            (None, None) => return Err(no_plan()),
        };
        let plan = read_plan(plan, common)?;
        session::check_plan(&plan, &self.hosts, Places::Plan)?;
        if self.dry_run {
            output::print(&(serde_json::to_string_pretty(&plan)? + "\n"))?;
            return Ok(Code::Measured);
        }
        in_lab_of(&plan, &self.hosts, common.quiet, |hosts| {
            session::run_plan(&plan, common, hosts, Places::Plan)
        })
    }

    /// Lets a console measure. `address`: the console's.
    /// Errors: options that only this host has; see also [`remote::run_plan`] and [`remote::resume_run`].
    pub fn run_on(self, address: &str, connect: impl FnOnce() -> Result<Client, Failure>) -> Outcome {
        if self.hosts.is_given() {
            let what = "an option of the group 'Hosts' (where agents join is said to 'kagiri serve')";
            return Err(remote::refusal(address, what));
        }
        let plan = match (self.plan, &self.resume) {
            (_, Some(run)) => return remote::resume_run(&connect()?, run, &self.common),
            (Some(plan), None) => plan,
            (None, None) => return Err(no_plan()),
        };
        let text = read_plan_text(&plan)?;
        remote::run_plan(&connect()?, &plan, &text, self.dry_run, &self.common)
    }
}

fn no_plan() -> Failure {
    Failure::usage("name a plan file, or a run with --resume")
}

/// Measures what is left of a stored run, under its own id and plan.
/// Errors: there is no such run, it is complete, or a process still measures it.
fn go_on(name: &str, common: &MeasureArgs, hosts: &HostArgs) -> Outcome {
    let id = dirs::open_store_to_read()?.resolve_id(name)?;
    let stored = dirs::open_store()?.load_broken_off(&id)?;
    let plan = resume::plan_of(&stored)?;
    session::check_plan(&plan, hosts, Places::Plan)?;
    // Before its lab is made.
    run::resume::check_files(&stored, &session::run_environment(&plan)).map_err(session::run_failure)?;
    in_lab_of(&plan, hosts, common.quiet, |hosts| session::resume_run(&plan, stored, common, hosts))
}

/// Reads a plan file, with the command line applied. Paths in it become absolute.
/// Errors: not a plan: with its file and line.
pub fn read_plan(path: &Path, common: &MeasureArgs) -> Result<Plan, Failure> {
    let file = path.display();
    let text = read_plan_text(path)?;
    let plan = run::registry::BUILT_IN.read_plan(&text).map_err(|error| match error.line {
        Some(line) => Failure::usage(format!("{file}:{line}: {}", error.without_line())),
        None => Failure::usage(format!("{file}: {error}")),
    })?;
    with_absolute_paths(common.over(plan), path.parent().unwrap_or(Path::new("")))
}

fn read_plan_text(path: &Path) -> Result<String, Failure> {
    sys::file::read_text(path, base::plan::TEXT_BYTES_MAX as u64).map_err(|error| {
        let file = path.display();
        Failure::usage(format!(
            "cannot read the plan {file}: {error}; examples are in plans/ of kagiri's sources"
        ))
    })
}

/// A plan whose paths, which are relative to its folder, are absolute.
pub fn with_absolute_paths(mut plan: Plan, folder: &Path) -> Result<Plan, Failure> {
    if let Some(lab) = &mut plan.lab {
        // Relative to the plan; stored as an absolute path, so that the run can be repeated from anywhere.
        *lab = std::path::absolute(folder.join(&*lab))?.to_string_lossy().into_owned();
    }
    for qos in plan.variants.iter_mut().filter_map(|variant| variant.qos.as_mut()) {
        qos.policy = std::path::absolute(folder.join(&qos.policy))?.to_string_lossy().into_owned();
    }
    Ok(plan)
}

/// Calls `measure` with the hosts of the plan's lab, which is up meanwhile, or with `hosts` if these say
/// where hosts join, or if the plan has no lab.
pub fn in_lab_of<T>(
    plan: &Plan,
    hosts: &HostArgs,
    quiet: bool,
    measure: impl FnOnce(&HostArgs) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(file) = plan.lab.as_ref().filter(|_| !hosts.names_hosts()) else { return measure(hosts) };
    check_hosts(plan, file.as_ref())?;
    let lab = LabForRun::up(file.into(), quiet)?;
    let measured = measure(&hosts.in_lab(lab.name()));
    match (measured, lab.down()) {
        (Ok(value), down) => down.map(|()| value),
        (Err(failure), down) => {
            if let Err(left) = down {
                output::error_line(&left.to_string());
            }
            Err(failure)
        }
    }
}
