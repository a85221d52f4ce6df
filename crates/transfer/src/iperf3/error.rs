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
    /// The control connection.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The kernel.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The server runs another test.
    #[error("{0} is busy with another test, or refuses this one; try again later")]
    Busy(SocketAddr),
    /// The server says why it gives up.
    #[error("{peer} gave up: {server_error}")]
    GaveUp {
        /// Who.
        peer: SocketAddr,
        /// Why.
        server_error: ServerError,
    },
    /// The peer was told to stop.
    #[error("{0} was told to stop")]
    Terminated(SocketAddr),
    /// A message that does not belong here.
    #[error("{peer} sent {} while {during}; is it really iperf3?", said(*.byte))]
    Unexpected {
        /// Who.
        peer: SocketAddr,
        /// What it sent.
        byte: u8,
        /// When.
        during: &'static str,
    },
    /// Its JSON cannot be read.
    #[error("{peer}: {source}")]
    Json {
        /// Who.
        peer: SocketAddr,
        /// What is wrong.
        source: JsonError,
    },
    /// The parameters that a client asks for cannot be met.
    #[error("{peer}: {source}")]
    Refused {
        /// Who.
        peer: SocketAddr,
        /// Which.
        source: Refusal,
    },
    /// The data streams did not come together.
    #[error("{there} of {wanted} data streams with {peer} were opened within {} s; does a firewall drop them?",
        .within.as_secs_f64())]
    Streams {
        /// With whom.
        peer: SocketAddr,
        /// How many there are.
        there: usize,
        /// How many there should be.
        wanted: usize,
        /// For how long it was waited.
        within: Duration,
    },
    /// No byte moved for too long.
    #[error("no byte moved between {peer} and here for {} s", .within.as_secs_f64())]
    Stalled {
        /// With whom.
        peer: SocketAddr,
        /// For how long it was waited.
        within: Duration,
    },
    /// The client did not end its test.
    #[error("{peer} did not end its test within {} s {after}", .within.as_secs_f64())]
    Expired {
        /// Who.
        peer: SocketAddr,
        /// For how long it was waited.
        within: Duration,
        /// Since when.
        after: &'static str,
    },
    /// The flows could not be started.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Iperf3Error {
    /// What a server tells its client about it; `None` if there is no point in telling.
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
