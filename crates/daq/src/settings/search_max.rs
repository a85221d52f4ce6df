//! The largest load of a search.

use std::borrow::Cow;
use std::fmt;

use base::units::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number, or a size such as `64KiB` where the size of fragments is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMax {
    /// Sources, triggers per second, or bytes.
    Count(u64),
    /// Written as a size.
    Size(ByteSize),
}

impl SearchMax {
    /// The number, in bytes for a size.
    pub const fn value(self) -> u64 {
        match self {
            Self::Count(value) => value,
            Self::Size(size) => size.bytes(),
        }
    }
}

/// Always written as a number.
impl Serialize for SearchMax {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.value())
    }
}

impl<'de> Deserialize<'de> for SearchMax {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = SearchMax;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number such as 1000, or a size such as \"64KiB\"")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<SearchMax, E> {
                Ok(SearchMax::Count(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<SearchMax, E> {
                u64::try_from(value)
                    .map(SearchMax::Count)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SearchMax, E> {
                let problem = || E::custom("write a number such as 1000, or a size such as 64KiB");
                text.parse().map(SearchMax::Size).map_err(|_| problem())
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for SearchMax {
    fn schema_name() -> Cow<'static, str> {
        "SearchMax".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1 })
    }
}
