//! `kagiri qos`: quality of service of running programs.

mod check;
mod clear;
mod coordinate;
mod exec;
mod guard;
mod host_link;
mod members;
mod metrics;
mod record;
mod run;
mod status;

use std::path::Path;

use clap::Subcommand;
use qos::policy::Policy;
use report::text::clipped;

use crate::exit::{Failure, Outcome};
use crate::policies;

pub use guard::Guard;

const COLUMNS: usize = 80;

/// Make urgent messages of running programs arrive in time.
#[derive(Subcommand)]
#[command(
    after_help = "A policy has classes of traffic with their targets; docs/qos.md explains all keys.\n\n\
    Examples:\n  \
    kagiri qos check plans/qos/robots.toml  can every target be met?\n  \
    kagiri qos run plans/qos/robots.toml    enforce it on running programs\n  \
    kagiri qos status                       what is in force\n  \
    kagiri qos exec bulk -- rsync -a A B:   run a program in a class of it"
)]
pub enum Qos {
    /// Judge a policy before anything is changed: which targets can be met, and what would fix the others
    Check(check::Check),
    /// Enforce a policy on running programs until Ctrl-C, and put everything back
    Run(run::Run),
    /// Share one bottleneck among several hosts, each of which enforces the same policy
    Coordinate(coordinate::Coordinate),
    /// Show the policies in force: messages in time, and the rates of sockets
    Status(status::ShowStatus),
    /// Run a program in a class of the policy in force: its new connections are paced at once
    Exec(exec::Exec),
    /// End all policies in force, and put back what a crash left
    Clear(clear::Clear),
    /// Undo the changes of a policy in force when it is killed (started by 'run')
    #[command(hide = true)]
    Guard(Guard),
}

impl Qos {
    pub fn run(self) -> Outcome {
        match self {
            Self::Check(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Coordinate(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Exec(command) => command.run(),
            Self::Clear(command) => command.run(),
            Self::Guard(command) => command.run(),
        }
    }
}

/// Errors: this is not root. `why` names the command and what it needs root for.
pub fn check_root(why: &str) -> Result<(), Failure> {
    match sys::environment::is_root() {
        true => Ok(()),
        false => Err(Failure::runtime(format!("{why}, and needs root: run it with sudo"))),
    }
}

/// An answer of lines that fit; a class may have any name.
pub fn fitted(lines: &[String]) -> String {
    lines.iter().map(|line| clipped(line.trim_end(), COLUMNS) + "\n").collect()
}

fn read_policy(path: &Path) -> Result<Policy, Failure> {
    Ok(policies::read(path)?.0)
}
