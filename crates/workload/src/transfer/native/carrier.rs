//! What moves the flows of one way: streams of bytes, or requests and their answers.

use std::time::Duration;

use sys::clock::Deadline;
use sys::net::TcpInfo;

use crate::transfer::flow::{FlowCount, FlowReport, FlowSocket, Group, ThreadReport};
use crate::transfer::report::Responses;
use crate::transfer::requests::RequestGroup;

/// What is told to stop has ended by then.
const STOP: Duration = Duration::from_secs(1);

/// What moves the flows of one way.
pub(super) enum Carrier {
    /// Streams of bytes.
    Flows(Group),
    /// Requests and answers.
    Requests(RequestGroup),
}

/// What the flows came to.
pub(super) struct Carried {
    pub(super) flows: Vec<FlowReport>,
    pub(super) threads: Vec<ThreadReport>,
    pub(super) engine: String,
    pub(super) responses: Option<Responses>,
    pub(super) sockets: Vec<Option<FlowSocket>>,
}

impl Carrier {
    /// How far each flow is.
    pub(super) fn counts(&self) -> Vec<FlowCount> {
        match self {
            Self::Flows(group) => group.counts(),
            Self::Requests(group) => group.counts(),
        }
    }

    /// What the kernel says of the first connections now, `most` of them.
    pub(super) fn tcp_infos(&self, most: usize) -> Vec<Option<TcpInfo>> {
        match self {
            Self::Flows(group) => group.tcp_infos(most),
            // They have nothing to send most of the time.
            Self::Requests(_) => Vec::new(),
        }
    }

    /// Whether all have ended.
    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Flows(group) => group.is_finished(),
            Self::Requests(group) => group.is_finished(),
        }
    }

    /// Tells them to stop.
    pub(super) fn stop(&self) {
        match self {
            Self::Flows(group) => group.stop(),
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
                let engine = report.engine.to_string();
                Carried {
                    flows: report.flows,
                    threads: report.threads,
                    engine,
                    responses: None,
                    sockets: report.sockets,
                }
            }
            Self::Requests(group) => {
                let report = group.finish(deadline);
                let engine = "requests".to_owned();
                let (flows, threads, responses) = (report.flows, report.threads, report.responses);
                Carried { flows, threads, engine, responses, sockets: report.sockets }
            }
        }
    }
}
