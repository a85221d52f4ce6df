//! Fragments in datagrams: parts are gathered, and what does not arrive is asked for again.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::ledger::name_of;
use super::memory::Room;
use super::worker::Worker;
use crate::daq::wire::{Head, Kind, Order, Part, Piece, WireError};

/// Nothing came of an event for so long: what is missing is asked for.
const QUIET_NS: u64 = 5_000_000;
/// How often it is asked for, each time after twice as long.
const TRIES: u32 = 8;
/// Requests at once: each brings packets.
const REQUESTS_AT_ONCE: usize = 128;
/// Gaps of one fragment that are asked for at once.
const GAPS_AT_ONCE: usize = 8;
/// Pieces that a fragment may lie in; what would make more is passed over, and asked for again.
const PIECES_MAX: usize = 1024;

/// A fragment of which some parts came.
#[derive(Debug)]
struct Parts {
    room: Room,
    piece: Piece,
    whole_bytes: u32,
    /// From and to of what came, ascending, apart from each other.
    came: Vec<(u32, u32)>,
}

impl Parts {
    /// Notes that these bytes came; whether any of them is new.
    fn add(&mut self, from: u32, to: u32) -> bool {
        let at = self.came.partition_point(|&(_, end)| end < from);
        let (mut first, mut last, mut until) = (from, to, at);
        while let Some(&(begin, end)) = self.came.get(until).filter(|(begin, _)| *begin <= to) {
            if begin <= from && end >= to {
                return false;
            }
            (first, last) = (first.min(begin), last.max(end));
            until += 1;
        }
        if until == at && self.came.len() >= PIECES_MAX {
            return false;
        }
        self.came.splice(at..until, [(first, last)]);
        true
    }

    fn is_whole(&self) -> bool {
        matches!(self.came[..], [(0, to)] if to == self.whole_bytes)
    }

    /// What did not come: from and length.
    fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let ends = std::iter::once(0).chain(self.came.iter().map(|&(_, to)| to));
        let begins = self.came.iter().map(|&(from, _)| from).chain([self.whole_bytes]);
        ends.zip(begins).filter(|(end, begin)| begin > end).map(|(end, begin)| (end, begin - end))
    }
}

#[derive(Debug)]
struct Quiet {
    event: u64,
    /// Sources below this one were told to send.
    ordered_to: u32,
    due_ns: u64,
    tries: u32,
}

/// What is gathered, by event.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    is_on: bool,
    parts: HashMap<(u64, u32), Parts>,
    quiet: VecDeque<Quiet>,
}

impl Gathering {
    /// From now on what is missing is asked for.
    pub(super) fn turn_on(&mut self) {
        self.is_on = true;
    }

    pub(super) fn begin(&mut self, event: u64, now_ns: u64) {
        if self.is_on {
            self.quiet.push_back(Quiet { event, ordered_to: 0, due_ns: now_ns + QUIET_NS, tries: 0 });
        }
    }

    pub(super) fn ordered(&mut self, event: u64, to: u32) {
        if let Some(quiet) = self.quiet.iter_mut().find(|quiet| quiet.event == event) {
            quiet.ordered_to = quiet.ordered_to.max(to);
        }
    }

    /// Something of the event came.
    pub(super) fn came(&mut self, event: u64, now_ns: u64) {
        if let Some(quiet) = self.quiet.iter_mut().find(|quiet| quiet.event == event) {
            quiet.due_ns = now_ns + (QUIET_NS << quiet.tries.min(TRIES));
        }
    }

    pub(super) fn end(&mut self, event: u64) {
        if self.is_on {
            self.quiet.retain(|quiet| quiet.event != event);
            self.parts.retain(|(of, _), _| *of != event);
        }
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.quiet.iter().filter(|quiet| quiet.tries < TRIES).map(|quiet| quiet.due_ns).min()
    }

    /// Whether bytes of the event were asked for again, so that some may come twice.
    fn was_asked_for(&self, event: u64) -> bool {
        self.quiet.iter().any(|quiet| quiet.event == event && quiet.tries > 0)
    }

    fn due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        let due = |quiet: &&mut Quiet| quiet.due_ns <= now_ns && quiet.tries < TRIES;
        let quiet = self.quiet.iter_mut().find(due)?;
        quiet.tries += 1;
        quiet.due_ns = now_ns + (QUIET_NS << quiet.tries);
        Some((quiet.event, quiet.ordered_to))
    }
}

impl Worker {
    /// Takes a datagram apart.
    pub(super) fn take_datagram(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let taken = match Head::read(datagram).map(|head| head.kind) {
            Ok(Kind::Sync) => Piece::decode(datagram).map(|(answer, _)| self.take_answer(&answer, now_ns)),
            Ok(Kind::Fragment) => {
                Part::decode(datagram).map(|(part, payload)| self.take_part(&part, payload, from))
            }
            Ok(_) => Err(WireError::Side),
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            self.assembly.ledger.refuse(name_of(error));
        }
    }

    fn take_part(&mut self, part: &Part, payload: &[u8], from: SocketAddr) {
        let piece = &part.piece;
        let group = self.group_of.get(piece.source as usize).copied().unwrap_or(u32::MAX);
        let is_his = self.groups.get(group as usize).is_some_and(|group| group.udp == Some(from));
        self.assembly.speaker = is_his.then_some(piece.source);
        let before = (self.assembly.ledger.duplicate, self.assembly.ledger.late);
        let slot = match self.assembly.admit(piece) {
            Ok(slot) => slot,
            Err(Some(name)) => return self.assembly.ledger.refuse(name),
            Err(None) => {
                // A fragment is counted once, by its first part; and not at all where it may have been asked for.
                let ledger = &mut self.assembly.ledger;
                if part.offset > 0 || self.gathering.was_asked_for(piece.event) {
                    (ledger.duplicate, ledger.late) = before;
                }
                return;
            }
        };
        if let Err(name) = self.put(part, payload, slot) {
            self.assembly.ledger.refuse(name);
        }
    }

    /// Puts a part where it belongs.
    fn put(&mut self, part: &Part, payload: &[u8], slot: u32) -> Result<(), &'static str> {
        let (piece, key) = (&part.piece, (part.piece.event, part.piece.source));
        let (from, to) = (part.offset, part.offset + part.piece.payload_bytes);
        let assembly = &mut self.assembly;
        let known = self.gathering.parts.get(&key).map(|parts| (parts.room, parts.whole_bytes));
        let room = match known {
            Some((_, whole_bytes)) if whole_bytes != part.whole_bytes => return Err("payload_length"),
            Some((room, _)) => room,
            None => {
                if !assembly.is_length_right(piece, part.whole_bytes) {
                    return Err("payload_length");
                }
                let held = &mut assembly.table.slot(slot).held;
                assembly.memory.take(held, part.whole_bytes).ok_or("no_memory")?
            }
        };
        let held = assembly.table.slot(slot).held.bytes_of(room);
        let place = held.get_mut(from as usize..to as usize).ok_or("payload_length")?;
        place.copy_from_slice(payload);
        if from == 0 && to == part.whole_bytes {
            self.gathering.parts.remove(&key);
            assembly.accept(piece, part.whole_bytes, slot);
            return Ok(());
        }
        let whole_bytes = part.whole_bytes;
        let new = || Parts { room, piece: *piece, whole_bytes, came: Vec::new() };
        let parts = self.gathering.parts.entry(key).or_insert_with(new);
        parts.piece.sent_ns = parts.piece.sent_ns.min(piece.sent_ns);
        parts.add(from, to);
        if parts.is_whole() {
            let piece = parts.piece;
            self.gathering.parts.remove(&key);
            self.assembly.accept(&piece, whole_bytes, slot);
        } else {
            let now_ns = self.assembly.now_ns;
            self.gathering.came(key.0, now_ns);
        }
        Ok(())
    }

    /// Asks for what did not arrive.
    pub(super) fn ask_again_for_bytes(&mut self, now_ns: u64) {
        while let Some((event, ordered_to)) = self.gathering.due(now_ns) {
            let Some(slot) = self.assembly.table.slot_of(event) else { continue };
            let present = &self.assembly.table.look(slot).present;
            let missing = present.missing(ordered_to.min(self.told.sources()));
            let missing: Vec<u32> = missing.take(REQUESTS_AT_ONCE).collect();
            for source in missing {
                let gaps: Vec<(u32, u32)> = match self.gathering.parts.get(&(event, source)) {
                    Some(parts) => parts.gaps().take(GAPS_AT_ONCE).collect(),
                    None => vec![(0, self.told.sizes.bytes(event, source))],
                };
                let group = self.group_of[source as usize];
                for (from, bytes) in gaps {
                    let nack = self.order(Kind::Nack, 0, event, source, 1);
                    let nack = Order { fragment_bytes: bytes, credit_bytes: from, ..nack };
                    let to_group = self.groups.get(group as usize).is_some_and(|group| group.udp.is_some());
                    match to_group {
                        true => self.say_to_group(group, &nack.encode()),
                        false => self.say_to(source, &nack.encode()),
                    }
                    self.orders.nacks += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daq::builder::memory::{Held, Memory};
    use crate::daq::wire::PieceFlags;

    #[test]
    fn parts_make_a_whole_in_any_order() {
        let room = Memory::new(1 << 20, 1, 100).take(&mut Held::default(), 100).expect("room");
        let piece = Piece {
            kind: Kind::Fragment,
            flags: PieceFlags::default(),
            run: 1,
            builder: 0,
            event: 0,
            source: 0,
            payload_bytes: 0,
            order_received_ns: 0,
            sent_ns: 0,
            clock_error_ns: 0,
            sequence: 0,
            payload_crc: 0,
        };
        let mut parts = Parts { room, piece, whole_bytes: 100, came: Vec::new() };
        assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 100)]);
        assert!(parts.add(20, 40) && parts.add(60, 80) && !parts.add(25, 40));
        assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 20), (40, 20), (80, 20)]);
        assert!(parts.add(30, 70) && parts.add(80, 100) && !parts.is_whole());
        assert_eq!(parts.gaps().collect::<Vec<_>>(), [(0, 20)]);
        assert!(parts.add(0, 20) && parts.is_whole() && parts.gaps().count() == 0);
    }
}
