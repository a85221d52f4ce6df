//! QUIC (RFC 9000): all flows of a session as streams of one connection, in user space, by quinn.
//!
//! The server opens an [`endpoint`] on a port of its own, with a certificate for this session alone; both
//! are sent over the control connection, and the client accepts that certificate and no other ([`tls`]).
//! Each flow is a stream that its sender opens and ends ([`flow`]).
//! One thread at each end does all the work, encryption and acknowledgements included.

mod endpoint;
mod flow;
mod tls;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub(super) use endpoint::{QuicEndpoint, QuicPlan};
pub(super) use flow::QuicGroup;

/// With more streams, one thread would serve each too rarely.
pub(super) const FLOWS_MAX: u32 = 1000;

/// How this engine is named in reports.
pub(super) const ENGINE: &str = "quic (quinn)";

/// Where a server waits for a session's QUIC connection, and its proof of identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuicFacts {
    /// UDP port, at the address of the control connection.
    pub port: u16,
    /// Its certificate, DER.
    pub certificate: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    #[error("cannot {action} for QUIC: {source}")]
    System { action: &'static str, source: std::io::Error },
    #[error("cannot prepare TLS for QUIC: {0}")]
    Tls(String),
    #[error("there is no QUIC connection between {peer} and here: {why}")]
    Connection { peer: SocketAddr, why: String },
}
