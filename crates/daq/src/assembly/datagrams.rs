//! Reassembles fragments from datagrams, and decides which bytes to request again.

use std::collections::{HashMap, HashSet, VecDeque};

use super::assembler::Assembler;
use super::event_table::{EventTable, SourceSet};
use super::fragment_memory::MemoryRange;
use crate::wire::{DatagramHeader, FragmentHeader, WireError};

/// Nothing new of an event arrived for so long: its missing bytes are requested.
const QUIET_NS: u64 = 5_000_000;
/// Requests of all missing bytes without anything new arriving; the interval doubles each time.
const TRIES: u32 = 8;
/// Sources that are asked at once: each answers with packets.
const REQUESTS_AT_ONCE: usize = 128;
/// Gaps of one fragment that are requested at once.
const GAPS_AT_ONCE: usize = 8;
/// Separate ranges of one fragment; a datagram that would add another is dropped, and requested again.
const RANGES_MAX: usize = 1024;

/// A fragment that arrived in part.
#[derive(Debug)]
struct PartialFragment {
    memory: MemoryRange,
    header: FragmentHeader,
    whole_bytes: u32,
    /// The received ranges (from, to): ascending and disjoint.
    received: Vec<(u32, u32)>,
}

impl PartialFragment {
    /// Adds a received range; returns whether any byte of it is new.
    fn add(&mut self, from: u32, to: u32) -> bool {
        if from >= to {
            return false;
        }
        let at = self.received.partition_point(|&(_, end)| end < from);
        let (mut first, mut last, mut until) = (from, to, at);
        while let Some(&(begin, end)) = self.received.get(until).filter(|(begin, _)| *begin <= to) {
            if begin <= from && end >= to {
                return false;
            }
            (first, last) = (first.min(begin), last.max(end));
            until += 1;
        }
        if until == at && self.received.len() >= RANGES_MAX {
            return false;
        }
        self.received.splice(at..until, [(first, last)]);
        true
    }

    fn is_complete(&self) -> bool {
        matches!(self.received[..], [(0, to)] if to == self.whole_bytes)
    }

    /// The missing ranges: from and length.
    fn gaps(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let ends = std::iter::once(0).chain(self.received.iter().map(|&(_, to)| to));
        let begins = self.received.iter().map(|&(from, _)| from).chain([self.whole_bytes]);
        ends.zip(begins).filter(|(end, begin)| begin > end).map(|(end, begin)| (end, begin - end))
    }
}

/// When to request an event's missing bytes, and from which sources.
#[derive(Debug)]
struct EventRequests {
    event: u64,
    /// Sources below this one were ordered to send.
    ordered_to: u32,
    due_ns: u64,
    /// Rounds of requests since something new arrived.
    tries: u32,
    /// The source to continue with.
    next: u32,
    has_requested: bool,
}

impl EventRequests {
    /// The next sources to ask, round robin over those whose fragment is missing.
    fn next_sources(&mut self, present: &SourceSet, sources: u32) -> Vec<u32> {
        let (to, next) = (self.ordered_to.min(sources), self.next);
        let from_next = present.missing(to).filter(|&source| source >= next);
        let mut asked: Vec<u32> = from_next.take(REQUESTS_AT_ONCE).collect();
        let rest = REQUESTS_AT_ONCE - asked.len();
        if rest > 0 {
            asked.extend(present.missing(to).take_while(|&source| source < next).take(rest));
            self.tries += u32::from(!asked.is_empty());
        }
        self.next = asked.last().map_or(0, |last| last + 1);
        self.has_requested |= !asked.is_empty();
        asked
    }
}

/// Partial fragments and due requests of the events under way.
#[derive(Debug, Default)]
pub(crate) struct DatagramReassembler {
    /// Without it nothing is requested, and nothing kept.
    pub(crate) is_requesting: bool,
    partial: HashMap<(u64, u32), PartialFragment>,
    /// Refused fragments: each counts once, however many datagrams it has.
    refused: HashSet<(u64, u32, &'static str)>,
    requests: VecDeque<EventRequests>,
}

impl DatagramReassembler {
    pub(crate) fn begin_event(&mut self, event: u64, now_ns: u64) {
        if self.is_requesting {
            let due_ns = now_ns + QUIET_NS;
            let new = EventRequests { event, ordered_to: 0, due_ns, tries: 0, next: 0, has_requested: false };
            self.requests.push_back(new);
        }
    }

    /// All sources below `to` were ordered to send.
    pub(crate) fn add_order(&mut self, event: u64, to: u32) {
        let requests = self.requests.iter_mut().find(|one| one.event == event && one.ordered_to < to);
        if let Some(requests) = requests {
            (requests.ordered_to, requests.tries) = (to, 0);
        }
    }

    /// New bytes of the event arrived.
    pub(crate) fn bytes_arrived(&mut self, event: u64, now_ns: u64) {
        if let Some(requests) = self.requests.iter_mut().find(|one| one.event == event) {
            (requests.due_ns, requests.tries) = (now_ns + QUIET_NS, 0);
        }
    }

    pub(crate) fn end_event(&mut self, event: u64) {
        self.requests.retain(|one| one.event != event);
        self.partial.retain(|(of, _), _| *of != event);
        self.refused.retain(|(of, ..)| *of != event);
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.requests.iter().filter(|one| one.tries < TRIES).map(|one| one.due_ns).min()
    }

    /// Whether bytes of the event were requested, so that some may arrive twice.
    pub(crate) fn was_requested(&self, event: u64) -> bool {
        self.requests.iter().any(|one| one.event == event && one.has_requested)
    }

    /// An event with due requests, and the sources to ask; none, if the fragments of all ordered sources
    /// arrived.
    pub(crate) fn next_request(
        &mut self,
        now_ns: u64,
        events: &EventTable,
        sources: u32,
    ) -> Option<(u64, Vec<u32>)> {
        let requests = self.requests.iter_mut().find(|one| one.due_ns <= now_ns && one.tries < TRIES)?;
        let present = events.slot_of(requests.event).map(|slot| &events.event(slot).present);
        let asked = present.map_or_else(Vec::new, |present| requests.next_sources(present, sources));
        requests.due_ns = now_ns + (QUIET_NS << requests.tries);
        Some((requests.event, asked))
    }

    /// The ranges (from, length) of a fragment to request; `whole_bytes`: its length, if nothing arrived yet.
    pub(crate) fn missing_ranges(&self, event: u64, source: u32, whole_bytes: u32) -> Vec<(u32, u32)> {
        match self.partial.get(&(event, source)) {
            Some(partial) => partial.gaps().take(GAPS_AT_ONCE).collect(),
            None => vec![(0, whole_bytes)],
        }
    }

    /// Handles a datagram with (a part of) a fragment. `is_from`: whether it came from the UDP socket of a
    /// source.
    pub(crate) fn receive(
        &mut self,
        datagram: &[u8],
        is_from: impl Fn(u32) -> bool,
        assembler: &mut Assembler,
    ) -> Result<(), WireError> {
        // The header alone identifies the source, even if the rest is invalid.
        let (header, _) = FragmentHeader::decode(datagram)?;
        assembler.current_source = is_from(header.source).then_some(header.source);
        match DatagramHeader::decode(datagram) {
            Ok((header, payload)) => self.receive_part(&header, payload, assembler),
            Err(error) => self.count_refused(&header, error.reason(), true, assembler),
        }
        Ok(())
    }

    fn receive_part(&mut self, part: &DatagramHeader, payload: &[u8], assembler: &mut Assembler) {
        let (header, is_first) = (&part.fragment, part.offset == 0);
        let before = (assembler.ledger.duplicate, assembler.ledger.late);
        let slot = match assembler.find_event(header) {
            Ok(slot) => slot,
            // No hello of that source came from there.
            Err(Some("unknown_source")) if assembler.has_source(header.source) => {
                return self.count_refused(header, "wrong_address", is_first, assembler);
            }
            Err(Some(reason)) => return self.count_refused(header, reason, is_first, assembler),
            Err(None) => {
                // Count a fragment once, by its first part; and not at all if its bytes may have been
                // requested.
                if !is_first || self.was_requested(header.event) {
                    (assembler.ledger.duplicate, assembler.ledger.late) = before;
                }
                return;
            }
        };
        if let Err(reason) = self.store(part, payload, slot, assembler) {
            self.count_refused(header, reason, is_first, assembler);
        }
    }

    /// Counts a refused part: each fragment of a source once, every datagram of an unidentified peer.
    fn count_refused(
        &mut self,
        header: &FragmentHeader,
        reason: &'static str,
        is_first: bool,
        assembler: &mut Assembler,
    ) {
        let is_identified = assembler.current_source == Some(header.source);
        let is_under_way = assembler.events.slot_of(header.event).is_some();
        let counts = match (is_identified, is_under_way) {
            (false, _) => true,
            (true, true) => self.refused.insert((header.event, header.source, reason)),
            // Of other events nothing is remembered or requested.
            (true, false) => is_first,
        };
        if counts {
            assembler.count_refused(reason);
        }
    }

    /// Copies a part's payload to its event's memory.
    fn store(
        &mut self,
        part: &DatagramHeader,
        payload: &[u8],
        slot: u32,
        assembler: &mut Assembler,
    ) -> Result<(), &'static str> {
        let DatagramHeader { fragment: header, offset: from, whole_bytes } = *part;
        let (key, to) = ((header.event, header.source), from + header.payload_bytes);
        let memory = match self.partial.get(&key) {
            Some(partial) if partial.whole_bytes != whole_bytes => return Err("payload_length"),
            Some(partial) => partial.memory,
            None => {
                assembler.check_length(&header, whole_bytes)?;
                assembler.allocate(slot, header.source, whole_bytes).ok_or("no_memory")?
            }
        };
        let target = assembler.bytes(slot, memory).get_mut(from as usize..to as usize);
        target.ok_or("payload_length")?.copy_from_slice(payload);
        if from == 0 && to == whole_bytes {
            self.partial.remove(&key);
            assembler.accept(&header, whole_bytes, slot);
            return Ok(());
        }
        let new = || PartialFragment { memory, header, whole_bytes, received: Vec::new() };
        let partial = self.partial.entry(key).or_insert_with(new);
        partial.header.sent_ns = partial.header.sent_ns.min(header.sent_ns);
        let is_new = partial.add(from, to);
        if partial.is_complete() {
            let header = partial.header;
            self.partial.remove(&key);
            assembler.accept(&header, whole_bytes, slot);
        } else if is_new {
            self.bytes_arrived(key.0, assembler.now_ns);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "datagrams_tests.rs"]
mod tests;
