//! Lab files (TOML): hosts, switches, links and disks.
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
mod steps;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ageing::Severity;
use base::plan::PlanError;
use base::units::{BitRate, ByteSize, Span};
use serde::{Deserialize, Serialize};
use sys::disk::FileSystem;
use sys::netns::Subnet;

use crate::disk::DiskModel;

pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// A checked lab file: groups of hosts are resolved to hosts, patterns to links.
#[derive(Debug, Clone, PartialEq)]
pub struct Lab {
    pub name: String,
    pub subnet: Subnet,
    /// Forwards between networks; the other hosts' gateway.
    pub router: Option<String>,
    pub agents: bool,
    /// Seed of packet loss.
    pub seed: u64,
    pub hosts: Vec<Host>,
    pub switches: Vec<String>,
    pub links: Vec<Link>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub name: String,
    /// In % of one CPU; `None`: no limit.
    pub cpu_quota_percent: Option<f64>,
    /// Address of its first link, if the file has it.
    pub address: Option<Ipv4Addr>,
    /// Kernel settings: path below `/proc/sys/net` with dots, and value.
    pub settings: BTreeMap<String, String>,
    pub disk: Option<Disk>,
    pub mount: Option<Mount>,
    /// Command lines for `sh`.
    pub run: Vec<String>,
    /// Further variables of its agent and its programs. They may be secrets: nothing shows or stores them.
    pub environment: BTreeMap<String, String>,
}

/// A file system that a program serves (FUSE).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Command line for `sh`, which mounts at `$KAGIRI_LAB_MOUNT` and stays in the foreground.
    pub command: String,
    /// Longest wait until the file system answers.
    #[serde(default = "mount_within")]
    pub within: Span,
}

fn mount_within() -> Span {
    Span::from_s(20)
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    pub size: ByteSize,
    /// Default: ext4.
    #[serde(default = "ext4")]
    pub file_system: FileSystem,
    /// Limit for the host's programs.
    pub read_limit: Option<BitRate>,
    /// Limit for the host's programs.
    pub write_limit: Option<BitRate>,
    /// Default: as fast as this machine's disk.
    pub model: Option<DiskModel>,
    /// Recorded and deleted on before the lab is up, so that half of it is free in gaps; default: new.
    pub age: Option<Severity>,
    /// Space for the content that is made on this disk, reserved in segments before the disk is aged;
    /// default: content is made in ordinary files.
    pub pool: Option<ByteSize>,
}

fn ext4() -> FileSystem {
    FileSystem::Ext4
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Queue {
    /// Token bucket: tc-tbf(8).
    #[default]
    Tbf,
    /// Hierarchical token bucket with one class: tc-htb(8).
    Htb,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    pub first: String,
    pub second: String,
    /// From the first end to the second; `None`: no limit.
    pub rate_up: Option<BitRate>,
    /// From the second end to the first.
    pub rate_down: Option<BitRate>,
    /// Rates of both directions later in a trial, in the order of their times.
    pub steps: Vec<Step>,
    /// Each direction; see [`Link::buffer_bytes`].
    pub buffer: Option<ByteSize>,
    pub queue: Queue,
    /// One way.
    pub delay: Span,
    /// Each way.
    pub loss: f64,
}

/// A later rate of a link, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// From the start of a trial.
    pub after: Span,
    pub rate: BitRate,
}

/// Rates of links: from a packet in 1.5 s to more than any machine reaches.
const RATE_RANGE: &str = "8kbit/s..400Gbit/s";

fn is_possible(rate: BitRate) -> bool {
    (8_000..=400_000_000_000).contains(&rate.bit_per_s())
}

/// Recording and deleting, on a slow machine.
const AGEING_S_PER_GIB: u64 = 120;
const BUFFER_BYTES_LEAST: u64 = 64 << 10;
const BUFFER_MS: u64 = 10;

impl Link {
    /// Buffer in front of `rate`: as in the file, else 10 ms of the rate and at least 64 KiB.
    pub fn buffer_bytes(&self, rate: BitRate) -> u64 {
        let usual = (rate.byte_per_s() / 1000).saturating_mul(BUFFER_MS).max(BUFFER_BYTES_LEAST);
        self.buffer.map_or(usual, ByteSize::bytes)
    }

    pub fn has_line(&self) -> bool {
        !self.delay.duration().is_zero() || self.loss > 0.0
    }
}

impl Disk {
    /// Longest time until it can be used, beyond that of a new one.
    pub fn ageing_within(&self) -> Duration {
        let per_gib = self.age.map_or(0, |_| AGEING_S_PER_GIB);
        Duration::from_secs(per_gib * (self.size.bytes() >> 30).max(1))
    }
}

impl Lab {
    /// Parses a lab file; errors name the line.
    pub fn read(text: &str) -> Result<Self, PlanError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PlanError::new("the lab file is longer than 1 MiB"));
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

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Whether `pattern` matches; one `*` stands for any characters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
        }
    }
}
