//! An event that ended, and what its fragments say together.

use super::ordered::Ordered;

/// A fragment that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Whose.
    pub source: u32,
    /// Its payload.
    pub payload_bytes: u32,
    /// When it was sent, by the builder's clock; `None`: the clock of its source is not known.
    pub sent_ns: Option<u64>,
    /// When its last byte was read.
    pub arrived_ns: u64,
    /// Whether its order had to be repeated, or a later trigger told of it.
    pub recovered: bool,
}

/// An event that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// Its number.
    pub event: u64,
    /// When its trigger was due.
    pub due_ns: u64,
    /// How late its trigger was, or one just before it.
    pub triggers_late_ns: u64,
    /// When it was complete or given up.
    pub ended_ns: u64,
    /// Its orders.
    pub ordered: &'a Ordered,
    /// Who is missing; empty: it is complete.
    pub missing: &'a [u32],
    /// Whether the connection of one of these had ended.
    pub gone: bool,
    /// How late the builder was to read one of its fragments.
    pub read_late_ns: u64,
}

/// A fragment that stands out.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlier {
    /// By how much.
    pub(super) ns: u64,
    /// Whose.
    pub(super) source: u32,
    /// When it was sent, after the trigger was due.
    pub(super) sent_after_ns: Option<i64>,
    /// When it arrived, after the trigger was due.
    pub(super) arrived_after_ns: u64,
}

impl Outlier {
    fn offer(&mut self, ns: u64, due_ns: u64, fragment: &Arrived) {
        if ns >= self.ns {
            let sent_after_ns = fragment.sent_ns.map(|sent_ns| sent_ns as i64 - due_ns as i64);
            let arrived_after_ns = fragment.arrived_ns.saturating_sub(due_ns);
            *self = Self { ns, source: fragment.source, sent_after_ns, arrived_after_ns };
        }
    }
}

/// What all fragments of an event say together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    /// Payload of all.
    pub(super) payload_bytes: u64,
    /// The same on the wire, with all headers.
    pub(super) wire_bytes: u64,
    /// When the first one came.
    pub(super) first_ns: Option<u64>,
    /// When the last one came.
    pub(super) last_ns: u64,
    /// When the first one was sent.
    pub(super) sent_first_ns: Option<u64>,
    /// When the last one was sent.
    pub(super) sent_last_ns: u64,
    /// The longest time in which none came.
    pub(super) gap_ns: u64,
    /// From the order to the sending.
    pub(super) host: Outlier,
    /// From the sending to the arrival.
    pub(super) way: Outlier,
    /// The one that came last.
    pub(super) last: Outlier,
    /// Whether an order was lost and came by repetition, or came after a later one.
    pub(super) recovered: bool,
}

impl Sum {
    /// Adds the next fragment that arrived, which took so much on the wire.
    pub(super) fn add(&mut self, ended: &Ended<'_>, fragment: &Arrived, wire_bytes: u64) {
        self.payload_bytes += u64::from(fragment.payload_bytes);
        self.wire_bytes += wire_bytes;
        let arrived_ns = fragment.arrived_ns;
        let before_ns = if self.first_ns.is_some() { self.last_ns } else { ended.due_ns };
        self.gap_ns = self.gap_ns.max(arrived_ns.saturating_sub(before_ns));
        self.first_ns = self.first_ns.or(Some(arrived_ns));
        self.last_ns = self.last_ns.max(arrived_ns);
        self.last.offer(arrived_ns, ended.due_ns, fragment);
        if let Some(sent_ns) = fragment.sent_ns {
            self.sent_first_ns = Some(self.sent_first_ns.map_or(sent_ns, |first_ns| first_ns.min(sent_ns)));
            self.sent_last_ns = self.sent_last_ns.max(sent_ns);
            self.way.offer(arrived_ns.saturating_sub(sent_ns), ended.due_ns, fragment);
            let ordered_ns = ended.ordered.first_ns(fragment.source).unwrap_or(ended.due_ns);
            self.host.offer(sent_ns.saturating_sub(ordered_ns), ended.due_ns, fragment);
        }
        self.recovered |= fragment.recovered;
    }
}
