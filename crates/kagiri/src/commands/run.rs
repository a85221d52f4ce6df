//! `kagiri run`: runs a plan file of any workload.

use std::path::{Path, PathBuf};

use base::plan::Plan;
use clap::Args;

use crate::args::MeasureArgs;
use crate::exit::{Code, Failure, Outcome};
use crate::hosts::HostArgs;
use crate::lab_for_run::{LabForRun, check_hosts};
use crate::placement_check::Places;
use crate::{output, session};

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
    kagiri runs show last --plan > again.toml   the plan of a stored run")]
#[command(mut_arg("repeat", |arg| arg.help("Repeat the variants N times [default: as in the plan]")))]
#[command(mut_arg("seed", |arg| arg.help("Seed of the random numbers [default: as in the plan]")))]
pub struct RunPlan {
    /// Plan file (TOML); examples are in plans/ of kagiri's sources
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,
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
        let plan = self.read()?;
        session::check_plan(&plan, &self.hosts, Places::Plan)?;
        if self.dry_run {
            output::print(&(serde_json::to_string_pretty(&plan)? + "\n"))?;
            return Ok(Code::Measured);
        }
        let Some(file) = plan.lab.as_ref().filter(|_| !self.hosts.names_hosts()) else {
            return session::run_plan(&plan, &self.common, &self.hosts, Places::Plan);
        };
        check_hosts(&plan, file.as_ref())?;
        let lab = LabForRun::up(file.into(), self.common.quiet)?;
        let in_lab = self.hosts.in_lab(lab.name());
        let measured = session::run_plan(&plan, &self.common, &in_lab, Places::Plan);
        match (measured, lab.down()) {
            (Ok(code), down) => down.map(|()| code),
            (Err(failure), down) => {
                if let Err(left) = down {
                    output::error_line(&left.to_string());
                }
                Err(failure)
            }
        }
    }

    fn read(&self) -> Result<Plan, Failure> {
        let file = self.plan.display();
        let text = sys::file::read_text(&self.plan, base::plan::TEXT_BYTES_MAX as u64).map_err(|error| {
            Failure::usage(format!(
                "cannot read the plan {file}: {error}; examples are in plans/ of kagiri's sources"
            ))
        })?;
        let plan = run::registry::BUILT_IN.read_plan(&text).map_err(|error| match error.line {
            Some(line) => Failure::usage(format!("{file}:{line}: {}", error.without_line())),
            None => Failure::usage(format!("{file}: {error}")),
        })?;
        let mut plan = self.common.over(plan);
        if let Some(lab) = &mut plan.lab {
            // Relative to the plan; stored as an absolute path, so that the run can be repeated from
            // anywhere.
            let beside = self.plan.parent().unwrap_or(Path::new("")).join(&*lab);
            *lab = std::path::absolute(beside)?.to_string_lossy().into_owned();
        }
        for qos in plan.variants.iter_mut().filter_map(|variant| variant.qos.as_mut()) {
            let beside = self.plan.parent().unwrap_or(Path::new("")).join(&qos.policy);
            qos.policy = std::path::absolute(beside)?.to_string_lossy().into_owned();
        }
        Ok(plan)
    }
}
