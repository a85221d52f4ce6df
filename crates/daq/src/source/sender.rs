//! Sends fragments, as far as sockets are writable: over the connections, or as datagrams through the
//! worker's UDP socket. Lost datagrams are generated again on request.

use std::io::ErrorKind;
use std::net::SocketAddr;

use sys::clock::monotonic_ns;
use sys::net::{Interest, Moved};

use super::builder_link::{BuilderLink, Burst};
use super::connection::{Current, Pending, State, Step};
use super::context::{UDP, WorkerContext};
use crate::theory::DATAGRAM_PAYLOAD_BYTES;
use crate::wire::{
    DATAGRAM_HEADER_BYTES, DatagramHeader, FragmentFlags, FragmentHeader, HEADER_BYTES, Kind, Order,
    PAYLOAD_BYTES_MAX,
};

/// Payload of a datagram: with all headers it fits a packet of 1500 bytes.
pub(super) const PART_BYTES: usize = DATAGRAM_PAYLOAD_BYTES as usize;

/// Lets the sources of `burst` send whose turn has come; `true`: all have.
pub(super) fn send_burst(context: &mut WorkerContext, link: &mut BuilderLink, burst: &mut Burst) -> bool {
    let stagger_ns = context.config.stagger_ns;
    let mut now_ns = burst.received_ns;
    while burst.next < burst.end {
        let number = u64::from(context.first) + burst.next as u64;
        let due_ns = burst.received_ns.saturating_add(stagger_ns.saturating_mul(number));
        if due_ns > now_ns {
            now_ns = monotonic_ns();
            if due_ns > now_ns {
                return false;
            }
        }
        let place = burst.next;
        burst.next += 1;
        queue(context, link, place, burst, due_ns);
        send_queued(context, link, place);
    }
    true
}

/// Sends the batch: each source its fragments of all these events at once.
pub(super) fn send_batched(context: &mut WorkerContext, link: &mut BuilderLink) {
    let bursts = std::mem::take(&mut link.batched);
    let next = bursts.iter().map(|burst| burst.next).min().unwrap_or(0);
    let end = bursts.iter().map(|burst| burst.end).max().unwrap_or(0);
    for place in next..end {
        for burst in bursts.iter().filter(|burst| (burst.next..burst.end).contains(&place)) {
            queue(context, link, place, burst, burst.received_ns);
        }
        send_queued(context, link, place);
    }
    // Keep the allocation.
    link.batched = bursts;
    link.batched.clear();
}

pub(super) fn next_due_ns(context: &WorkerContext, burst: &Burst) -> u64 {
    let number = u64::from(context.first) + burst.next as u64;
    burst.received_ns.saturating_add(context.config.stagger_ns.saturating_mul(number))
}

/// Queues a source's fragment, unless it was queued before.
fn queue(context: &WorkerContext, link: &mut BuilderLink, place: usize, burst: &Burst, due_ns: u64) {
    let Burst { event, received_ns, flags, .. } = *burst;
    if !link.events.claim(event, place, received_ns) {
        return;
    }
    let connection = &mut link.connections[place];
    if connection.state == State::Ended {
        return;
    }
    if connection.pending.len() >= context.config.events_max {
        // The builder has given up that event long ago.
        connection.pending.pop_front();
    }
    connection.pending.push_back(Pending { event, received_ns, due_ns, flags });
}

fn send_queued(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let connection = &link.connections[place];
    if connection.state == State::Open && !connection.is_blocked && !connection.pending.is_empty() {
        continue_sending(context, link, place);
    }
}

/// Sends the connection's queue until it is empty or the socket is full.
pub(super) fn continue_sending(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    loop {
        if !next_message(context, link, place) {
            unblock(context, link, place);
            return;
        }
        let step =
            if context.config.is_udp && link.connections[place].current.is_some_and(|c| c.is_fragment()) {
                send_datagram(context, link, place)
            } else {
                write(context, link, place)
            };
        match step {
            Step::Moved => {}
            Step::Done => fragment_sent(context, link, place),
            Step::Blocked => return block(context, link, place),
            Step::Lost(error) => return context.connection_lost(link, place, error),
        }
    }
}

/// Picks the next message to send; `false`: none.
fn next_message(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) -> bool {
    let builder = link.builder();
    let connection = &mut link.connections[place];
    if let Some(current) = connection.current {
        if current.written > 0 || !current.is_fragment() || !link.events.is_forgotten(current.header.event) {
            return true;
        }
        connection.current = None;
    }
    if let Some(answer) = connection.answer.take() {
        let header = FragmentHeader { sent_ns: monotonic_ns(), ..answer };
        connection.current = Some(Current { header, written: 0 });
        return true;
    }
    let pending = loop {
        let Some(pending) = connection.pending.pop_front() else { return false };
        if !link.events.is_forgotten(pending.event) {
            break pending;
        }
    };
    let source = context.first + place as u32;
    let payload_bytes = context.config.sizes.bytes(pending.event, source);
    // Datagrams have checksums of their own.
    let payload_crc = if context.config.is_udp { 0 } else { context.payload.checksum(payload_bytes) };
    let sent_ns = monotonic_ns();
    let header = FragmentHeader {
        flags: FragmentFlags(pending.flags),
        event: pending.event,
        payload_bytes,
        order_received_ns: pending.received_ns,
        sent_ns,
        sequence: connection.sequence,
        payload_crc,
        ..FragmentHeader::new(Kind::Fragment, context.config.run_of(builder), builder, source)
    };
    connection.sequence = connection.sequence.wrapping_add(1);
    connection.current = Some(Current { header, written: 0 });
    context.counters.report.own_delay.record_ns(sent_ns.saturating_sub(pending.due_ns));
    context.counters.report.caught_up += u64::from(header.flags.has(FragmentFlags::CATCHUP));
    true
}

fn write(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) -> Step {
    let connection = &mut link.connections[place];
    let (Some(current), Some(socket)) = (&mut connection.current, &connection.socket) else {
        return Step::Lost(None);
    };
    let payload_bytes = current.header.payload_bytes as usize;
    let bytes = if current.written < HEADER_BYTES {
        context.payload.with_header(&current.header.encode(), current.written, payload_bytes)
    } else {
        let offset = current.written - HEADER_BYTES;
        context.payload.contiguous(offset, payload_bytes - offset)
    };
    // MSG_MORE: another fragment follows on this connection.
    let more = !context.config.is_udp
        && current.is_fragment()
        && connection.pending.back().is_some_and(|next| !link.events.is_forgotten(next.event));
    match socket.send(bytes, more) {
        Ok(Moved::Bytes(written)) => {
            current.written += written;
            if current.written == HEADER_BYTES + payload_bytes { Step::Done } else { Step::Moved }
        }
        Ok(Moved::WouldBlock) => Step::Blocked,
        Ok(Moved::End) => Step::Lost(None),
        Err(error) => Step::Lost(Some(error)),
    }
}

fn fragment_sent(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let connection = &mut link.connections[place];
    let Some(current) = connection.current.take().filter(Current::is_fragment) else { return };
    let FragmentHeader { event, sent_ns, payload_bytes, .. } = current.header;
    connection.sent += 1;
    connection.before_last = connection.last;
    connection.last = Some((event, sent_ns));
    (link.last_sent_ns, link.last_event) = (sent_ns, event);
    context.counters.report.payload_bytes += u64::from(payload_bytes);
    context.counters.fragments += 1;
}

fn block(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let token = context.token(link, place);
    let connection = &mut link.connections[place];
    if connection.is_blocked {
        return;
    }
    connection.is_blocked = true;
    if context.config.is_udp && connection.current.is_some_and(|current| current.is_fragment()) {
        wait_for_udp_room(context, link.index, place);
    } else if let Some(socket) = &connection.socket
        && let Err(error) = context.registry.change_watch(socket, token, Interest::READ | Interest::WRITE)
    {
        context.connection_lost(link, place, Some(error));
    }
}

fn unblock(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) {
    let token = context.token(link, place);
    let connection = &mut link.connections[place];
    if !std::mem::take(&mut connection.is_blocked) {
        return;
    }
    if let Some(socket) = &connection.socket
        && let Err(error) = context.registry.change_watch(socket, token, Interest::READ)
    {
        context.connection_lost(link, place, Some(error));
    }
}

/// Sends the next datagram of the connection's current fragment.
fn send_datagram(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) -> Step {
    let Some(current) = &mut link.connections[place].current else { return Step::Lost(None) };
    let whole = current.header.payload_bytes as usize;
    let bytes = PART_BYTES.min(whole - current.written);
    if !send_part(context, link.address, &current.header, current.written, bytes) {
        return Step::Blocked;
    }
    current.written += bytes;
    if current.written == whole { Step::Done } else { Step::Moved }
}

/// Sends one datagram; `false`: the socket is full.
fn send_part(
    context: &mut WorkerContext,
    to: SocketAddr,
    whole: &FragmentHeader,
    offset: usize,
    bytes: usize,
) -> bool {
    let Some(socket) = &context.udp else { return true };
    let (offset_word, bytes_word) = (offset as u32, bytes as u32);
    let payload_crc = context.payload.checksum_of(offset_word, bytes_word);
    let header = FragmentHeader { payload_bytes: bytes_word, payload_crc, ..*whole };
    let datagram_header =
        DatagramHeader { fragment: header, offset: offset_word, whole_bytes: whole.payload_bytes };
    let datagram = &mut context.datagram[..DATAGRAM_HEADER_BYTES + bytes];
    datagram[..DATAGRAM_HEADER_BYTES].copy_from_slice(&datagram_header.encode());
    context.payload.copy(offset, &mut datagram[DATAGRAM_HEADER_BYTES..]);
    match socket.send_to(datagram, to) {
        // Other errors count as loss: the builder requests the bytes again.
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Queues a source until the socket is writable.
fn wait_for_udp_room(context: &mut WorkerContext, link: usize, place: usize) {
    context.udp_waiting.push_back((link, place));
    watch_udp(context, true);
}

/// Sets whether epoll reports the socket as writable.
pub(super) fn watch_udp(context: &mut WorkerContext, for_room: bool) {
    let Some(socket) = &context.udp else { return };
    let interest = if for_room { Interest::READ | Interest::WRITE } else { Interest::READ };
    if context.udp_wants_room != for_room && context.registry.change_watch(socket, UDP, interest).is_ok() {
        context.udp_wants_room = for_room;
    }
}

/// Sends bytes again that the builder did not receive. Does not wait: what finds no room is requested again.
pub(super) fn resend(context: &mut WorkerContext, link: &mut BuilderLink, order: &Order) {
    let place = order.first_source.wrapping_sub(context.first) as usize;
    let Some(received_ns) = link.events.claimed_since(order.event, place) else { return };
    let connection = &link.connections[place];
    let is_waiting = connection.pending.iter().any(|pending| pending.event == order.event);
    let is_current = connection.current.is_some_and(|current| current.header.event == order.event);
    if is_waiting || is_current || !context.config.is_udp {
        return;
    }
    let whole = context.config.sizes.bytes(order.event, order.first_source).min(PAYLOAD_BYTES_MAX);
    let header = FragmentHeader {
        event: order.event,
        payload_bytes: whole,
        order_received_ns: received_ns,
        sent_ns: monotonic_ns(),
        sequence: connection.sequence.wrapping_sub(1),
        ..context.header(Kind::Fragment, link, place)
    };
    context.counters.report.nacks += 1;
    let from = order.credit_bytes.min(whole) as usize;
    let to = from.saturating_add(order.fragment_bytes as usize).min(whole as usize);
    // A fragment without payload is one datagram, too.
    let mut at = from;
    loop {
        let bytes = PART_BYTES.min(to - at);
        if !send_part(context, link.address, &header, at, bytes) {
            return;
        }
        at += bytes;
        if at >= to {
            return;
        }
    }
}
