//! Why flows cannot start.

use reactor::ThreadError;
use sys::net::NetError;

#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Thread(#[from] ThreadError),
    #[error("flow {flow}: {problem}")]
    Spec {
        /// Which of the group, from 0.
        flow: usize,
        problem: String,
    },
    /// Fewer files may be open than the flows need.
    #[error(
        "{flows} flows need {needed} open files, and this process may have {limit}; raise the limit \
         (ulimit -n) or \
         use fewer flows"
    )]
    Files {
        flows: usize,
        /// How many files they need.
        needed: u64,
        limit: u64,
    },
    #[error("cannot compare the engines over loopback: {0}")]
    Probe(String),
}
