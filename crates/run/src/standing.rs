//! The parts that stand while a variant is searched, and what is sampled of them.

use base::part::{Endpoints, PartError, Watch};
use serde_json::Value;
use workload::part;

/// The parts that stand while a variant is searched.
#[derive(Default)]
pub(crate) struct Standing {
    /// Their names: when one of them ends, a trial cannot go on.
    pub(crate) names: Vec<String>,
    pub(crate) peers: Endpoints,
    pub(crate) target: Option<Target>,
}

pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) watch: Watch,
}

/// What a part's endpoint asks a sampler to watch; only the part that is measured has a `watch`.
pub(crate) fn watch(part: &str, endpoint: &Value) -> Result<Option<Watch>, PartError> {
    let watch = endpoint.get("watch").filter(|watch| !watch.is_null());
    watch.map(|watch| part::read(watch, || format!("the watch of {part}"))).transpose()
}
