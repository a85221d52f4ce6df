//! From an order to the socket options and the specs of the flows, the same at both ends.

use std::time::Duration;

use sys::net::{NetError, SocketOptions, TcpSocket, UdpFlow};

use super::NativeError;
use super::call_timing::CallTiming;
use super::direction_run::{DirectionRun, Measure, Transport};
use super::message::SessionOrder;
use super::session_id::{Role, SessionId};
use super::session_state::SessionState;
use crate::flow::{
    self, Direction, End, FlowError, FlowSocket, FlowSpec, GroupSetting, Protocol, Side, Stamp,
};
use crate::quic::{QuicEndpoint, QuicPlan};
use crate::requests::{self, RequestEnd, RequestSide, RequestSpec};
use crate::settings::RequestSettings;

/// A flow fails after waiting for its peer for this time; a vanished host is noticed by then.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

pub(super) fn flows_total(order: &SessionOrder) -> u32 {
    order.flows.saturating_mul(order.direction.each().len() as u32)
}

pub(super) fn options(order: &SessionOrder) -> SocketOptions {
    SocketOptions {
        receive_buffer_bytes: order.receive_buffer_bytes,
        send_buffer_bytes: order.send_buffer_bytes,
        nodelay: (order.no_delay || order.requests.is_some()).then_some(true),
        congestion: order.congestion_control.clone(),
        ..SocketOptions::default()
    }
}

/// Prepares a TCP socket that the client opened.
pub(super) fn set_up_tcp(socket: &TcpSocket, order: &SessionOrder) -> Result<(), NetError> {
    socket.set_silence_limit(SILENCE)?;
    socket.set_options(&options(order))
}

pub(super) fn set_up_udp(flow: &mut UdpFlow, order: &SessionOrder) -> Result<(), NetError> {
    if let Some(bytes) = order.receive_buffer_bytes {
        flow.set_receive_buffer(bytes)?;
    }
    if let Some(bytes) = order.send_buffer_bytes {
        flow.set_send_buffer(bytes)?;
    }
    Ok(())
}

/// How the ends of a session come together over QUIC.
pub(super) fn quic_plan(order: &SessionOrder, name: SessionId, within: Duration) -> QuicPlan {
    QuicPlan {
        name: name.cookie(Role::Control).text().to_owned(),
        flows: order.flows,
        send_window_bytes: order.send_buffer_bytes,
        receive_window_bytes: order.receive_buffer_bytes,
        within,
    }
}

/// How long nothing may come of a flow that pauses for so long between what it sends.
fn silence(pause_s: f64) -> Duration {
    SILENCE.saturating_add(Duration::try_from_secs_f64(2.0 * pause_s).unwrap_or_default())
}

fn group_setting(order: &SessionOrder, calls: Option<&CallTiming>) -> GroupSetting {
    // A slow rate makes long pauses between calls.
    let bits = f64::from(order.size_bytes) * 8.0;
    let pause_s = order.rate_bit_per_s.map_or(0.0, |rate| bits / rate.max(1) as f64);
    GroupSetting {
        threads: order.threads,
        engine: order.engine,
        silence_max: silence(pause_s),
        recorder: calls.map(CallTiming::handle),
    }
}

/// The specs of one direction at the end that is its `side`; senders begin at `start_ns`.
fn flow_orders(order: &SessionOrder, side: Side, start_ns: u64) -> Vec<FlowSpec> {
    let end = |index: u32| match (side, order.bytes) {
        (Side::Receiver, _) => End::Peer,
        (Side::Sender, Some(bytes)) => {
            let datagram_bytes = (order.protocol == Protocol::Udp).then_some(order.size_bytes);
            End::after_share(bytes, order.flows, index, datagram_bytes)
        }
        (Side::Sender, None) => {
            End::AtNs(start_ns.saturating_add(order.omit_ns).saturating_add(order.time_ns))
        }
    };
    let flow = |index| FlowSpec {
        side,
        mode: order.mode,
        size_bytes: order.size_bytes,
        end: end(index),
        rate_bit_per_s: order.rate_bit_per_s,
        stamp: if order.protocol == Protocol::Udp { Stamp::Counted64 } else { Stamp::None },
    };
    (0..order.flows).map(flow).collect()
}

/// Starts the flows over `sockets` or `quic` at the end that is the client or the server: receivers at once,
/// senders at `start_ns`.
pub(super) fn begin(
    order: &SessionOrder,
    is_client: bool,
    start_ns: u64,
    mut sockets: Vec<FlowSocket>,
    quic: Option<&QuicEndpoint>,
) -> Result<SessionState, NativeError> {
    let measure = Measure { start_ns, omit_ns: order.omit_ns, interval_ns: order.beat_ns };
    if let Some(requests) = &order.requests {
        return Ok(begin_requests(order, requests, is_client, measure, sockets)?);
    }
    let (mut senders, mut receivers) = (None, None);
    for &direction in order.direction.each() {
        let sends = (direction == Direction::Up) == is_client;
        let side = if sends { Side::Sender } else { Side::Receiver };
        let flows = flow_orders(order, side, start_ns);
        let calls = CallTiming::of(order);
        let transport = match quic {
            Some(quic) => Transport::Quic(quic.begin(flows, start_ns)?),
            None => {
                let rest = sockets.split_off(sockets.len().min(flows.len()));
                let flows = std::mem::replace(&mut sockets, rest).into_iter().zip(flows).collect();
                let setting = group_setting(order, calls.as_ref());
                Transport::Sockets(flow::start(flows, &setting, start_ns)?)
            }
        };
        let place = if sends { &mut senders } else { &mut receivers };
        *place = Some(DirectionRun::new(direction, order.protocol, transport, measure, calls));
    }
    Ok(SessionState::new(senders, receivers))
}

/// Of requests each end reports what reached it: answers come down, requests go up.
fn begin_requests(
    order: &SessionOrder,
    requests: &RequestSettings,
    is_client: bool,
    measure: Measure,
    sockets: Vec<FlowSocket>,
) -> Result<SessionState, FlowError> {
    let bytes = |size: base::units::ByteSize| u32::try_from(size.bytes()).unwrap_or(u32::MAX);
    let omit_until_ns = measure.start_ns.saturating_add(order.omit_ns);
    let (side, end) = match is_client {
        true => (RequestSide::Requester, RequestEnd::AtNs(omit_until_ns.saturating_add(order.time_ns))),
        false => (RequestSide::Responder, RequestEnd::Peer),
    };
    let calls = CallTiming::of(order);
    // Requests that are seldom made have long pauses between them.
    let pause_s = requests.rate_per_s.map_or(0.0, f64::recip);
    let spec = RequestSpec {
        side,
        size_bytes: bytes(requests.size),
        answer_bytes: bytes(requests.answer_size.unwrap_or(requests.size)),
        waiting: requests.waiting,
        rate_per_s: requests.rate_per_s,
        end,
        omit_until_ns: (order.omit_ns > 0).then_some(omit_until_ns),
        threads: order.threads,
        silence_max: silence(pause_s),
        recorder: calls.as_ref().map(CallTiming::handle),
    };
    let transport = Transport::Sockets(requests::start(sockets, &spec, measure.start_ns)?);
    let direction = if is_client { Direction::Down } else { Direction::Up };
    let run = Some(DirectionRun::new(direction, order.protocol, transport, measure, calls));
    // The requesters' end is what the answerers wait for.
    Ok(if is_client { SessionState::new(run, None) } else { SessionState::new(None, run) })
}
