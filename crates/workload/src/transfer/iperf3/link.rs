//! Data streams: opened from this end, and dressed as the parameters ask at either end.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Arrived, Interest, Moved, NetError, PacketMarks, SocketOptions, TcpSocket, UdpFlow};

use super::hello::{HELLO, is_welcome};
use super::{Iperf3Error, Parameters};
use crate::transfer::control::{Bell, ControlError, Cookie, await_socket, connect};
use crate::transfer::flow::FlowSocket;

/// After this time a datagram that nobody answered is sent once more.
const ASK_AGAIN: Duration = Duration::from_millis(1500);

/// Options of the sockets over TCP.
pub(super) fn socket_options(parameters: &Parameters) -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: parameters.window_bytes,
        send_buffer_bytes: parameters.window_bytes,
        nodelay: parameters.nodelay.then_some(true),
        congestion: parameters.congestion.clone(),
        segment_bytes: parameters.segment_bytes,
        ..SocketOptions::default()
    }
}

fn marks(parameters: &Parameters) -> PacketMarks {
    PacketMarks {
        service: parameters.service,
        pacing_byte_per_s: parameters.pacing_bit_per_s.map(|rate| (rate / 8).max(1)),
        dont_fragment: parameters.dont_fragment,
    }
}

/// Opens a data stream of TCP to a server; it is given up when the server's host is silent for `silence`.
pub(super) fn open_tcp(
    peer: SocketAddr,
    cookie: &Cookie,
    parameters: &Parameters,
    bell: &Bell,
    until: Deadline,
    silence: Duration,
) -> Result<FlowSocket, Iperf3Error> {
    let socket = connect(peer, &socket_options(parameters), bell, until)?;
    socket.set_silence_limit(silence)?;
    marks(parameters).apply(&socket, peer)?;
    // The buffer of a new connection has room for this.
    match socket.send(cookie.bytes(), false)? {
        Moved::Bytes(n) if n == cookie.bytes().len() => Ok(FlowSocket::Tcp(socket)),
        _ => Err(NetError {
            action: "open a stream to",
            target: peer.to_string(),
            source: io::ErrorKind::WriteZero.into(),
        }
        .into()),
    }
}

/// Opens a data stream of UDP to a server: says hello until it is welcome.
pub(super) fn open_udp(
    peer: SocketAddr,
    parameters: &Parameters,
    bell: &Bell,
    until: Deadline,
) -> Result<FlowSocket, Iperf3Error> {
    let within = until.left();
    let mut flow = UdpFlow::connect(peer, None)?;
    dress_udp(&mut flow, parameters)?;
    let late =
        || ControlError::Silent { peer, during: "opening a UDP stream (does a firewall drop them?)", within };
    let mut buffer = [0; 64];
    loop {
        flow.send(&HELLO)?;
        let again = Deadline::after(ASK_AGAIN.min(until.left()));
        loop {
            match await_socket(&flow, Interest::READ, bell, again, late) {
                Err(ControlError::Silent { .. }) if !until.passed() => break,
                ready => ready?,
            }
            // What overtakes the welcome is data, or from elsewhere; an error of the socket itself ends it below.
            match flow.receive(&mut buffer)? {
                Arrived::Batch(batch) if is_welcome(&buffer[..batch.bytes.min(buffer.len())]) => {
                    return Ok(FlowSocket::Udp(flow));
                }
                _ => {}
            }
            if again.passed() {
                break;
            }
        }
    }
}

/// Dresses a data stream of TCP that a client opened.
///
/// A congestion control that this host does not have is passed over, as iperf3 does: the results name what was used.
pub(super) fn dress_tcp(
    socket: &TcpSocket,
    peer: SocketAddr,
    parameters: &Parameters,
    silence: Duration,
) -> Result<(), NetError> {
    socket.set_silence_limit(silence)?;
    let options = SocketOptions { congestion: None, ..socket_options(parameters) };
    options.apply(socket)?;
    if let Some(name) = &parameters.congestion {
        let _ = socket.set_congestion(name);
    }
    marks(parameters).apply(socket, peer)
}

/// Dresses a data stream of UDP.
pub(super) fn dress_udp(flow: &mut UdpFlow, parameters: &Parameters) -> Result<(), NetError> {
    if let Some(bytes) = parameters.window_bytes {
        flow.set_receive_buffer(bytes)?;
        flow.set_send_buffer(bytes)?;
    }
    marks(parameters).apply(flow, flow.peer_addr())
}
