//! The largest load of a search.

use std::borrow::Cow;

use base::units::ByteSize;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Sources, triggers per second or bytes, or a fragment size such as `64KiB`. Always written as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u64", untagged, expecting = "write a number such as 1000, or a size such as 64KiB")]
pub enum SearchMax {
    Count(u64),
    Size(ByteSize),
}

impl From<SearchMax> for u64 {
    fn from(max: SearchMax) -> Self {
        max.value()
    }
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

impl JsonSchema for SearchMax {
    fn schema_name() -> Cow<'static, str> {
        "SearchMax".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1 })
    }
}
