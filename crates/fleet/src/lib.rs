//! Layer 2: runs the parts of a measurement on one or several hosts.
//!
//! The engine places parts on hosts and drives them through their phases through a [`Bus`]:
//! [`local::LocalBus`] for this process, [`coordinator::FleetBus`] for agents on other hosts.

pub mod agent;
pub mod channel;
pub mod clock;
pub mod coordinator;
pub mod endpoint;
mod error;
pub mod identity;
pub mod local;
pub mod policy;
pub mod protocol;
pub mod session;
mod tunnel;
mod wakeup_latency;

use std::collections::BTreeMap;

use base::doubt::Doubt;
pub use base::part::HERE;
use base::part::{AnyPart, Endpoints, Live, PartError, PartKind, PartSpec, Progress};
use serde_json::Value;

pub use error::FleetError;

/// Why a bus operation failed. The message names the part and its host, except for usage errors on this
/// host.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("{}{error}", error_prefix(part, host, error.usage))]
    Part { part: String, host: String, error: PartError },
    #[error("host {host} was lost: {why}")]
    HostLost { host: String, why: String },
    #[error("{host} could not start with the others: {why}")]
    LateStart { host: String, why: String },
    /// Two agents that stay claim one name: which of them is meant, and whose reports these are, is unknown.
    #[error("two agents have the name {host}: end one, or give it another --name")]
    TwoAgents { host: String },
    /// No such part or kind of part: an error of the caller.
    #[error("{0}")]
    Unknown(String),
}

impl BusError {
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Part { error, .. } if error.usage)
    }
}

fn error_prefix(part: &str, host: &str, usage: bool) -> String {
    match (host == HERE, usage) {
        (true, true) => String::new(),
        (true, false) => format!("{part}: "),
        (false, true) => format!("{host}: "),
        (false, false) => format!("{part} on {host}: "),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between the first and the last host's threads running, by their own clocks; `None` if a host did not
    /// report it.
    pub skew_ns: Option<u64>,
    pub bound_ns: u64,
}

/// Carries parts to hosts and their reports back. Every call takes many parts, because hosts work in
/// parallel.
pub trait Bus {
    fn hosts(&self) -> Vec<String>;

    /// Hosts that joined but cannot be used now: name, and a message with the reason.
    fn unusable(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Facts of the other hosts, for the run's environment.
    fn facts(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Builds parts on their hosts. Replaces parts of the same name.
    /// Errors: Unknown host or kind, or settings that the kind rejects. Other parts may have been built.
    fn place(&mut self, specs: Vec<PartSpec>) -> Result<(), BusError>;

    /// Lets parts acquire what they need. Returns their endpoints, for their peers.
    fn prepare(&mut self, parts: &[&str], peers: &Endpoints) -> Result<Endpoints, BusError>;

    /// Starts parts together, as soon as every host can be reached in time.
    /// Errors: A part cannot start. Other parts may have been started.
    fn start(&mut self, parts: &[&str]) -> Result<(), BusError>;

    /// Last reported progress of a part. Never blocks.
    /// Errors: Unknown part, or its host was lost.
    fn progress(&mut self, part: &str) -> Result<Progress, BusError>;

    /// Last reported live numbers of a part. Never blocks.
    fn live(&mut self, part: &str) -> Live;

    /// Ends parts and takes their reports. The parts are gone afterwards, even without a report.
    fn stop(&mut self, parts: &[&str]) -> BTreeMap<String, Result<Value, BusError>>;

    /// Precision of the last common start; `None` on one host or when called again.
    fn timing(&mut self) -> Option<Timing> {
        None
    }

    fn doubts(&mut self) -> Vec<Doubt> {
        Vec::new()
    }
}

pub(crate) fn build(kinds: &[PartKind], spec: &PartSpec) -> Result<Box<dyn AnyPart>, BusError> {
    let kind = kinds.iter().find(|kind| kind.name == spec.kind);
    let kind = kind.ok_or_else(|| BusError::Unknown(format!("there is no kind of part '{}'", spec.kind)))?;
    let refused = |error| BusError::Part { part: spec.name.clone(), host: spec.host.clone(), error };
    (kind.build)(spec).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_part_and_host() {
        let message = |host: &str, error| {
            BusError::Part { part: "server".into(), host: host.into(), error }.to_string()
        };
        assert_eq!(message(HERE, PartError::usage("'x' is no URL")), "'x' is no URL");
        assert_eq!(message(HERE, PartError::new("it died")), "server: it died");
        assert_eq!(message("nas", PartError::new("it died")), "server on nas: it died");
        assert_eq!(message("nas", PartError::usage("no such file")), "nas: no such file");
    }
}
