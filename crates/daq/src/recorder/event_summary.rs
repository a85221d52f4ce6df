//! An event that ended, and the summary of its fragments.

use super::order_times::OrderTimes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivedFragment {
    pub source: u32,
    pub payload_bytes: u32,
    /// By the builder's clock; `None`: unknown.
    pub sent_ns: Option<u64>,
    /// When its last byte was read.
    pub arrived_ns: u64,
    /// Whether its order was repeated, or a later trigger revealed it.
    pub recovered: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedEvent<'a> {
    pub event: u64,
    pub due_ns: u64,
    /// Delay of its trigger, or of one just before it.
    pub triggers_late_ns: u64,
    pub ended_ns: u64,
    pub order_times: &'a OrderTimes,
    /// Missing sources; empty: complete.
    pub missing: &'a [u32],
    /// Whether one of these is disconnected.
    pub gone: bool,
    /// The largest delay of reading one of its fragments.
    pub read_late_ns: u64,
    /// Whether bytes of it were requested again (UDP).
    pub was_requested: bool,
}

/// The fragment with the largest value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outlier {
    pub(super) ns: u64,
    pub(super) source: u32,
    /// Since the trigger was due.
    pub(super) sent_after_ns: Option<i64>,
    /// Since the trigger was due.
    pub(super) arrived_after_ns: u64,
}

impl Outlier {
    fn offer(&mut self, ns: u64, due_ns: u64, fragment: &ArrivedFragment) {
        if ns >= self.ns {
            let sent_after_ns = fragment.sent_ns.map(|sent_ns| sent_ns as i64 - due_ns as i64);
            let arrived_after_ns = fragment.arrived_ns.saturating_sub(due_ns);
            *self = Self { ns, source: fragment.source, sent_after_ns, arrived_after_ns };
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EventSummary {
    pub(super) payload_bytes: u64,
    /// Including all headers.
    pub(super) wire_bytes: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
    pub(super) sent_first_ns: Option<u64>,
    pub(super) sent_last_ns: u64,
    /// The longest time without an arrival.
    pub(super) gap_ns: u64,
    /// Time from the order to the sending.
    pub(super) host: Outlier,
    /// Time from the sending to the arrival.
    pub(super) transit: Outlier,
    pub(super) last: Outlier,
    pub(super) recovered: bool,
}

impl EventSummary {
    /// Adds the next fragment, in the order of arrival.
    pub(super) fn add(&mut self, ended: &EndedEvent<'_>, fragment: &ArrivedFragment, wire_bytes: u64) {
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
            self.transit.offer(arrived_ns.saturating_sub(sent_ns), ended.due_ns, fragment);
            let ordered_ns = ended.order_times.first_ns(fragment.source).unwrap_or(ended.due_ns);
            self.host.offer(sent_ns.saturating_sub(ordered_ns), ended.due_ns, fragment);
        }
        self.recovered |= fragment.recovered;
    }
}
