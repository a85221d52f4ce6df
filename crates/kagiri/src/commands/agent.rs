//! `kagiri agent`: runs parts on this host for a coordinator.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use base::part::{HERE, HostContext};
use base::permit::Permit;
use base::units::Span;
use clap::Args;
use fleet::FleetError;
use fleet::agent::{self, RunOwner};
use fleet::policy::{self, Grant, Policy};
use fleet::protocol;
use serde_json::Value;

use crate::args::CEILING;
use crate::exit::{Code, Failure, Outcome};
use crate::{dirs, host_facts, hosts, leftovers, output, stop};

/// Run an agent, which lets a coordinator measure on this host.
#[derive(Args)]
#[command(
    after_help = "The agent waits until a coordinator ('kagiri run', 'kagiri stream --place ...') listens, \
    takes part in its run to the end, and waits for the next. Its policy file limits what coordinators may \
    do on this host.\n\n\
    Examples:\n  \
    kagiri agent --join tls/desk.example:7447 --credentials /etc/kagiri\n  \
    kagiri agent --join tcp/127.0.0.1:7447 --name nas   on one machine\n  \
    srun bash -c 'kagiri agent --join tls/HEAD:7447 --once \\\n      \
    --credentials BUNDLES/$SLURMD_NODENAME'"
)]
pub struct AgentArgs {
    /// Where the coordinator listens (or a router): tls/HOST:PORT, or on this machine tcp/127.0.0.1:PORT or
    /// unixsock-stream/PATH
    #[arg(long, value_name = "ENDPOINT")]
    join: String,
    /// Name of this host in the fleet [default: as in its certificate, else the host name]
    #[arg(long)]
    name: Option<String>,
    /// This host's credentials: a copy of the directory bundles/NAME that 'kagiri fleet init' made
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// Policy file: what coordinators may do here [default: policy.toml in --credentials,
    /// else a strict built-in policy]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Address at which other hosts reach this host [default: local address of the connection to the
    /// coordinator]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Directory for generated content [default: $KAGIRI_DATA, else $XDG_DATA_HOME/kagiri, else
    /// ~/.local/share/kagiri]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Existing control group (path below /sys/fs/cgroup) in which servers under test run
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    #[arg(long, value_name = "NAME=VALUE", help = CEILING)]
    ceiling: Vec<String>,
    /// Exit after the first run
    #[arg(long)]
    once: bool,
    /// Give up after TIME without a coordinator [default: wait without limit]
    #[arg(long, value_name = "TIME", value_parser = crate::args::time)]
    join_within: Option<Span>,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

impl AgentArgs {
    pub fn run(self: Box<Self>) -> Outcome {
        let stop = stop::stop_flag()?;
        let say = output::say_unless(self.quiet);
        leftovers::clean_leftovers(&stop, &say);
        let setting = self.setting(stop)?;
        let ended = agent::run(&setting, &say, &hosts::connect_failure);
        ended.map(|_| Code::Measured).map_err(|error| match (error, self.join_within) {
            (error @ FleetError::Open { .. }, Some(time)) => Failure::runtime(format!(
                "{error} within {time} (--join-within); an agent joins while a coordinator measures there, \
                 such as 'kagiri run PLAN.toml --listen'"
            )),
            (error, _) => Failure::from(error),
        })
    }

    fn setting(&self, stop: Arc<std::sync::atomic::AtomicBool>) -> Result<agent::AgentConfig, Failure> {
        let identity = hosts::Identity::load_of_host(self.credentials.as_deref())?;
        identity.warn_of_expiry();
        let join = identity.joinable(&self.join)?;
        let name = self.valid_name(&identity)?;
        let data_dir = self.data.clone().map_or_else(dirs::data_dir, Ok)?;
        // Absolute, because other hosts and the policy use this path.
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
            storage: dirs::lab_storage(),
            credentials: identity.credentials().map(|own| own.dir),
            ..HostContext::here(data_dir.clone(), dirs::journal_dir(), program)
        };
        Ok(agent::AgentConfig {
            permits: grants(self.read_policy(&name, data_dir)?),
            name,
            join,
            credentials: identity.credentials(),
            kinds: run::registry::BUILT_IN.part_kinds(),
            host,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: environment(),
            once: self.once,
            join_within: self.join_within.map(Span::duration),
            stop,
        })
    }

    fn valid_name(&self, identity: &hosts::Identity) -> Result<String, Failure> {
        let name = self.chosen_name(identity)?;
        match protocol::is_name(&name) {
            true => Ok(name),
            false => Err(Failure::usage(format!(
                "'{name}' is no valid host name: use up to 63 letters, digits, '-' and '.', but not \
                 '{HERE}', which is the coordinator's; see --name"
            ))),
        }
    }

    /// `--name`, which must agree with the certificate: access control knows the host by that name.
    fn chosen_name(&self, identity: &hosts::Identity) -> Result<String, Failure> {
        match (&self.name, identity.name()) {
            (Some(said), Some(known)) if *said != known => Err(Failure::usage(format!(
                "--name {said}: these credentials belong to {known}; omit --name, or use the bundle of {said}"
            ))),
            (Some(name), _) => Ok(name.clone()),
            (None, Some(known)) => Ok(known),
            (None, None) => host_facts::host_name(),
        }
    }

    fn read_policy(&self, name: &str, data_dir: PathBuf) -> Result<Policy, Failure> {
        let owner = policy::HostInfo { host: name.to_owned(), data_dir };
        let beside =
            self.credentials.as_ref().map(|dir| dir.join("policy.toml")).filter(|file| file.exists());
        match self.policy.clone().or(beside) {
            Some(file) => Policy::load(&file, &owner).map_err(Failure::usage),
            None => Ok(Policy::default_for(&owner)),
        }
    }
}

/// Facts about this host and this process.
fn environment() -> BTreeMap<String, Value> {
    host_facts::environment().into_iter().chain(run::engine::own_facts()).collect()
}

fn grants(policy: Policy) -> agent::PermitFactory {
    let policy = Arc::new(policy);
    Arc::new(move |owner: &RunOwner, kind: &str| {
        let grant = Grant::new(Arc::clone(&policy), &owner.name, kind, owner.fleet.clone());
        grant.map(|grant| Arc::new(grant) as Arc<dyn Permit>).map_err(base::part::PartError::from)
    })
}
