//! `kagiri-bench fleet`: what many hosts, real or made, must reach.

mod agents;
mod clock;
mod faults;
pub mod fixture;
mod helper_process;
mod lab;
mod lab200;
mod link;

use clap::{Args, Subcommand, ValueEnum};

use crate::suite::{Found, Options, Pace};
use fixture::Fixture;

/// Its name on the command line.
const SUITE: &str = "fleet";

/// Join, command, lose and compare the clocks of many agents, in labs made for it. Root is needed.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FleetArgs {
    #[command(subcommand)]
    helper: Option<HelperCommand>,
    /// Only these cases; all without it
    #[arg(long, value_enum, value_name = "NAME")]
    case: Vec<Case>,
    /// How often each thing is measured
    #[arg(long, value_name = "N", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Agents of the case that has most of them
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=5000))]
    agents: u32,
    #[command(flatten)]
    options: Options,
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

struct Settings {
    repeat: u32,
    agents: u32,
    pace: Pace,
}

impl Case {
    fn measure(self, fixture: &Fixture, settings: &Settings) -> anyhow::Result<Found> {
        match self {
            Self::Agents => agents::measure(fixture, settings),
            Self::Lab200 => lab200::measure(fixture, settings),
            Self::Clock => clock::measure(fixture, settings),
            Self::Faults => faults::measure(fixture, settings),
            Self::Lab => lab::measure(fixture, settings),
            Self::Link => link::measure(fixture, settings),
        }
    }
}

impl FleetArgs {
    /// Measures, or prints what was measured, or runs as a helper process.
    pub fn perform(self) -> anyhow::Result<()> {
        match self.helper {
            Some(HelperCommand::Crowd(crowd)) => return crowd.perform(),
            Some(HelperCommand::Coordinate(coordinate)) => return coordinate.perform(),
            None => {}
        }
        let settings = Settings { repeat: self.repeat, agents: self.agents, pace: self.options.pace() };
        let open = || Fixture::open(&self.options.dir(SUITE), self.options.kagiri.clone());
        let counts = |_: &Case| format!("--repeat {}", self.repeat);
        self.options
            .perform(SUITE, &self.case, open, counts, |case, fixture| case.measure(fixture, &settings))
    }
}
