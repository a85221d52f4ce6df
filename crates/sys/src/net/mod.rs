//! Sockets and readiness.
