//! Sending fragments: at once where there is room, and the rest as soon as there is.

use sys::clock::monotonic_ns;
use sys::net::{Interest, Moved, NetError};

use super::connection::{Current, Pending, State};
use super::dial;
use super::group::{Desk, token};
use super::lane::{Lane, Wave};
use super::udp;
use crate::daq::wire::{HEADER_BYTES, Kind, Piece, PieceFlags};

/// How far one call came.
#[derive(Debug)]
pub(super) enum Step {
    /// The message is out.
    Done,
    /// A part of it is.
    Moved,
    /// There is no room now.
    Blocked,
    /// The connection is gone.
    Lost(Option<NetError>),
}

/// Lets the sources of `wave` send, those that have not sent yet and whose turn has come; `true` when all have had it.
pub(super) fn roll(desk: &mut Desk, lane: &mut Lane, wave: &mut Wave) -> bool {
    let stagger_ns = desk.told.stagger_ns;
    let mut now_ns = wave.received_ns;
    while wave.next < wave.end {
        let number = u64::from(desk.first) + wave.next as u64;
        let due_ns = wave.received_ns.saturating_add(stagger_ns.saturating_mul(number));
        if due_ns > now_ns {
            now_ns = monotonic_ns();
            if due_ns > now_ns {
                return false;
            }
        }
        let place = wave.next;
        wave.next += 1;
        queue(desk, lane, place, wave, due_ns);
        send_queued(desk, lane, place);
    }
    true
}

/// Lets the sources send what was just heard of: each its fragments of all these events at once.
pub(super) fn roll_together(desk: &mut Desk, lane: &mut Lane) {
    let waves = std::mem::take(&mut lane.together);
    let next = waves.iter().map(|wave| wave.next).min().unwrap_or(0);
    let end = waves.iter().map(|wave| wave.end).max().unwrap_or(0);
    for place in next..end {
        for wave in waves.iter().filter(|wave| (wave.next..wave.end).contains(&place)) {
            queue(desk, lane, place, wave, wave.received_ns);
        }
        send_queued(desk, lane, place);
    }
    // Kept, so that nothing allocates.
    lane.together = waves;
    lane.together.clear();
}

/// When the next source of `wave` has its turn.
pub(super) fn wave_due_ns(desk: &Desk, wave: &Wave) -> u64 {
    let number = u64::from(desk.first) + wave.next as u64;
    wave.received_ns.saturating_add(desk.told.stagger_ns.saturating_mul(number))
}

/// Gives a source its fragment of a wave to send, unless it was given it before.
fn queue(desk: &Desk, lane: &mut Lane, place: usize, wave: &Wave, due_ns: u64) {
    let Wave { event, received_ns, flags, .. } = *wave;
    if !lane.events.take(event, place, received_ns) {
        return;
    }
    let connection = &mut lane.connections[place];
    if connection.state == State::Ended {
        return;
    }
    if connection.pending.len() >= desk.told.events_max {
        // The builder has long given that one up.
        connection.pending.pop_front();
    }
    connection.pending.push_back(Pending { event, received_ns, due_ns, flags });
}

fn send_queued(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let connection = &lane.connections[place];
    if connection.state == State::Open && !connection.is_blocked && !connection.pending.is_empty() {
        go_on(desk, lane, place);
    }
}

/// Sends what waits on a connection until all is out or there is no room.
pub(super) fn go_on(desk: &mut Desk, lane: &mut Lane, place: usize) {
    loop {
        if !begin(desk, lane, place) {
            unblock(desk, lane, place);
            return;
        }
        let step = if desk.told.is_udp && lane.connections[place].current.is_some_and(|c| c.is_fragment()) {
            udp::send(desk, lane, place)
        } else {
            write(desk, lane, place)
        };
        match step {
            Step::Moved => {}
            Step::Done => finish(desk, lane, place),
            Step::Blocked => return block(desk, lane, place),
            Step::Lost(error) => return dial::lost(desk, lane, place, error),
        }
    }
}

/// Sees to it that a message has been begun; `false` if there is none.
fn begin(desk: &mut Desk, lane: &mut Lane, place: usize) -> bool {
    let builder = lane.builder();
    let connection = &mut lane.connections[place];
    if let Some(current) = connection.current {
        if current.written > 0 || !current.is_fragment() || !lane.events.is_forgotten(current.piece.event) {
            return true;
        }
        connection.current = None;
    }
    if let Some(answer) = connection.answer.take() {
        let piece = Piece { sent_ns: monotonic_ns(), ..answer };
        connection.current = Some(Current { piece, written: 0 });
        return true;
    }
    let pending = loop {
        let Some(pending) = connection.pending.pop_front() else { return false };
        if !lane.events.is_forgotten(pending.event) {
            break pending;
        }
    };
    let source = desk.first + place as u32;
    let payload_bytes = desk.told.draw.bytes(pending.event, source);
    // Datagrams have checksums of their own.
    let payload_crc = if desk.told.is_udp { 0 } else { desk.payload.checksum(payload_bytes) };
    let sent_ns = monotonic_ns();
    let piece = Piece {
        kind: Kind::Fragment,
        flags: PieceFlags(pending.flags),
        run: desk.told.run_of(builder),
        builder,
        event: pending.event,
        source,
        payload_bytes,
        order_received_ns: pending.received_ns,
        sent_ns,
        clock_error_ns: 0,
        sequence: connection.sequence,
        payload_crc,
    };
    connection.sequence = connection.sequence.wrapping_add(1);
    connection.current = Some(Current { piece, written: 0 });
    desk.account.own_delay.record_ns(sent_ns.saturating_sub(pending.due_ns));
    desk.account.caught_up += u64::from(piece.flags.has(PieceFlags::CATCHUP));
    true
}

fn write(desk: &mut Desk, lane: &mut Lane, place: usize) -> Step {
    let connection = &mut lane.connections[place];
    let (Some(current), Some(socket)) = (&mut connection.current, &connection.socket) else {
        return Step::Lost(None);
    };
    let payload_bytes = current.piece.payload_bytes as usize;
    let bytes = if current.written < HEADER_BYTES {
        desk.payload.behind(&current.piece.encode(), current.written, payload_bytes)
    } else {
        let offset = current.written - HEADER_BYTES;
        desk.payload.run(offset, payload_bytes - offset)
    };
    // Another fragment follows on this connection: the kernel need not send the end of this one alone.
    let more = !desk.told.is_udp
        && current.is_fragment()
        && connection.pending.back().is_some_and(|next| !lane.events.is_forgotten(next.event));
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

fn finish(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let connection = &mut lane.connections[place];
    let Some(current) = connection.current.take().filter(Current::is_fragment) else { return };
    let Piece { event, sent_ns, payload_bytes, .. } = current.piece;
    connection.sent += 1;
    connection.before_last = connection.last;
    connection.last = Some((event, sent_ns));
    (lane.last_sent_ns, lane.last_event) = (sent_ns, event);
    desk.account.payload_bytes += u64::from(payload_bytes);
    desk.account.fragments += 1;
}

/// Waits for room to write.
fn block(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let token = token(desk, lane, place);
    let connection = &mut lane.connections[place];
    if connection.is_blocked {
        return;
    }
    connection.is_blocked = true;
    if desk.told.is_udp && connection.current.is_some_and(|current| current.is_fragment()) {
        udp::wait(desk, lane.index, place);
    } else if let Some(socket) = &connection.socket
        && let Err(error) = desk.epoll.modify(socket, token, Interest::READ | Interest::WRITE)
    {
        dial::lost(desk, lane, place, Some(error));
    }
}

fn unblock(desk: &mut Desk, lane: &mut Lane, place: usize) {
    let token = token(desk, lane, place);
    let connection = &mut lane.connections[place];
    if !std::mem::take(&mut connection.is_blocked) {
        return;
    }
    if let Some(socket) = &connection.socket
        && let Err(error) = desk.epoll.modify(socket, token, Interest::READ)
    {
        dial::lost(desk, lane, place, Some(error));
    }
}
