//! What the store does not keep of a run.

use base::metric::MetricSpec;
use base::workload::Presentation;

/// What an answer or a page needs beside the run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    /// The workload's metrics, explained in the appendix.
    pub specs: &'a [MetricSpec],
    pub presentation: &'a Presentation,
    /// The command that makes such a run again.
    pub command: Option<&'a str>,
    /// How commands about the run begin; `None`: `kagiri`, for a run of this host.
    pub program: Option<&'a str>,
}
