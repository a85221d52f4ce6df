//! A lab file as it is written.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use base::units::{BitRate, ByteSize, Span};
use serde::Deserialize;
use toml::Spanned;

use super::{Disk, Queue};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LabFile {
    pub(super) name: Spanned<String>,
    pub(super) subnet: Option<Spanned<String>>,
    pub(super) router: Option<Spanned<String>>,
    #[serde(default = "yes")]
    pub(super) agents: bool,
    #[serde(default = "one")]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) host: BTreeMap<Spanned<String>, HostFile>,
    #[serde(default)]
    pub(super) switch: BTreeMap<Spanned<String>, SwitchFile>,
    #[serde(default)]
    pub(super) link: Vec<Spanned<LinkFile>>,
}

fn yes() -> bool {
    true
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostFile {
    pub(super) count: Option<Spanned<u32>>,
    pub(super) cpu_quota_percent: Option<Spanned<f64>>,
    pub(super) address: Option<Spanned<Ipv4Addr>>,
    #[serde(default)]
    pub(super) settings: BTreeMap<Spanned<String>, Spanned<Setting>>,
    pub(super) disk: Option<Spanned<Disk>>,
    #[serde(default)]
    pub(super) run: Vec<String>,
}

/// A kernel setting: people write numbers as numbers.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a setting is a text or a whole number")]
pub(super) enum Setting {
    Number(i64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchFile {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkFile {
    pub(super) between: Option<[String; 2]>,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) rate: Option<Spanned<BitRate>>,
    pub(super) rate_up: Option<Spanned<BitRate>>,
    pub(super) rate_down: Option<Spanned<BitRate>>,
    pub(super) buffer: Option<Spanned<ByteSize>>,
    pub(super) queue: Option<Spanned<Queue>>,
    pub(super) delay: Option<Spanned<Span>>,
    pub(super) loss: Option<Spanned<f64>>,
}
