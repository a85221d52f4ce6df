//! Records every event of a trial when it ends, for the report.

use crate::report::{Arrival, BuilderReport, Incomplete, SourceSeen};
use crate::settings::Carrier;
use crate::theory::{fragment_wire_bytes, packets};

use super::event_summary::{ArrivedFragment, EndedEvent, EventSummary};
use super::log_histogram::LogHistogram;
use super::samples::{EvenSample, ExampleEvents, Intervals};
use super::slow_events::SlowEvents;
use super::throughput_window::ThroughputWindow;

/// Incomplete events that are listed.
const LISTED: usize = 200;
/// Missing sources listed per incomplete event.
const MISSING_LISTED: usize = 64;
/// Events sampled for the skew.
const SKEWS: usize = 2000;
/// Events of the heat map, and its limit of delays.
const HEAT: (usize, usize) = (64, 128 << 10);
/// Complete events needed for a median.
const USUAL_FROM: u64 = 16;

/// What is known before the first event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RecorderPlan {
    pub sources: u32,
    pub carrier: Carrier,
    /// The last `front_ends` sources are front ends.
    pub front_ends: u32,
    /// Whether all sources send at the trigger.
    pub is_push: bool,
    /// Payload length, or its mean.
    pub fragment_bytes: u32,
    /// How long a full queue of the port delays a fragment, if known.
    pub queue_full_ns: Option<u64>,
    /// When the trial began, by the builder's clock.
    pub start_ns: u64,
    /// Events always under way, if each end triggers the next event.
    pub window: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventTimes {
    /// From its trigger to its last fragment, or its end.
    pub took_ns: u64,
    /// The longest time from a fragment's sending to its arrival; 0: unknown.
    pub transit_ns: u64,
    /// From the first fragment to the last.
    pub spread_ns: u64,
    pub wire_bytes: u64,
}

#[derive(Debug)]
struct SourceStats {
    delays: LogHistogram,
    delay_sum_ns: u128,
    last: u64,
    missed: u64,
    implausible_times: u64,
}

#[derive(Debug)]
pub(crate) struct TrialRecorder {
    pub(crate) plan: RecorderPlan,
    /// Length of the last payload, and what it takes on the wire: mostly all are alike.
    wire: (u32, u64),
    hold_from_ns: Option<u64>,
    hold_to_ns: u64,
    /// Later triggers do not count.
    pub(crate) is_hold_over: bool,
    /// The phases of the trial write their fields here.
    pub(crate) report: BuilderReport,
    seen: Vec<SourceStats>,
    intervals: Intervals,
    flow: Option<ThroughputWindow>,
    skews: EvenSample<(u64, u64)>,
    heat: EvenSample<(u64, Vec<Option<u32>>)>,
    heat_worst: Option<(u64, u64, Vec<Option<u32>>)>,
    slow: SlowEvents,
    pictures: ExampleEvents,
    median_ns: Option<u64>,
    fragments: Vec<ArrivedFragment>,
}

impl TrialRecorder {
    pub(crate) fn new(plan: RecorderPlan) -> Self {
        let heat = (HEAT.1 / plan.sources.max(1) as usize).min(HEAT.0);
        let (packets, is_udp) = (packets(plan.fragment_bytes, plan.carrier), plan.carrier == Carrier::Udp);
        let stats =
            |delays| SourceStats { delays, delay_sum_ns: 0, last: 0, missed: 0, implausible_times: 0 };
        Self {
            plan,
            wire: (0, fragment_wire_bytes(0, plan.carrier)),
            hold_from_ns: None,
            hold_to_ns: 0,
            is_hold_over: false,
            report: BuilderReport::default(),
            seen: LogHistogram::set(plan.sources).map(stats).collect(),
            intervals: Intervals::new(0, None),
            flow: plan.window.map(ThroughputWindow::new),
            skews: EvenSample::new(SKEWS),
            heat: EvenSample::new(heat),
            heat_worst: None,
            slow: SlowEvents::new(packets, is_udp, plan.sources.saturating_sub(plan.front_ends)),
            pictures: ExampleEvents::default(),
            median_ns: None,
            fragments: Vec::new(),
        }
    }

    /// Triggers due from now on count. `hold_ns`: length of the hold, if known; `is_full`: the window is
    /// full.
    pub(crate) fn begin_hold(&mut self, from_ns: u64, hold_ns: Option<u64>, is_full: bool) {
        // Without a full window at the start, the chains of events are not measured from their beginning.
        self.flow = self.flow.take().filter(|_| is_full);
        (self.hold_from_ns, self.hold_to_ns) = (Some(from_ns), from_ns);
        self.intervals = Intervals::new(from_ns, hold_ns);
    }

    /// The hold lasted until then, even without triggers towards its end.
    pub(crate) fn held_until(&mut self, until_ns: u64) {
        self.hold_to_ns = self.hold_to_ns.max(until_ns);
    }

    /// The bounds of the hold so far.
    pub(crate) fn hold_ns(&self) -> (u64, u64) {
        (self.hold_from_ns.unwrap_or(self.plan.start_ns), self.hold_to_ns.max(self.plan.start_ns))
    }

    pub(crate) fn in_hold(&self, due_ns: u64) -> bool {
        !self.is_hold_over && self.hold_from_ns.is_some_and(|from_ns| due_ns >= from_ns)
    }

    pub(crate) fn triggered(&mut self, due_ns: u64) {
        if self.in_hold(due_ns) {
            self.report.events.offered += 1;
            self.report.events.triggered += 1;
            if let Some(flow) = &mut self.flow {
                flow.triggered(due_ns);
            }
        }
    }

    pub(crate) fn vetoed(&mut self, due_ns: u64, times: u64) {
        if self.in_hold(due_ns) {
            self.report.events.offered += times;
            self.report.events.vetoed += times;
            self.intervals.at(due_ns).vetoed += times;
        }
    }

    pub(crate) fn unfinished(&mut self, due_ns: u64) {
        if self.in_hold(due_ns) {
            self.report.events.unfinished += 1;
        }
    }

    /// An event ended; its fragments in the order of arrival.
    pub(crate) fn ended(
        &mut self,
        ended: &EndedEvent<'_>,
        fragments: impl Iterator<Item = ArrivedFragment>,
    ) -> EventTimes {
        let mut kept = std::mem::take(&mut self.fragments);
        kept.clear();
        kept.extend(fragments);
        let in_hold = self.in_hold(ended.due_ns);
        let mut sum = EventSummary::default();
        for fragment in &kept {
            self.add(&mut sum, ended, fragment, in_hold);
        }
        let complete = ended.missing.is_empty();
        let end_ns = if complete && !kept.is_empty() { sum.last_ns } else { ended.ended_ns };
        let measured = EventTimes {
            took_ns: end_ns.saturating_sub(ended.due_ns),
            transit_ns: sum.transit.ns,
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

    fn add(
        &mut self,
        sum: &mut EventSummary,
        ended: &EndedEvent<'_>,
        fragment: &ArrivedFragment,
        in_hold: bool,
    ) {
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
        // A granted source does not answer for the time before its grant.
        let ordered_ns = if self.plan.is_push { None } else { ended.order_times.first_ns(fragment.source) };
        let delay_ns = ordered_ns.map_or(delay_ns, |at_ns| fragment.arrived_ns.saturating_sub(at_ns));
        if let Some(seen) = self.seen.get_mut(fragment.source as usize) {
            seen.delays.count(delay_ns);
            seen.delay_sum_ns += u128::from(delay_ns);
        }
    }

    /// A fragment's send time cannot be right.
    pub(crate) fn implausible_time(&mut self, source: u32) {
        if let Some(seen) = self.seen.get_mut(source as usize) {
            seen.implausible_times += 1;
        }
    }

    fn count(&mut self, ended: &EndedEvent<'_>, sum: &EventSummary, measured: EventTimes, fragments: u64) {
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

    /// Samples the event for charts.
    fn sample(
        &mut self,
        ended: &EndedEvent<'_>,
        sum: &EventSummary,
        took_ns: u64,
        fragments: &[ArrivedFragment],
    ) {
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
            let arrival = |fragment: &ArrivedFragment| Arrival {
                source: fragment.source,
                sent_ns: fragment.sent_ns.unwrap_or(fragment.arrived_ns) as i64 - due_ns as i64,
                arrived_ns: fragment.arrived_ns.saturating_sub(due_ns),
            };
            fragments.iter().map(arrival).collect()
        };
        let complete = ended.missing.is_empty() && sum.first_ns.is_some();
        self.pictures.offer(ended.event, took_ns, complete, self.median_ns, arrivals);
    }

    pub(crate) fn report(self) -> BuilderReport {
        let (slow, causes) = self.slow.finish(self.report.completion.percentile_ns(50.0));
        let start_ns = self.plan.start_ns;
        let after_s = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let mut into = self.report;
        into.hold_from_s = after_s(self.hold_from_ns.unwrap_or(start_ns));
        into.hold_to_s = after_s(self.hold_to_ns.max(start_ns));
        into.flowed_s = self.flow.as_ref().and_then(ThroughputWindow::lasted_s);
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
        // A source's percentile cannot exceed that of the events that it belongs to.
        let p99_ns = into.completion.percentile_ns(99.0).filter(|_| into.events.incomplete == 0);
        let p99_ns = p99_ns.unwrap_or(u64::MAX);
        into.sources_seen = (0..).zip(&self.seen).map(|(source, seen)| seen.report(source, p99_ns)).collect();
        into
    }
}

impl SourceStats {
    /// `p99_max_ns`: of the events.
    fn report(&self, source: u32, p99_max_ns: u64) -> SourceSeen {
        let fragments = self.delays.all;
        let mean_us = || self.delay_sum_ns as f64 / fragments as f64 / 1e3;
        SourceSeen {
            source,
            fragments,
            delay_mean_us: (fragments > 0).then(mean_us),
            delay_p99_us: self.delays.percentile_ns(99.0).map(|ns| ns.min(p99_max_ns) as f64 / 1e3),
            last: self.last,
            missed: self.missed,
            implausible_times: self.implausible_times,
            ..SourceSeen::default()
        }
    }
}

#[cfg(test)]
#[path = "trial_recorder_tests.rs"]
mod tests;
