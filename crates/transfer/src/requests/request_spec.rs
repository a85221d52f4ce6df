//! The spec of a group of requesters or responders.

use std::time::Duration;

use sys::net::UdpFlow;
use sys::span::Handle;

use crate::driver::FlowSocket;
use crate::settings::Waiting;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSide {
    Requester,
    Responder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// At a moment of this host's monotonic clock: no request is due from then on. A requester still waits a
    /// second for outstanding answers.
    AtNs(u64),
    /// After this number of requests and their answers.
    Requests(u64),
    /// When the peer closes the connection, or this side is stopped.
    Peer,
}

/// The spec of all flows of a group.
#[derive(Debug, Clone)]
pub struct RequestSpec {
    pub side: RequestSide,
    /// Bytes of a request, at least 1; of UDP at most 65,507.
    pub size_bytes: u32,
    /// Bytes of its answer, likewise.
    pub answer_bytes: u32,
    pub waiting: Waiting,
    /// Requests per second of each flow, whether or not answers arrive; `None`: one after the other.
    pub rate_per_s: Option<f64>,
    pub end: RequestEnd,
    /// Requests intended before this moment of the monotonic clock do not count in [`Responses`].
    pub omit_until_ns: Option<u64>,
    /// Threads at most; 0 lets the group choose.
    pub threads: u32,
    /// A flow fails after waiting for its peer for this time.
    pub silence_max: Duration,
    pub recorder: Option<Handle>,
}

impl RequestSpec {
    /// Why the spec is invalid for such a socket, if it is.
    pub(super) fn problem(&self, socket: &FlowSocket) -> Option<String> {
        let most = match socket {
            FlowSocket::Tcp(_) => u32::MAX,
            FlowSocket::Udp(_) => UdpFlow::CALL_BYTES_MAX as u32,
        };
        for (what, bytes) in [("a request", self.size_bytes), ("a response", self.answer_bytes)] {
            if bytes == 0 || bytes > most {
                return Some(format!("{what} of {bytes} bytes; choose 1 to {most}"));
            }
        }
        let rate = self.rate_per_s.filter(|rate| !rate.is_finite() || *rate <= 0.0)?;
        Some(format!("{rate} requests a second; choose a number above 0, or leave it out"))
    }
}
