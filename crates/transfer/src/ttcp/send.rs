//! To `ttcp -r`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sys::clock::{Deadline, monotonic_ns};
use sys::net::{Moved, SocketOptions, UdpFlow};

use super::receive::{carry, report};
use super::{MARK_BYTES, Manner, StopHandle, TtcpError, TtcpReport};
use crate::control::{ControlError, connect};
use crate::flow::{End, FlowCount, FlowSocket, FlowSpec, Protocol, Side, Stamp};

/// How often the end of a stream of datagrams is marked: `ttcp` does it five times too, because they may be
/// lost.
const END_MARKS: u32 = 5;
/// How long it is waited before marks, so that they neither overtake data nor are lost with it in a full
/// queue.
const MARK_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendOrder {
    pub manner: Manner,
    /// Until when; of UDP, bytes are rounded up to whole datagrams. [`End::Peer`]: until the stop handle is
    /// stopped.
    pub end: End,
    /// The rate to keep to, bits of payload per second; flat out unless given.
    pub rate_bit_per_s: Option<u64>,
}

/// Sends to a `ttcp -r` at `peer`. `watch` hears of the counts now and then; a stop by the stop handle ends
/// the stream in order.
/// Fails if the peer does not answer; over UDP this is known only if its host reports a closed port.
pub fn send(
    peer: SocketAddr,
    order: &SendOrder,
    stop_handle: &Arc<StopHandle>,
    watch: impl FnMut(&FlowCount),
) -> Result<TtcpReport, TtcpError> {
    let manner = &order.manner;
    let within = manner.patience.first;
    let socket = match manner.protocol {
        Protocol::Tcp => {
            let until = Deadline::after(within);
            let failed = |error| match error {
                ControlError::Net(error) => TtcpError::Net(error),
                ControlError::Stopped => TtcpError::Stopped,
                _ => TtcpError::NoAnswer { peer, within },
            };
            let socket = connect(peer, &SocketOptions::default(), stop_handle, until).map_err(failed)?;
            socket.set_silence_limit(manner.patience.silence)?;
            FlowSocket::Tcp(socket)
        }
        Protocol::Udp => {
            let flow = UdpFlow::connect(peer, None)?;
            mark(&flow)?;
            FlowSocket::Udp(flow)
        }
        Protocol::Quic => return Err(TtcpError::Quic),
    };
    // What is not longer than a mark would be taken for one.
    let least = if manner.protocol == Protocol::Udp { MARK_BYTES as u32 + 1 } else { 1 };
    let size_bytes = manner.block_bytes.max(least);
    let flow = FlowSpec {
        side: Side::Sender,
        mode: manner.mode,
        size_bytes,
        end: match order.end {
            End::Bytes(bytes) if manner.protocol == Protocol::Udp => {
                End::after_share(bytes, 1, 0, Some(size_bytes))
            }
            end => end,
        },
        rate_bit_per_s: order.rate_bit_per_s,
        stamp: Stamp::None,
    };
    let mut finished = carry(socket, flow, manner, monotonic_ns(), stop_handle, watch)?;
    for socket in finished.sockets.drain(..).flatten() {
        if let FlowSocket::Udp(flow) = socket {
            for _ in 0..END_MARKS {
                std::thread::sleep(MARK_PAUSE);
                // The receiver is gone if this fails: it has heard an earlier one.
                let _ = mark(&flow);
            }
        }
    }
    Ok(report(peer, finished))
}

fn mark(flow: &UdpFlow) -> Result<Moved, TtcpError> {
    // What `ttcp` sends: the beginning of its pattern.
    Ok(flow.send(b" !\"#")?)
}
