//! Puts fragments together to events: checks each, finds its place, counts what becomes of it.

use super::memory::Memory;
use super::stream::{Place, Sink};
use super::table::{Came, Known, Slot, Sources, Table};
use super::told::Told;
use crate::daq::report::Ledger;
use crate::daq::settings::Draw;
use crate::daq::wire::{Kind, Piece, PieceFlags};

/// Hellos and answers that may wait to be looked at; more in one read are nobody's honest work.
const SAID_MAX: usize = 64;

/// What was said beside fragments, for the builder to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A source says who it is.
    Hello(Piece, Vec<u8>),
    /// A clock question was answered.
    Answer(Piece),
}

/// A fragment that came just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    /// The slot of its event.
    pub slot: u32,
    /// Its event.
    pub event: u64,
    /// Its place among those that came.
    pub at: u32,
    /// Whose.
    pub source: u32,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// When it was sent, by the source's clock, ns.
    pub sent_ns: u64,
    /// When its last byte was read, ns.
    pub arrived_ns: u64,
}

/// The events of one builder, and everything that is counted of their fragments.
#[derive(Debug)]
pub struct Assembly {
    /// When the bytes that are being looked at were read, ns.
    pub now_ns: u64,
    /// How long they had waited to be read since the builder's thread knew of them, ns.
    pub read_late_ns: u64,
    /// Whose connection is being read; unknown before its hello.
    pub speaker: Option<u32>,
    /// The events.
    pub table: Table,
    /// Their memory.
    pub memory: Memory,
    /// What became of each fragment.
    pub ledger: Ledger,
    /// Slots of events that are complete now, to be ended.
    pub complete: Vec<u32>,
    /// Fragments that came just now. Whoever gives credit empties it.
    pub fresh: Vec<Fresh>,
    /// Sources that are connected.
    pub connected: Sources,
    /// What else was said.
    pub said: Vec<Said>,
    sizes: Draw,
    run: u32,
    builder: u16,
    builders_all: u16,
    sources: u32,
    /// Sources from this one on are others' front ends, whose fragments have the size that they have.
    front_end_first: u32,
}

impl Assembly {
    /// For one builder.
    pub fn new(told: &Told) -> Self {
        let (sources, sizes) = (told.sources(), told.sizes.clone());
        let fragment_bytes = sizes.mean_bytes().ceil() as u64;
        Self {
            now_ns: 0,
            read_late_ns: 0,
            speaker: None,
            table: Table::new(sources),
            memory: Memory::new(told.settings.memory.bytes(), sources.into(), fragment_bytes),
            ledger: Ledger::default(),
            complete: Vec::new(),
            fresh: Vec::new(),
            connected: Sources::none_of(sources),
            said: Vec::new(),
            sizes,
            run: told.run,
            builder: told.builder,
            builders_all: told.builders_all.max(1),
            sources,
            front_end_first: sources
                .saturating_sub(u32::try_from(told.settings.front_ends).unwrap_or(sources)),
        }
    }

    /// The slot that a fragment belongs to, or under which name it is refused; `None`: it is counted already.
    pub fn admit(&mut self, fragment: &Piece) -> Result<u32, Option<&'static str>> {
        if fragment.kind != Kind::Fragment {
            return Err(Some("wrong_kind"));
        }
        if fragment.run != self.run {
            return Err(Some("wrong_run"));
        }
        if fragment.builder != self.builder
            || fragment.event % u64::from(self.builders_all) != u64::from(self.builder)
        {
            return Err(Some("wrong_builder"));
        }
        if self.speaker != Some(fragment.source) || fragment.source >= self.sources {
            return Err(Some("unknown_source"));
        }
        match self.table.known(fragment.event) {
            Known::Never => return Err(Some("never_triggered")),
            Known::Past => return Err(Some("from_the_past")),
            Known::Complete => self.ledger.duplicate += 1,
            Known::GivenUp => self.count_late(fragment),
            Known::UnderWay(slot) if self.table.look(slot).present.contains(fragment.source) => {
                self.ledger.duplicate += 1;
            }
            Known::UnderWay(slot) => return Ok(slot),
        }
        Err(None)
    }

    /// Whether the whole payload may be that long.
    pub fn is_length_right(&self, fragment: &Piece, payload_bytes: u32) -> bool {
        if fragment.source >= self.front_end_first {
            return true;
        }
        if fragment.flags.has(PieceFlags::EMPTY) {
            return payload_bytes == 0;
        }
        let expected = self.sizes.bytes(fragment.event, fragment.source);
        payload_bytes == expected || (fragment.flags.has(PieceFlags::TRUNCATED) && payload_bytes < expected)
    }

    fn count_late(&mut self, fragment: &Piece) {
        match self.table.came_before(fragment.event, fragment.source) {
            true => self.ledger.duplicate += 1,
            false => self.ledger.late += 1,
        }
    }

    /// A fragment is whole and right.
    pub fn accept(&mut self, fragment: &Piece, payload_bytes: u32, slot: u32) {
        let (now_ns, read_late_ns, sources) = (self.now_ns, self.read_late_ns, self.sources as usize);
        let Some(Slot { present, came, payload_bytes: sum, read_late_ns: late, .. }) =
            self.table.held(slot, fragment.event)
        else {
            return self.count_late(fragment);
        };
        if !present.insert(fragment.source) {
            self.ledger.duplicate += 1;
            return;
        }
        came.push(Came {
            source: fragment.source,
            payload_bytes,
            sent_ns: fragment.sent_ns,
            arrived_ns: now_ns,
            caught_up: fragment.flags.has(PieceFlags::CATCHUP),
        });
        *sum += u64::from(payload_bytes);
        *late = (*late).max(read_late_ns);
        if came.len() == sources {
            self.complete.push(slot);
        }
        self.fresh.push(Fresh {
            slot,
            event: fragment.event,
            at: came.len() as u32 - 1,
            source: fragment.source,
            payload_bytes,
            sent_ns: fragment.sent_ns,
            arrived_ns: now_ns,
        });
    }

    /// Gives back what an event holds, counts its fragments, and forgets it.
    pub fn end(&mut self, slot: u32) {
        let ended = self.table.slot(slot);
        let fragments = ended.came.len() as u64;
        match fragments == u64::from(self.sources) {
            true => self.ledger.built += fragments,
            false => self.ledger.in_incomplete += fragments,
        }
        self.memory.give_back(&mut ended.held);
        self.table.end(slot);
    }

    /// Counts what was refused: a source's fragment, or what somebody said who has not said who he is.
    pub fn refuse(&mut self, name: &str) {
        match self.speaker {
            Some(_) => self.ledger.refuse(name),
            None => self.ledger.turn_away(name),
        }
    }

    fn note(&mut self, said: Said) {
        if self.said.len() < SAID_MAX {
            self.said.push(said);
        }
    }
}

impl Sink for Assembly {
    fn begin(&mut self, fragment: &Piece) -> Place {
        let refused = match self.admit(fragment) {
            Ok(_) if !self.is_length_right(fragment, fragment.payload_bytes) => "payload_length",
            Ok(slot) => {
                let held = &mut self.table.slot(slot).held;
                match self.memory.take(held, fragment.source, fragment.payload_bytes) {
                    Some(room) => return Place::Held { slot, event: fragment.event, room },
                    None => "no_memory",
                }
            }
            Err(Some(name)) => name,
            Err(None) => return Place::Nowhere,
        };
        self.refuse(refused);
        Place::Nowhere
    }

    fn room(&mut self, place: Place, from: u32) -> &mut [u8] {
        let Place::Held { slot, event, room } = place else { return &mut [] };
        let held = self.table.held(slot, event).map(|slot| slot.held.bytes_of(room));
        held.and_then(|bytes| bytes.get_mut(from as usize..)).unwrap_or_default()
    }

    fn end(&mut self, fragment: &Piece, place: Place, crc: u32) {
        let Place::Held { slot, .. } = place else { return };
        if fragment.payload_crc != 0 && crc != fragment.payload_crc {
            self.ledger.refuse("payload_checksum");
        } else {
            self.accept(fragment, fragment.payload_bytes, slot);
        }
    }

    fn hello(&mut self, hello: &Piece, payload: &[u8]) {
        // What follows in the same read is taken already; whether he may speak at all is looked at right after.
        if self.speaker.is_none() && hello.run == self.run && !self.connected.contains(hello.source) {
            self.speaker = Some(hello.source);
        }
        self.note(Said::Hello(*hello, payload.to_vec()));
    }

    fn answer(&mut self, answer: &Piece) {
        self.note(Said::Answer(*answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daq::settings::DaqSettings;

    const BYTES: u32 = 40_000;

    /// Two sources and room for their fragments of one event, which has begun.
    fn assembly() -> Assembly {
        let settings = serde_json::json!({ "sources": 2, "size": "40000B", "memory": "80000B" });
        let settings = DaqSettings::read(settings).expect("settings");
        let sizes = Draw::new(&settings.size, 7, "").expect("sizes");
        let mut assembly = Assembly::new(&Told {
            settings,
            builder: 0,
            builders_all: 1,
            run: 1,
            address: ([127, 0, 0, 1], 1).into(),
            group: std::net::SocketAddrV4::new([239, 255, 0, 1].into(), 1),
            seed: 7,
            sizes,
            times_ns: Vec::new(),
        });
        assembly.table.begin(0, 0, 0, true);
        assembly
    }

    fn fragment(source: u32) -> Piece {
        Piece {
            kind: Kind::Fragment,
            flags: PieceFlags::default(),
            run: 1,
            builder: 0,
            event: 0,
            source,
            payload_bytes: BYTES,
            order_received_ns: 0,
            sent_ns: 0,
            clock_error_ns: 0,
            sequence: 0,
            payload_crc: 5,
        }
    }

    #[test]
    fn fragments_that_fail_leave_room_for_all_others() {
        let mut assembly = assembly();
        assembly.speaker = Some(0);
        for round in 0..100 {
            let place = assembly.begin(&fragment(0));
            assert_eq!(assembly.room(place, 10).len(), BYTES as usize - 10, "round {round}");
            // Of every other the connection breaks before the end.
            if round % 2 == 0 {
                Sink::end(&mut assembly, &fragment(0), place, 6);
            }
        }
        for source in [1, 0] {
            assembly.speaker = Some(source);
            let place = assembly.begin(&fragment(source));
            Sink::end(&mut assembly, &fragment(source), place, 5);
        }
        assert_eq!(assembly.complete, [0]);
        let refused: Vec<_> = assembly.ledger.refused.iter().collect();
        assert_eq!(refused, [(&"payload_checksum".to_owned(), &50)]);
        assert!(assembly.memory.held_bytes_max() <= 2 * u64::from(BYTES));
    }
}
