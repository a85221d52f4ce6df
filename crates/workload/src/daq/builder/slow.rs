//! The events that took long, each with its cause.

use std::collections::BTreeMap;

use crate::daq::report::{Cause, SlowEvent};

use super::buckets::Buckets;
use super::cause::{Facts, STALL_NS, cause, is_slow};
use super::samples::Worst;
use super::sum::{Ended, Outlier, Sum};

/// Slow events that are told of one by one.
const LISTED: usize = 200;

/// A slow event's facts before it is known what is usual.
#[derive(Debug, Clone)]
struct Pending {
    slow: SlowEvent,
    facts: Facts,
    host: Outlier,
    way: Outlier,
}

/// The slow events of one builder.
#[derive(Debug)]
pub(super) struct SlowEvents {
    packets: u64,
    datagrams: bool,
    worst: Worst,
    causes: BTreeMap<Cause, u64>,
    pending: Vec<Pending>,
    host_usual: Buckets,
    way_usual: Buckets,
    late_usual: Buckets,
}

impl SlowEvents {
    /// None yet, of fragments in so many packets.
    pub(super) fn new(packets: u64, datagrams: bool) -> Self {
        Self {
            packets,
            datagrams,
            worst: Worst::new(LISTED),
            causes: BTreeMap::new(),
            pending: Vec::new(),
            host_usual: Buckets::default(),
            way_usual: Buckets::default(),
            late_usual: Buckets::default(),
        }
    }

    /// An event of the hold ended: finds out why it took long, if it did. `median_ns` is what events take, as soon as
    /// that is known; see [`Facts`] for `queue_full_ns`.
    pub(super) fn offer(
        &mut self,
        ended: &Ended<'_>,
        sum: &Sum,
        took_ns: u64,
        median_ns: Option<u64>,
        queue_full_ns: Option<u64>,
    ) {
        let complete = ended.missing.is_empty();
        // Where most events stall, a stall is not what is usual.
        if complete && sum.gap_ns < STALL_NS {
            self.host_usual.count(sum.host.ns);
            self.way_usual.count(sum.way.ns);
            self.late_usual.count(ended.read_late_ns);
        }
        if complete && median_ns.is_some_and(|median_ns| !is_slow(took_ns, median_ns, sum.gap_ns)) {
            return;
        }
        let at_fault = ended.missing.first().copied().unwrap_or(sum.last.source);
        let sent_ns = sum.host.sent_after_ns.map(|after_ns| ended.due_ns.saturating_add_signed(after_ns));
        let repeated_ns = sent_ns.and_then(|sent_ns| ended.ordered.again(sum.host.source, sent_ns).1);
        let facts = Facts {
            complete,
            gone: ended.gone,
            host_ns: sum.host.ns,
            since_repeat_ns: sent_ns.zip(repeated_ns).map(|(sent_ns, at_ns)| sent_ns.saturating_sub(at_ns)),
            way_ns: sum.way.ns,
            gap_ns: sum.gap_ns,
            queue_full_ns,
            read_late_ns: ended.read_late_ns,
            triggers_late_ns: ended.triggers_late_ns,
            packets: self.packets,
            datagrams: self.datagrams,
            ..Facts::default()
        };
        let slow = SlowEvent {
            event: ended.event,
            took_ns,
            complete,
            source: at_fault,
            sent_after_ns: sum.last.sent_after_ns.filter(|_| complete),
            arrived_after_ns: complete.then_some(sum.last.arrived_after_ns),
            repeats: ended.ordered.again(at_fault, u64::MAX).0,
            cause: Cause::Queueing,
        };
        self.pending.push(Pending { slow, facts, host: sum.host, way: sum.way });
        // What comes first is looked at when it is known what is usual.
        if let Some(median_ns) = median_ns {
            self.settle(median_ns);
        } else if self.pending.len() >= LISTED {
            // Nearly nothing is ever complete.
            self.settle(u64::MAX);
        }
    }

    /// Names the causes of what is pending.
    fn settle(&mut self, median_ns: u64) {
        let usual = |buckets: &Buckets| buckets.percentile_ns(50.0).unwrap_or(0);
        let (host, way) = (usual(&self.host_usual), usual(&self.way_usual));
        let late = usual(&self.late_usual);
        for pending in std::mem::take(&mut self.pending) {
            let Pending { mut slow, facts, .. } = pending;
            if slow.complete && !is_slow(slow.took_ns, median_ns, facts.gap_ns) {
                continue;
            }
            let usual = Facts { host_usual_ns: host, way_usual_ns: way, read_late_usual_ns: late, ..facts };
            slow.cause = cause(&usual);
            let at_fault = match slow.cause {
                Cause::Host | Cause::Order => Some(pending.host),
                Cause::Builder => None,
                _ => Some(pending.way),
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

    /// The slowest ones, and the causes of all.
    pub(super) fn finish(mut self, median_ns: Option<u64>) -> (Vec<SlowEvent>, BTreeMap<Cause, u64>) {
        self.settle(median_ns.unwrap_or(u64::MAX));
        (self.worst.into_events(), self.causes)
    }
}
