//! Executes the orders of builders.

use std::net::SocketAddr;

use sys::clock::monotonic_ns;

use super::builder_link::{BuilderLink, Burst};
use super::connection::State;
use super::context::WorkerContext;
use super::sender;
use crate::wire::{FragmentFlags, FragmentHeader, Kind, Order, OrderFlags};

/// A new event so long after the last fragment suggests that something was lost: sample TCP_INFO.
const IDLE_NS: u64 = 20_000_000;

/// Upper bound of any builder's window.
const EVENTS_UNDER_WAY_MAX: u64 = 10_000;

/// How an order arrived, which decides where answers go.
#[derive(Debug, Clone, Copy)]
pub(super) enum Delivery {
    Multicast,
    /// By unicast datagram to the worker, from this address.
    Udp(SocketAddr),
    /// Over the connection of the source with this index, for that source alone.
    Connection(usize),
}

/// Whether to drop a datagram order on purpose (`drop_orders_percent`).
fn is_injected_drop(context: &mut WorkerContext, order: &Order, delivery: Delivery) -> bool {
    let can_be_lost = !matches!(delivery, Delivery::Connection(_)) && context.config.drop_share > 0.0;
    can_be_lost
        && matches!(order.kind, Kind::Trigger | Kind::Grant | Kind::Pull)
        && context.random.f64() < context.config.drop_share
}

/// Executes an order; ignores one of another run or builder.
pub(super) fn handle_order(
    context: &mut WorkerContext,
    link: &mut BuilderLink,
    order: &Order,
    delivery: Delivery,
    received_ns: u64,
) {
    if order.run != context.config.run_of(link.builder()) || order.builder != link.builder() {
        return;
    }
    match order.kind {
        Kind::Trigger | Kind::Grant | Kind::Pull if link.is_stopped => {}
        Kind::Trigger | Kind::Grant | Kind::Pull => {
            context.counters.report.orders += 1;
            if is_injected_drop(context, order, delivery) {
                context.counters.report.orders_dropped += 1;
                return;
            }
            start_sending(context, link, order, delivery, received_ns);
        }
        Kind::Stop => {
            // It is for all sources: from now on a broken connection is no fault.
            link.stop_sending(received_ns);
            if let Delivery::Connection(place) = delivery {
                link.end(place);
            }
        }
        Kind::Sync => answer_clock_probe(context, link, order, delivery, received_ns),
        Kind::Nack => sender::resend(context, link, order),
        Kind::Hello | Kind::Fragment => {}
    }
}

/// Whether the order contradicts itself: no builder has that many events in progress.
fn is_impossible(context: &WorkerContext, order: &Order) -> bool {
    let numbers_max = EVENTS_UNDER_WAY_MAX * context.config.builders.len() as u64;
    order.event.checked_sub(order.event_oldest).is_none_or(|numbers| numbers > numbers_max)
}

fn start_sending(
    context: &mut WorkerContext,
    link: &mut BuilderLink,
    order: &Order,
    delivery: Delivery,
    received_ns: u64,
) {
    if is_impossible(context, order) {
        return;
    }
    let again = order.flags.has(OrderFlags::AGAIN);
    let effect = link.events.observe_order(order.event, order.event_oldest, again, received_ns);
    // Over connections each source gets its own order: count once.
    if !matches!(delivery, Delivery::Connection(_)) || effect.is_new {
        context.counters.report.orders_missed += effect.missed;
    }
    if effect.was_overtaken && context.config.is_push {
        context.counters.report.orders_missed = context.counters.report.orders_missed.saturating_sub(1);
    }
    // Once per batch.
    let is_first = effect.is_new && link.batched.is_empty();
    if is_first && link.last_sent_ns > 0 && received_ns.saturating_sub(link.last_sent_ns) > IDLE_NS {
        context.sampler.request_sweep(std::slice::from_mut(link), received_ns);
    }
    let Some((next, end)) = addressed_places(context, link, order, delivery) else { return };
    // The builder repeats what a broken connection may have lost.
    if let (true, Delivery::Connection(place)) = (again, delivery)
        && link.connections[place].take_lost(order.event)
    {
        link.events.unclaim(order.event, place);
    }
    let burst = Burst { event: order.event, received_ns, flags: 0, next, end };
    // Only triggers are batched: grants and pulls pace the sources.
    let together = matches!((delivery, order.kind), (Delivery::Multicast, Kind::Trigger));
    if order.kind == Kind::Trigger && context.config.is_push {
        for event in link.events.backlog(order.event, order.event_oldest) {
            if link.batched.iter().any(|burst| burst.event == event) {
                continue;
            }
            start_burst(context, link, Burst { event, flags: FragmentFlags::CATCHUP, ..burst }, together);
        }
    }
    start_burst(context, link, burst, together);
}

/// The indices of the sources that an order addresses: first, and one past the last.
fn addressed_places(
    context: &WorkerContext,
    link: &BuilderLink,
    order: &Order,
    delivery: Delivery,
) -> Option<(usize, usize)> {
    if let Delivery::Connection(place) = delivery {
        return order.is_for(context.first + place as u32).then_some((place, place + 1));
    }
    let first = u64::from(context.first);
    let from = u64::from(order.first_source).max(first) - first;
    let to = (u64::from(order.first_source) + u64::from(order.sources)).saturating_sub(first);
    let (from, to) = (from as usize, (to as usize).min(link.connections.len()));
    (from < to).then_some((from, to))
}

/// Lets the sources of a burst send now, or adds it to the batch.
fn start_burst(context: &mut WorkerContext, link: &mut BuilderLink, mut burst: Burst, together: bool) {
    if together && context.config.batch_max > 1 {
        link.batched.push(burst);
        if link.batched.len() >= context.config.batch_max {
            sender::send_batched(context, link);
        }
    } else if !sender::send_burst(context, link, &mut burst) {
        if link.bursts.len() >= context.config.events_max {
            link.bursts.pop_front();
        }
        link.bursts.push_back(burst);
    }
}

/// Continues bursts whose next source is due.
pub(super) fn send_due_bursts(context: &mut WorkerContext, link: &mut BuilderLink, now_ns: u64) {
    for _ in 0..link.bursts.len() {
        let Some(mut burst) = link.bursts.pop_front() else { return };
        let is_due = sender::next_due_ns(context, &burst) <= now_ns;
        if !is_due || !sender::send_burst(context, link, &mut burst) {
            link.bursts.push_back(burst);
        }
    }
}

fn answer_clock_probe(
    context: &mut WorkerContext,
    link: &mut BuilderLink,
    order: &Order,
    delivery: Delivery,
    received_ns: u64,
) {
    let place = if let Delivery::Connection(place) = delivery { place } else { 0 };
    let header = FragmentHeader {
        event: order.event,
        order_received_ns: received_ns,
        ..context.header(Kind::Sync, link, place)
    };
    let to = match delivery {
        Delivery::Multicast => link.address,
        Delivery::Udp(from) => from,
        Delivery::Connection(place) => {
            let connection = &mut link.connections[place];
            connection.answer = Some(header);
            if connection.state == State::Open && !connection.is_blocked {
                sender::continue_sending(context, link, place);
            }
            return;
        }
    };
    if let Some(socket) = &context.udp {
        // The builder repeats lost probes.
        let _ = socket.send_to(&FragmentHeader { sent_ns: monotonic_ns(), ..header }.encode(), to);
    }
}
