//! From `ttcp -t`.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Interest, ListenOptions, Listener, UdpPort};

use super::{MARK_BYTES, Manner, StopHandle, TtcpError, TtcpReport};
use crate::control::{ControlError, wait_until_ready};
use crate::flow::{
    self, End, EndReason, FlowCount, FlowReport, FlowSocket, FlowSpec, GroupReport, GroupSetting, Protocol,
    Side, Stamp,
};

/// Interval of calls of `watch`.
const LOOK: Duration = Duration::from_millis(20);
/// How long a stopped flow may take to end.
const STOP: Duration = Duration::from_secs(1);

/// Takes one stream after the other from `ttcp -t`.
pub struct Receiver {
    place: Place,
    manner: Manner,
}

enum Place {
    Tcp(Listener),
    Udp(UdpPort),
}

impl Receiver {
    /// Listens on `local`; port 0 takes a free one.
    pub fn bind(local: SocketAddr, manner: Manner) -> Result<Self, TtcpError> {
        let place = match manner.protocol {
            Protocol::Tcp => Place::Tcp(Listener::bind(local, &ListenOptions::default())?),
            Protocol::Udp => Place::Udp(UdpPort::bind(local)?),
            Protocol::Quic => return Err(TtcpError::Quic),
        };
        Ok(Self { place, manner })
    }

    /// Where it listens, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        match &self.place {
            Place::Tcp(listener) => listener.local_addr(),
            Place::Udp(port) => port.local_addr(),
        }
    }

    /// Waits for the next sender and takes its stream to the end. `watch` hears of the counts now and then.
    ///
    /// A stream of datagrams begins with the first that is no mark, and belongs to its sender.
    pub fn take(
        &mut self,
        stop_handle: &StopHandle,
        watch: impl FnMut(&FlowCount),
    ) -> Result<TtcpReport, TtcpError> {
        let within = self.manner.patience.first;
        let until = Deadline::after(within);
        let no_sender = TtcpError::NoSender { local: self.local_addr(), within };
        let (socket, peer) = match &mut self.place {
            Place::Tcp(listener) => {
                let accepted = await_one(listener, stop_handle, until, || Ok(listener.accept()?))?;
                let (socket, peer) = accepted.ok_or(no_sender)?;
                socket.set_silence_limit(self.manner.patience.silence)?;
                (FlowSocket::Tcp(socket), peer)
            }
            Place::Udp(port) => {
                let peer = await_one(port, stop_handle, until, || first_sender(port))?.ok_or(no_sender)?;
                (FlowSocket::Udp(port.hand_over(peer)?), peer)
            }
        };
        let order = FlowSpec {
            side: Side::Receiver,
            mode: self.manner.mode,
            size_bytes: self.manner.block_bytes,
            end: End::Peer,
            rate_bit_per_s: None,
            stamp: Stamp::None,
        };
        Ok(report(peer, carry(socket, order, &self.manner, monotonic_ns(), stop_handle, watch)?))
    }
}

/// The sender of the first datagram that is no mark; the datagram stays in the queue.
fn first_sender(port: &UdpPort) -> Result<Option<SocketAddr>, TtcpError> {
    let mut buffer = [0; MARK_BYTES + 1];
    while let Some((len, from)) = port.peek(&mut buffer)? {
        if len > MARK_BYTES {
            return Ok(Some(from));
        }
        port.receive(&mut buffer)?;
    }
    Ok(None)
}

/// Waits until `look` finds something; `None` when the time is over.
fn await_one<T>(
    what: &impl AsFd,
    stop_handle: &StopHandle,
    until: Deadline,
    look: impl Fn() -> Result<Option<T>, TtcpError>,
) -> Result<Option<T>, TtcpError> {
    loop {
        match wait_until_ready(what, Interest::READ, stop_handle, until) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(ControlError::Net(error)) => return Err(error.into()),
            Err(_) => return Err(TtcpError::Stopped),
        }
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
    }
}

pub(super) fn carry(
    socket: FlowSocket,
    order: FlowSpec,
    manner: &Manner,
    at_ns: u64,
    stop_handle: &StopHandle,
    mut watch: impl FnMut(&FlowCount),
) -> Result<GroupReport, TtcpError> {
    let setting = GroupSetting { silence_max: manner.patience.silence, ..GroupSetting::default() };
    let group = flow::start(vec![(socket, order)], &setting, at_ns)?;
    while !group.wait(Deadline::after(LOOK)) {
        group.counts().iter().for_each(&mut watch);
        if stop_handle.is_stopped() {
            group.stop();
        }
    }
    Ok(group.finish(Deadline::after(STOP)))
}

pub(super) fn report(peer: SocketAddr, report: GroupReport) -> TtcpReport {
    let engine = report.engine.to_string();
    let stuck = || FlowReport::new(EndReason::Failed("the flow left no report".to_owned()));
    let flow = report.flows.into_iter().next().unwrap_or_else(stuck);
    TtcpReport { peer, flow, threads: report.threads, engine }
}
