//! Our engines, both ends in this process.

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::ensure;
use sys::clock::{Deadline, monotonic_ns};
use workload::transfer::flow::{
    End, Ended, FlowOrder, FlowSocket, Group, GroupReport, GroupSetting, Side, Stamp, room_for,
};

use super::{Load, Moved};

/// From here to the start: threads are there by then.
const LEAD_NS: u64 = 50_000_000;
/// Receivers go on for so long after the senders: what is under way arrives.
const TAIL_NS: u64 = 20_000_000;
const DATAGRAM_BYTES: u32 = 1470;

/// Moves what the load says.
pub fn transfer(load: &Load) -> anyhow::Result<Moved> {
    room_for(2 * load.flows)?;
    let pairs = (0..load.flows).map(|_| if load.is_udp { datagrams() } else { streams() });
    let pairs = pairs.collect::<anyhow::Result<Vec<_>>>()?;
    let start_ns = monotonic_ns() + LEAD_NS;
    let end_ns = start_ns + u64::from(load.seconds) * 1_000_000_000;
    let order = |side, end_ns| FlowOrder {
        side,
        mode: load.mode,
        size_bytes: if load.is_udp { DATAGRAM_BYTES } else { 0 },
        end: End::AtNs(end_ns),
        rate_bit_per_s: None,
        stamp: Stamp::Counted64,
    };
    let (senders, receivers): (Vec<_>, Vec<_>) = pairs
        .into_iter()
        .map(|(one, other)| {
            ((one, order(Side::Sender, end_ns)), (other, order(Side::Receiver, end_ns + TAIL_NS)))
        })
        .unzip();
    let receiving = Group::start(receivers, &GroupSetting::default(), start_ns)?;
    let sending = Group::start(senders, &GroupSetting::default(), start_ns)?;
    let deadline = Deadline::after(Duration::from_secs(u64::from(load.seconds) + 10));
    let (sent, received) = (sending.finish(deadline), receiving.finish(deadline));
    for flow in sent.flows.iter().chain(&received.flows) {
        ensure!(flow.ended == Ended::Done, "a flow ended otherwise: {:?}", flow.ended);
    }
    let bytes: u64 = received.flows.iter().map(|flow| flow.count.bytes).sum();
    let datagrams = |report: &GroupReport| report.flows.iter().map(|f| f.count.datagrams).sum::<u64>();
    let (out, came) = (datagrams(&sent), datagrams(&received));
    let threads = sent.threads.iter().chain(&received.threads);
    let cpu_s = threads.map(|thread| thread.cpu_ns).sum::<u64>() as f64 / 1e9;
    Ok(Moved {
        gbit_per_s: bytes as f64 * 8e-9 / f64::from(load.seconds),
        cpu_s_per_gb: cpu_s / (bytes as f64 / 1e9),
        lost_percent: 100.0 * out.saturating_sub(came) as f64 / out.max(1) as f64,
    })
}

pub(super) fn streams() -> anyhow::Result<(FlowSocket, FlowSocket)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    Ok((FlowSocket::Tcp(one.try_into()?), FlowSocket::Tcp(other.try_into()?)))
}

fn datagrams() -> anyhow::Result<(FlowSocket, FlowSocket)> {
    let here = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (here()?, here()?);
    one.connect(other.local_addr()?)?;
    other.connect(one.local_addr()?)?;
    Ok((FlowSocket::Udp(one.try_into()?), FlowSocket::Udp(other.try_into()?)))
}
