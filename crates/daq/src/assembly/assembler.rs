//! Checks each fragment, stores it with its event, and counts what becomes of it.

use super::event_table::{Event, EventStatus, EventTable, Fragment, SourceSet};
use super::fragment_memory::{FragmentMemory, MemoryRange};
use super::message_parser::{Destination, MessageSink};
use crate::report::Ledger;
use crate::settings::FragmentSizes;
use crate::wire::{FragmentFlags, FragmentHeader, Kind};

/// Hellos and clock answers of one read that are kept; an honest source sends fewer.
const CONTROL_MAX: usize = 64;

/// A message that is no fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    Hello(FragmentHeader, Vec<u8>),
    ClockAnswer(FragmentHeader),
}

/// A fragment that was accepted and is not processed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewFragment {
    pub slot: u32,
    pub event: u64,
    /// Its index among the event's fragments.
    pub index: u32,
    pub source: u32,
    pub payload_bytes: u32,
    pub sent_ns: u64,
    pub arrived_ns: u64,
}

/// What fragments are checked against.
#[derive(Debug, Clone)]
pub(crate) struct AssemblerConfig {
    pub run: u32,
    pub builder: u16,
    pub builders_all: u16,
    pub sources: u32,
    /// The last `front_ends` sources are front ends, whose fragments may have any size.
    pub front_ends: u64,
    /// A source's share of the memory for one event.
    pub share_bytes: u64,
    /// The longest fragment of a front end, as it may have any size.
    pub claim_bytes_max: u64,
    pub sizes: FragmentSizes,
    pub memory_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Assembler {
    config: AssemblerConfig,
    /// When the bytes under way were read.
    pub(crate) now_ns: u64,
    /// How long they waited since the event loop woke up.
    read_late_ns: u64,
    /// The source that is being read; `None` before its hello.
    pub(crate) current_source: Option<u32>,
    pub(crate) events: EventTable,
    pub(crate) memory: FragmentMemory,
    pub(crate) ledger: Ledger,
    /// Slots of events that became complete.
    pub(crate) complete: Vec<u32>,
    pub(crate) new_fragments: Vec<NewFragment>,
    connected: SourceSet,
    pub(crate) control: Vec<ControlMessage>,
}

impl Assembler {
    pub(crate) fn new(config: AssemblerConfig) -> Self {
        let sources = config.sources;
        let fragment_bytes = config.sizes.mean_bytes().ceil() as u64;
        Self {
            now_ns: 0,
            read_late_ns: 0,
            current_source: None,
            events: EventTable::new(sources),
            memory: FragmentMemory::new(
                config.memory_bytes,
                config.share_bytes,
                sources.into(),
                fragment_bytes,
            ),
            ledger: Ledger::default(),
            complete: Vec::new(),
            new_fragments: Vec::new(),
            connected: SourceSet::new(sources),
            control: Vec::new(),
            config,
        }
    }

    /// The following bytes were read at `now_ns`, though the event loop woke up at `woke_ns`.
    pub(crate) fn set_read_time(&mut self, now_ns: u64, woke_ns: u64) {
        (self.now_ns, self.read_late_ns) = (now_ns, now_ns.saturating_sub(woke_ns));
    }

    /// The source said hello: its fragments are accepted.
    pub(crate) fn source_connected(&mut self, source: u32) {
        self.connected.insert(source);
        self.current_source = Some(source);
    }

    pub(crate) fn source_disconnected(&mut self, source: u32) {
        self.connected.remove(source);
    }

    pub(crate) fn end_event(&mut self, slot: u32) {
        let ended = self.events.event_mut(slot);
        let fragments = ended.fragments.len() as u64;
        match fragments == u64::from(self.config.sources) {
            true => self.ledger.built += fragments,
            false => self.ledger.in_incomplete += fragments,
        }
        self.memory.release(&mut ended.memory);
        self.events.end(slot);
    }

    /// The fragment's order had been repeated when its source sent it.
    pub(crate) fn mark_recovered(&mut self, fragment: &NewFragment) {
        let event = self.events.event_mut(fragment.slot);
        if let Some(fragment) = event.fragments.get_mut(fragment.index as usize) {
            fragment.recovered = true;
        }
    }

    /// Whether the run has a source of this number.
    pub(super) const fn has_source(&self, source: u32) -> bool {
        source < self.config.sources
    }

    /// The slot of the event that a fragment belongs to, or why it is refused; `Err(None)`: late or a
    /// duplicate, and counted so.
    pub(super) fn find_event(&mut self, fragment: &FragmentHeader) -> Result<u32, Option<&'static str>> {
        let config = &self.config;
        if fragment.kind != Kind::Fragment {
            return Err(Some("wrong_kind"));
        }
        if fragment.run != config.run {
            return Err(Some("wrong_run"));
        }
        let is_own_event = fragment.event % u64::from(config.builders_all) == u64::from(config.builder);
        if fragment.builder != config.builder || !is_own_event {
            return Err(Some("wrong_builder"));
        }
        if self.current_source != Some(fragment.source) || fragment.source >= config.sources {
            return Err(Some("unknown_source"));
        }
        match self.events.status(fragment.event) {
            EventStatus::Never => return Err(Some("never_triggered")),
            EventStatus::Past => return Err(Some("from_the_past")),
            EventStatus::Complete => self.ledger.duplicate += 1,
            EventStatus::GivenUp => self.count_late(fragment),
            EventStatus::UnderWay(slot) if self.events.event(slot).present.contains(fragment.source) => {
                self.ledger.duplicate += 1;
            }
            EventStatus::UnderWay(slot) => return Ok(slot),
        }
        Err(None)
    }

    /// Checks the length of a fragment's whole payload; the error is the reason for the report. A front end
    /// may claim its share of the memory, so that others find room; kagiri's own sources draw the length from
    /// the settings.
    pub(super) fn check_length(
        &self,
        fragment: &FragmentHeader,
        payload_bytes: u32,
    ) -> Result<(), &'static str> {
        let front_ends = u32::try_from(self.config.front_ends).unwrap_or(self.config.sources);
        if fragment.source >= self.config.sources.saturating_sub(front_ends) {
            let fits = u64::from(payload_bytes) <= self.config.claim_bytes_max;
            return if fits { Ok(()) } else { Err("too_large") };
        }
        let expected = self.config.sizes.bytes(fragment.event, fragment.source);
        let is_expected = match () {
            () if fragment.flags.has(FragmentFlags::EMPTY) => payload_bytes == 0,
            () if fragment.flags.has(FragmentFlags::TRUNCATED) => payload_bytes <= expected,
            () => payload_bytes == expected,
        };
        if is_expected { Ok(()) } else { Err("payload_length") }
    }

    /// Memory for a source's fragment; `None`: the limit is reached.
    pub(super) fn allocate(&mut self, slot: u32, source: u32, bytes: u32) -> Option<MemoryRange> {
        self.memory.allocate(&mut self.events.event_mut(slot).memory, source, bytes)
    }

    pub(super) fn bytes(&mut self, slot: u32, range: MemoryRange) -> &mut [u8] {
        self.events.event_mut(slot).memory.bytes(range)
    }

    /// Adds a complete, correct fragment to its event.
    pub(super) fn accept(&mut self, fragment: &FragmentHeader, payload_bytes: u32, slot: u32) {
        let (arrived_ns, late_ns) = (self.now_ns, self.read_late_ns);
        let Some(Event { present, fragments, read_late_ns, .. }) =
            self.events.current_event(slot, fragment.event)
        else {
            return self.count_late(fragment);
        };
        let FragmentHeader { event, source, sent_ns, flags, .. } = *fragment;
        if !present.insert(source) {
            self.ledger.duplicate += 1;
            return;
        }
        let recovered = flags.has(FragmentFlags::CATCHUP);
        let index = fragments.len() as u32;
        fragments.push(Fragment { source, payload_bytes, sent_ns, arrived_ns, recovered });
        *read_late_ns = (*read_late_ns).max(late_ns);
        if fragments.len() == self.config.sources as usize {
            self.complete.push(slot);
        }
        self.new_fragments.push(NewFragment {
            slot,
            event,
            index,
            source,
            payload_bytes,
            sent_ns,
            arrived_ns,
        });
    }

    fn count_late(&mut self, fragment: &FragmentHeader) {
        match self.events.mark_late(fragment.event, fragment.source) {
            true => self.ledger.duplicate += 1,
            false => self.ledger.late += 1,
        }
    }

    /// Counts a refused message, of a source or of an unidentified peer.
    pub(super) fn count_refused(&mut self, reason: &str) {
        match self.current_source {
            Some(_) => self.ledger.count_refused(reason),
            None => self.ledger.count_turned_away(reason),
        }
    }

    fn push_control(&mut self, message: ControlMessage) {
        if self.control.len() < CONTROL_MAX {
            self.control.push(message);
        }
    }
}

impl MessageSink for Assembler {
    fn begin_fragment(&mut self, fragment: &FragmentHeader) -> Destination {
        let reason = match self.find_event(fragment) {
            Ok(slot) => match self.check_length(fragment, fragment.payload_bytes) {
                Ok(()) => match self.allocate(slot, fragment.source, fragment.payload_bytes) {
                    Some(range) => return Destination::Memory { slot, event: fragment.event, range },
                    None => "no_memory",
                },
                Err(reason) => reason,
            },
            Err(Some(reason)) => reason,
            Err(None) => return Destination::Discard,
        };
        self.count_refused(reason);
        Destination::Discard
    }

    fn buffer(&mut self, destination: Destination, from: u32) -> &mut [u8] {
        let Destination::Memory { slot, event, range } = destination else { return &mut [] };
        let bytes = self.events.current_event(slot, event).map(|event| event.memory.bytes(range));
        bytes.and_then(|bytes| bytes.get_mut(from as usize..)).unwrap_or_default()
    }

    fn end_fragment(&mut self, fragment: &FragmentHeader, destination: Destination, crc: u32) {
        let Destination::Memory { slot, .. } = destination else { return };
        if fragment.payload_crc != 0 && crc != fragment.payload_crc {
            self.ledger.count_refused("payload_checksum");
        } else {
            self.accept(fragment, fragment.payload_bytes, slot);
        }
    }

    fn hello(&mut self, hello: &FragmentHeader, payload: &[u8]) {
        // Fragments that follow in the same read count as this source's; the hello itself is checked right
        // after the read.
        if self.current_source.is_none()
            && hello.run == self.config.run
            && !self.connected.contains(hello.source)
        {
            self.current_source = Some(hello.source);
        }
        self.push_control(ControlMessage::Hello(*hello, payload.to_vec()));
    }

    fn clock_answer(&mut self, answer: &FragmentHeader) {
        self.push_control(ControlMessage::ClockAnswer(*answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Size;

    const BYTES: u32 = 40_000;

    /// Two sources, memory for their fragments of one event, which has begun.
    fn assembler() -> Assembler {
        let size: Size = serde_json::from_value(serde_json::json!("40000B")).expect("a size");
        let mut assembler = Assembler::new(AssemblerConfig {
            run: 1,
            builder: 0,
            builders_all: 1,
            sources: 2,
            front_ends: 0,
            share_bytes: u64::from(BYTES),
            claim_bytes_max: 0,
            sizes: FragmentSizes::new(&size, 7, "").expect("sizes"),
            memory_bytes: 2 * u64::from(BYTES),
        });
        assembler.events.begin(0, 0, 0);
        assembler
    }

    fn fragment(source: u32) -> FragmentHeader {
        FragmentHeader {
            payload_bytes: BYTES,
            payload_crc: 5,
            ..FragmentHeader::new(Kind::Fragment, 1, 0, source)
        }
    }

    #[test]
    fn failed_fragments_leave_memory_for_others() {
        let mut assembler = assembler();
        assembler.current_source = Some(0);
        for round in 0..100 {
            let destination = assembler.begin_fragment(&fragment(0));
            assert_eq!(assembler.buffer(destination, 10).len(), BYTES as usize - 10, "round {round}");
            // Every other connection breaks before the end.
            if round % 2 == 0 {
                assembler.end_fragment(&fragment(0), destination, 6);
            }
        }
        for source in [1, 0] {
            assembler.current_source = Some(source);
            let destination = assembler.begin_fragment(&fragment(source));
            assembler.end_fragment(&fragment(source), destination, 5);
        }
        assert_eq!(assembler.complete, [0]);
        let refused: Vec<_> = assembler.ledger.refused.iter().collect();
        assert_eq!(refused, [(&"payload_checksum".to_owned(), &50)]);
        assert!(assembler.memory.held_bytes_max <= 2 * u64::from(BYTES));
    }

    #[test]
    fn find_event_names_why_it_refuses() {
        let mut assembler = assembler();
        assembler.current_source = Some(0);
        let good = fragment(0);
        for (header, expected) in [
            (good, Ok(0)),
            (FragmentHeader { kind: Kind::Sync, ..good }, Err(Some("wrong_kind"))),
            (FragmentHeader { run: 2, ..good }, Err(Some("wrong_run"))),
            (FragmentHeader { builder: 1, ..good }, Err(Some("wrong_builder"))),
            (fragment(1), Err(Some("unknown_source"))),
            (FragmentHeader { event: 1, ..good }, Err(Some("never_triggered"))),
        ] {
            assert_eq!(assembler.find_event(&header), expected, "{header:?}");
        }
        assembler.accept(&good, BYTES, 0);
        assert_eq!((assembler.find_event(&good), assembler.ledger.duplicate), (Err(None), 1));
        assembler.end_event(0);
        assembler.current_source = Some(1);
        assert_eq!((assembler.find_event(&fragment(1)), assembler.ledger.late), (Err(None), 1));
    }
}
