//! Resources that can set a capacity.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A resource that can set a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// CPU time of the target, in % of one core.
    Cpu,
    /// The device that holds the content, in bit/s.
    Disk,
    /// The link, in bit/s.
    Network,
    /// Memory, in bytes.
    Memory,
    /// The receiver's window: it had not room for more.
    Window,
    /// The sender's buffer: smaller than what the path could hold.
    #[serde(rename = "send_buffer")]
    SendBuffer,
    /// The buffer of a switch's port: what came at once did not fit.
    Buffer,
    /// The measuring side: nothing was learnt about the target beyond this load.
    Player,
    /// No limit was met within the loads that were offered.
    None,
}

impl Resource {
    /// The word in JSON and on the screen.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Window => "window",
            Self::SendBuffer => "send_buffer",
            Self::Buffer => "buffer",
            Self::Player => "player",
            Self::None => "none",
        }
    }

    /// The unit of its usage as printed.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Cpu | Self::Player => "%",
            Self::Disk | Self::Network => "bit/s",
            Self::Memory | Self::Window | Self::SendBuffer | Self::Buffer => "B",
            Self::None => "",
        }
    }

    /// The unit as the end of a name: `bit_per_s`.
    pub const fn unit_suffix(self) -> &'static str {
        match self {
            Self::Cpu | Self::Player => "percent",
            Self::Disk | Self::Network => "bit_per_s",
            Self::Memory | Self::Window | Self::SendBuffer | Self::Buffer => "bytes",
            Self::None => "",
        }
    }

    /// The metric of a trial that holds its usage.
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Self::Cpu => Some("server_cpu_percent"),
            Self::Disk => Some("disk_bit_per_s"),
            Self::Network => Some("network_bit_per_s"),
            Self::Memory => Some("server_memory_bytes"),
            Self::Player => Some("player_cpu_percent"),
            Self::Window | Self::SendBuffer | Self::Buffer | Self::None => None,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Resource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Cpu, Self::Disk, Self::Network, Self::Memory, Self::Player]
            .into_iter()
            .find(|resource| resource.word().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| format!("'{text}' is not a resource; use cpu, disk, network, memory or player"))
    }
}
