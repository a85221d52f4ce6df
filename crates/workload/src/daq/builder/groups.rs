//! How orders and questions reach the sources: by multicast, to a group alone, or over connections.

use std::net::{IpAddr, SocketAddr};

use sys::clock::monotonic_ns;
use sys::net::MulticastSender;

use super::clocks::Question;
use super::told::Told;
use super::worker::Worker;
use crate::daq::settings::Orders;
use crate::daq::theory::fragment_wire_bytes;
use crate::daq::wire::{Kind, Order, OrderFlags, Piece};

/// The number of a question that is asked by multicast, to learn who hears it.
const WHO_HEARS: u64 = u64::MAX;

/// Sources with one ear and one clock.
#[derive(Debug)]
pub(super) struct Group {
    /// Where it answers questions; `None`: over a connection.
    pub(super) udp: Option<SocketAddr>,
    /// One of its sources.
    speaker: u32,
    /// Whether it is known to hear multicast.
    pub(super) hears: bool,
    /// Whether it gets its orders over its connections, because it does not hear multicast.
    pub(super) is_deaf: bool,
}

/// The way to all sources at once, or why there is none where one is wanted.
pub(super) fn multicast(told: &Told) -> (Option<MulticastSender>, Option<String>) {
    if told.settings.orders != Orders::Multicast {
        return (None, None);
    }
    match told.address.ip() {
        IpAddr::V4(local) => match MulticastSender::new(told.group, local) {
            Ok(sender) => (Some(sender), None),
            Err(error) => (None, Some(format!("orders went over each source's connection: {error}"))),
        },
        IpAddr::V6(_) => {
            let why = "orders went over each source's connection: multicast is for IPv4 addresses here";
            (None, Some(why.to_owned()))
        }
    }
}

impl Worker {
    /// A source said hello: where its group is reached.
    ///
    /// A new one that comes late gets its orders over its connections until it has shown that it hears multicast.
    pub(super) fn join_group(&mut self, group: u32, source: u32, udp: Option<SocketAddr>, is_new: bool) {
        let at = group as usize;
        if is_new {
            let is_deaf = self.multicast.is_none() || self.is_gathered;
            let new = Group { udp, speaker: source, hears: false, is_deaf };
            match self.groups.get_mut(at) {
                Some(old) => *old = new,
                None => self.groups.push(new),
            }
            if self.is_gathered {
                self.ask_by_multicast();
            }
        }
        if let Some(group) = self.groups.get_mut(at) {
            group.udp = udp;
            let speaks = self.of_source.get(group.speaker as usize).copied().flatten();
            if speaks.is_none() {
                group.speaker = source;
            }
        }
    }

    /// An order of this kind for these sources.
    pub(super) fn order(&self, kind: Kind, flags: u16, event: u64, first_source: u32, sources: u32) -> Order {
        let slot = self.assembly.table.slot_of(event);
        // The others say nothing of an event.
        let is_of_event = matches!(kind, Kind::Trigger | Kind::Grant | Kind::Pull | Kind::Nack);
        Order {
            kind,
            flags: OrderFlags(flags),
            run: self.told.run,
            builder: self.told.builder,
            event,
            triggered_ns: slot.map_or(0, |slot| self.assembly.table.look(slot).due_ns),
            first_source,
            sources,
            fragment_bytes: if is_of_event { self.told.fragment_bytes() } else { 0 },
            credit_bytes: if is_of_event { self.credit_bytes() } else { 0 },
            event_oldest: self.assembly.table.oldest(event).min(event),
            seed: if is_of_event { self.told.seed as u32 } else { 0 },
        }
    }

    /// What may be under way, in bytes of the wire; 0: without limit.
    fn credit_bytes(&self) -> u32 {
        let Some(grants) = self.grants.as_ref().filter(|_| !self.is_push) else { return 0 };
        let mean_bytes = self.told.sizes.mean_bytes().round() as u32;
        let wire_bytes = fragment_wire_bytes(mean_bytes, self.told.settings.protocol);
        u32::try_from(u64::from(grants.credit()) * wire_bytes).unwrap_or(u32::MAX)
    }

    /// Gives an order to all that it is meant for.
    pub(super) fn give(&mut self, order: &Order) {
        let bytes = order.encode();
        if let Some(multicast) = &self.multicast {
            // One that has no room is lost like any other, and repeated.
            let _ = multicast.send(&bytes);
            if self.groups.iter().all(|group| !group.is_deaf) {
                return;
            }
        }
        let last = order.first_source.saturating_add(order.sources).min(self.told.sources());
        for source in order.first_source..last {
            let group = self.group_of[source as usize] as usize;
            if self.groups.get(group).is_some_and(|group| group.is_deaf) {
                self.say_to(source, &bytes);
            }
        }
    }

    /// Gives an order to one source, over its connection.
    pub(super) fn say_to(&mut self, source: u32, bytes: &[u8]) {
        let Some(at) = self.of_source.get(source as usize).copied().flatten() else { return };
        if let Some(Some(connection)) = self.connections.get_mut(at as usize) {
            connection.say(bytes);
            if connection.is_waiting() {
                self.flush(at as usize);
            }
        }
    }

    /// Says something to one group alone.
    pub(super) fn say_to_group(&mut self, group: u32, bytes: &[u8]) {
        let Some(&Group { udp, speaker, .. }) = self.groups.get(group as usize) else { return };
        if let Some(to) = udp {
            return self.say_by_udp(bytes, to);
        }
        let speaks = self.of_source.get(speaker as usize).is_some_and(Option::is_some);
        let other = || {
            let of_group = |source: &u32| self.group_of[*source as usize] == group;
            (0..self.told.sources())
                .filter(of_group)
                .find(|&source| self.of_source[source as usize].is_some())
        };
        let speaker = if speaks { Some(speaker) } else { other() };
        if let Some(speaker) = speaker {
            self.say_to(speaker, bytes);
        }
    }

    /// Asks a group what its clock says.
    pub(super) fn ask(&mut self, question: Question) {
        let order = self.question(question.number);
        self.say_to_group(question.group, &order.encode());
    }

    fn question(&self, number: u64) -> Order {
        let sources = self.told.sources();
        let order = self.order(Kind::Sync, 0, number, 0, sources);
        Order { triggered_ns: monotonic_ns(), event_oldest: 0, fragment_bytes: 0, ..order }
    }

    /// Asks by multicast who hears it. Returns whether there is still somebody of whom it is not known.
    pub(super) fn ask_who_hears(&mut self) -> bool {
        if self.groups.iter().all(|group| group.hears || group.is_deaf) {
            return false;
        }
        self.ask_by_multicast()
    }

    /// Asks, if there is multicast.
    fn ask_by_multicast(&self) -> bool {
        let Some(multicast) = &self.multicast else { return false };
        let _ = multicast.send(&self.question(WHO_HEARS).encode());
        true
    }

    /// Who has not answered by now gets his orders over connections. Says what came of it.
    pub(super) fn settle_who_hears(&mut self) -> Option<String> {
        self.is_gathered = true;
        if self.multicast.is_none() {
            return self.multicast_fails.clone();
        }
        for group in &mut self.groups {
            group.is_deaf |= !group.hears;
        }
        let (deaf, all) = (self.groups.iter().filter(|group| group.is_deaf).count(), self.groups.len());
        (deaf > 0).then(|| {
            format!(
                "multicast to {} did not reach {deaf} of {all} groups of sources, which got their orders over their \
                 connections; let switches pass it (IGMP snooping needs a querier)",
                self.told.group
            )
        })
    }

    /// A question was answered at `now_ns`.
    pub(super) fn take_answer(&mut self, answer: &Piece, now_ns: u64) {
        if answer.run != self.told.run {
            return self.assembly.ledger.turn_away("wrong_run");
        }
        if answer.event != WHO_HEARS {
            self.clocks.answer(answer.event, answer.order_received_ns, answer.sent_ns, now_ns);
            return;
        }
        let group = self.group_of.get(answer.source as usize).copied().unwrap_or(u32::MAX);
        if let Some(group) = self.groups.get_mut(group as usize) {
            group.hears = true;
            group.is_deaf &= self.multicast.is_none();
        }
    }
}
