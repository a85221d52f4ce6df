//! How large messages are.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base::part::{HostContext, PartError};
use base::units::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::{HEADER_BYTES, MESSAGE_BYTES_MAX};

/// More sizes in a file are a typing error.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// The distribution of the size of messages, written as one text.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageSize {
    /// All alike: `250kB`.
    Fixed(ByteSize),
    /// Any size between two is as likely: `uniform 1kB..250kB`.
    Uniform(ByteSize, ByteSize),
    /// Exponentially distributed with this mean: `exponential 250kB`.
    Exponential(ByteSize),
    /// One size per line, taken in turn: `file PATH`.
    File(String),
}

const EXAMPLES: &str =
    "write for example \"250kB\", \"uniform 1kB..250kB\", \"exponential 250kB\" or \"file sizes.txt\"";

impl FromStr for MessageSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| text.trim().parse::<ByteSize>().map_err(|error| error.to_string());
        let wrong = || format!("'{text}' is not a size of messages; {EXAMPLES}");
        match text.trim().split_once(' ') {
            Some(("uniform", rest)) => {
                let (least, most) = rest.split_once("..").ok_or_else(wrong)?;
                Ok(Self::Uniform(size(least)?, size(most)?))
            }
            Some(("exponential", rest)) => Ok(Self::Exponential(size(rest)?)),
            Some(("file", path)) => Ok(Self::File(path.trim().to_owned())),
            Some(_) => size(text).map(Self::Fixed).map_err(|_| wrong()),
            None => size(text).map(Self::Fixed),
        }
    }
}

impl fmt::Display for MessageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => size.fmt(f),
            Self::Uniform(least, most) => write!(f, "uniform {least}..{most}"),
            Self::Exponential(mean) => write!(f, "exponential {mean}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

impl Serialize for MessageSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for MessageSize {
    fn schema_name() -> Cow<'static, str> {
        "MessageSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl MessageSize {
    /// The mean; `None`: it depends on a file.
    pub(super) fn mean_bytes(&self) -> Option<f64> {
        match self {
            Self::Fixed(mean) | Self::Exponential(mean) => Some(mean.bytes() as f64),
            Self::Uniform(least, most) => Some((least.bytes() as f64 + most.bytes() as f64) / 2.0),
            Self::File(_) => None,
        }
    }

    /// The problem with a size that is out of range.
    pub fn problem(&self) -> Option<String> {
        let range = u64::from(HEADER_BYTES)..=MESSAGE_BYTES_MAX;
        let sizes: &[ByteSize] = match self {
            Self::Fixed(size) | Self::Exponential(size) => &[*size],
            Self::Uniform(least, most) => &[*least, *most],
            Self::File(_) => &[],
        };
        let out = sizes.iter().find(|size| !range.contains(&size.bytes()));
        if let Some(size) = out {
            return Some(format!("{size} is not within {HEADER_BYTES}B to 1GiB"));
        }
        match self {
            Self::Uniform(least, most) if least > most => {
                Some(format!("{least}..{most} ends before it begins"))
            }
            _ => None,
        }
    }
}

/// Draws the sizes of the messages of one client.
#[derive(Debug, Clone)]
pub struct Sizes {
    size: MessageSize,
    file: std::sync::Arc<Vec<u64>>,
}

impl Sizes {
    /// Reads the file that the size names, if it names one.
    pub fn read(size: &MessageSize, host: &HostContext) -> Result<Self, PartError> {
        let file = match size {
            MessageSize::File(path) => {
                let wrong = |problem: String| PartError::usage(format!("exchange.size: {path}: {problem}"));
                let text = super::read_file(path, FILE_BYTES_MAX, host).map_err(wrong)?;
                let text = String::from_utf8(text).map_err(|_| wrong("it is no text".to_owned()))?;
                sizes(&text).map_err(wrong)?
            }
            _ => Vec::new(),
        };
        Ok(Self { size: size.clone(), file: file.into() })
    }

    /// The size of message `number` of client `client`, bytes.
    pub fn bytes(&self, number: u64, client: u32, random: &mut fastrand::Rng) -> u64 {
        let bytes = match &self.size {
            MessageSize::Fixed(size) => size.bytes(),
            MessageSize::Uniform(least, most) => random.u64(least.bytes()..=most.bytes()),
            MessageSize::Exponential(mean) => exponential(mean.bytes() as f64, random),
            MessageSize::File(_) => {
                // Clients begin at different lines, so that a moment has a mixture of sizes.
                let at = number.wrapping_add(client.into()) % self.file.len().max(1) as u64;
                self.file.get(at as usize).copied().unwrap_or(0)
            }
        };
        bytes.clamp(HEADER_BYTES.into(), MESSAGE_BYTES_MAX)
    }
}

/// A number of the exponential distribution.
pub(crate) fn exponential(mean: f64, random: &mut fastrand::Rng) -> u64 {
    // The inverse of its distribution function; 1 - f64() is never 0.
    (-(1.0 - random.f64()).ln() * mean) as u64
}

/// The sizes that a text names, one per line.
fn sizes(text: &str) -> Result<Vec<u64>, String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let read = |(number, line): (usize, &str)| {
        let bytes = line.parse::<ByteSize>().map(ByteSize::bytes).ok().or_else(|| line.parse().ok());
        let bytes = bytes.filter(|bytes| *bytes <= MESSAGE_BYTES_MAX);
        bytes.ok_or_else(|| format!("line {number}: '{line}' is not a size of at most 1GiB"))
    };
    let sizes: Vec<u64> = lines.map(read).collect::<Result<_, _>>()?;
    if sizes.is_empty() { Err("it contains no size".to_owned()) } else { Ok(sizes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes_of(text: &str, file: &str) -> Sizes {
        let file = if file.is_empty() { Vec::new() } else { sizes(file).unwrap() };
        Sizes { size: text.parse().unwrap(), file: file.into() }
    }

    #[test]
    fn size_round_trips_as_text_and_rejects_others() {
        for text in ["250kB", "uniform 1kB..250kB", "exponential 250kB", "file sizes of mine.txt"] {
            assert_eq!(text.parse::<MessageSize>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["250", "uniform 1kB", "normal 1kB", "about 1kB", ""] {
            assert!(wrong.parse::<MessageSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_the_mean_of_their_distribution() {
        let mut random = fastrand::Rng::with_seed(1);
        for (text, mean) in [("1kB", 1e3), ("uniform 1kB..3kB", 2e3), ("exponential 100kB", 1e5)] {
            let sizes = sizes_of(text, "");
            let sum: u64 = (0..20_000).map(|number| sizes.bytes(number, 0, &mut random)).sum();
            let found = sum as f64 / 20_000.0;
            assert!((found / mean - 1.0).abs() < 0.03, "{text}: {found}");
        }
        let of_file = sizes_of("file x", "1kB\n# two\n2000\n");
        let found = [0, 1, 2].map(|number| of_file.bytes(number, 1, &mut random));
        assert_eq!(found, [2000, 1000, 2000]);
        assert!(sizes("1kB\nmany").is_err_and(|error| error.starts_with("line 2")));
    }

    #[test]
    fn size_below_the_header_is_refused() {
        for (text, is_wrong) in [("23B", true), ("24B", false), ("2GiB", true), ("uniform 3kB..2kB", true)] {
            assert_eq!(text.parse::<MessageSize>().unwrap().problem().is_some(), is_wrong, "{text}");
        }
    }
}
