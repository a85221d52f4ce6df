//! Patterns: who decides when a source sends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sources, each of which takes a thread at either end.
pub(super) const BULK_SOURCES_MAX: u64 = 64;

/// Who decides when a source sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each source itself: all send at once, as soon as they receive the trigger.
    #[default]
    Push,
    /// The builder, which permits each source to send, at most --credit at a time (see --orders).
    Grant,
    /// The builder, which requests each fragment over the source's connection, at most --credit at a time.
    Pull,
    /// Nobody: each source sends --size back to back, as iperf3 does (at most 64 sources). No events are
    /// built; the result is the throughput of the path, to compare with.
    Bulk,
}
