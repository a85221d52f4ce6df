//! What a host's owner lets the parts of others do on it.

use std::net::SocketAddr;
use std::path::Path;

use crate::part_error::PartError;

/// A kind of change to the system that needs its owner's leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemChange {
    /// Control groups: CPU quotas, disk limits.
    Cgroup,
    /// Disk images, loop devices, mounts.
    Disk,
    /// Network namespaces, links, shaping.
    Network,
    /// Dropping files from the page cache.
    Cache,
}

/// Asked by a part before it does what may hurt others. Every refusal names the rule.
pub trait Permit: Send + Sync {
    /// May it send to this address, or listen for it?
    fn peer(&self, address: SocketAddr) -> Result<(), PartError>;

    /// May it send as fast as this?
    fn rate(&self, bit_per_s: u64) -> Result<(), PartError>;

    /// May it read and write below this directory?
    fn directory(&self, path: &Path) -> Result<(), PartError>;

    /// May it change the system in this way?
    fn system_change(&self, kind: SystemChange) -> Result<(), PartError>;

    /// May it start this program (its path, or a name to be looked up)?
    fn program(&self, program: &str) -> Result<(), PartError>;
}

/// On one's own host one may do what the operating system lets one do.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everything;

impl Permit for Everything {
    fn peer(&self, _: SocketAddr) -> Result<(), PartError> {
        Ok(())
    }
    fn rate(&self, _: u64) -> Result<(), PartError> {
        Ok(())
    }
    fn directory(&self, _: &Path) -> Result<(), PartError> {
        Ok(())
    }
    fn system_change(&self, _: SystemChange) -> Result<(), PartError> {
        Ok(())
    }
    fn program(&self, _: &str) -> Result<(), PartError> {
        Ok(())
    }
}
