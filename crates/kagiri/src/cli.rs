//! The command line: verbs and what they share. Every verb's own flags stand with the verb.

use std::path::PathBuf;

use base::plan::Plan;
use clap::{Args, Parser, Subcommand};

use crate::verbs;

/// How much load a networked or storage system carries within its deadlines, what limits it, and why.
#[derive(Parser)]
#[command(name = "kagiri", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Examples:\n  \
    kagiri survey                           begin here: this machine, one report\n  \
    kagiri stream http://nas:8080/film.ts   how many viewers does it carry?\n  \
    kagiri report                           the last run's report once more\n\n\
    Units are part of every number: 25Mbit/s, 250kB, 128KiB, 500ms.\n\
    Exit: 0 measured, 1 could not be measured, 2 wrong usage or plan, 3 a --require did not hold, 130 interrupted.\n\
    Results are kept in $KAGIRI_DATA, or ~/.local/share/kagiri.")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Subcommand)]
pub enum Verb {
    /// Measure this machine in a few minutes and write one report
    Survey(verbs::survey::Survey),
    /// Find how many video streams a content server carries
    Stream(Box<verbs::stream::StreamArgs>),
    /// Find how fast bytes move to a server, and what holds them back
    Transfer(Box<verbs::transfer::TransferArgs>),
    /// Find how quickly a network builds events from many sources at once
    Daq(Box<verbs::daq::DaqArgs>),
    /// Show where the time of a program goes, call by call
    Timeline(Box<verbs::timeline::Timeline>),
    /// Explain what limits, from a table that was measured anywhere
    Explain(verbs::explain::Explain),
    /// Run a plan: a workload over variants and repetitions
    Run(verbs::run::RunPlan),
    /// List, show, compare, export and import stored runs
    #[command(subcommand)]
    Runs(verbs::runs::Runs),
    /// Write the HTML report of a stored run
    Report(verbs::report::Report),
    /// Make, index and serve content
    #[command(subcommand)]
    Content(verbs::content::Content),
    /// Prepare a fleet of hosts, and see who has joined
    #[command(subcommand)]
    Fleet(verbs::fleet::Fleet),
    /// Let a coordinator run parts on this host
    Agent(Box<verbs::agent::AgentArgs>),
    /// Make hosts, links and disks on this machine
    #[command(subcommand)]
    Lab(verbs::lab::Lab),
    /// Put back whatever a crash left changed on this system
    Undo(verbs::undo::Undo),
    /// Print a shell's completion script
    Completions(verbs::completions::Completions),
    /// Print the manual page, or write those of all verbs into a directory
    Man(verbs::completions::Man),
}

/// What every measuring verb takes.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Result")]
pub struct Common {
    /// Print one JSON document on standard output, and nothing else there
    #[arg(long)]
    pub json: bool,
    /// Write the report (HTML), the tables (CSV) and the run (JSON) into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// End with exit code 3 unless this holds: a metric of the JSON document, or 'capacity', e.g. 'capacity>=4' or
    /// 'slack_min>=500ms'; may be repeated
    #[arg(long, value_name = "CONDITION")]
    pub require: Vec<String>,
    /// Repeat the whole measurement this often, variants interleaved [default: 1, or the plan's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Seed of everything that is drawn at random: the same seed offers the same load [default: 1, or
    /// the plan's own]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Show no progress while measuring
    #[arg(long, short)]
    pub quiet: bool,
}

impl Common {
    /// A plan, with what the command line says of it.
    pub fn over(&self, mut plan: Plan) -> Plan {
        plan.repeats = self.repeat.unwrap_or(plan.repeats);
        plan.seed = self.seed.unwrap_or(plan.seed);
        plan.require.extend(self.require.iter().cloned());
        plan
    }
}
