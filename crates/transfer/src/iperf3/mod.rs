//! iperf3 as client and as server: either end of a transfer may be iperf3 itself. The messages are those of
//! the crate `iperf3`; here are the sessions that exchange them and move the data.

mod client;
mod control_messages;
mod data_stream;
mod flows;
mod report;
mod session;
mod session_status;
mod stream_results;
mod udp_accept;

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use self::json::JsonError;
use super::control::ControlError;
use super::flow::FlowError;

pub use ::iperf3::{
    Direction, Length, Parameters, Protocol, Refusal, Results, STREAMS_MAX, ServerError, ServerOutput, State,
    StreamResult, json, stream_id, udp_connect,
};
pub use client::{Client, ClientOrder};
pub use flows::Carrying;
pub use report::{StreamReport, TestReport};
pub use session::{Arrival, Session, SessionSettings};
pub use session_status::SessionStatus;
pub use udp_accept::UdpAcceptQueue;

/// The time limits: every wait has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// One step of the control connection, and the opening of all streams.
    pub step: Duration,
    /// No byte moves in any stream, or the peer's host is silent.
    pub stall: Duration,
    /// Time for a client to announce the end, beyond the time of its test.
    pub grace: Duration,
    /// A test without a time (by bytes, blocks, or without end).
    pub longest: Duration,
    /// Limit of a test without end in which this end sends datagrams and receives nothing: it would not
    /// notice a frozen client.
    pub unheard: Duration,
    /// Receiving what is still in flight after the end.
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

/// Why a test did not complete.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3Error {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("{0} is busy with another test, or refuses this one; try again later")]
    Busy(SocketAddr),
    #[error("{peer} gave up: {server_error}")]
    GaveUp { peer: SocketAddr, server_error: ServerError },
    #[error("{0} was told to stop")]
    Terminated(SocketAddr),
    #[error("{peer} sent {} while {during}; is it really iperf3?", said(*.byte))]
    Unexpected { peer: SocketAddr, byte: u8, during: &'static str },
    #[error("{peer}: {source}")]
    Json { peer: SocketAddr, source: JsonError },
    #[error("{peer}: {source}")]
    Refused { peer: SocketAddr, source: Refusal },
    #[error("{there} of {wanted} data streams with {peer} were opened within {} s; does a firewall \
     drop them?",
        .within.as_secs_f64())]
    Streams { peer: SocketAddr, there: usize, wanted: usize, within: Duration },
    #[error("no byte moved between {peer} and here for {} s", .within.as_secs_f64())]
    Stalled { peer: SocketAddr, within: Duration },
    #[error("{peer} did not end its test within {} s {after}", .within.as_secs_f64())]
    Expired { peer: SocketAddr, within: Duration, after: &'static str },
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Iperf3Error {
    /// What a server sends its client about it; `None`: nothing.
    pub(super) fn server_error(&self) -> Option<ServerError> {
        let (code, errno) = match self {
            Self::Net(error) | Self::Control(ControlError::Net(error)) => {
                (ServerError::STREAM_BROKE, error.raw_os_error().unwrap_or(0))
            }
            Self::Refused { source, .. } => (source.code, 0),
            Self::Json { .. } | Self::Control(ControlError::Length { .. }) => (ServerError::PARAMETERS, 0),
            Self::Unexpected { .. } => (ServerError::MESSAGE, 0),
            Self::Streams { .. } => (ServerError::STREAM_ACCEPT, 0),
            Self::Stalled { .. } | Self::Control(ControlError::Silent { .. }) => (ServerError::SILENCE, 0),
            Self::Expired { .. } => (ServerError::EXPIRED, 0),
            Self::Flow(_) => (ServerError::STREAM_BROKE, 0),
            Self::Control(ControlError::Closed { .. } | ControlError::Stopped)
            | Self::Busy(_)
            | Self::GaveUp { .. }
            | Self::Terminated(_) => return None,
        };
        Some(ServerError { code, errno })
    }
}

fn said(byte: u8) -> String {
    match State::read(byte) {
        Some(state) => format!("{state:?}"),
        None => format!("the byte {byte}"),
    }
}
