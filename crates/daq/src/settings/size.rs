//! How large fragments are.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base::units::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The distribution of the payload of a fragment, written as one text.
#[derive(Debug, Clone, PartialEq)]
pub enum Size {
    /// All alike: `1KiB`.
    Fixed(ByteSize),
    /// Any size between two is as likely: `uniform 1KiB..4KiB`.
    Uniform(ByteSize, ByteSize),
    /// The logarithm is normally distributed: `lognormal 1KiB 0.5`, median and sigma.
    Lognormal(ByteSize, f64),
    /// One size a line, taken in turn: `file PATH`.
    File(String),
}

const EXAMPLES: &str =
    "write for example \"1KiB\", \"uniform 1KiB..4KiB\", \"lognormal 1KiB 0.5\" or \"file sizes.txt\"";

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |text: &str| text.parse::<ByteSize>().map_err(|error| error.to_string());
        let wrong = || format!("'{text}' is not a size of fragments; {EXAMPLES}");
        let Some((kind, rest)) = text.trim().split_once(' ') else {
            return size(text.trim()).map(Self::Fixed);
        };
        match kind {
            "uniform" => {
                let (least, most) = rest.split_once("..").ok_or_else(wrong)?;
                Ok(Self::Uniform(size(least.trim())?, size(most.trim())?))
            }
            "lognormal" => {
                let (median, sigma) = rest.trim().split_once(' ').ok_or_else(wrong)?;
                Ok(Self::Lognormal(size(median)?, sigma.trim().parse().map_err(|_| wrong())?))
            }
            "file" => Ok(Self::File(rest.trim().to_owned())),
            _ => size(text.trim()).map(Self::Fixed).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => size.fmt(f),
            Self::Uniform(least, most) => write!(f, "uniform {least}..{most}"),
            Self::Lognormal(median, sigma) => write!(f, "lognormal {median} {sigma}"),
            Self::File(path) => write!(f, "file {path}"),
        }
    }
}

/// Reads and writes a setting as its text.
macro_rules! as_text {
    ($type:ty, $name:literal, $description:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $description })
            }
        }
    };
}
pub(super) use as_text;

as_text!(
    Size,
    "FragmentSize",
    "The size of fragments: 1KiB, uniform 1KiB..4KiB, lognormal 1KiB 0.5 or file PATH"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_round_trips_as_text() {
        for text in ["1KiB", "uniform 1KiB..4KiB", "lognormal 1KiB 0.5", "file sizes of mine.txt"] {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
        for wrong in ["1", "uniform 1KiB", "lognormal 1KiB", "lognormal 1KiB x", "about 1KiB", ""] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
