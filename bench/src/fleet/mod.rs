//! `kagiri-bench fleet`: what many hosts, real or made, must reach.

mod agents;
mod clock;
mod faults;
pub mod fixture;
mod helper_process;
mod lab;
pub mod link;

use clap::{Args, Subcommand, ValueEnum};

use crate::suite::{Found, Options, Pace};
use fixture::Fixture;

/// Join, command, lose and compare the clocks of many agents, in labs made for it. Root is needed.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Settings {
    #[command(subcommand)]
    helper: Option<HelperCommand>,
    /// How often each thing is measured
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Agents of the case that has most of them
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=5000))]
    agents: u32,
    #[command(flatten)]
    options: Options<Case>,
    #[arg(skip)]
    pace: Pace,
}

/// What this program starts itself for, on hosts of a lab.
#[derive(Subcommand)]
enum HelperCommand {
    /// Be many agents
    #[command(hide = true)]
    Crowd(helper_process::Crowd),
    /// Be a coordinator that tells what it sees
    #[command(hide = true)]
    Coordinate(helper_process::Coordinate),
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Case {
    /// Many agents and one coordinator: joining, asking, idling
    Agents,
    /// A run on 200 hosts of a lab, and a common start of 100
    Lab200,
    /// The clocks' bound between namespaces, idle and loaded
    Clock,
    /// How soon an agent that is killed or cut off is named
    Faults,
    /// A lab of 17 hosts: up, down, killed and undone
    Lab,
    /// Shaped links and delay lines against what was asked for
    Link,
}

impl Settings {
    /// Measures, or prints what was measured, or runs as a helper process.
    pub fn perform(mut self) -> anyhow::Result<()> {
        match self.helper.take() {
            Some(HelperCommand::Crowd(crowd)) => return crowd.perform(),
            Some(HelperCommand::Coordinate(coordinate)) => return coordinate.perform(),
            None => self.pace = self.options.pace(),
        }
        let counts = |_: &Case| format!("--repeat {}", self.repeat);
        self.options.perform("fleet", Fixture::open, counts, |case, fixture| {
            let measure = match case {
                Case::Agents => agents::measure,
                Case::Lab200 => lab::large,
                Case::Clock => clock::measure,
                Case::Faults => faults::measure,
                Case::Lab => lab::measure,
                Case::Link => link::measure,
            };
            measure(fixture, &self)
        })
    }
}
