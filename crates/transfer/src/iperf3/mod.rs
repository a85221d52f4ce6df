//! iperf3 as client and as server: either end of a transfer may be iperf3 itself. The messages are those of
//! the crate `iperf3`; here are the sessions that exchange them and move the data.

mod client;
mod control_messages;
mod data_stream;
mod error;
mod flows;
mod report;
mod session;
mod session_status;
mod stream_results;
mod udp_accept;

use std::time::Duration;

pub use ::iperf3::{
    Direction, Length, Parameters, Protocol, Refusal, Results, STREAMS_MAX, ServerError, ServerOutput, State,
    StreamResult, json, stream_id, udp_connect,
};
pub use client::{Client, ClientOrder};
pub use error::Iperf3Error;
pub use flows::Carrying;
pub use report::{StreamReport, TestReport};
pub use session::{Arrival, Session, SessionSettings};
pub use session_status::SessionStatus;
pub use udp_accept::UdpAcceptQueue;

/// How long anything may take: there is no wait without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// One step of the control connection, and the opening of all streams.
    pub step: Duration,
    /// No byte moves in any stream, or the peer's host is silent.
    pub stall: Duration,
    /// What a client may need beyond the time of its test to say that it is over.
    pub grace: Duration,
    /// A test that has no time of its own (by bytes, blocks, or without end).
    pub longest: Duration,
    /// A test without end in which this end sends datagrams and hears nothing: a client that is frozen takes
    /// none of them, and nothing tells.
    pub unheard: Duration,
    /// Taking what is still under way after the end.
    pub drain: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            step: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            grace: Duration::from_secs(10),
            longest: Duration::from_secs(86_400),
            unheard: Duration::from_secs(3600),
            drain: Duration::from_secs(2),
        }
    }
}
