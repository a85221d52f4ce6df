//! Doing what a builder says, however it came.

use std::net::SocketAddr;

use sys::clock::monotonic_ns;

use super::connection::State;
use super::group::Desk;
use super::lane::{Lane, Wave};
use super::{send, udp};
use crate::daq::wire::{Kind, Order, OrderFlags, Piece, PieceFlags};

/// An order for a new event that comes so long after the last fragment tells that something was waited for.
const PAUSE_NS: u64 = 20_000_000;

/// No builder has more events under way.
const EVENTS_UNDER_WAY_MAX: u64 = 10_000;

/// How an order came, and so how it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// To all.
    Multicast,
    /// To the group alone, from this address.
    Udp(SocketAddr),
    /// Over the connection of the source with this place in the group, and meant for nobody else.
    Connection(usize),
}

/// Whether an order that came as a datagram is overheard: a fault made on purpose.
fn is_overheard(desk: &mut Desk, order: &Order, way: Way) -> bool {
    let can_be_lost = !matches!(way, Way::Connection(_)) && desk.told.drop_share > 0.0;
    can_be_lost
        && matches!(order.kind, Kind::Trigger | Kind::Grant | Kind::Pull)
        && desk.random.f64() < desk.told.drop_share
}

/// Follows an order of the builder of `lane`; one of another run, or of another builder, is passed over.
pub(super) fn follow(desk: &mut Desk, lane: &mut Lane, order: &Order, way: Way, received_ns: u64) {
    if order.run != desk.told.run_of(lane.builder()) || order.builder != lane.builder() {
        return;
    }
    match order.kind {
        Kind::Trigger | Kind::Grant | Kind::Pull if lane.is_stopped => {}
        Kind::Trigger | Kind::Grant | Kind::Pull => {
            desk.account.orders += 1;
            if is_overheard(desk, order, way) {
                desk.account.orders_dropped += 1;
                return;
            }
            call(desk, lane, order, way, received_ns);
        }
        Kind::Stop => match way {
            Way::Connection(place) => lane.end(place),
            Way::Multicast | Way::Udp(_) => lane.hush(received_ns),
        },
        Kind::Sync => answer(desk, lane, order, way, received_ns),
        Kind::Nack => udp::resend(desk, lane, order),
        Kind::Hello | Kind::Fragment => {}
    }
}

/// Whether an order contradicts itself: no builder has so many events under way.
fn is_impossible(desk: &Desk, order: &Order) -> bool {
    let numbers_max = EVENTS_UNDER_WAY_MAX * desk.told.builders.len() as u64;
    order.event.checked_sub(order.event_oldest).is_none_or(|numbers| numbers > numbers_max)
}

/// Lets the sources send that the order is meant for.
fn call(desk: &mut Desk, lane: &mut Lane, order: &Order, way: Way, received_ns: u64) {
    if is_impossible(desk, order) {
        return;
    }
    let again = order.flags.has(OrderFlags::AGAIN);
    let heard = lane.events.hear(order.event, order.event_oldest, again, received_ns);
    // Over a connection the others are told themselves.
    if !matches!(way, Way::Connection(_)) || heard.is_new {
        desk.account.orders_missed += heard.missed;
    }
    if heard.was_overtaken && desk.told.is_push {
        desk.account.orders_missed = desk.account.orders_missed.saturating_sub(1);
    }
    // Once for all that is heard together.
    let is_first = heard.is_new && lane.together.is_empty();
    if is_first && lane.last_sent_ns > 0 && received_ns.saturating_sub(lane.last_sent_ns) > PAUSE_NS {
        desk.looks.ask(std::slice::from_mut(lane), received_ns);
    }
    let Some((next, end)) = places(desk, lane, order, way) else { return };
    let wave = Wave { event: order.event, received_ns, flags: 0, next, end };
    // Triggers alone: grants and pulls say whose turn it is.
    let together = matches!((way, order.kind), (Way::Multicast, Kind::Trigger));
    if order.kind == Kind::Trigger && desk.told.is_push {
        for event in lane.events.behind(order.event, order.event_oldest) {
            if lane.together.iter().any(|wave| wave.event == event) {
                continue;
            }
            start(desk, lane, Wave { event, flags: PieceFlags::CATCHUP, ..wave }, together);
        }
    }
    start(desk, lane, wave, together);
}

/// The places of those sources of the group that an order is meant for: from, and up to.
fn places(desk: &Desk, lane: &Lane, order: &Order, way: Way) -> Option<(usize, usize)> {
    if let Way::Connection(place) = way {
        return order.is_for(desk.first + place as u32).then_some((place, place + 1));
    }
    let first = u64::from(desk.first);
    let from = u64::from(order.first_source).max(first) - first;
    let to = (u64::from(order.first_source) + u64::from(order.sources)).saturating_sub(first);
    let (from, to) = (from as usize, (to as usize).min(lane.connections.len()));
    (from < to).then_some((from, to))
}

/// Lets the sources of a wave send, or, if they may send for several events `together`, has it wait for further orders.
fn start(desk: &mut Desk, lane: &mut Lane, mut wave: Wave, together: bool) {
    if together && desk.told.together_max > 1 {
        lane.together.push(wave);
        if lane.together.len() >= desk.told.together_max {
            send::roll_together(desk, lane);
        }
    } else if !send::roll(desk, lane, &mut wave) {
        if lane.waves.len() >= desk.told.events_max {
            lane.waves.pop_front();
        }
        lane.waves.push_back(wave);
    }
}

/// Lets go on those waves whose moment has come.
pub(super) fn roll_waves(desk: &mut Desk, lane: &mut Lane, now_ns: u64) {
    for _ in 0..lane.waves.len() {
        let Some(mut wave) = lane.waves.pop_front() else { return };
        let is_due = send::wave_due_ns(desk, &wave) <= now_ns;
        if !is_due || !send::roll(desk, lane, &mut wave) {
            lane.waves.push_back(wave);
        }
    }
}

/// Says what the clock says.
fn answer(desk: &mut Desk, lane: &mut Lane, order: &Order, way: Way, received_ns: u64) {
    let place = if let Way::Connection(place) = way { place } else { 0 };
    let piece = Piece {
        kind: Kind::Sync,
        flags: PieceFlags::default(),
        run: desk.told.run_of(lane.builder()),
        builder: lane.builder(),
        event: order.event,
        source: desk.first + place as u32,
        payload_bytes: 0,
        order_received_ns: received_ns,
        sent_ns: 0,
        clock_error_ns: 0,
        sequence: 0,
        payload_crc: 0,
    };
    let to = match way {
        Way::Multicast => lane.address,
        Way::Udp(from) => from,
        Way::Connection(place) => {
            let connection = &mut lane.connections[place];
            connection.answer = Some(piece);
            if connection.state == State::Open && !connection.is_blocked {
                send::go_on(desk, lane, place);
            }
            return;
        }
    };
    if let Some(socket) = &desk.udp {
        // One that is lost is asked again.
        let _ = socket.send_to(&Piece { sent_ns: monotonic_ns(), ..piece }.encode(), to);
    }
}
