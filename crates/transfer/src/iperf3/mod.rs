//! iperf3 as client and as server: either end of a transfer may be iperf3 itself. The messages are those of
//! the crate `iperf3`; here are the sessions that exchange them and move the data.

mod client;
mod control_messages;
mod data_stream;
mod deadlines;
mod error;
mod flows;
mod report;
mod session;
mod session_status;
mod stream_results;
mod udp_accept;

pub use ::iperf3::{
    Direction, Length, Parameters, Protocol, Refusal, Results, STREAMS_MAX, ServerError, ServerOutput, State,
    StreamResult, json, stream_id, udp_connect,
};
pub use client::{Client, ClientOrder};
pub use deadlines::Deadlines;
pub use error::Iperf3Error;
pub use flows::Carrying;
pub use report::{StreamReport, TestReport};
pub use session::{Arrival, Session, SessionSettings};
pub use session_status::SessionStatus;
pub use udp_accept::UdpAcceptQueue;
