//! Flows, requests and every protocol over real sockets, against the real peers.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by its panic")]

#[macro_use]
mod common;
mod flow_common;
mod flow_tcp;
mod flow_udp;
mod iperf3_client;
mod iperf3_hostile;
mod iperf3_memory;
mod iperf3_server;
mod iperf3_strange;
mod native;
mod native_common;
mod native_hostile;
mod peers;
mod quic;
mod requests_closed;
mod requests_common;
mod requests_open;
mod ttcp;
mod under_load;
