//! `kagiri fleet`: makes credentials and lists agents.

pub mod init;
pub mod list;

use clap::Subcommand;

use crate::exit::Outcome;

/// Make credentials for a fleet of hosts, and list its agents.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  \
    kagiri fleet init fleet --coordinator desk --host nas,pc-[1-20]\n  \
    kagiri fleet list --listen tls/0.0.0.0:7447 --credentials DIR")]
pub enum Fleet {
    /// Make credentials for every host: certificates or passwords
    Init(init::Init),
    /// List the agents that join: name, address, version, clock error
    List(list::List),
}

impl Fleet {
    pub fn run(self) -> Outcome {
        match self {
            Self::Init(command) => command.run(),
            Self::List(command) => command.run(),
        }
    }
}
