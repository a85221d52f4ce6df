//! What wears a disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a disk is aged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Procedure {
    /// Files are recorded and deleted until their pieces lie everywhere: what a rotating disk suffers from.
    #[default]
    Files,
    /// A file that fills the space is overwritten at random until the write rate is steady: what a flash disk
    /// without erased blocks suffers from.
    Flash,
}

impl Procedure {
    pub fn word(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Flash => "flash",
        }
    }
}
