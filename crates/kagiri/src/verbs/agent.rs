//! `kagiri agent`: this host works for a coordinator.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use base::part::{HERE, HostContext};
use base::permit::Permit;
use base::units::Span;
use clap::Args;
use fleet::agent::{self, Owner};
use fleet::policy::{self, Grant, Policy};
use fleet::protocol;
use serde_json::Value;

use crate::exit::{Code, Failure, Outcome};
use crate::{hosts, measure, output};

/// Let a coordinator run parts on this host.
#[derive(Args)]
#[command(
    after_help = "The agent joins whenever a coordinator ('kagiri run', 'kagiri stream --place ...') listens there, \
    and waits for the next one afterwards. What it may be asked for stands in its policy file.\n\n\
    Examples:\n  \
    kagiri agent --join tls/desk.example:7447 --credentials /etc/kagiri\n  \
    kagiri agent --join tcp/127.0.0.1:7447 --name nas       on the coordinator's own machine\n  \
    srun bash -c 'kagiri agent --join tls/HEAD:7447 --credentials BUNDLES/$SLURMD_NODENAME --once'"
)]
pub struct AgentArgs {
    /// The coordinator, or its router: tls/HOST:PORT, tcp/HOST:PORT (on this machine only), or unixsock-stream/PATH
    #[arg(long, value_name = "ENDPOINT")]
    join: String,
    /// This host's name in the fleet [default: that of its certificate, or the host's own]
    #[arg(long)]
    name: Option<String>,
    /// The directory that 'kagiri fleet init' made for this host
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// What coordinators may ask for [default: policy.toml beside the credentials, or a careful built-in one]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where other hosts reach this one [default: the address that it joins from, each time anew]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Where made content is kept [default: $KAGIRI_DATA, or ~/.local/share/kagiri]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Start programs under test in this control group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The most there is of a resource on this host, e.g. network=122Mbit/s; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    ceiling: Vec<String>,
    /// End when the coordinator that it has joined is done
    #[arg(long)]
    once: bool,
    /// Give up when no coordinator was there for this long [default: wait for ever]
    #[arg(long, value_name = "TIME")]
    join_within: Option<Span>,
    /// Say nothing of joining and leaving
    #[arg(long, short)]
    quiet: bool,
}

impl AgentArgs {
    /// Work until told to stop.
    pub fn perform(self: Box<Self>) -> Outcome {
        let stop = measure::stop_flag()?;
        let say = |line: &str| {
            if !self.quiet {
                output::say(line);
            }
        };
        measure::clean_leftovers(&say);
        let setting = self.setting(stop)?;
        let ended = agent::run(&setting, &say, &hosts::reason);
        ended.map(|_| Code::Measured).map_err(Failure::from)
    }

    fn setting(&self, stop: Arc<std::sync::atomic::AtomicBool>) -> Result<agent::Setting, Failure> {
        let identity = hosts::Identity::load_of_host(self.credentials.as_deref())?;
        let join = identity.joinable(&self.join)?;
        let name = self.own_name(&identity)?;
        let data_dir = self.data.clone().map_or_else(measure::data_dir, Ok)?;
        // What parts make there is named to others, and to the policy.
        let data_dir = std::path::absolute(data_dir)?;
        std::fs::create_dir_all(&data_dir)
            .with_context(|| format!("--data: cannot make {}", data_dir.display()))
            .map_err(Failure::of_named)?;
        let ceilings = self.ceiling.iter().map(|text| run::explain::ceiling::parse(text));
        let ceilings: Result<BTreeMap<_, _>, _> = ceilings.collect();
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let host = HostContext {
            name: name.clone(),
            address: self.address,
            program_group: self.group.clone(),
            ceilings: ceilings.map_err(Failure::usage)?,
            ..HostContext::here(data_dir.clone(), measure::journal_dir(), program)
        };
        Ok(agent::Setting {
            grants: grants(self.read_policy(&name, data_dir)?),
            name,
            join,
            more: identity.client_settings(),
            kinds: run::registry::kinds(),
            host,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: environment(),
            once: self.once,
            join_within: self.join_within.map(Span::duration),
            stop,
        })
    }

    /// What it is called: as its certificate says, which nobody would let it speak against.
    fn own_name(&self, identity: &hosts::Identity) -> Result<String, Failure> {
        let name = self.said_or_known(identity)?;
        match protocol::is_name(&name) {
            true => Ok(name),
            false => Err(Failure::usage(format!(
                "'{name}' cannot name a host: use up to 63 letters, digits, '-' and '.', and not '{HERE}', which is \
                 the coordinator's own; see --name"
            ))),
        }
    }

    fn said_or_known(&self, identity: &hosts::Identity) -> Result<String, Failure> {
        match (&self.name, identity.name()) {
            (Some(said), Some(known)) if *said != known => Err(Failure::usage(format!(
                "--name {said}: these credentials are those of {known}, and nobody would listen to {said}; leave \
                 --name out, or take the bundle of {said}"
            ))),
            (Some(name), _) => Ok(name.clone()),
            (None, Some(known)) => Ok(known),
            (None, None) => hosts::host_name(),
        }
    }

    fn read_policy(&self, name: &str, data_dir: PathBuf) -> Result<Policy, Failure> {
        let owner = policy::Owner { host: name.to_owned(), data_dir };
        let beside =
            self.credentials.as_ref().map(|dir| dir.join("policy.toml")).filter(|file| file.exists());
        match self.policy.clone().or(beside) {
            Some(file) => Policy::load(&file, &owner).map_err(Failure::usage),
            None => Ok(Policy::built_in(&owner)),
        }
    }
}

/// Facts of this host, and of this process on it.
fn environment() -> BTreeMap<String, Value> {
    measure::environment().into_iter().chain(run::engine::own_facts()).collect()
}

fn grants(policy: Policy) -> agent::Grants {
    let policy = Arc::new(policy);
    Arc::new(move |owner: &Owner, kind: &str| {
        let grant = Grant::new(Arc::clone(&policy), &owner.name, kind, owner.fleet.clone());
        grant.map(|grant| Arc::new(grant) as Arc<dyn Permit>).map_err(base::part::PartError::from)
    })
}
