//! Floor 1: hosts working together behind one bus.
//!
//! The engine places parts on hosts and drives them through their phases by a [`Bus`]; whether the parts run in
//! this process ([`local::LocalBus`]) or on other hosts makes no difference to it.

pub mod local;

use std::time::Duration;

use base::part::{Endpoints, PartError, PartSpec, Progress};
use serde_json::Value;

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

/// The name of a host on the bus; `here` is always this one.
pub const HERE: &str = "here";

/// What carries parts to hosts and their reports back.
pub trait Bus {
    /// The hosts that parts can be placed on.
    fn hosts(&self) -> Vec<String>;

    /// Build a part on a host. A part of the same name is replaced, and dropped.
    ///
    /// # Errors
    /// No such host or kind, or settings that the kind refuses.
    fn place(&mut self, host: &str, spec: PartSpec) -> Result<(), BusError>;

    /// Let a part acquire what it needs; returns what its peers need to know.
    ///
    /// # Errors
    /// What it could not acquire.
    fn prepare(&mut self, part: &str, peers: &Endpoints) -> Result<Value, BusError>;

    /// Start parts together, `lead` from now; returns when that will be, on this host's monotonic clock.
    ///
    /// # Errors
    /// A part that cannot start; the others may have been started.
    fn start(&mut self, parts: &[&str], lead: Duration) -> Result<u64, BusError>;

    /// How far a part is.
    ///
    /// # Errors
    /// No such part.
    fn progress(&mut self, part: &str) -> Result<Progress, BusError>;

    /// End a part and take its report; the part is gone afterwards.
    ///
    /// # Errors
    /// Why there is no report. The part is gone all the same.
    fn stop(&mut self, part: &str) -> Result<Value, BusError>;
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
