//! The slow events of the hold, each with its cause.

use std::collections::BTreeMap;

use crate::report::{Cause, SlowEvent};

use super::event_summary::{EndedEvent, EventSummary, Outlier};
use super::log_histogram::LogHistogram;
use super::samples::SlowestEvents;
use super::slow_event_cause::{STALL_NS, SlowEventFacts, cause, is_slow};

const LISTED: usize = 200;

/// A slow event while the usual values are unknown.
#[derive(Debug, Clone)]
struct Pending {
    slow: SlowEvent,
    facts: SlowEventFacts,
    host: Outlier,
    transit: Outlier,
}

#[derive(Debug)]
pub(super) struct SlowEvents {
    packets: u64,
    datagrams: bool,
    /// From this source on all are front ends.
    front_ends_from: u32,
    worst: SlowestEvents,
    causes: BTreeMap<Cause, u64>,
    pending: Vec<Pending>,
    host_usual: LogHistogram,
    transit_usual: LogHistogram,
    late_usual: LogHistogram,
}

impl SlowEvents {
    /// `packets`: per fragment.
    pub(super) fn new(packets: u64, datagrams: bool, front_ends_from: u32) -> Self {
        Self {
            packets,
            datagrams,
            front_ends_from,
            worst: SlowestEvents::new(LISTED),
            causes: BTreeMap::new(),
            pending: Vec::new(),
            host_usual: LogHistogram::default(),
            transit_usual: LogHistogram::default(),
            late_usual: LogHistogram::default(),
        }
    }

    /// An event of the hold ended. `median_ns`: of completion, once known; see [`SlowEventFacts`] for
    /// `queue_full_ns`.
    pub(super) fn offer(
        &mut self,
        ended: &EndedEvent<'_>,
        sum: &EventSummary,
        took_ns: u64,
        median_ns: Option<u64>,
        queue_full_ns: Option<u64>,
    ) {
        let complete = ended.missing.is_empty();
        // Where most events stall, stalls must not become the usual value.
        if complete && sum.gap_ns < STALL_NS {
            self.host_usual.count(sum.host.ns);
            self.transit_usual.count(sum.transit.ns);
            self.late_usual.count(ended.read_late_ns);
        }
        if complete && median_ns.is_some_and(|median_ns| !is_slow(took_ns, median_ns, sum.gap_ns)) {
            return;
        }
        let at_fault = ended.missing.first().copied().unwrap_or(sum.last.source);
        let sent_ns = sum.host.sent_after_ns.map(|after_ns| ended.due_ns.saturating_add_signed(after_ns));
        let repeated_ns = sent_ns.and_then(|sent_ns| ended.order_times.again(sum.host.source, sent_ns).1);
        let suspect = if complete { sum.transit.source } else { at_fault };
        let facts = SlowEventFacts {
            complete,
            gone: ended.gone,
            host_ns: sum.host.ns,
            since_repeat_ns: sent_ns.zip(repeated_ns).map(|(sent_ns, at_ns)| sent_ns.saturating_sub(at_ns)),
            transit_ns: sum.transit.ns,
            gap_ns: sum.gap_ns,
            queue_full_ns,
            read_late_ns: ended.read_late_ns,
            triggers_late_ns: ended.triggers_late_ns,
            packets: self.packets,
            datagrams: self.datagrams,
            is_front_end: suspect >= self.front_ends_from,
            was_requested: ended.was_requested,
            sent_unknown: complete && sum.last.sent_after_ns.is_none(),
            ..SlowEventFacts::default()
        };
        let slow = SlowEvent {
            event: ended.event,
            took_ns,
            complete,
            source: at_fault,
            sent_after_ns: sum.last.sent_after_ns.filter(|_| complete),
            arrived_after_ns: complete.then_some(sum.last.arrived_after_ns),
            repeats: ended.order_times.again(at_fault, u64::MAX).0,
            cause: Cause::Queueing,
        };
        self.pending.push(Pending { slow, facts, host: sum.host, transit: sum.transit });
        // The first events wait until the median is known.
        if let Some(median_ns) = median_ns {
            self.settle(median_ns);
        } else if self.pending.len() >= LISTED {
            // Nearly no event is complete.
            self.settle(u64::MAX);
        }
    }

    /// Determines the causes of pending events.
    fn settle(&mut self, median_ns: u64) {
        let usual = |buckets: &LogHistogram| buckets.percentile_ns(50.0).unwrap_or(0);
        let (host, transit) = (usual(&self.host_usual), usual(&self.transit_usual));
        let late = usual(&self.late_usual);
        for pending in std::mem::take(&mut self.pending) {
            let Pending { mut slow, facts, .. } = pending;
            if slow.complete && !is_slow(slow.took_ns, median_ns, facts.gap_ns) {
                continue;
            }
            let usual = SlowEventFacts {
                host_usual_ns: host,
                transit_usual_ns: transit,
                read_late_usual_ns: late,
                ..facts
            };
            slow.cause = cause(&usual);
            let at_fault = match slow.cause {
                Cause::Host | Cause::Order => Some(pending.host),
                Cause::Builder => None,
                Cause::Unknown if facts.sent_unknown => None,
                _ => Some(pending.transit),
            };
            if let Some(fragment) =
                at_fault.filter(|fragment| slow.complete && fragment.sent_after_ns.is_some())
            {
                slow.source = fragment.source;
                slow.sent_after_ns = fragment.sent_after_ns;
                slow.arrived_after_ns = Some(fragment.arrived_after_ns);
            }
            *self.causes.entry(slow.cause).or_default() += 1;
            self.worst.offer(slow);
        }
    }

    /// The slowest events, and the counts of all causes.
    pub(super) fn finish(mut self, median_ns: Option<u64>) -> (Vec<SlowEvent>, BTreeMap<Cause, u64>) {
        self.settle(median_ns.unwrap_or(u64::MAX));
        (self.worst.into_events(), self.causes)
    }
}
