//! Error of a network call: the action, its object, and the error of the kernel.

use std::fmt::Display;
use std::io;

/// A socket call that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {target}: {source}")]
pub struct NetError {
    /// What was tried, as a verb phrase ("connect to", "read from").
    pub action: &'static str,
    /// On what: an address, an option name, a descriptor.
    pub target: String,
    pub source: io::Error,
}

impl NetError {
    pub(crate) fn new(action: &'static str, target: impl Display, source: io::Error) -> Self {
        Self { action, target: target.to_string(), source }
    }

    /// The last error of the calling thread (`errno`).
    pub(crate) fn last(action: &'static str, target: impl Display) -> Self {
        Self::new(action, target, io::Error::last_os_error())
    }

    /// The kind of the kernel's answer.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The kernel's error number, when there was one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether the peer went away (reset, broken pipe, aborted, timed out) rather than this host failing.
    pub fn is_peer_gone(&self) -> bool {
        use io::ErrorKind as K;
        matches!(
            self.kind(),
            K::ConnectionReset | K::BrokenPipe | K::ConnectionAborted | K::NotConnected | K::TimedOut
        )
    }

    /// Whether this process or the system ran out of descriptors or socket memory.
    pub fn is_out_of_resources(&self) -> bool {
        matches!(self.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
    }
}
