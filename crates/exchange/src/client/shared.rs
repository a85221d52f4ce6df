//! What the clients of a thread share.

use std::net::SocketAddr;
use std::sync::Arc;

use sys::net::SocketOptions;

use super::connection::{HandshakeError, StreamEvent};
use super::protocol::Protocol;
use super::stats::ClassStats;
use crate::settings::Class;

/// What the clients of a host share.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSpec {
    pub(crate) server: SocketAddr,
    pub(crate) classes: Arc<Vec<Class>>,
    pub(crate) protocol: Arc<Protocol>,
    pub(crate) is_fresh: bool,
    pub(crate) options: SocketOptions,
    pub(crate) timeout_ns: u64,
    pub(crate) omit_ns: u64,
    /// `None`: until every client has sent its count.
    pub(crate) time_ns: Option<u64>,
    pub(crate) sample_ns: u64,
    /// Whether the memory of each client's socket is kept.
    pub(crate) keeps_clients: bool,
}

impl WorkerSpec {
    /// The server's address for the clients of a class.
    pub(crate) fn server_of(&self, class: usize) -> SocketAddr {
        let port = self.classes.get(class).and_then(|class| class.port);
        SocketAddr::new(self.server.ip(), port.unwrap_or(self.server.port()))
    }
}

/// A connection to the server that did not come to be.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) struct Unconnected {
    server: SocketAddr,
    pub(crate) error: HandshakeError,
}

impl std::fmt::Display for Unconnected {
    /// With the server's address, once.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (server, why) = (self.server.to_string(), self.error.to_string());
        match why.contains(&server) {
            true => f.write_str(&why),
            false => write!(f, "connect {server}: {why}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) spec: WorkerSpec,
    pub(super) stats: Vec<ClassStats>,
    /// Joins a message's head with the beginning of its body.
    pub(super) scratch: Vec<u8>,
    pub(super) receive: Vec<u8>,
    /// What became of the requests of a connection of HTTP/2, until its client has read it.
    pub(super) events: Vec<StreamEvent>,
    /// Messages that are due from here on are not sent.
    pub(super) end_ns: u64,
    /// The protocol used with the server of a URL.
    pub(super) protocol_used: Option<&'static str>,
}

impl Shared {
    pub(super) fn new(spec: WorkerSpec, stats: Vec<ClassStats>) -> Self {
        let scratch = crate::payload::slice(0, 64 << 10).to_vec();
        Self {
            spec,
            stats,
            scratch,
            receive: vec![0; 256 << 10],
            events: Vec::new(),
            end_ns: u64::MAX,
            protocol_used: None,
        }
    }

    /// Why there is no connection to the server.
    pub(super) fn unconnected(&self, error: HandshakeError) -> Unconnected {
        Unconnected { server: self.spec.server, error }
    }

    /// When the last message has timed out.
    pub(super) fn last_ns(&self) -> u64 {
        self.end_ns.saturating_add(self.spec.timeout_ns)
    }
}
