//! Repeats orders that are not answered: first by multicast, then over the sources' connections; in the end
//! the event is given up.
//!
//! Sources of a group share a multicast receiver, so an order is lost for a whole group. Until a fragment of
//! an ordered group arrives, the order is *pending*: it is due after twice the 99th percentile of the group's
//! usual delay, at least [`DELAY_NS_MIN`]. A group that answers a later order has lost the earlier one, as in
//! TCP's RACK (RFC 8985): then it is due after [`REORDER_NS`], but not before the group's usual delay.

use std::collections::VecDeque;

/// Shortest delay before an order is repeated.
pub(crate) const DELAY_NS_MIN: u64 = 5_000_000;
/// Answers to an earlier order may be read so much later than those to a later one.
const REORDER_NS: u64 = 500_000;
/// Earlier events that are searched for overtaken orders.
const OVERTAKEN_MAX: usize = 64;
/// Assumed 99th percentile of a group's delay while it is unknown.
const UNKNOWN_P99_NS: u64 = 20_000_000;
/// Delays remembered per group.
const DELAYS: usize = 128;
/// Delays needed for an estimate.
const DELAYS_MIN: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetransmitAction {
    /// Repeat it to all.
    Multicast {
        event: u64,
        first_source: u32,
        sources: u32,
    },
    /// Repeat it to those of these sources that belong to `group` and whose fragments are missing, over their
    /// connections.
    Unicast {
        event: u64,
        first_source: u32,
        sources: u32,
        /// As in [`RetransmitQueue::join`].
        group: u32,
    },
    GiveUp {
        event: u64,
    },
}

/// A group's usual delay from an order to its first fragment.
#[derive(Debug, Clone, Default)]
struct DelayEstimate {
    delays_ns: Vec<u64>,
    next: usize,
    p99_ns: Option<u64>,
}

impl DelayEstimate {
    fn add(&mut self, delay_ns: u64) {
        if self.delays_ns.len() < DELAYS {
            self.delays_ns.push(delay_ns);
        } else {
            self.delays_ns[self.next % DELAYS] = delay_ns;
        }
        self.next = (self.next + 1) % DELAYS;
        if self.delays_ns.len() >= DELAYS_MIN {
            // The 99th percentile of 128 delays: the second largest.
            let mut largest = (0, 0);
            for &delay_ns in &self.delays_ns {
                if delay_ns > largest.0 {
                    largest = (delay_ns, largest.0);
                } else if delay_ns > largest.1 {
                    largest.1 = delay_ns;
                }
            }
            self.p99_ns = Some(largest.1);
        }
    }

    fn p99_or_default_ns(&self) -> u64 {
        self.p99_ns.unwrap_or(UNKNOWN_P99_NS)
    }

    fn retransmit_delay_ns(&self) -> u64 {
        (2 * self.p99_or_default_ns()).max(DELAY_NS_MIN)
    }
}

/// An order that a group has not answered yet, or that was repeated.
#[derive(Debug, Clone, Copy)]
struct PendingOrder {
    group: u32,
    first_source: u32,
    sources: u32,
    ordered_ns: u64,
    repeats: u32,
    /// When it was repeated first.
    repeated_ns: u64,
    due_ns: u64,
    is_answered: bool,
}

impl PendingOrder {
    fn covers(&self, group: u32, source: u32) -> bool {
        self.group == group && source >= self.first_source && source - self.first_source < self.sources
    }
}

#[derive(Debug, Default)]
struct EventRetries {
    event: u64,
    give_up_ns: u64,
    orders: Vec<PendingOrder>,
}

#[derive(Debug, Default)]
pub(crate) struct RetransmitQueue {
    /// `u32::MAX`: not connected.
    group_of: Vec<u32>,
    delays: Vec<DelayEstimate>,
    /// Ascending.
    events: VecDeque<EventRetries>,
    spare: Vec<EventRetries>,
    /// No action is due before.
    next_due_ns: u64,
    /// By group; reused, to save allocations.
    seen: Vec<bool>,
}

impl RetransmitQueue {
    /// For the sources 0 to `sources - 1`, none of which is connected.
    pub(crate) fn new(sources: u32) -> Self {
        Self { group_of: vec![u32::MAX; sources as usize], ..Self::default() }
    }

    /// The source connected, in this group; groups are numbered from 0.
    pub(crate) fn join(&mut self, source: u32, group: u32) {
        if let Some(of) = self.group_of.get_mut(source as usize) {
            *of = group;
        }
        let groups = (group as usize + 1).max(self.delays.len()).min(self.group_of.len().max(1));
        self.delays.resize_with(groups, DelayEstimate::default);
    }

    /// The source disconnected: its answers are not waited for.
    pub(crate) fn leave(&mut self, source: u32) {
        if let Some(of) = self.group_of.get_mut(source as usize) {
            *of = u32::MAX;
        }
    }

    /// Begins an event, which is given up at `give_up_ns`; numbers ascend.
    pub(crate) fn begin_event(&mut self, event: u64, give_up_ns: u64) {
        let mut retries = self.spare.pop().unwrap_or_default();
        (retries.event, retries.give_up_ns) = (event, give_up_ns);
        retries.orders.clear();
        self.events.push_back(retries);
        self.next_due_ns = self.next_due_ns.min(give_up_ns);
    }

    /// At `now_ns` these sources were ordered by multicast to send.
    pub(crate) fn add_order(&mut self, event: u64, first_source: u32, sources: u32, now_ns: u64) {
        let Some(at) = self.position(event) else { return };
        self.seen.clear();
        self.seen.resize(self.delays.len(), false);
        let range = self.group_of.iter().skip(first_source as usize).take(sources as usize);
        for &group in range {
            let Some(seen) = self.seen.get_mut(group as usize) else { continue };
            if std::mem::replace(seen, true) {
                continue;
            }
            let due_ns = now_ns.saturating_add(self.delays[group as usize].retransmit_delay_ns());
            self.next_due_ns = self.next_due_ns.min(due_ns);
            self.events[at].orders.push(PendingOrder {
                group,
                first_source,
                sources,
                ordered_ns: now_ns,
                repeats: 0,
                repeated_ns: 0,
                due_ns,
                is_answered: false,
            });
        }
    }

    /// A fragment arrived at `now_ns`; `sent_ns`: when it was sent, by the builder's clock, if known. One
    /// sent before the repetition answers the first copy. Returns how many times its order had been repeated
    /// when it was sent.
    pub(crate) fn fragment_arrived(
        &mut self,
        event: u64,
        source: u32,
        sent_ns: Option<u64>,
        now_ns: u64,
    ) -> u32 {
        let Some(at) = self.position(event) else { return 0 };
        let group = self.group_of.get(source as usize).copied().unwrap_or(u32::MAX);
        let orders = &mut self.events[at].orders;
        let Some(on) = orders.iter().position(|order| order.covers(group, source)) else {
            return 0;
        };
        let order = &mut orders[on];
        let first_copy = order.repeats == 0 || sent_ns.is_some_and(|sent_ns| sent_ns < order.repeated_ns);
        let repeats = if first_copy { 0 } else { order.repeats };
        if first_copy {
            let PendingOrder { ordered_ns, is_answered, .. } = orders.swap_remove(on);
            if let Some(estimate) = self.delays.get_mut(group as usize).filter(|_| !is_answered) {
                estimate.add(now_ns.saturating_sub(ordered_ns));
                self.expedite_overtaken(at, group, ordered_ns, now_ns);
            }
        } else {
            // Kept, to recognise the group's other fragments.
            order.is_answered = true;
        }
        repeats
    }

    /// Makes the group's unanswered earlier orders, up to the event at `at`, due soon.
    fn expedite_overtaken(&mut self, at: usize, group: u32, ordered_ns: u64, now_ns: u64) {
        let soon_ns = now_ns.saturating_add(REORDER_NS);
        // A large fragment takes longer than a small one that was ordered later.
        let p99_or_default_ns = self.delays.get(group as usize).map_or(0, DelayEstimate::p99_or_default_ns);
        let events = self.events.range_mut(at.saturating_sub(OVERTAKEN_MAX)..=at);
        for order in events.flat_map(|retries| &mut retries.orders) {
            let is_silent = order.group == group && order.repeats == 0 && order.ordered_ns < ordered_ns;
            let due_ns = soon_ns.max(order.ordered_ns.saturating_add(p99_or_default_ns));
            if is_silent && due_ns < order.due_ns {
                order.due_ns = due_ns;
                self.next_due_ns = self.next_due_ns.min(due_ns);
            }
        }
    }

    pub(crate) fn end_event(&mut self, event: u64) {
        if let Some(retries) = self.position(event).and_then(|at| self.events.remove(at)) {
            self.spare.push(retries);
        }
    }

    /// When to call [`Self::next_action`] again; `None`: no event is under way.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        (!self.events.is_empty()).then_some(self.next_due_ns)
    }

    /// The next due action; call it until there is none. After [`RetransmitAction::GiveUp`] call
    /// [`Self::end_event`].
    pub(crate) fn next_action(&mut self, now_ns: u64) -> Option<RetransmitAction> {
        if now_ns < self.next_due_ns {
            return None;
        }
        let over = self.events.iter_mut().find(|retries| retries.give_up_ns <= now_ns);
        if let Some(retries) = over {
            // Once only.
            retries.give_up_ns = u64::MAX;
            retries.orders.clear();
            return Some(RetransmitAction::GiveUp { event: retries.event });
        }
        for retries in &mut self.events {
            if let Some(step) = retries.next_action(now_ns, &self.delays) {
                return Some(step);
            }
        }
        let orders = |retries: &EventRetries| {
            retries.orders.iter().filter(|order| !order.is_answered).map(|order| order.due_ns).min()
        };
        let dues =
            self.events.iter().map(|retries| orders(retries).unwrap_or(u64::MAX).min(retries.give_up_ns));
        self.next_due_ns = dues.min().unwrap_or(u64::MAX);
        None
    }

    fn position(&self, event: u64) -> Option<usize> {
        self.events.binary_search_by_key(&event, |retries| retries.event).ok()
    }
}

impl EventRetries {
    fn next_action(&mut self, now_ns: u64, delays: &[DelayEstimate]) -> Option<RetransmitAction> {
        let due = |order: &PendingOrder| !order.is_answered && order.due_ns <= now_ns;
        let PendingOrder { first_source, sources, group, repeats, .. } =
            *self.orders.iter().find(|order| due(order))?;
        let event = self.event;
        if repeats == 0 {
            // One datagram repeats it to all groups for which it is due.
            let same = |order: &&mut PendingOrder| {
                due(order)
                    && order.repeats == 0
                    && (order.first_source, order.sources) == (first_source, sources)
            };
            for order in self.orders.iter_mut().filter(same) {
                order.repeats = 1;
                order.repeated_ns = now_ns;
                order.due_ns = now_ns.saturating_add(
                    delays.get(order.group as usize).map_or(0, DelayEstimate::retransmit_delay_ns),
                );
            }
            return Some(RetransmitAction::Multicast { event, first_source, sources });
        }
        let same = |order: &&mut PendingOrder| {
            due(order) && (order.group, order.first_source) == (group, first_source)
        };
        for order in self.orders.iter_mut().filter(same) {
            order.repeats += 1;
            // A connection loses nothing: no third try.
            order.due_ns = u64::MAX;
        }
        Some(RetransmitAction::Unicast { event, first_source, sources, group })
    }
}

#[cfg(test)]
#[path = "retransmit_queue_tests.rs"]
mod tests;
