//! A message of a client, and how it can end.

use super::connection::TransportError;
use super::stats::{Fault, Moments};

/// Why a connection ends early.
pub(super) type Broken = (Fault, String);

pub(super) fn broken(error: TransportError) -> Broken {
    (Fault::Broken, error.to_string())
}

/// A message that waits for its reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) number: u64,
    pub(super) at: Moments,
    pub(super) bytes: u64,
}

/// What came of trying to begin a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Began {
    /// None is due, or it has to wait.
    Nothing,
    Message,
    /// One that needs a connection first.
    NeedsLink,
}
