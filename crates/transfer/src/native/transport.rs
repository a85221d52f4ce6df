//! What moves the flows of one direction: sockets, or streams of one QUIC connection.

use std::time::Duration;

use sys::clock::Deadline;
use sys::net::TcpInfo;

use crate::flow::{FlowCount, FlowReport, FlowSocket, Group, ThreadReport};
use crate::quic::{self, QuicGroup};
use crate::report::{Responses, Waits};

/// Stopped flows have ended by then.
const STOP: Duration = Duration::from_secs(1);

pub(super) enum Transport {
    /// Streams of bytes, or requests and responses, a socket each.
    Sockets(Group),
    Quic(QuicGroup),
}

pub(super) struct TransportResult {
    pub(super) flows: Vec<FlowReport>,
    pub(super) threads: Vec<ThreadReport>,
    /// CPU time of these threads that counts for these flows, ns.
    pub(super) cpu_ns: u64,
    pub(super) waits: Vec<Waits>,
    pub(super) engine: String,
    pub(super) responses: Option<Responses>,
    pub(super) sockets: Vec<Option<FlowSocket>>,
}

impl Transport {
    pub(super) fn counts(&self) -> Vec<FlowCount> {
        match self {
            Self::Sockets(group) => group.counts(),
            Self::Quic(group) => group.counts(),
        }
    }

    /// `TCP_INFO` of the first connections, at most `flows_max`.
    pub(super) fn tcp_infos(&self, flows_max: usize) -> Vec<Option<TcpInfo>> {
        match self {
            Self::Sockets(group) if !group.engine().is_requests() => group.tcp_infos(flows_max),
            // QUIC has no send buffer in the kernel, and the others have nothing to send most of the time.
            Self::Sockets(_) | Self::Quic(_) => Vec::new(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Sockets(group) => group.is_finished(),
            Self::Quic(group) => group.is_finished(),
        }
    }

    pub(super) fn stop(&self) {
        match self {
            Self::Sockets(group) => group.stop(),
            Self::Quic(group) => group.stop(),
        }
    }

    /// Stops the flows and reports.
    pub(super) fn finish(self) -> TransportResult {
        self.stop();
        let deadline = Deadline::after(STOP);
        match self {
            Self::Sockets(group) => {
                let report = group.finish(deadline);
                TransportResult {
                    cpu_ns: report.threads.iter().map(|thread| thread.cpu_ns).sum(),
                    waits: report
                        .flows
                        .iter()
                        .filter_map(|flow| flow.tcp.as_ref())
                        .map(Waits::from)
                        .collect(),
                    flows: report.flows,
                    threads: report.threads,
                    engine: report.engine.to_string(),
                    responses: report.responses,
                    sockets: report.sockets,
                }
            }
            Self::Quic(group) => {
                let report = group.finish(deadline);
                TransportResult {
                    flows: report.flows,
                    threads: report.threads,
                    cpu_ns: report.cpu_ns,
                    waits: report.waits,
                    engine: quic::ENGINE.to_owned(),
                    responses: None,
                    sockets: Vec::new(),
                }
            }
        }
    }
}
