//! What the program gives to the server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::outcome::Run;
use serde::{Deserialize, Serialize};

pub struct Config {
    pub listen: SocketAddr,
    /// Host names of this server, beside `localhost` and addresses.
    pub names: Vec<String>,
    pub tls: Option<TlsFiles>,
    /// The folder of the stored runs.
    pub data_dir: PathBuf,
    /// This program's own file: runs are processes of it.
    pub program: PathBuf,
    pub version: &'static str,
    pub host_name: String,
    /// Arguments of commands that use a fleet's hosts; empty: there are none.
    pub fleet: Vec<OsString>,
    /// Folder that the pages are read from, instead of those of this build.
    pub pages: Option<PathBuf>,
    pub commands: Arc<dyn Commands>,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificates: PathBuf,
    pub key: PathBuf,
}

/// Options of `kagiri tune auto`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneOptions {
    /// `NAME=VALUE`, one candidate each; none: kagiri chooses.
    #[serde(default)]
    pub settings: Vec<String>,
    #[serde(default)]
    pub metric: Option<String>,
    #[serde(default)]
    pub blocks: Option<u32>,
}

/// What only the program's commands know.
pub trait Commands: Send + Sync {
    /// Checks a plan as `kagiri run` does. `folder`: paths in the plan are relative to it.
    /// Errors: the first problem of the plan.
    fn check_plan(&self, text: &str, folder: &Path) -> Result<CheckedPlan, PlanProblem>;

    /// How long a plan takes, without a check whether it can be measured here.
    /// Errors: the text is no plan.
    fn plan_length(&self, text: &str) -> Result<PlanLength, PlanProblem>;

    /// Checks a stored run that broke off, as `kagiri run --resume` does before it measures.
    /// Errors: its plan cannot be read or measured here, or a file that the plan names has changed.
    fn check_stored(&self, run: &Run) -> Result<CheckedPlan, PlanProblem>;

    /// Checks the options of `kagiri tune auto` for a valid plan, as the command does before it measures.
    /// Errors: the first problem, with the key of [`TuneOptions`] or `toml`.
    fn check_tune(&self, text: &str, options: &TuneOptions) -> Result<(), PlanProblem>;

    /// The help of a command in one sentence. `command`: its words after `kagiri`.
    fn summary(&self, command: &str) -> Option<String>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan {
    pub name: String,
    pub workload: String,
    pub length: PlanLength,
    pub needs_root: bool,
    pub targets: Targets,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PlanLength {
    /// The longest time that it takes, in s; `None`: unknown.
    pub s: Option<f64>,
    /// The same in words, with the number of trials.
    pub words: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanProblem {
    pub message: String,
    /// The dotted key.
    pub field: Option<String>,
    /// Counted from 1.
    pub line: Option<usize>,
}

/// The hosts that a measurement uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// This machine, or a lab on it.
    pub is_here: bool,
    /// Hosts of the fleet.
    pub hosts: Vec<String>,
    /// A pattern does not say which of the fleet's hosts they are.
    pub is_any: bool,
}

impl Targets {
    pub fn uses_fleet(&self) -> bool {
        self.is_any || !self.hosts.is_empty()
    }

    /// Whether two measurements would disturb each other. Those of a fleet always do: each has a coordinator
    /// on this machine, and both would listen for agents at one address.
    pub fn conflict(&self, other: &Self) -> bool {
        (self.is_here && other.is_here) || (self.uses_fleet() && other.uses_fleet())
    }

    /// Their names, for people. `here`: that of this machine.
    pub fn names(&self, here: &str) -> Vec<String> {
        let own = self.is_here.then(|| here.to_owned());
        let any = self.is_any.then(|| "any agent".to_owned());
        own.into_iter().chain(self.hosts.iter().cloned()).chain(any).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_conflict_if_they_share_a_host_or_need_a_coordinator_each() {
        let here = Targets { is_here: true, ..Targets::default() };
        let nas = Targets { hosts: vec!["nas".into()], ..Targets::default() };
        let other = Targets { hosts: vec!["pc-1".into()], ..Targets::default() };
        let any = Targets { is_any: true, ..Targets::default() };
        let both = Targets { is_here: true, ..nas.clone() };
        for (a, b, expected) in [
            (&here, &here, true),
            (&here, &nas, false),
            (&nas, &other, true),
            (&any, &nas, true),
            (&any, &here, false),
            (&both, &here, true),
        ] {
            assert_eq!((a.conflict(b), b.conflict(a)), (expected, expected), "{a:?} {b:?}");
        }
        assert_eq!(both.names("desk"), ["desk", "nas"]);
    }
}
