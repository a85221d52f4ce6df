//! One file per command.

mod agent;
mod completions;
mod content;
mod daq;
mod exchange;
mod explain;
mod files;
mod fleet;
mod lab;
mod plan;
mod qos;
mod report;
mod run;
mod runs;
mod serve;
mod stream;
mod survey;
mod timeline;
mod transfer;
mod tune;
mod undo;

use clap::Subcommand;

use crate::exit::Outcome;
use crate::remote::{ConsoleArgs, Source};

#[derive(Subcommand)]
pub enum Command {
    /// Measure this machine: CPU, disk, memory, loopback, transfers, event building, video streams
    Survey(survey::Survey),
    /// Find how many video streams a content server carries
    Stream(Box<stream::StreamArgs>),
    /// Measure TCP, UDP and QUIC throughput or response times, and find what limits them
    Transfer(Box<transfer::TransferArgs>),
    /// Measure whether messages get their replies in time, beside other traffic, and what holds them up
    Exchange(Box<exchange::ExchangeArgs>),
    /// Measure data acquisition: many sources at once send fragments of events to builders
    Daq(Box<daq::DaqArgs>),
    /// Measure how much file work a storage carries: filebench's workloads on any directory
    Files(Box<files::FilesArgs>),
    /// Trace a program's system calls and show where its time goes
    Timeline(Box<timeline::Timeline>),
    /// Explain what limits a system, from a stored run or a table (CSV)
    Explain(explain::Explain),
    /// Run a plan file: a workload with variants and repetitions
    Run(run::RunPlan),
    /// Print what a plan file can set, as a JSON schema or a reference page
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// List, show, compare, export, import and remove stored runs
    #[command(subcommand)]
    Runs(runs::Runs),
    /// Write the HTML report of a stored run
    Report(report::Report),
    /// Serve the console in the browser: plans, runs, hosts, settings, policies
    Serve(serve::Serve),
    /// Make, index and serve video content
    #[command(subcommand)]
    Content(content::Content),
    /// Make credentials for a fleet of hosts, and list its agents
    #[command(subcommand)]
    Fleet(fleet::Fleet),
    /// Run an agent, which lets a coordinator ('kagiri run' elsewhere) measure on this host
    Agent(Box<agent::AgentArgs>),
    /// Make urgent messages of running programs arrive in time: judge and enforce a policy
    #[command(subcommand)]
    Qos(qos::Qos),
    /// Tune the kernel's network: what counters show, settings for a time or a command, trials that decide
    #[command(subcommand)]
    Tune(tune::Tune),
    /// Make a lab on this machine: virtual hosts, links and disks
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Undo changes to this system that kagiri left behind when it crashed
    Undo(undo::Undo),
    /// Print a shell completion script
    Completions(completions::Completions),
    /// Print the manual page, or write the pages of all commands into a directory
    Man(completions::Man),
}

impl Command {
    /// Runs the command. `definition` returns the whole command line, for completions and manual pages.
    pub fn run(self, definition: fn() -> clap::Command) -> Outcome {
        match self {
            Self::Survey(args) => args.run(),
            Self::Stream(args) => args.run(),
            Self::Transfer(args) => args.run(),
            Self::Exchange(args) => args.run(),
            Self::Daq(args) => args.run(),
            Self::Files(args) => args.run(),
            Self::Timeline(args) => args.run(),
            Self::Explain(args) => args.run(),
            Self::Run(args) => args.run(),
            Self::Plan(args) => args.run(),
            Self::Runs(args) => args.run(),
            Self::Report(args) => args.run(),
            Self::Serve(args) => args.run(definition()),
            Self::Content(args) => args.run(),
            Self::Fleet(args) => args.run(),
            Self::Agent(args) => args.run(),
            Self::Qos(args) => args.run(),
            Self::Tune(args) => args.run(),
            Self::Lab(args) => args.run(),
            Self::Undo(args) => args.run(),
            Self::Completions(args) => args.run(definition()),
            Self::Man(args) => args.run(definition()),
        }
    }

    /// Lets a console do the command. What is about this program itself is the same everywhere.
    /// Errors: no console does this command; it is not done here instead.
    pub fn run_on(self, console: &ConsoleArgs, definition: fn() -> clap::Command) -> Outcome {
        match self {
            Self::Run(args) => args.run_on(&console.address().unwrap_or_default(), || console.connect()),
            Self::Runs(args) if args.is_of_a_console() => args.run_on(&Source::Console(&console.connect()?)),
            Self::Report(args) => args.run_on(&console.connect()?),
            Self::Qos(qos::Qos::Status(args)) => args.run_on(&console.connect()?),
            Self::Tune(tune::Tune::Advise(args)) => args.run_on(|| console.connect()),
            Self::Tune(tune::Tune::List(args)) => args.run_on(&console.connect()?),
            Self::Completions(args) => args.run(definition()),
            Self::Man(args) => args.run(definition()),
            _ => Err(console.refusal()),
        }
    }
}
