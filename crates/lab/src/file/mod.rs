//! Lab files: hosts, switches, links and disks as people write them in TOML.
//!
//! ```toml
//! name = "narrow"
//!
//! [host.server]
//! cpu_quota_percent = 78
//!
//! [host.viewer]
//! count = 3                       # viewer-1, viewer-2, viewer-3
//!
//! [switch.office]
//!
//! [[link]]
//! between = ["viewer-*", "office"]
//!
//! [[link]]
//! between = ["server", "office"]
//! rate = "122Mbit/s"
//! buffer = "256KiB"
//! ```

mod check;
mod raw;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use base::plan::PlanError;
use base::units::{BitRate, ByteSize, Span};
use serde::{Deserialize, Serialize};
use sys::disk::FileSystem;
use sys::netns::Subnet;

use crate::disk::DiskModel;

/// A longer text is not a lab file.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A lab, checked and resolved: groups of hosts are single hosts, patterns are links.
#[derive(Debug, Clone, PartialEq)]
pub struct Lab {
    /// What it is called; names its namespaces, groups and folders.
    pub name: String,
    /// What its addresses are taken from.
    pub subnet: Subnet,
    /// The host that forwards between networks, and that the others send to what is not theirs.
    pub router: Option<String>,
    /// Whether every host runs an agent.
    pub agents: bool,
    /// Seeds what links lose.
    pub seed: u64,
    /// The hosts, in the order of the file.
    pub hosts: Vec<Host>,
    /// The switches, in the order of the file.
    pub switches: Vec<String>,
    /// The links, in the order of the file.
    pub links: Vec<Link>,
}

/// One host.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// How much of one CPU its programs may use, percent; `None` without a limit.
    pub cpu_quota_percent: Option<f64>,
    /// The address of its first link, where the file gives it.
    pub address: Option<Ipv4Addr>,
    /// Settings of its network stack: the path below `/proc/sys/net` with dots, and the value.
    pub settings: BTreeMap<String, String>,
    /// Its disk.
    pub disk: Option<Disk>,
    /// What runs on it: command lines for `sh`.
    pub run: Vec<String>,
}

/// A host's disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// How large it is.
    pub size: ByteSize,
    /// The file system on it; ext4 if not given.
    #[serde(default = "ext4")]
    pub file_system: FileSystem,
    /// The most that the host's programs read from it.
    pub read_limit: Option<BitRate>,
    /// The most that the host's programs write to it.
    pub write_limit: Option<BitRate>,
    /// How long accesses take; those of this machine's disk if not given.
    pub model: Option<DiskModel>,
}

fn ext4() -> FileSystem {
    FileSystem::Ext4
}

/// How packets wait for a link's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Queue {
    /// A token bucket: tc-tbf(8).
    #[default]
    Tbf,
    /// A hierarchical token bucket of one class, to which others can be added: tc-htb(8).
    Htb,
}

/// A link between two hosts, a host and a switch, or two switches.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The end that is named first.
    pub first: String,
    /// The other one.
    pub second: String,
    /// The rate from the first to the second; `None` without a limit.
    pub rate_up: Option<BitRate>,
    /// The rate from the second to the first.
    pub rate_down: Option<BitRate>,
    /// What waits for the rate before more is dropped, for each direction; see [`Link::buffer_bytes`].
    pub buffer: Option<ByteSize>,
    /// How it waits.
    pub queue: Queue,
    /// How long each packet is on the way, one way.
    pub delay: Span,
    /// The share of packets that get lost, each way.
    pub loss: f64,
}

/// The least and the share of the rate that buffers hold where the file says nothing.
const BUFFER_BYTES_LEAST: u64 = 64 << 10;
const BUFFER_MS: u64 = 10;

impl Link {
    /// What waits for `rate` before more is dropped: as the file says, else 10 ms of the rate and at least 64 KiB.
    pub fn buffer_bytes(&self, rate: BitRate) -> u64 {
        let usual = (rate.byte_per_s() / 1000).saturating_mul(BUFFER_MS).max(BUFFER_BYTES_LEAST);
        self.buffer.map_or(usual, ByteSize::bytes)
    }

    /// Whether its packets go through a delay line.
    pub fn has_line(&self) -> bool {
        !self.delay.duration().is_zero() || self.loss > 0.0
    }
}

impl Lab {
    /// Reads a lab file.
    ///
    /// # Errors
    /// Not TOML, an unknown key, an impossible value, a name that is missing or there twice: with the line.
    pub fn read(text: &str) -> Result<Self, PlanError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PlanError::new("the lab file is longer than 1 MiB, so it is hardly one"));
        }
        let file: raw::LabFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            PlanError { line, ..PlanError::new(error.message().to_owned()) }
        })?;
        check::check(file).map_err(|wrong| PlanError {
            line: wrong.at.map(|at| line_of(text, at)),
            ..PlanError::new(wrong.problem)
        })
    }
}

/// The line, from 1, that holds byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Whether `name` is meant by `pattern`: a name, in which one `*` stands for anything.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        }
    }
}
