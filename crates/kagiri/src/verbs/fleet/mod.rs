//! `kagiri fleet`: prepare a fleet of hosts, and see who has joined.

pub mod init;
pub mod list;

use clap::Subcommand;

use crate::exit::Outcome;

/// Prepare a fleet of hosts, and see who has joined.
#[derive(Subcommand)]
pub enum Fleet {
    /// Make credentials for every host: certificates of the fleet's own authority, or passwords
    Init(init::Init),
    /// List the agents that join within a moment: name, address, version, clock
    List(list::List),
}

impl Fleet {
    /// Do it.
    pub fn perform(self) -> Outcome {
        match self {
            Self::Init(verb) => verb.perform(),
            Self::List(verb) => verb.perform(),
        }
    }
}
