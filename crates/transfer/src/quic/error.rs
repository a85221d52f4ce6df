//! Why there is no QUIC connection.

use std::net::SocketAddr;

/// Why there is no QUIC connection.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    #[error("cannot {action} for QUIC: {source}")]
    System { action: &'static str, source: std::io::Error },
    #[error("cannot prepare TLS for QUIC: {0}")]
    Tls(String),
    #[error("there is no QUIC connection between {peer} and here: {why}")]
    Connection { peer: SocketAddr, why: String },
}
