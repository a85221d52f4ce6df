//! A lab file as written.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use base::units::{BitRate, ByteSize, Span};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::{Disk, Mount, Queue, Step};

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
    pub(super) mount: Option<Spanned<Mount>>,
    #[serde(default)]
    pub(super) environment: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    pub(super) run: Vec<String>,
}

/// Numbers can be written as numbers.
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
#[serde(
    deny_unknown_fields,
    expecting = "a link is a table: [[link]], and below it between = [\"A\", \"B\"]"
)]
pub(super) struct LinkFile {
    pub(super) between: Option<Spanned<Vec<String>>>,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) rate: Option<Spanned<BitRate>>,
    pub(super) rate_up: Option<Spanned<BitRate>>,
    pub(super) rate_down: Option<Spanned<BitRate>>,
    pub(super) buffer: Option<Spanned<ByteSize>>,
    pub(super) queue: Option<Spanned<Queue>>,
    pub(super) steps: Option<Spanned<Vec<Step>>>,
    pub(super) delay: Option<Spanned<Span>>,
    pub(super) loss: Option<Spanned<Share>>,
}

/// A share: 0.01, or "1%".
pub(super) struct Share(pub(super) f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareForm)
    }
}

struct ShareForm;

impl de::Visitor<'_> for ShareForm {
    type Value = Share;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share: 0.01 or \"1%\"")
    }

    fn visit_f64<E: de::Error>(self, share: f64) -> Result<Share, E> {
        Ok(Share(share))
    }

    fn visit_i64<E: de::Error>(self, share: i64) -> Result<Share, E> {
        Ok(Share(share as f64))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Share, E> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match text.trim().strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| percent / 100.0),
            None => number(text),
        };
        share.map(Share).ok_or_else(|| E::custom(format!("'{text}' is not a share; write 0.01 or \"1%\"")))
    }
}
