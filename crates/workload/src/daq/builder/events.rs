//! Events from their trigger to their end.

use std::sync::atomic::Ordering;

use sys::clock::monotonic_ns;

use super::collect::{Arrived, Ended};
use super::ladder::Step;
use super::ordered::Ordered;
use super::worker::Worker;
use crate::daq::settings::Pattern;
use crate::daq::theory::fragment_wire_bytes;
use crate::daq::wire::{Kind, OrderFlags};

/// A fragment that is pulled is nearly here when no more of it is to come: at a gigabit that takes as long as asking the
/// next source does.
const EARLY_BYTES: u32 = 16 << 10;

impl Worker {
    /// An event happened: `due_ns` is when its trigger was due.
    pub(super) fn begin_event(&mut self, due_ns: u64) {
        let event = self.turns.begin(self.seat);
        let now_ns = monotonic_ns();
        let in_hold = self.collect.in_hold(due_ns);
        let slot = self.assembly.table.begin(event, due_ns, now_ns, in_hold) as usize;
        if self.ordered.len() <= slot {
            self.ordered.resize_with(slot + 1, Ordered::default);
        }
        self.ordered[slot].clear();
        self.collect.triggered(due_ns);
        self.ladder.begin(event, now_ns.saturating_add(self.told.settings.timeout.ns()));
        self.gathering.begin(event, now_ns);
        self.orders.triggers += 1;
        if self.is_push {
            let sources = self.told.sources();
            let trigger = self.order(Kind::Trigger, 0, event, 0, sources);
            self.give(&trigger);
            self.note_ordered(event, 0, sources, self.multicast.is_some());
            return;
        }
        if let Some(grants) = &mut self.grants {
            grants.open(event);
        }
        self.hand_out_from(Some(event));
    }

    /// Lets the next source send when the fragment of this connection is nearly here: pulled one by one, large fragments
    /// would leave the port idle for a round trip each, or two at once would fill its buffer.
    pub(super) fn ask_early(&mut self, at: usize) {
        let Some(grants) = self.grants.as_mut().filter(|_| self.told.settings.pattern == Pattern::Pull)
        else {
            return;
        };
        let Some(connection) = self.connections.get(at).and_then(Option::as_ref) else { return };
        let Some(fragment) = connection.stream.nearly_here(EARLY_BYTES).filter(|_| grants.under_way() == 1)
        else {
            return;
        };
        let wire_bytes = fragment_wire_bytes(fragment.payload_bytes, self.told.settings.protocol);
        if grants.arrived(fragment.event, fragment.source, wire_bytes) {
            self.hand_out();
        }
    }

    /// Lets those sources send for whom there is credit.
    pub(super) fn hand_out(&mut self) {
        if !self.is_push {
            self.hand_out_from(None);
        }
    }

    /// The same; `new` is an event that the sources have not heard of.
    fn hand_out_from(&mut self, mut new: Option<u64>) {
        let is_pull = self.told.settings.pattern == Pattern::Pull;
        if let Some(event) = new.filter(|_| is_pull && self.multicast.is_some()) {
            let announcement = self.order(Kind::Trigger, 0, event, 0, 0);
            self.give(&announcement);
            new = None;
        }
        loop {
            let (told, Some(grants)) = (&self.told, &mut self.grants) else { return };
            let protocol = told.settings.protocol;
            let bytes = |event, source| fragment_wire_bytes(told.sizes.bytes(event, source), protocol);
            let Some(grant) = grants.next(bytes) else { break };
            if is_pull {
                let pull = self.order(Kind::Pull, 0, grant.event, grant.first_source, grant.sources);
                self.say_to(grant.first_source, &pull.encode());
                self.orders.pulls += 1;
                self.note_ordered(grant.event, grant.first_source, grant.sources, false);
                continue;
            }
            let kind = if new == Some(grant.event) { Kind::Trigger } else { Kind::Grant };
            if kind == Kind::Trigger {
                new = None;
            } else {
                self.orders.grants += 1;
            }
            let order = self.order(kind, 0, grant.event, grant.first_source, grant.sources);
            self.give(&order);
            self.note_ordered(grant.event, grant.first_source, grant.sources, self.multicast.is_some());
        }
        // Over connections it would be a message for each, and tell them nothing that their turn does not.
        if let Some(event) = new.filter(|_| self.multicast.is_some()) {
            let announcement = self.order(Kind::Trigger, 0, event, 0, 0);
            self.give(&announcement);
        }
    }

    /// These sources were told just now; `can_be_lost`: by datagram.
    fn note_ordered(&mut self, event: u64, first_source: u32, sources: u32, can_be_lost: bool) {
        let now_ns = monotonic_ns();
        if let Some(slot) = self.assembly.table.slot_of(event) {
            self.ordered[slot as usize].note(first_source, sources, now_ns);
        }
        if can_be_lost {
            self.ladder.ordered(event, first_source, sources, now_ns);
        }
        self.gathering.ordered(event, first_source.saturating_add(sources));
    }

    /// Does what is due about orders that were not heard, and about events whose time is over.
    pub(super) fn climb(&mut self, now_ns: u64) {
        let kind = if self.is_push { Kind::Trigger } else { Kind::Grant };
        while let Some(step) = self.ladder.due(now_ns) {
            match step {
                Step::Again { event, first_source, sources } => {
                    let again = self.order(kind, OrderFlags::AGAIN, event, first_source, sources);
                    self.give(&again);
                    self.orders.repeated += 1;
                    self.note_again(event, first_source, sources);
                }
                Step::Unicast { event, first_source, sources, group } => {
                    self.tell_the_missing(kind, event, (first_source, sources), group);
                }
                Step::GiveUp { event } => {
                    match self.assembly.table.slot_of(event) {
                        Some(slot) => self.end_event(slot),
                        None => self.ladder.end(event),
                    }
                    self.hand_out();
                }
            }
        }
    }

    fn tell_the_missing(&mut self, kind: Kind, event: u64, (first, sources): (u32, u32), group: u32) {
        let Some(slot) = self.assembly.table.slot_of(event) else { return };
        let last = first.saturating_add(sources).min(self.told.sources());
        let is_missing = |source: &u32| {
            self.group_of[*source as usize] == group
                && !self.assembly.table.look(slot).present.contains(*source)
        };
        let missing: Vec<u32> = (first..last).filter(is_missing).collect();
        for source in missing {
            let order = self.order(kind, OrderFlags::AGAIN, event, source, 1);
            self.say_to(source, &order.encode());
            self.orders.unicast += 1;
            self.note_again(event, source, 1);
        }
    }

    fn note_again(&mut self, event: u64, first_source: u32, sources: u32) {
        let Some(slot) = self.assembly.table.slot_of(event) else { return };
        self.assembly.table.slot(slot).repeats += 1;
        self.ordered[slot as usize].note_again(first_source, sources, monotonic_ns());
    }

    /// An event is complete, or its time is over.
    pub(super) fn end_event(&mut self, slot: u32) {
        let ended_ns = monotonic_ns();
        let sources = self.told.sources();
        let Self { assembly, collect, clocks, group_of, of_source, ordered, missing, .. } = self;
        let of = assembly.table.look(slot);
        missing.clear();
        if of.came.len() < sources as usize {
            missing.extend(of.present.missing(sources));
        }
        let event = of.event;
        let ended = Ended {
            event,
            due_ns: of.due_ns,
            triggers_late_ns: of.triggers_late_ns,
            ended_ns,
            ordered: &ordered[slot as usize],
            missing,
            gone: missing.iter().any(|&source| of_source[source as usize].is_none()),
            read_late_ns: of.read_late_ns,
        };
        let fragments = of.came.iter().map(|came| Arrived {
            source: came.source,
            payload_bytes: came.payload_bytes,
            sent_ns: clocks.to_builder_ns(group_of[came.source as usize], came.sent_ns),
            arrived_ns: came.arrived_ns,
            recovered: came.caught_up,
        });
        let came = of.came.len().max(1) as u64;
        let measured = collect.ended(&ended, fragments);
        self.pace_ns = measured.spread_ns / came;
        let is_complete = missing.is_empty();
        let counter = if is_complete { &self.shared.complete } else { &self.shared.incomplete };
        counter.fetch_add(1, Ordering::Relaxed);
        self.tally(measured, is_complete, ended_ns);
        self.forget_event(slot, event);
    }

    /// The trial ends with an event under way.
    pub(super) fn break_off_event(&mut self, slot: u32) {
        let of = self.assembly.table.look(slot);
        let (event, due_ns) = (of.event, of.due_ns);
        self.collect.unfinished(due_ns);
        self.forget_event(slot, event);
    }

    fn forget_event(&mut self, slot: u32, event: u64) {
        self.ladder.end(event);
        if let Some(grants) = &mut self.grants {
            grants.end(event);
        }
        self.gathering.end(event);
        self.assembly.end(slot);
    }
}
