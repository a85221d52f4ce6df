//! How recordings take their space.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How recordings take their space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// As it is written.
    #[default]
    Plain,
    /// Reserved ahead in steps of 16 MiB (fallocate).
    Fallocate,
    /// In pieces of 16 MiB, by xfs's extent size hint.
    ExtentSizeHint,
    /// In segments of 16 MiB that were reserved while the file system was fresh.
    Pool,
}

impl Layout {
    pub const ALL: [Self; 4] = [Self::Plain, Self::Fallocate, Self::ExtentSizeHint, Self::Pool];

    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fallocate => "fallocate",
            Self::ExtentSizeHint => "extent-size-hint",
            Self::Pool => "pool",
        }
    }
}
