//! The results of a test, seen from this end.

use std::net::SocketAddr;

use super::{Iperf3Error, Parameters, Results, StreamResult};
use crate::control::{ControlError, Cookie};
use crate::flow::{EndReason, FlowReport, Side, ThreadReport};

#[derive(Debug)]
pub struct TestReport {
    pub peer: SocketAddr,
    pub cookie: String,
    /// The parameters; absent if they were not exchanged.
    pub parameters: Option<Parameters>,
    pub streams: Vec<StreamReport>,
    pub threads: Vec<ThreadReport>,
    pub own: Results,
    /// The results of the other end; absent if the test broke off before.
    pub remote: Option<Results>,
    /// How this end moved the bytes, for receivers and senders.
    pub engines: Vec<String>,
    /// Why it did not complete, as a sentence.
    pub problem: Option<String>,
    /// Whether the reason is a stop of this end.
    pub is_stopped: bool,
}

#[derive(Debug)]
pub struct StreamReport {
    /// Its number, the same at both ends.
    pub id: u32,
    pub side: Side,
    /// This end's counts, without the omitted time.
    pub own: StreamResult,
    pub remote: Option<StreamResult>,
    /// Datagrams that the other end's socket dropped by the end, where this host's kernel counts them.
    pub dropped_there: Option<u64>,
    /// This end's counts, with the omitted time.
    pub flow: FlowReport,
}

#[derive(Debug, Default)]
pub(super) struct Finished {
    pub(super) streams: Vec<StreamReport>,
    pub(super) threads: Vec<ThreadReport>,
    /// How each group moved its bytes.
    pub(super) engines: Vec<String>,
    /// Sent to the other end.
    pub(super) results: Results,
}

impl TestReport {
    pub(super) fn new(peer: SocketAddr, cookie: Cookie, finished: Option<Finished>) -> Self {
        let Finished { streams, threads, engines, results } = finished.unwrap_or_default();
        Self {
            peer,
            cookie: cookie.to_string(),
            parameters: None,
            streams,
            threads,
            own: results,
            remote: None,
            engines,
            problem: None,
            is_stopped: false,
        }
    }

    /// Sets the reason why the test did not complete. A stream that broke before the peer fell silent is the
    /// better reason.
    pub(super) fn explain(&mut self, error: Option<&Iperf3Error>) {
        self.is_stopped = matches!(error, Some(Iperf3Error::Control(ControlError::Stopped)));
        self.problem = match (error, self.broken_stream()) {
            (Some(error @ Iperf3Error::Control(ControlError::Silent { .. })), Some(broken)) => {
                Some(format!("{broken}; {error}"))
            }
            (Some(error), _) => Some(error.to_string()),
            (None, broken) => broken,
        };
    }

    /// The first stream that broke, as a sentence.
    fn broken_stream(&self) -> Option<String> {
        self.streams.iter().find_map(|stream| match &stream.flow.ended {
            EndReason::Failed(what) => Some(format!("stream {}: {what}", stream.id)),
            EndReason::Done | EndReason::ByPeer | EndReason::Stopped => None,
        })
    }

    /// Payload bytes that this end sent and received, without the omitted time.
    pub fn bytes(&self) -> (u64, u64) {
        let of = |side| {
            let own = self.streams.iter().filter(|stream| stream.side == side);
            own.filter_map(|stream| stream.own.bytes).sum()
        };
        (of(Side::Sender), of(Side::Receiver))
    }
}
