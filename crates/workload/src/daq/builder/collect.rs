//! What a report needs of every event, gathered when it ends: its fragments are all at hand then.

use base::histogram::Histogram;

use crate::daq::report::{Arrival, BuilderReport, Incomplete, SourceSeen};
use crate::daq::settings::Carrier;
use crate::daq::theory::{fragment_wire_bytes, packets};

use super::buckets::Buckets;
use super::flow::Flow;
use super::samples::{Evenly, Intervals, Pictures};
use super::slow::SlowEvents;
use super::sum::Sum;

pub use super::sum::{Arrived, Ended};

/// Incomplete events that are told of one by one.
const LISTED: usize = 200;
/// Missing sources of an incomplete event that are told of.
const MISSING_LISTED: usize = 64;
/// Events whose skew is told of.
const SKEWS: usize = 2000;
/// Events of the heat map, and how many delays it has at most.
const HEAT: (usize, usize) = (64, 128 << 10);
/// So many events show what is usual.
const USUAL_FROM: u64 = 16;

/// What stands of a trial before its first event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectPlan {
    /// How many sources each event waits for: 0 to this.
    pub sources: u32,
    /// What carries the fragments.
    pub carrier: Carrier,
    /// Bytes of a fragment's payload, or their mean.
    pub fragment_bytes: u32,
    /// For how long a full queue of the port holds a fragment up, where its buffer and rate are known.
    pub queue_full_ns: Option<u64>,
    /// When the trial began, by the builder's clock.
    pub start_ns: u64,
    /// How many events are always under way, where a trigger follows the end of another event.
    pub window: Option<u32>,
}

/// What an event came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// From its trigger to its last fragment, or its end.
    pub took_ns: u64,
    /// The longest time that a fragment was under way; 0 where that is not known.
    pub way_ns: u64,
    /// From the first fragment to the last.
    pub spread_ns: u64,
    /// What its fragments took on the wire.
    pub wire_bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    delays: Buckets,
    delay_sum_ns: u128,
    last: u64,
    missed: u64,
}

/// The collection of one builder.
#[derive(Debug)]
pub struct Collect {
    plan: CollectPlan,
    /// The last fragment's payload and what it takes on the wire: mostly all are alike.
    wire: (u32, u64),
    hold_from_ns: Option<u64>,
    hold_to_ns: u64,
    is_hold_over: bool,
    report: BuilderReport,
    seen: Vec<Seen>,
    intervals: Intervals,
    flow: Option<Flow>,
    skews: Evenly<(u64, u64)>,
    heat: Evenly<(u64, Vec<Option<u32>>)>,
    heat_worst: Option<(u64, u64, Vec<Option<u32>>)>,
    slow: SlowEvents,
    pictures: Pictures,
    median_ns: Option<u64>,
    fragments: Vec<Arrived>,
}

impl Collect {
    /// An empty one.
    pub fn new(plan: CollectPlan) -> Self {
        let heat = (HEAT.1 / plan.sources.max(1) as usize).min(HEAT.0);
        Self {
            plan,
            wire: (0, fragment_wire_bytes(0, plan.carrier)),
            hold_from_ns: None,
            hold_to_ns: 0,
            is_hold_over: false,
            report: BuilderReport::default(),
            seen: vec![Seen::default(); plan.sources as usize],
            intervals: Intervals::new(0, None),
            flow: plan.window.map(Flow::new),
            skews: Evenly::new(SKEWS),
            heat: Evenly::new(heat),
            heat_worst: None,
            slow: SlowEvents::new(packets(plan.fragment_bytes, plan.carrier), plan.carrier == Carrier::Udp),
            pictures: Pictures::default(),
            median_ns: None,
            fragments: Vec::new(),
        }
    }

    /// Triggers that are due from now on count. `hold_ns`: for how long, where that is known; `is_full`: as many events as may
    /// be are under way.
    pub fn begin_hold(&mut self, from_ns: u64, hold_ns: Option<u64>, is_full: bool) {
        // The first events of an idle port do not wait for others: what they began, they did not fill.
        self.flow = self.flow.take().filter(|_| is_full);
        (self.hold_from_ns, self.hold_to_ns) = (Some(from_ns), from_ns);
        self.intervals = Intervals::new(from_ns, hold_ns);
    }

    /// Triggers counted until then, whether there were any towards the end or not: what happened is over all that time.
    pub fn held_until(&mut self, until_ns: u64) {
        self.hold_to_ns = self.hold_to_ns.max(until_ns);
    }

    /// Triggers from now on do not count.
    pub fn end_hold(&mut self) {
        self.is_hold_over = true;
    }

    /// When the trial began, by the builder's clock: known later than the plan.
    pub fn set_start_ns(&mut self, start_ns: u64) {
        self.plan.start_ns = start_ns;
    }

    /// From when to when events counted, as far as it is known.
    pub fn hold_ns(&self) -> (u64, u64) {
        (self.hold_from_ns.unwrap_or(self.plan.start_ns), self.hold_to_ns.max(self.plan.start_ns))
    }

    /// Whether a trigger that was due then counts.
    pub fn in_hold(&self, due_ns: u64) -> bool {
        !self.is_hold_over && self.hold_from_ns.is_some_and(|from_ns| due_ns >= from_ns)
    }

    /// For how long a full queue holds a fragment up: known since the credit was found.
    pub fn set_queue_full_ns(&mut self, queue_full_ns: u64) {
        self.plan.queue_full_ns = Some(queue_full_ns);
    }

    /// A trigger was sent.
    pub fn triggered(&mut self, due_ns: u64) {
        if self.in_hold(due_ns) {
            self.report.events.offered += 1;
            self.report.events.triggered += 1;
            if let Some(flow) = &mut self.flow {
                flow.triggered(due_ns);
            }
        }
    }

    /// Triggers were vetoed.
    pub fn vetoed(&mut self, due_ns: u64, times: u64) {
        if self.in_hold(due_ns) {
            self.report.events.offered += times;
            self.report.events.vetoed += times;
            self.intervals.at(due_ns).vetoed += times;
        }
    }

    /// An event was still under way when the trial was ended.
    pub fn unfinished(&mut self, due_ns: u64) {
        if self.in_hold(due_ns) {
            self.report.events.unfinished += 1;
        }
    }

    /// An event ended with these fragments, in the order in which they arrived.
    pub fn ended(&mut self, ended: &Ended<'_>, fragments: impl Iterator<Item = Arrived>) -> Measured {
        let mut kept = std::mem::take(&mut self.fragments);
        kept.clear();
        kept.extend(fragments);
        let in_hold = self.in_hold(ended.due_ns);
        let mut sum = Sum::default();
        for fragment in &kept {
            self.add(&mut sum, ended, fragment, in_hold);
        }
        let complete = ended.missing.is_empty();
        let end_ns = if complete && !kept.is_empty() { sum.last_ns } else { ended.ended_ns };
        let measured = Measured {
            took_ns: end_ns.saturating_sub(ended.due_ns),
            way_ns: sum.way.ns,
            spread_ns: sum.first_ns.map_or(0, |first_ns| sum.last_ns.saturating_sub(first_ns)),
            wire_bytes: sum.wire_bytes,
        };
        if in_hold {
            self.hold_to_ns = self.hold_to_ns.max(ended.ended_ns);
            if let Some(flow) = &mut self.flow {
                flow.ended(ended.ended_ns);
            }
            self.count(ended, &sum, measured, kept.len() as u64);
            self.sample(ended, &sum, measured.took_ns, &kept);
            self.slow.offer(ended, &sum, measured.took_ns, self.median_ns, self.plan.queue_full_ns);
        }
        self.fragments = kept;
        measured
    }

    /// Adds a fragment to its event and, in the hold, to its source.
    fn add(&mut self, sum: &mut Sum, ended: &Ended<'_>, fragment: &Arrived, in_hold: bool) {
        if fragment.payload_bytes != self.wire.0 {
            let wire_bytes = fragment_wire_bytes(fragment.payload_bytes, self.plan.carrier);
            self.wire = (fragment.payload_bytes, wire_bytes);
        }
        sum.add(ended, fragment, self.wire.1);
        if !in_hold {
            return;
        }
        let delay_ns = fragment.arrived_ns.saturating_sub(ended.due_ns);
        if fragment.recovered {
            self.report.recovery.record_ns(delay_ns);
        }
        if let Some(seen) = self.seen.get_mut(fragment.source as usize) {
            seen.delays.count(delay_ns);
            seen.delay_sum_ns += u128::from(delay_ns);
        }
    }

    /// Counts an event of the hold.
    fn count(&mut self, ended: &Ended<'_>, sum: &Sum, measured: Measured, fragments: u64) {
        let report = &mut self.report;
        report.payload_bytes += sum.payload_bytes;
        report.wire_bytes += sum.wire_bytes;
        report.fragments += fragments;
        report.recovered += u64::from(sum.recovered);
        if let Some(first_ns) = sum.first_ns {
            report.first_fragment.record_ns(first_ns.saturating_sub(ended.due_ns));
        }
        let interval = self.intervals.at(ended.ended_ns);
        interval.payload_bytes += sum.payload_bytes;
        if !ended.missing.is_empty() {
            interval.incomplete += 1;
            report.events.incomplete += 1;
            for &source in ended.missing {
                if let Some(seen) = self.seen.get_mut(source as usize) {
                    seen.missed += 1;
                }
            }
            if report.incomplete.len() < LISTED {
                let sources = ended.missing.iter().take(MISSING_LISTED).copied().collect();
                let missing = ended.missing.len() as u32;
                report.incomplete.push(Incomplete { event: ended.event, missing, sources });
            }
            return;
        }
        interval.complete += 1;
        interval.completion_max_ns = interval.completion_max_ns.max(measured.took_ns);
        report.events.complete += 1;
        report.completion.record_ns(measured.took_ns);
        report.spread.record_ns(measured.spread_ns);
        if let Some(seen) = self.seen.get_mut(sum.last.source as usize) {
            seen.last += 1;
        }
        if let Some(sent_first_ns) = sum.sent_first_ns {
            let skew_ns = sum.sent_last_ns.saturating_sub(sent_first_ns);
            report.skew.record_ns(skew_ns);
            self.skews.offer(|| (ended.event, skew_ns));
        }
        let complete = report.events.complete;
        if complete >= USUAL_FROM && (complete.is_power_of_two() || complete.is_multiple_of(256)) {
            self.median_ns = report.completion.percentile_ns(50.0);
        }
    }

    /// Keeps what pictures need of an event of the hold.
    fn sample(&mut self, ended: &Ended<'_>, sum: &Sum, took_ns: u64, fragments: &[Arrived]) {
        let due_ns = ended.due_ns;
        let sources = self.plan.sources as usize;
        let delays = || {
            let mut delays = vec![None; sources];
            for fragment in fragments {
                let delay_us = fragment.arrived_ns.saturating_sub(due_ns) / 1000;
                if let Some(delay) = delays.get_mut(fragment.source as usize) {
                    *delay = Some(u32::try_from(delay_us).unwrap_or(u32::MAX));
                }
            }
            delays
        };
        self.heat.offer(|| (ended.event, delays()));
        if self.heat_worst.as_ref().is_none_or(|(worst_ns, ..)| took_ns > *worst_ns) {
            self.heat_worst = Some((took_ns, ended.event, delays()));
        }
        let arrivals = || {
            let arrival = |fragment: &Arrived| Arrival {
                source: fragment.source,
                sent_ns: fragment.sent_ns.unwrap_or(fragment.arrived_ns) as i64 - due_ns as i64,
                arrived_ns: fragment.arrived_ns.saturating_sub(due_ns),
            };
            fragments.iter().map(arrival).collect()
        };
        let complete = ended.missing.is_empty() && sum.first_ns.is_some();
        self.pictures.offer(ended.event, took_ns, complete, self.median_ns, arrivals);
    }

    /// Completion of what was complete in the hold so far.
    pub fn completion(&self) -> &Histogram {
        &self.report.completion
    }

    /// Writes what was gathered into a report; what others know stays as it is.
    pub fn report(self, into: &mut BuilderReport) {
        let (slow, causes) = self.slow.finish(self.report.completion.percentile_ns(50.0));
        let start_ns = self.plan.start_ns;
        let after_s = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        into.hold_from_s = after_s(self.hold_from_ns.unwrap_or(start_ns));
        into.hold_to_s = after_s(self.hold_to_ns.max(start_ns));
        into.flowed_s = self.flow.as_ref().and_then(Flow::lasted_s);
        into.events = self.report.events;
        into.completion = self.report.completion;
        into.first_fragment = self.report.first_fragment;
        into.spread = self.report.spread;
        into.skew = self.report.skew;
        into.recovery = self.report.recovery;
        into.recovered = self.report.recovered;
        into.payload_bytes = self.report.payload_bytes;
        into.wire_bytes = self.report.wire_bytes;
        into.fragments = self.report.fragments;
        into.incomplete = self.report.incomplete;
        into.causes = causes;
        into.skews = self.skews.into_items();
        into.slow = slow;
        into.pictures = self.pictures.into_pictures();
        into.intervals = if self.hold_from_ns.is_some() {
            self.intervals.into_intervals(start_ns, self.hold_to_ns)
        } else {
            Vec::new()
        };
        into.heat = self.heat.into_items();
        if let Some((_, event, delays)) = self.heat_worst
            && into.heat.iter().all(|(sampled, _)| *sampled != event)
        {
            into.heat.push((event, delays));
        }
        into.heat.sort_by_key(|(event, _)| *event);
        into.sources_seen = (0..).zip(&self.seen).map(|(source, seen)| seen.report(source)).collect();
    }
}

impl Seen {
    fn report(&self, source: u32) -> SourceSeen {
        let fragments = self.delays.all();
        let mean_us = || self.delay_sum_ns as f64 / fragments as f64 / 1e3;
        SourceSeen {
            source,
            fragments,
            delay_mean_us: (fragments > 0).then(mean_us),
            delay_p99_us: self.delays.percentile_ns(99.0).map(|ns| ns as f64 / 1e3),
            last: self.last,
            missed: self.missed,
            ..SourceSeen::default()
        }
    }
}

#[cfg(test)]
#[path = "collect_tests.rs"]
mod tests;
