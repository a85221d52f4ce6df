//! Why there is no QUIC connection.

use std::net::SocketAddr;

/// Why there is no QUIC connection.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// The system has no socket, runtime or thread for it.
    #[error("cannot {action} for QUIC: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The kernel's words.
        source: std::io::Error,
    },
    /// No certificate, or one that cannot be used.
    #[error("cannot prepare TLS for QUIC: {0}")]
    Tls(String),
    /// The ends did not come together.
    #[error("there is no QUIC connection between {peer} and here: {why}")]
    Connection {
        /// With whom.
        peer: SocketAddr,
        /// Why, and what to do where that is known.
        why: String,
    },
}
