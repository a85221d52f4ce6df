//! Opening data streams and setting their socket options.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::Deadline;
use sys::net::{Arrived, Interest, NetError, PacketOptions, SocketOptions, TcpSocket, UdpFlow};

use super::{Iperf3Error, Parameters};
use crate::control::{ControlError, Cookie, StopHandle, connect, send_first, wait_until_ready};
use crate::flow::FlowSocket;
use ::iperf3::udp_connect::{HELLO, is_welcome};

/// Repetition interval of an unanswered datagram.
const ASK_AGAIN: Duration = Duration::from_millis(1500);

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

fn marks(parameters: &Parameters) -> PacketOptions {
    PacketOptions {
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
    stop_handle: &Arc<StopHandle>,
    until: Deadline,
    silence: Duration,
) -> Result<FlowSocket, Iperf3Error> {
    let socket = connect(peer, &socket_options(parameters), stop_handle, until)?;
    socket.set_silence_limit(silence)?;
    marks(parameters).apply(&socket, peer)?;
    send_first(&socket, cookie.bytes(), peer)?;
    Ok(FlowSocket::Tcp(socket))
}

/// Opens a UDP stream to a server: repeats the connect datagram until the server answers.
pub(super) fn open_udp(
    peer: SocketAddr,
    parameters: &Parameters,
    stop_handle: &StopHandle,
    until: Deadline,
) -> Result<FlowSocket, Iperf3Error> {
    let within = until.left();
    let mut flow = UdpFlow::connect(peer, None)?;
    set_up_udp(&mut flow, parameters)?;
    let mut buffer = [0; 64];
    while !until.passed() {
        flow.send(&HELLO)?;
        let again = Deadline::after(ASK_AGAIN.min(until.left()));
        while wait_until_ready(&flow, Interest::READ, stop_handle, again)? {
            // Other datagrams are data that overtook the answer, or come from elsewhere.
            match flow.receive(&mut buffer)? {
                Arrived::Batch(batch) if is_welcome(&buffer[..batch.bytes.min(buffer.len())]) => {
                    return Ok(FlowSocket::Udp(flow));
                }
                _ => {}
            }
        }
    }
    let during = "opening a UDP stream (does a firewall drop them?)";
    Err(ControlError::Silent { peer, during, within }.into())
}

/// Sets the options of a TCP stream that a client opened.
///
/// As in iperf3, an unknown congestion control is ignored: the results name the one in use.
pub(super) fn set_up_tcp(
    socket: &TcpSocket,
    peer: SocketAddr,
    parameters: &Parameters,
    silence: Duration,
) -> Result<(), NetError> {
    socket.set_silence_limit(silence)?;
    let options = SocketOptions { congestion: None, ..socket_options(parameters) };
    socket.set_options(&options)?;
    if let Some(name) = &parameters.congestion {
        let _ = socket.set_congestion(name);
    }
    marks(parameters).apply(socket, peer)
}

pub(super) fn set_up_udp(flow: &mut UdpFlow, parameters: &Parameters) -> Result<(), NetError> {
    if let Some(bytes) = parameters.window_bytes {
        flow.set_receive_buffer(bytes)?;
        flow.set_send_buffer(bytes)?;
    }
    marks(parameters).apply(flow, flow.peer_addr())
}
