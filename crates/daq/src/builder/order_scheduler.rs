//! Decides which sources are ordered to send when, and repeats orders that are not answered.

use std::sync::Arc;

use sys::clock::monotonic_ns;

use super::config::BuilderConfig;
use super::order_sender::OrderSender;
use super::sockets::Sockets;
use super::source_registry::SourceRegistry;
use crate::assembly::{DatagramReassembler, EventTable, NewFragment};
use crate::recorder::OrderTimes;
use crate::report::OrderCounts;
use crate::scheduling::{CreditManager, GrantScope, RetransmitAction, RetransmitQueue};
use crate::settings::Pattern;
use crate::wire::{Kind, Order, OrderFlags};

/// What sending an order needs besides the scheduler.
pub(super) struct OrderContext<'a> {
    pub(super) events: &'a EventTable,
    pub(super) sources: &'a SourceRegistry,
    pub(super) datagrams: &'a mut DatagramReassembler,
    pub(super) sockets: &'a mut Sockets,
}

pub(super) struct OrderScheduler {
    config: Arc<BuilderConfig>,
    pub(super) sender: OrderSender,
    pub(super) counts: OrderCounts,
    /// `None`: push.
    pub(super) credit: Option<CreditManager>,
    retransmits: RetransmitQueue,
    /// By the event's slot.
    times: Vec<OrderTimes>,
    /// Whether sources send at the trigger, without a grant.
    pub(super) is_push: bool,
}

impl OrderScheduler {
    pub(super) fn new(config: Arc<BuilderConfig>) -> Self {
        let (settings, sources) = (&config.settings, config.sources());
        let is_push = settings.pattern == Pattern::Push;
        let scope = if settings.pattern == Pattern::Pull { GrantScope::Single } else { GrantScope::Range };
        let limit = settings.credit.unwrap_or(sources);
        Self {
            sender: OrderSender::new(config.clone()),
            counts: OrderCounts::default(),
            credit: (!is_push).then(|| CreditManager::new(sources, limit, scope)),
            retransmits: RetransmitQueue::new(sources),
            times: Vec::new(),
            is_push,
            config,
        }
    }

    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.retransmits.next_due_ns()
    }

    /// Fragments that must arrive before the next grant; `None`: there are no grants.
    pub(super) fn fragments_until_grant(&self) -> Option<u64> {
        self.credit.as_ref().filter(|_| !self.is_push).map(CreditManager::fragments_until_grant)
    }

    /// A source connected. One that was connected before is asked again for the fragments that are missing:
    /// what it sent over its earlier connection may be lost.
    pub(super) fn source_connected(
        &mut self,
        source: u32,
        group: u32,
        was_connected: bool,
        context: &mut OrderContext<'_>,
    ) {
        self.retransmits.join(source, group);
        if !was_connected {
            return;
        }
        let (config, events) = (&self.config, context.events);
        let lacks =
            |event| events.slot_of(event).is_some_and(|slot| !events.event(slot).present.contains(source));
        let bytes = |event, source| config.wire_bytes(config.sizes.bytes(event, source));
        let granted = self.credit.as_mut().map(|credit| credit.source_returned(source, lacks, bytes));
        let again = match granted {
            Some(granted) if !self.is_push => granted,
            _ => events.under_way().iter().map(|&(event, _)| event).filter(|&event| lacks(event)).collect(),
        };
        for event in again {
            self.repeat_to(self.repeated_kind(), event, source, context);
        }
        self.send_grants(None, context);
    }

    fn repeated_kind(&self) -> Kind {
        if self.is_push { Kind::Trigger } else { Kind::Grant }
    }

    pub(super) fn source_disconnected(&mut self, source: u32) {
        self.retransmits.leave(source);
        let (config, credit) = (&self.config, &mut self.credit);
        if let Some(credit) = credit {
            credit.source_left(source, |event, source| config.wire_bytes(config.sizes.bytes(event, source)));
        }
    }

    /// An event began: triggers it, as far as there is credit.
    pub(super) fn begin_event(&mut self, event: u64, slot: u32, now_ns: u64, context: &mut OrderContext<'_>) {
        let slot = slot as usize;
        if self.times.len() <= slot {
            self.times.resize_with(slot + 1, OrderTimes::default);
        }
        self.times[slot].clear();
        self.retransmits.begin_event(event, now_ns.saturating_add(self.config.settings.timeout.ns()));
        context.datagrams.begin_event(event, now_ns);
        self.counts.triggers += 1;
        if self.is_push {
            return self.send(Kind::Trigger, event, 0, self.config.sources(), context);
        }
        if let Some(credit) = &mut self.credit {
            credit.begin_event(event);
        }
        self.send_grants(Some(event), context);
    }

    pub(super) fn end_event(&mut self, event: u64) {
        self.retransmits.end_event(event);
        if let Some(credit) = &mut self.credit {
            credit.end_event(event);
        }
    }

    /// When the event's orders were sent.
    pub(super) fn times(&self, slot: u32) -> &OrderTimes {
        &self.times[slot as usize]
    }

    /// A fragment arrived, sent at `sent_ns` by the builder's clock if known. Returns whether its order had
    /// been repeated.
    pub(super) fn fragment_arrived(&mut self, fragment: &NewFragment, sent_ns: Option<u64>) -> bool {
        let NewFragment { event, source, arrived_ns, .. } = *fragment;
        let repeats = self.retransmits.fragment_arrived(event, source, sent_ns, arrived_ns);
        self.return_credit(event, source, fragment.payload_bytes);
        repeats > 0
    }

    fn return_credit(&mut self, event: u64, source: u32, payload_bytes: u32) -> bool {
        let wire_bytes = self.config.wire_bytes(payload_bytes);
        self.credit.as_mut().is_some_and(|credit| credit.fragment_arrived(event, source, wire_bytes))
    }

    /// Whether the next source is to be pulled while the end of a large fragment is still arriving: pulled
    /// one by one, they would leave the port idle for a round trip each; two at once would fill its
    /// buffer.
    pub(super) fn pulls_early(&self) -> bool {
        let is_pull = self.config.settings.pattern == Pattern::Pull;
        is_pull && self.credit.as_ref().is_some_and(|credit| credit.under_way == 1)
    }

    /// The end of this fragment is about to arrive.
    pub(super) fn fragment_arriving(
        &mut self,
        (event, source): (u64, u32),
        payload_bytes: u32,
        context: &mut OrderContext<'_>,
    ) {
        if self.return_credit(event, source, payload_bytes) {
            self.send_grants(None, context);
        }
    }

    /// Sends the grants for which there is credit; `new`: an event that no order has announced yet.
    pub(super) fn send_grants(&mut self, mut new: Option<u64>, context: &mut OrderContext<'_>) {
        if self.is_push {
            return;
        }
        let is_pull = self.config.settings.pattern == Pattern::Pull;
        if is_pull {
            self.announce(new.take(), context);
        }
        loop {
            let (config, Some(credit)) = (&self.config, &mut self.credit) else { return };
            let bytes = |event, source| config.wire_bytes(config.sizes.bytes(event, source));
            let Some(grant) = credit.next_grant(bytes) else { break };
            let kind = match is_pull {
                true => Kind::Pull,
                false if new == Some(grant.event) => Kind::Trigger,
                false => Kind::Grant,
            };
            match kind {
                Kind::Trigger => new = None,
                Kind::Pull => self.counts.pulls += 1,
                _ => self.counts.grants += 1,
            }
            self.send(kind, grant.event, grant.first_source, grant.sources, context);
        }
        self.announce(new, context);
    }

    /// Multicasts that an event began. Without multicast it would take a message per source, which the grant
    /// makes needless.
    fn announce(&self, event: Option<u64>, context: &mut OrderContext<'_>) {
        if let Some(event) = event.filter(|_| self.sender.has_multicast()) {
            let announcement = self.order(Kind::Trigger, 0, event, (0, 0), context.events);
            self.sender.send(&announcement, context.sources, context.sockets);
        }
    }

    fn order(
        &self,
        kind: Kind,
        flags: u16,
        event: u64,
        (first_source, sources): (u32, u32),
        events: &EventTable,
    ) -> Order {
        let config = &self.config;
        let credit = self.credit.as_ref().filter(|_| !self.is_push).map_or(0, |credit| credit.credit);
        Order {
            kind,
            flags: OrderFlags(flags),
            run: config.run,
            builder: config.builder,
            event,
            triggered_ns: events.slot_of(event).map_or(0, |slot| events.event(slot).due_ns),
            first_source,
            sources,
            fragment_bytes: config.fragment_bytes(),
            credit_bytes: u32::try_from(u64::from(credit) * config.mean_wire_bytes()).unwrap_or(u32::MAX),
            event_oldest: events.oldest(event).min(event),
            seed: config.seed as u32,
        }
    }

    /// Orders these sources to send, for the first time.
    fn send(
        &mut self,
        kind: Kind,
        event: u64,
        first_source: u32,
        sources: u32,
        context: &mut OrderContext<'_>,
    ) {
        let order = self.order(kind, 0, event, (first_source, sources), context.events);
        let is_unicast = kind == Kind::Pull;
        if is_unicast {
            OrderSender::send_unicast(first_source, &order.encode(), context.sources, context.sockets);
        } else {
            self.sender.send(&order, context.sources, context.sockets);
        }
        let now_ns = monotonic_ns();
        if let Some(slot) = context.events.slot_of(event) {
            self.times[slot as usize].add(first_source, sources, now_ns);
        }
        if !is_unicast && self.sender.has_multicast() {
            self.retransmits.add_order(event, first_source, sources, now_ns);
        }
        context.datagrams.add_order(event, first_source.saturating_add(sources));
    }

    /// Repeats unanswered orders. Returns an event whose time is over; to be called until there is none.
    pub(super) fn run_retransmits(&mut self, now_ns: u64, context: &mut OrderContext<'_>) -> Option<u64> {
        let kind = self.repeated_kind();
        while let Some(action) = self.retransmits.next_action(now_ns) {
            match action {
                RetransmitAction::Multicast { event, first_source, sources } => {
                    let range = (first_source, sources);
                    let order = self.order(kind, OrderFlags::AGAIN, event, range, context.events);
                    self.sender.send(&order, context.sources, context.sockets);
                    self.counts.repeated += 1;
                    self.note_repeated(event, range, context.events);
                }
                RetransmitAction::Unicast { event, first_source, sources, group } => {
                    self.repeat_unicast(kind, event, (first_source, sources), group, context);
                }
                RetransmitAction::GiveUp { event } => return Some(event),
            }
        }
        None
    }

    /// Repeats an order over the connections of those sources of a group whose fragments are missing.
    fn repeat_unicast(
        &mut self,
        kind: Kind,
        event: u64,
        (first, sources): (u32, u32),
        group: u32,
        context: &mut OrderContext<'_>,
    ) {
        let Some(slot) = context.events.slot_of(event) else { return };
        let last = first.saturating_add(sources).min(self.config.sources());
        let present = &context.events.event(slot).present;
        for source in first..last {
            if context.sources.group(source) != group || present.contains(source) {
                continue;
            }
            self.repeat_to(kind, event, source, context);
        }
    }

    /// Repeats an order over one source's connection.
    fn repeat_to(&mut self, kind: Kind, event: u64, source: u32, context: &mut OrderContext<'_>) {
        let order = self.order(kind, OrderFlags::AGAIN, event, (source, 1), context.events);
        OrderSender::send_unicast(source, &order.encode(), context.sources, context.sockets);
        self.counts.unicast += 1;
        self.note_repeated(event, (source, 1), context.events);
    }

    fn note_repeated(&mut self, event: u64, (first_source, sources): (u32, u32), events: &EventTable) {
        if let Some(slot) = events.slot_of(event) {
            self.times[slot as usize].add_repeated(first_source, sources, monotonic_ns());
        }
    }

    /// Requests the bytes of datagrams that did not arrive.
    pub(super) fn request_lost_bytes(&mut self, now_ns: u64, context: &mut OrderContext<'_>) {
        let all = self.config.sources();
        while let Some((event, asked)) = context.datagrams.next_request(now_ns, context.events, all) {
            for source in asked {
                let whole_bytes = self.config.sizes.bytes(event, source);
                for (from, bytes) in context.datagrams.missing_ranges(event, source, whole_bytes) {
                    let nack = self.order(Kind::Nack, 0, event, (source, 1), context.events);
                    let nack = Order { fragment_bytes: bytes, credit_bytes: from, ..nack };
                    self.sender.send_nack(&nack, context.sources, context.sockets);
                    self.counts.nacks += 1;
                }
            }
        }
    }
}
