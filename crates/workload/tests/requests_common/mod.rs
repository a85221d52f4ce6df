//! Orders and runs for the tests of requests.
#![allow(dead_code, reason = "each test program uses some")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as tests do")]

use std::time::Duration;

use kagiri_workload::transfer::flow::FlowSocket;
use kagiri_workload::transfer::report::Responses;
use kagiri_workload::transfer::requests::{
    RequestEnd, RequestGroup, RequestOrder, RequestReport, RequestSide,
};
use kagiri_workload::transfer::settings::Waiting;
use sys::clock::{Deadline, monotonic_ns};

use crate::flow_common::{GUARD, datagrams, streams, tcp};

pub const WAITINGS: [Waiting; 2] = [Waiting::Block, Waiting::Spin];

pub fn asks(end: RequestEnd) -> RequestOrder {
    RequestOrder {
        side: RequestSide::Requester,
        size_bytes: 1,
        answer_bytes: 1,
        waiting: Waiting::Block,
        rate_per_s: None,
        end,
        omit_until_ns: None,
        threads: 0,
        silence_max: GUARD,
        recorder: None,
    }
}

/// The other side of `order`, until its peer ends.
pub fn answers(order: &RequestOrder) -> RequestOrder {
    RequestOrder { side: RequestSide::Answerer, end: RequestEnd::Peer, rate_per_s: None, ..order.clone() }
}

/// Both ends of `flows` flows.
pub fn pairs(is_udp: bool, flows: usize) -> (Vec<FlowSocket>, Vec<FlowSocket>) {
    let pair = |_| {
        if is_udp {
            let (one, other) = datagrams();
            (FlowSocket::Udp(one), FlowSocket::Udp(other))
        } else {
            let (one, other) = streams();
            (tcp(one), tcp(other))
        }
    };
    (0..flows).map(pair).unzip()
}

pub fn start(sockets: Vec<FlowSocket>, order: &RequestOrder) -> RequestGroup {
    RequestGroup::start(sockets, order, monotonic_ns()).unwrap()
}

/// Waits for the end, which comes by itself.
pub fn finish(group: RequestGroup) -> RequestReport {
    assert!(group.wait(Deadline::after(GUARD)), "it did not end within {GUARD:?}: {:?}", group.counts());
    let report = group.finish(Deadline::after(Duration::ZERO));
    assert!(report.sockets.iter().all(Option::is_some), "all sockets come back");
    report
}

pub fn responses(report: &RequestReport) -> Responses {
    report.responses.clone().unwrap()
}
