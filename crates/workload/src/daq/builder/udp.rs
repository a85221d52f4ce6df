//! Fragments in datagrams: parts are gathered, and what does not arrive is asked for again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;

use super::ledger::name_of;
use super::memory::Room;
use super::table::{Sources, Table};
use super::worker::Worker;
use crate::daq::settings::Carrier;
use crate::daq::wire::{Head, Kind, Order, Part, Piece, WireError};

/// Nothing came of an event for so long: what is missing is asked for.
const QUIET_NS: u64 = 5_000_000;
/// How often all that is missing is asked for without anything coming, each time after twice as long.
const TRIES: u32 = 8;
/// Sources that are asked at once: each sends packets.
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
        if from >= to {
            return false;
        }
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
    /// How often all were asked since something came.
    tries: u32,
    /// Whom to go on with: not all are asked at once.
    next: u32,
    /// Whether anybody was ever asked.
    has_asked: bool,
}

impl Quiet {
    /// Whom to ask now, out of those that are missing: goes round, a few at once.
    fn whom(&mut self, present: &Sources, sources: u32) -> Vec<u32> {
        let (to, next) = (self.ordered_to.min(sources), self.next);
        let from_next = present.missing(to).filter(|&source| source >= next);
        let mut whom: Vec<u32> = from_next.take(REQUESTS_AT_ONCE).collect();
        let rest = REQUESTS_AT_ONCE - whom.len();
        if rest > 0 {
            whom.extend(present.missing(to).take_while(|&source| source < next).take(rest));
            // Each was asked, if there is any.
            self.tries += u32::from(!whom.is_empty());
        }
        self.next = whom.last().map_or(0, |last| last + 1);
        self.has_asked |= !whom.is_empty();
        whom
    }
}

/// What is gathered, by event.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    is_on: bool,
    parts: HashMap<(u64, u32), Parts>,
    /// Fragments of events under way that were refused, and why: each counts once, however many parts it has.
    refused: HashSet<(u64, u32, &'static str)>,
    quiet: VecDeque<Quiet>,
}

impl Gathering {
    /// From now on what is missing is asked for.
    pub(super) fn turn_on(&mut self) {
        self.is_on = true;
    }

    pub(super) fn begin(&mut self, event: u64, now_ns: u64) {
        if self.is_on {
            let due_ns = now_ns + QUIET_NS;
            let quiet = Quiet { event, ordered_to: 0, due_ns, tries: 0, next: 0, has_asked: false };
            self.quiet.push_back(quiet);
        }
    }

    pub(super) fn ordered(&mut self, event: u64, to: u32) {
        let quiet = self.quiet.iter_mut().find(|quiet| quiet.event == event && quiet.ordered_to < to);
        if let Some(quiet) = quiet {
            (quiet.ordered_to, quiet.tries) = (to, 0);
        }
    }

    /// Something of the event came that had not come before.
    pub(super) fn came(&mut self, event: u64, now_ns: u64) {
        if let Some(quiet) = self.quiet.iter_mut().find(|quiet| quiet.event == event) {
            (quiet.due_ns, quiet.tries) = (now_ns + QUIET_NS, 0);
        }
    }

    pub(super) fn end(&mut self, event: u64) {
        self.quiet.retain(|quiet| quiet.event != event);
        self.parts.retain(|(of, _), _| *of != event);
        self.refused.retain(|(of, ..)| *of != event);
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.quiet.iter().filter(|quiet| quiet.tries < TRIES).map(|quiet| quiet.due_ns).min()
    }

    /// Whether bytes of the event were asked for again, so that some may come twice.
    fn was_asked_for(&self, event: u64) -> bool {
        self.quiet.iter().any(|quiet| quiet.event == event && quiet.has_asked)
    }

    /// An event of which something is to be asked for now, and which of `sources` to ask: nobody, if all came that were
    /// told to send.
    fn due(&mut self, now_ns: u64, table: &Table, sources: u32) -> Option<(u64, Vec<u32>)> {
        let due = |quiet: &&mut Quiet| quiet.due_ns <= now_ns && quiet.tries < TRIES;
        let quiet = self.quiet.iter_mut().find(due)?;
        let present = table.slot_of(quiet.event).map(|slot| &table.look(slot).present);
        let whom = present.map_or_else(Vec::new, |present| quiet.whom(present, sources));
        quiet.due_ns = now_ns + (QUIET_NS << quiet.tries);
        Some((quiet.event, whom))
    }
}

impl Worker {
    /// Takes a datagram apart.
    pub(super) fn take_datagram(&mut self, datagram: &[u8], from: SocketAddr, now_ns: u64) {
        let are_fragments_datagrams = self.told.settings.protocol == Carrier::Udp;
        let taken = match Head::read(datagram).map(|head| head.kind) {
            Ok(Kind::Sync) => Piece::decode(datagram).map(|(answer, _)| self.take_answer(&answer, now_ns)),
            Ok(Kind::Fragment) if are_fragments_datagrams => self.take_fragment(datagram, from),
            // Where fragments come over connections nobody has one to send here.
            Ok(_) => Err(WireError::Side),
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            self.assembly.ledger.turn_away(name_of(error));
        }
    }

    fn take_fragment(&mut self, datagram: &[u8], from: SocketAddr) -> Result<(), WireError> {
        // Its header may tell whose it is even where the rest is of no use.
        let (piece, _) = Piece::decode(datagram)?;
        let group = self.group_of.get(piece.source as usize).copied().unwrap_or(u32::MAX);
        let is_his = self.groups.get(group as usize).is_some_and(|group| group.udp == Some(from));
        self.assembly.speaker = is_his.then_some(piece.source);
        match Part::decode(datagram) {
            Ok((part, payload)) => self.take_part(&part, payload),
            Err(error) => self.refuse_part(&piece, name_of(error), true),
        }
        Ok(())
    }

    fn take_part(&mut self, part: &Part, payload: &[u8]) {
        let (piece, is_first) = (&part.piece, part.offset == 0);
        let before = (self.assembly.ledger.duplicate, self.assembly.ledger.late);
        let slot = match self.assembly.admit(piece) {
            Ok(slot) => slot,
            Err(Some(name)) => return self.refuse_part(piece, name, is_first),
            Err(None) => {
                // A fragment is counted once, by its first part; and not at all where it may have been asked for.
                let ledger = &mut self.assembly.ledger;
                if !is_first || self.gathering.was_asked_for(piece.event) {
                    (ledger.duplicate, ledger.late) = before;
                }
                return;
            }
        };
        if let Err(name) = self.put(part, payload, slot) {
            self.refuse_part(piece, name, is_first);
        }
    }

    /// Counts a part that was refused: of a source's fragment the first alone, of strangers each.
    fn refuse_part(&mut self, piece: &Piece, name: &'static str, is_first: bool) {
        let is_his = self.assembly.speaker == Some(piece.source);
        let is_under_way = self.assembly.table.slot_of(piece.event).is_some();
        let counts = match (is_his, is_under_way) {
            (false, _) => true,
            (true, true) => self.gathering.refused.insert((piece.event, piece.source, name)),
            // Of what is no event nothing is remembered, and nothing asked for again.
            (true, false) => is_first,
        };
        if counts {
            self.assembly.refuse(name);
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
                assembly.memory.take(held, piece.source, part.whole_bytes).ok_or("no_memory")?
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
        let is_new = parts.add(from, to);
        if parts.is_whole() {
            let piece = parts.piece;
            self.gathering.parts.remove(&key);
            self.assembly.accept(&piece, whole_bytes, slot);
        } else if is_new {
            let now_ns = self.assembly.now_ns;
            self.gathering.came(key.0, now_ns);
        }
        Ok(())
    }

    /// Asks for what did not arrive.
    pub(super) fn ask_again_for_bytes(&mut self, now_ns: u64) {
        let sources = self.told.sources();
        while let Some((event, whom)) = self.gathering.due(now_ns, &self.assembly.table, sources) {
            for source in whom {
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
#[path = "udp_tests.rs"]
mod tests;
