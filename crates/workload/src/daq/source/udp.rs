//! Fragments in datagrams, out of the one UDP socket of a group; what did not arrive is made anew when it is asked for.

use std::io::ErrorKind;
use std::net::SocketAddr;

use sys::clock::monotonic_ns;
use sys::net::Interest;

use super::group::{Desk, UDP};
use super::lane::Lane;
use super::send::Step;
use crate::daq::theory::DATAGRAM_PAYLOAD_BYTES;
use crate::daq::wire::{Kind, Order, PART_HEADER_BYTES, PAYLOAD_BYTES_MAX, Part, Piece, PieceFlags};

/// Payload of one datagram: with all headers it fits a packet of 1500 bytes.
pub(super) const PART_BYTES: usize = DATAGRAM_PAYLOAD_BYTES as usize;

/// Sends the next datagram of the fragment that a source has begun.
pub(super) fn send(desk: &mut Desk, lane: &mut Lane, place: usize) -> Step {
    let Some(current) = &mut lane.connections[place].current else { return Step::Lost(None) };
    let whole = current.piece.payload_bytes as usize;
    let bytes = PART_BYTES.min(whole - current.written);
    if !send_part(desk, lane.address, &current.piece, current.written, bytes) {
        return Step::Blocked;
    }
    current.written += bytes;
    if current.written == whole { Step::Done } else { Step::Moved }
}

/// Sends one datagram; `false` if there is no room.
fn send_part(desk: &mut Desk, to: SocketAddr, whole: &Piece, offset: usize, bytes: usize) -> bool {
    let Some(socket) = &desk.udp else { return true };
    let (offset_word, bytes_word) = (offset as u32, bytes as u32);
    let payload_crc = desk.payload.checksum_of(offset_word, bytes_word);
    let piece = Piece { payload_bytes: bytes_word, payload_crc, ..*whole };
    let part = Part { piece, offset: offset_word, whole_bytes: whole.payload_bytes };
    let datagram = &mut desk.datagram[..PART_HEADER_BYTES + bytes];
    datagram[..PART_HEADER_BYTES].copy_from_slice(&part.encode());
    desk.payload.copy(offset, &mut datagram[PART_HEADER_BYTES..]);
    match socket.send_to(datagram, to) {
        // What else goes wrong is as if it were lost on its way: the builder asks for it.
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Lets a source wait for room in the group's socket.
pub(super) fn wait(desk: &mut Desk, lane: usize, place: usize) {
    desk.udp_waiting.push_back((lane, place));
    watch(desk, true);
}

/// Waits for room in the socket too, or no longer.
pub(super) fn watch(desk: &mut Desk, for_room: bool) {
    let Some(socket) = &desk.udp else { return };
    let interest = if for_room { Interest::READ | Interest::WRITE } else { Interest::READ };
    if desk.udp_wants_room != for_room && desk.epoll.modify(socket, UDP, interest).is_ok() {
        desk.udp_wants_room = for_room;
    }
}

/// Sends again what the builder says did not arrive, of a fragment that was sent; without waiting: what has no room is
/// asked for again.
pub(super) fn resend(desk: &mut Desk, lane: &mut Lane, order: &Order) {
    let place = order.first_source.wrapping_sub(desk.first) as usize;
    let Some(received_ns) = lane.events.taken_since(order.event, place) else { return };
    let connection = &lane.connections[place];
    let is_waiting = connection.pending.iter().any(|pending| pending.event == order.event);
    let is_current = connection.current.is_some_and(|current| current.piece.event == order.event);
    if is_waiting || is_current || !desk.told.is_udp {
        return;
    }
    let whole = desk.told.draw.bytes(order.event, order.first_source).min(PAYLOAD_BYTES_MAX);
    let piece = Piece {
        kind: Kind::Fragment,
        flags: PieceFlags::default(),
        run: desk.told.run_of(lane.builder()),
        builder: lane.builder(),
        event: order.event,
        source: order.first_source,
        payload_bytes: whole,
        order_received_ns: received_ns,
        sent_ns: monotonic_ns(),
        clock_error_ns: 0,
        sequence: connection.sequence.wrapping_sub(1),
        payload_crc: 0,
    };
    desk.account.nacks += 1;
    let from = order.credit_bytes.min(whole) as usize;
    let to = from.saturating_add(order.fragment_bytes as usize).min(whole as usize);
    // One without payload is still a datagram.
    let mut at = from;
    loop {
        let bytes = PART_BYTES.min(to - at);
        if !send_part(desk, lane.address, &piece, at, bytes) {
            return;
        }
        at += bytes;
        if at >= to {
            return;
        }
    }
}
