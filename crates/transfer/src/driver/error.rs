//! Why flows cannot start.

use reactor::ThreadError;
use sys::net::NetError;

/// Flows that could not start.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The kernel refused something that they cannot do without.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No thread for them.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// A spec that cannot be carried out.
    #[error("flow {flow}: {problem}")]
    Spec {
        /// Which of the group, from 0.
        flow: usize,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// Fewer files may be open than the flows need.
    #[error(
        "{flows} flows need {needed} open files, and this process may have {limit}; raise the limit (ulimit -n) or \
         use fewer flows"
    )]
    Files {
        /// How many flows are wanted.
        flows: usize,
        /// How many files they need.
        needed: u64,
        /// How many this process may have.
        limit: u64,
    },
    /// The probe of the engines came to nothing.
    #[error("cannot compare the engines over loopback: {0}")]
    Probe(String),
}
