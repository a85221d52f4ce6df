//! Sockets, orders and deadlines for the tests of flows.

use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{TcpSocket, UdpFlow};
use transfer::flow::{
    self, End, EndReason, FlowReport, FlowSocket, FlowSpec, Group, GroupReport, GroupSetting, Mode, Side,
    Stamp,
};

use crate::common::listener;
pub use crate::common::{GUARD, until};

pub fn order(side: Side, end: End) -> FlowSpec {
    FlowSpec { side, mode: Mode::Copy, size_bytes: 0, end, rate_bit_per_s: None, stamp: Stamp::Counted64 }
}

/// Both ends of a connection over loopback: the connecting and the accepting one.
pub fn streams() -> (TcpStream, TcpStream) {
    let (listener, address) = listener();
    let client = TcpStream::connect(address).unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(GUARD)).unwrap();
    }
    (client, server)
}

pub fn tcp(stream: TcpStream) -> FlowSocket {
    FlowSocket::Tcp(TcpSocket::try_from(stream).unwrap())
}

/// Two UDP sockets over loopback that are connected to each other.
pub fn datagrams() -> (UdpFlow, UdpFlow) {
    let here = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (one, other) = (here(), here());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one.try_into().unwrap(), other.try_into().unwrap())
}

pub fn start(flows: Vec<(FlowSocket, FlowSpec)>, setting: &GroupSetting) -> Group {
    flow::start(flows, setting, monotonic_ns()).unwrap()
}

/// Starts the flows and waits until they end by themselves.
pub fn run(flows: Vec<(FlowSocket, FlowSpec)>, setting: &GroupSetting) -> GroupReport {
    let group = start(flows, setting);
    assert!(group.wait(Deadline::after(GUARD)), "flows did not end within {GUARD:?}: {:?}", group.counts());
    finish(group)
}

/// Runs a case until its time is short, five times at most: a thread loses its CPU now and then, but not each
/// time.
pub fn promptly(case: impl Fn() -> Duration) {
    let mut took = Vec::new();
    while took.iter().all(|took| *took >= Duration::from_millis(500)) {
        assert!(took.len() < 5, "{took:?}, and 100 ms is what is promised on a quiet host");
        took.push(case());
    }
}

/// Checks that a flow has failed for a reason that contains `why`.
pub fn assert_failed(flow: &FlowReport, why: &str) {
    let EndReason::Failed(reason) = &flow.ended else { panic!("{:?}", flow.ended) };
    assert!(reason.contains(why), "{reason}");
}

pub fn finish(group: Group) -> GroupReport {
    let report = group.finish(Deadline::after(GUARD));
    assert!(report.sockets.iter().all(Option::is_some), "all sockets come back");
    report
}
