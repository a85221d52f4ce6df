//! The settings of the parts of a trial, and the port's endpoint.

use std::net::{SocketAddr, SocketAddrV4};

use base::part::Watch;
use serde::{Deserialize, Serialize};

use super::settings::{DaqSettings, Orders};

/// How long builders wait for front ends, which are started by hand.
pub(crate) const FRONT_ENDS_TIMEOUT_S: u64 = 30;

/// Settings of the port, the standing part on each builder's host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PortTask {
    pub settings: DaqSettings,
    /// Whether some sources are on other hosts.
    pub sources_elsewhere: bool,
}

/// What a port publishes to the builders and sources of every trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PortEndpoint {
    /// Where the builders of this host listen, by TCP and UDP, in the order of their numbers.
    pub addresses: Vec<SocketAddr>,
    /// The multicast group and port of each builder's orders.
    pub groups: Vec<SocketAddrV4>,
    /// The run's number: builders refuse sources of another run.
    pub run: u32,
    /// What a sampler watches on the builders' host.
    pub watch: Watch,
    pub pid: u32,
}

/// Settings of a builders' host for a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuilderTask {
    /// The settings at the trial's load.
    pub settings: DaqSettings,
    /// The name of the port on its host.
    pub port: String,
    /// The number of its first builder.
    pub builder_first: u16,
    pub builders_all: u16,
    pub seed: u64,
}

/// Settings of a sources' host for a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourcesTask {
    /// The settings at the trial's load.
    pub settings: DaqSettings,
    /// The names of the ports of all builders' hosts, in the order of their numbers.
    pub ports: Vec<String>,
    /// The number of its first source.
    pub source_first: u32,
    /// How many sources are on this host.
    pub sources: u32,
    pub seed: u64,
}

impl PortEndpoint {
    /// The group of a builder, by its index; `None`: its orders go over the connections.
    pub(crate) fn group(&self, at: usize, settings: &DaqSettings) -> Option<SocketAddrV4> {
        // IPv6 builders have no multicast group.
        let has_group = settings.orders == Orders::Multicast && self.addresses.get(at)?.is_ipv4();
        self.groups.get(at).copied().filter(|_| has_group)
    }
}

/// Hash of the settings in each source's hello, which the builder compares with its own. Never 0, which means
/// unknown.
pub fn configuration_of(settings: &DaqSettings) -> u64 {
    let text = serde_json::to_vec(settings).expect("settings are plain data");
    let (low, high) = (crc32c::crc32c(&text), crc32c::crc32c_append(!0, &text));
    (u64::from(high) << 32 | u64::from(low)).max(1)
}

/// What a hello says of this host's boot: 16 bytes out of the kernel's boot id; zeros where it is not known.
pub fn boot_of_host() -> [u8; 16] {
    let digits: String = sys::proc::boot_id().chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}
