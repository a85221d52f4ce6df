//! A policy as written.

use std::fmt;

use base::units::{BitRate, ByteSize, Span};
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::Capacity;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub(super) bottleneck: BottleneckFile,
    #[serde(default)]
    pub(super) class: Vec<Spanned<ClassFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BottleneckFile {
    pub(super) interface: Spanned<String>,
    pub(super) capacity: Spanned<Capacity>,
    pub(super) coordinator: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClassFile {
    pub(super) name: Spanned<String>,
    #[serde(rename = "match")]
    pub(super) matches: Spanned<MatchFile>,
    pub(super) priority: Spanned<i64>,
    pub(super) target: Option<Spanned<Span>>,
    pub(super) size: Option<Spanned<ByteSize>>,
    pub(super) interval: Option<Spanned<Span>>,
    pub(super) clients: Option<Spanned<i64>>,
    pub(super) overhead: Option<Spanned<Span>>,
    pub(super) weight: Option<Spanned<f64>>,
    pub(super) floor: Option<Spanned<BitRate>>,
    pub(super) ceiling: Option<Spanned<BitRate>>,
    pub(super) congestion_control: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) join: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a match is a table of conditions, such as { process = \"rsync\" }")]
pub(super) struct MatchFile {
    pub(super) process: Option<Spanned<String>>,
    pub(super) command: Option<Spanned<String>>,
    pub(super) cgroup: Option<Spanned<String>>,
    pub(super) user: Option<Spanned<NumberOrText>>,
    pub(super) port: Option<Spanned<NumberOrText>>,
    pub(super) peer: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number or a text")]
pub(super) enum NumberOrText {
    Number(i64),
    Text(String),
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CapacityForm)
    }
}

struct CapacityForm;

impl de::Visitor<'_> for CapacityForm {
    type Value = Capacity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a bit rate as text, such as \"50Mbit/s\", or \"estimate\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Capacity, E> {
        if text == "estimate" {
            return Ok(Capacity::Estimate);
        }
        let rate: Result<BitRate, E> = BitRate::deserialize(text.into_deserializer());
        rate.map(Capacity::Given).map_err(|error| {
            E::custom(format!("{}, or \"estimate\"", error.to_string().trim_end_matches([';', ' '])))
        })
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Capacity, E> {
        BitRate::deserialize(number.into_deserializer()).map(Capacity::Given)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Capacity, E> {
        BitRate::deserialize(number.into_deserializer()).map(Capacity::Given)
    }
}
