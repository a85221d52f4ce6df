//! Fragments as datagrams through a worker's UDP socket; lost parts are generated again on request.

use std::io::ErrorKind;
use std::net::SocketAddr;

use sys::clock::monotonic_ns;
use sys::net::Interest;

use super::builder_link::BuilderLink;
use super::connection::Step;
use super::context::{UDP, WorkerContext};
use crate::theory::DATAGRAM_PAYLOAD_BYTES;
use crate::wire::{DATAGRAM_HEADER_BYTES, DatagramHeader, FragmentHeader, Kind, Order, PAYLOAD_BYTES_MAX};

/// Payload of a datagram: with all headers it fits a packet of 1500 bytes.
pub(super) const PART_BYTES: usize = DATAGRAM_PAYLOAD_BYTES as usize;

/// Sends the next datagram of the connection's current fragment.
pub(super) fn send(context: &mut WorkerContext, link: &mut BuilderLink, place: usize) -> Step {
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
pub(super) fn wait(context: &mut WorkerContext, link: usize, place: usize) {
    context.udp_waiting.push_back((link, place));
    watch(context, true);
}

/// Sets whether epoll reports the socket as writable.
pub(super) fn watch(context: &mut WorkerContext, for_room: bool) {
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
