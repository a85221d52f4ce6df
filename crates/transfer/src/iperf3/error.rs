//! Why a test did not come to its end.

use std::net::SocketAddr;
use std::time::Duration;

use sys::net::NetError;

use super::{Refusal, ServerError, State};
use crate::control::ControlError;
use crate::flow::FlowError;
use ::iperf3::json::JsonError;

/// Why a test did not come to its end.
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
