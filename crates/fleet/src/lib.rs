//! Floor 1: hosts working together behind one bus.
//!
//! The engine places parts on hosts and drives them through their phases by a [`Bus`]; whether the parts run in
//! this process ([`local::LocalBus`]) or on other hosts ([`coordinator::FleetBus`]) makes no difference to it.

pub mod agent;
pub mod clock;
pub mod coordinator;
pub mod endpoint;
mod error;
pub mod identity;
mod lateness;
pub mod local;
pub mod policy;
pub mod protocol;
pub mod session;

use std::collections::BTreeMap;

use base::doubt::Doubt;
pub use base::part::HERE;
use base::part::{Endpoints, Live, Part, PartError, PartKind, PartSpec, Progress};
use serde_json::Value;

pub use error::FleetError;

/// Why the bus could not do what was asked; the message names the part and, unless it is this one, its host. What the
/// user's own settings are at fault for is said as the part said it.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The part itself said no.
    #[error("{}{error}", place(part, host, error.usage))]
    Part {
        /// The part's name.
        part: String,
        /// Where it was placed.
        host: String,
        /// What it said.
        error: PartError,
    },
    /// The host is gone, or does not answer any more.
    #[error("host {host} was lost: {why}")]
    Lost {
        /// Its name.
        host: String,
        /// How that was seen.
        why: String,
    },
    /// The host was told to start too late to do so with the others.
    #[error("{host} could not start with the others: {why}")]
    Late {
        /// Its name.
        host: String,
        /// What it said.
        why: String,
    },
    /// No such part, or no such kind of part: a mistake of the caller.
    #[error("{0}")]
    Unknown(String),
}

impl BusError {
    /// Whether the user's settings were at fault rather than the world.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Part { error, .. } if error.usage)
    }
}

/// Where an error comes from, in front of it.
fn place(part: &str, host: &str, usage: bool) -> String {
    match (host == HERE, usage) {
        (true, true) => String::new(),
        (true, false) => format!("{part}: "),
        (false, true) => format!("{host}: "),
        (false, false) => format!("{part} on {host}: "),
    }
}

/// How well a common start on several hosts was together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between the first and the last host's threads running, by their own clocks; absent where one did not say.
    pub skew_ns: Option<u64>,
    /// How far apart the moments may be that those clocks were told to start at.
    pub bound_ns: u64,
}

/// What carries parts to hosts and their reports back.
///
/// A bus works on many parts at once, because hosts work side by side.
pub trait Bus {
    /// The hosts that parts can be placed on now.
    fn hosts(&self) -> Vec<String>;

    /// Hosts that are there, or were, on which nothing can be placed now, and a line that names them and says why.
    fn unusable(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What is known of hosts other than this one, for the run's environment.
    fn facts(&self) -> BTreeMap<String, Value> {
        BTreeMap::new()
    }

    /// Build parts on the hosts that they name. A part of the same name is replaced, and dropped.
    ///
    /// # Errors
    /// No such host or kind, or settings that the kind refuses. Others may have been built.
    fn place(&mut self, specs: Vec<PartSpec>) -> Result<(), BusError>;

    /// Let parts acquire what they need; returns what each tells its peers.
    ///
    /// # Errors
    /// What one of them could not acquire.
    fn prepare(&mut self, parts: &[&str], peers: &Endpoints) -> Result<Endpoints, BusError>;

    /// Start parts together, as soon as all can be told.
    ///
    /// # Errors
    /// A part that cannot start; the others may have been started.
    fn start(&mut self, parts: &[&str]) -> Result<(), BusError>;

    /// How far a part is, as was last heard. Never blocks.
    ///
    /// # Errors
    /// No such part, or its host was lost.
    fn progress(&mut self, part: &str) -> Result<Progress, BusError>;

    /// The numbers that a part sees now, as was last heard; none where it sees none. Never blocks.
    fn live(&mut self, part: &str) -> Live;

    /// End parts and take their reports; they are gone afterwards, whatever became of their reports.
    fn stop(&mut self, parts: &[&str]) -> BTreeMap<String, Result<Value, BusError>>;

    /// How well the last start was together, once; nothing to say on one host.
    fn timing(&mut self) -> Option<Timing> {
        None
    }

    /// What weakens results, collected since the last look.
    fn doubts(&mut self) -> Vec<Doubt> {
        Vec::new()
    }
}

/// Build a part of a known kind.
pub(crate) fn build(kinds: &[PartKind], spec: &PartSpec) -> Result<Box<dyn Part>, BusError> {
    let kind = kinds.iter().find(|kind| kind.name == spec.kind);
    let kind = kind.ok_or_else(|| BusError::Unknown(format!("there is no kind of part '{}'", spec.kind)))?;
    let refused = |error| BusError::Part { part: spec.name.clone(), host: spec.host.clone(), error };
    (kind.build)(spec).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_where_that_says_something() {
        let said = |host: &str, error| {
            BusError::Part { part: "server".into(), host: host.into(), error }.to_string()
        };
        assert_eq!(said(HERE, PartError::usage("'x' is no URL")), "'x' is no URL");
        assert_eq!(said(HERE, PartError::new("it died")), "server: it died");
        assert_eq!(said("nas", PartError::new("it died")), "server on nas: it died");
        assert_eq!(said("nas", PartError::usage("no such file")), "nas: no such file");
    }
}
