//! What moves the flows of one way: streams of bytes over sockets or by QUIC, or requests and their answers.

use std::time::Duration;

use sys::clock::Deadline;
use sys::net::TcpInfo;

use crate::transfer::flow::{FlowCount, FlowReport, FlowSocket, Group, ThreadReport};
use crate::transfer::quic::{self, QuicGroup};
use crate::transfer::report::{Responses, Waits};
use crate::transfer::requests::RequestGroup;

/// What is told to stop has ended by then.
const STOP: Duration = Duration::from_secs(1);

/// What moves the flows of one way.
pub(super) enum Carrier {
    /// Streams of bytes, a socket each.
    Flows(Group),
    /// Streams of one connection.
    Quic(QuicGroup),
    /// Requests and answers.
    Requests(RequestGroup),
}

/// What the flows came to.
pub(super) struct Carried {
    pub(super) flows: Vec<FlowReport>,
    pub(super) threads: Vec<ThreadReport>,
    /// CPU time of these threads that counts for these flows, ns.
    pub(super) cpu_ns: u64,
    /// What the connections waited for.
    pub(super) waits: Vec<Waits>,
    pub(super) engine: String,
    pub(super) responses: Option<Responses>,
    pub(super) sockets: Vec<Option<FlowSocket>>,
}

impl Carrier {
    /// How far each flow is.
    pub(super) fn counts(&self) -> Vec<FlowCount> {
        match self {
            Self::Flows(group) => group.counts(),
            Self::Quic(group) => group.counts(),
            Self::Requests(group) => group.counts(),
        }
    }

    /// What the kernel says of the first connections now, `most` of them.
    pub(super) fn tcp_infos(&self, most: usize) -> Vec<Option<TcpInfo>> {
        match self {
            Self::Flows(group) => group.tcp_infos(most),
            // The one has no buffer in the kernel, the others have nothing to send most of the time.
            Self::Quic(_) | Self::Requests(_) => Vec::new(),
        }
    }

    /// Whether all have ended.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Flows(group) => group.is_finished(),
            Self::Quic(group) => group.is_finished(),
            Self::Requests(group) => group.is_finished(),
        }
    }

    /// Tells them to stop.
    pub(super) fn stop(&self) {
        match self {
            Self::Flows(group) => group.stop(),
            Self::Quic(group) => group.stop(),
            Self::Requests(group) => group.stop(),
        }
    }

    /// Ends them.
    pub(super) fn finish(self) -> Carried {
        self.stop();
        let deadline = Deadline::after(STOP);
        match self {
            Self::Flows(group) => {
                let report = group.finish(deadline);
                Carried {
                    cpu_ns: cpu_ns(&report.threads),
                    waits: waits(&report.flows),
                    flows: report.flows,
                    threads: report.threads,
                    engine: report.engine.to_string(),
                    responses: None,
                    sockets: report.sockets,
                }
            }
            Self::Quic(group) => {
                let report = group.finish(deadline);
                Carried {
                    flows: report.flows,
                    threads: report.threads,
                    cpu_ns: report.cpu_ns,
                    waits: report.waits,
                    engine: quic::ENGINE.to_owned(),
                    responses: None,
                    sockets: Vec::new(),
                }
            }
            Self::Requests(group) => {
                let report = group.finish(deadline);
                Carried {
                    cpu_ns: cpu_ns(&report.threads),
                    waits: waits(&report.flows),
                    flows: report.flows,
                    threads: report.threads,
                    engine: "requests".to_owned(),
                    responses: report.responses,
                    sockets: report.sockets,
                }
            }
        }
    }
}

fn cpu_ns(threads: &[ThreadReport]) -> u64 {
    threads.iter().map(|thread| thread.cpu_ns).sum()
}

fn waits(flows: &[FlowReport]) -> Vec<Waits> {
    flows.iter().filter_map(|flow| flow.tcp.as_ref()).map(Waits::from).collect()
}
