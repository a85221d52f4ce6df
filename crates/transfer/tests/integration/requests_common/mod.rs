//! Orders and runs for the tests of requests.

use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use transfer::flow::{FlowSocket, Group, GroupReport};
use transfer::report::Responses;
use transfer::requests::{self, RequestEnd, RequestSide, RequestSpec};
use transfer::settings::Waiting;

use crate::flow_common::{GUARD, datagrams, streams, tcp};

pub const WAITINGS: [Waiting; 2] = [Waiting::Block, Waiting::Spin];

pub fn asks(end: RequestEnd) -> RequestSpec {
    RequestSpec {
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
pub fn answers(order: &RequestSpec) -> RequestSpec {
    RequestSpec { side: RequestSide::Responder, end: RequestEnd::Peer, rate_per_s: None, ..order.clone() }
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

pub fn start(sockets: Vec<FlowSocket>, order: &RequestSpec) -> Group {
    requests::start(sockets, order, monotonic_ns()).unwrap()
}

/// Waits for the end, which comes by itself.
pub fn finish(group: Group) -> GroupReport {
    assert!(group.wait(Deadline::after(GUARD)), "it did not end within {GUARD:?}: {:?}", group.counts());
    let report = group.finish(Deadline::after(Duration::ZERO));
    assert!(report.sockets.iter().all(Option::is_some), "all sockets come back");
    report
}

pub fn responses(report: &GroupReport) -> Responses {
    report.responses.clone().unwrap()
}
