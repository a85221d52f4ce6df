//! `kagiri tune`: settings of the kernel's network.

mod advise;
mod assignment;
pub mod auto;
mod changes;
mod list;
mod record;
mod set;
mod undo;

use clap::Subcommand;

use super::qos::Guard;
use crate::exit::Outcome;

const COLUMNS: usize = 80;

/// Tune the kernel's network.
#[derive(Subcommand)]
#[command(after_help = "docs/tune.md explains the settings and what decides about them.\n\n\
    Examples:\n  \
    kagiri tune advise                       what this host's counters show, and what to try\n  \
    kagiri tune set tcp_notsent_lowat=131072 -- kagiri exchange --size 250kB --target 500ms\n  \
    kagiri tune set tcp_wmem='4096 16384 8MiB' --for 10min\n  \
    kagiri tune auto plan.toml               which settings help this workload, by trials\n  \
    kagiri tune undo                         restore the settings before")]
pub enum Tune {
    /// Show what counters of this host say about its buffers, queues and losses, with the evidence
    Advise(advise::Advise),
    /// Show the settings: meaning, value, kernel default, range, scope
    List(list::List),
    /// Set settings for a time or for a command, and restore them
    Set(set::Set),
    /// Find out by trials of a plan whether settings help
    Auto(Box<auto::Auto>),
    /// End each 'tune set' that runs, and restore what a crash left
    Undo(undo::Undo),
    /// Undo the changes of a 'tune set' when it is killed (started by 'set')
    #[command(hide = true)]
    Guard(Guard),
}

impl Tune {
    pub fn run(self) -> Outcome {
        match self {
            Self::Advise(command) => command.run(),
            Self::List(command) => command.run(),
            Self::Set(command) => command.run(),
            Self::Auto(command) => command.run(),
            Self::Undo(command) => command.run(),
            Self::Guard(command) => command.run(),
        }
    }
}
