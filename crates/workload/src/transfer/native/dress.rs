//! From an order to what each flow's socket and each flow is told, the same at both ends.

use std::time::Duration;

use sys::net::{NetError, SocketOptions, TcpSocket, UdpFlow};
use sys::span::Recorder;

use super::carrier::Carrier;
use super::course::Course;
use super::error::NativeError;
use super::message::{SessionOrder, share};
use super::moving::{Measure, Moving};
use super::name::{Role, SessionName};
use crate::transfer::flow::{
    Direction, End, FlowError, FlowOrder, FlowSocket, Group, GroupSetting, Protocol, Side, Stamp,
};
use crate::transfer::quic::{QuicEnd, QuicPlan};
use crate::transfer::report::Way;
use crate::transfer::requests::{RequestEnd, RequestGroup, RequestOrder, RequestSide};
use crate::transfer::settings::RequestSettings;

/// A flow that waits for its peer for so long has failed; a vanished host is noticed by then.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// Which way the flows of an order go, in the order of their numbers.
fn ways(order: &SessionOrder) -> Vec<Way> {
    match order.direction {
        Direction::Up => vec![Way::Up],
        Direction::Down => vec![Way::Down],
        Direction::Both => vec![Way::Up, Way::Down],
    }
}

/// How many flows an order has, both ways together.
pub(super) fn flows_total(order: &SessionOrder) -> u32 {
    order.flows.saturating_mul(ways(order).len() as u32)
}

/// Options of the flows' TCP sockets.
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
pub(super) fn dress_tcp(socket: &TcpSocket, order: &SessionOrder) -> Result<(), NetError> {
    socket.set_silence_limit(SILENCE)?;
    options(order).apply(socket)
}

/// Prepares a UDP socket of either end.
pub(super) fn dress_udp(flow: &mut UdpFlow, order: &SessionOrder) -> Result<(), NetError> {
    if let Some(bytes) = order.receive_buffer_bytes {
        flow.set_receive_buffer(bytes)?;
    }
    if let Some(bytes) = order.send_buffer_bytes {
        flow.set_send_buffer(bytes)?;
    }
    Ok(())
}

/// How the ends of a session come together over QUIC.
pub(super) fn quic_plan(order: &SessionOrder, name: SessionName, within: Duration) -> QuicPlan {
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

/// How the groups of this end work.
fn group_setting(order: &SessionOrder, recorder: Option<&Recorder>) -> GroupSetting {
    // A slow rate makes long pauses between calls.
    let bits = f64::from(order.size_bytes) * 8.0;
    let pause_s = order.rate_bit_per_s.map_or(0.0, |rate| bits / rate.max(1) as f64);
    GroupSetting {
        threads: order.threads,
        engine: order.engine,
        silence_max: silence(pause_s),
        recorder: recorder.map(Recorder::handle),
    }
}

/// What each flow of `way` is told at the end that is its `side`, when senders begin at `start_ns`.
fn flow_orders(order: &SessionOrder, side: Side, start_ns: u64) -> Vec<FlowOrder> {
    let end = |index: u32| match (side, order.bytes) {
        (Side::Receiver, _) => End::Peer,
        (Side::Sender, Some(bytes)) => End::Bytes(in_datagrams(order, share(bytes, order.flows, index))),
        (Side::Sender, None) => {
            End::AtNs(start_ns.saturating_add(order.omit_ns).saturating_add(order.time_ns))
        }
    };
    let flow = |index| FlowOrder {
        side,
        mode: order.mode,
        size_bytes: order.size_bytes,
        end: end(index),
        rate_bit_per_s: order.rate_bit_per_s,
        stamp: if order.protocol == Protocol::Udp { Stamp::Counted64 } else { Stamp::None },
    };
    (0..order.flows).map(flow).collect()
}

/// Datagrams are whole.
fn in_datagrams(order: &SessionOrder, bytes: u64) -> u64 {
    match order.protocol {
        Protocol::Tcp | Protocol::Quic => bytes,
        Protocol::Udp => {
            let size = u64::from(order.size_bytes.max(1));
            bytes.div_ceil(size).saturating_mul(size)
        }
    }
}

/// Starts the flows over `sockets` or `quic` at the end that is the client or the server: receivers at once, senders at
/// `start_ns`.
///
/// # Errors
/// [`NativeError`]: what the flows need is not there.
pub(super) fn begin(
    order: &SessionOrder,
    is_client: bool,
    start_ns: u64,
    mut sockets: Vec<FlowSocket>,
    quic: Option<&QuicEnd>,
) -> Result<Course, NativeError> {
    let measure = Measure { start_ns, omit_ns: order.omit_ns, interval_ns: order.beat_ns };
    if let Some(requests) = &order.requests {
        return Ok(begin_requests(order, requests, is_client, measure, sockets)?);
    }
    let (mut senders, mut receivers) = (None, None);
    for way in ways(order) {
        let sends = (way == Way::Up) == is_client;
        let side = if sends { Side::Sender } else { Side::Receiver };
        let flows = flow_orders(order, side, start_ns);
        let recorder = order.calls.then(crate::calls::record);
        let carrier = match quic {
            Some(quic) => Carrier::Quic(quic.begin(flows, start_ns)?),
            None => {
                let rest = sockets.split_off(sockets.len().min(flows.len()));
                let flows = std::mem::replace(&mut sockets, rest).into_iter().zip(flows).collect();
                let setting = group_setting(order, recorder.as_ref());
                Carrier::Flows(Group::start(flows, &setting, start_ns)?)
            }
        };
        let place = if sends { &mut senders } else { &mut receivers };
        *place = Some(Moving::new(way, order.protocol, carrier, measure, recorder));
    }
    Ok(Course::new(senders, receivers))
}

/// Of requests each end reports what reached it: answers come down, requests go up.
fn begin_requests(
    order: &SessionOrder,
    requests: &RequestSettings,
    is_client: bool,
    measure: Measure,
    sockets: Vec<FlowSocket>,
) -> Result<Course, FlowError> {
    let bytes = |size: base::units::ByteSize| u32::try_from(size.bytes()).unwrap_or(u32::MAX);
    let omit_until_ns = measure.start_ns.saturating_add(order.omit_ns);
    let (side, end) = match is_client {
        true => (RequestSide::Requester, RequestEnd::AtNs(omit_until_ns.saturating_add(order.time_ns))),
        false => (RequestSide::Answerer, RequestEnd::Peer),
    };
    let recorder = order.calls.then(crate::calls::record);
    // Requests that are seldom made have long pauses between them.
    let pause_s = requests.rate_per_s.map_or(0.0, f64::recip);
    let told = RequestOrder {
        side,
        size_bytes: bytes(requests.size),
        answer_bytes: bytes(requests.answer_size.unwrap_or(requests.size)),
        waiting: requests.waiting,
        rate_per_s: requests.rate_per_s,
        end,
        omit_until_ns: (order.omit_ns > 0).then_some(omit_until_ns),
        threads: order.threads,
        silence_max: silence(pause_s),
        recorder: recorder.as_ref().map(Recorder::handle),
    };
    let carrier = Carrier::Requests(RequestGroup::start(sockets, &told, measure.start_ns)?);
    let way = if is_client { Way::Down } else { Way::Up };
    let moving = Some(Moving::new(way, order.protocol, carrier, measure, recorder));
    // The requesters' end is what the answerers wait for.
    Ok(if is_client { Course::new(moving, None) } else { Course::new(None, moving) })
}
