//! The parts of the workload over loopback, against real servers.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod common;
mod http;
mod http2_server;
mod http2_streams;
mod http_tls;
mod messages;
mod nginx;
mod traffic;
