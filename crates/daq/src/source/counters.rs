//! Counters of one thread of sources.

use std::collections::BTreeMap;

use sys::clock::monotonic_ns;
use sys::thread::{thread_cpu_ns, thread_ready_ns};

use super::connection::LossCounters;
use crate::report::{STALLS_MAX, SourceSent, SourcesReport, Stall};

/// The busiest second is searched in steps of one.
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) fragments: u64,
    /// What is counted for the report; the sources of stalls by their index in the worker.
    pub(super) report: SourcesReport,
    /// Why connections ended before the run did, with counts.
    pub(super) end_reasons: BTreeMap<String, u64>,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct Usage {
    cpu_ns: u64,
    ready_ns: Option<u64>,
    second_from_ns: u64,
    second_cpu_ns: u64,
    busiest: Option<f64>,
}

impl Counters {
    /// Starts CPU accounting of the calling thread.
    pub(super) fn begin(&mut self) {
        let cpu_ns = thread_cpu_ns();
        self.usage = Some(Usage {
            cpu_ns,
            ready_ns: thread_ready_ns(),
            second_from_ns: monotonic_ns(),
            second_cpu_ns: cpu_ns,
            busiest: None,
        });
    }

    /// When the current second of CPU accounting ends.
    pub(super) fn next_second_ns(&self) -> u64 {
        self.usage.as_ref().map_or(u64::MAX, |usage| usage.second_from_ns + SECOND_NS)
    }

    pub(super) fn close_cpu_second_if_due(&mut self, now_ns: u64) {
        if let Some(usage) = self.usage.as_mut().filter(|usage| now_ns >= usage.second_from_ns + SECOND_NS) {
            usage.close_second(now_ns);
        }
    }

    /// Records losses on the connection from a source (index in the worker) to a builder. `events`: the last
    /// event that it may have sent before the losses, and the last that it had sent when they were sampled.
    pub(super) fn note_losses(
        &mut self,
        place: usize,
        builder: usize,
        added: &LossCounters,
        events: (u64, u64),
    ) {
        let (since_event, event) = events;
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        if self.report.stalls.len() < STALLS_MAX {
            self.report.stalls.push(Stall {
                source: number(place as u64),
                event,
                since_event: since_event.min(event),
                builder: builder as u16,
                retransmits: number(added.retransmits.unwrap_or(0)),
                timeouts: number(added.timeouts.unwrap_or(0)),
                dsacks: number(added.dsacks.unwrap_or(0)),
            });
        }
    }

    /// The thread's report; call it in that thread.
    pub(super) fn report(mut self, sources: Vec<SourceSent>) -> SourcesReport {
        let mut report = SourcesReport { sources, ..self.report };
        if let Some(usage) = &mut self.usage {
            let now_ns = monotonic_ns();
            // A short remainder is skipped unless it is all there is.
            if usage.busiest.is_none() || now_ns > usage.second_from_ns + SECOND_NS / 2 {
                usage.close_second(now_ns);
            }
            report.cpu_s = thread_cpu_ns().saturating_sub(usage.cpu_ns) as f64 / 1e9;
            report.busiest = usage.busiest;
            let ready_ns = thread_ready_ns().zip(usage.ready_ns).map(|(now, then)| now.saturating_sub(then));
            report.ready_s = ready_ns.map(|ns| ns as f64 / 1e9);
        }
        let end_reasons =
            self.end_reasons.into_iter().map(|(why, number)| format!("{number} connections: {why}"));
        let end_reasons: Vec<String> = end_reasons.collect();
        report.broke_off = (!end_reasons.is_empty()).then(|| end_reasons.join("; "));
        report
    }
}

impl Usage {
    fn close_second(&mut self, now_ns: u64) {
        let cpu_ns = thread_cpu_ns();
        let wall_ns = now_ns.saturating_sub(self.second_from_ns).max(1);
        // The clocks are read one after the other: accurate to a few microseconds.
        let share = (cpu_ns.saturating_sub(self.second_cpu_ns) as f64 / wall_ns as f64).min(1.0);
        self.busiest = Some(self.busiest.map_or(share, |busiest| busiest.max(share)));
        (self.second_from_ns, self.second_cpu_ns) = (now_ns, cpu_ns);
    }
}

/// Adds another thread's report.
pub(super) fn merge(sum: &mut SourcesReport, other: SourcesReport) {
    sum.sources.extend(other.sources);
    sum.payload_bytes += other.payload_bytes;
    sum.orders += other.orders;
    sum.orders_dropped += other.orders_dropped;
    sum.orders_missed += other.orders_missed;
    sum.caught_up += other.caught_up;
    sum.nacks += other.nacks;
    sum.cpu_s += other.cpu_s;
    sum.own_delay.merge(&other.own_delay);
    let room = STALLS_MAX.saturating_sub(sum.stalls.len());
    sum.stalls.extend(other.stalls.into_iter().take(room));
    sum.busiest = combine(sum.busiest, other.busiest, f64::max);
    sum.reconnected += other.reconnected;
    sum.ready_s = combine(sum.ready_s, other.ready_s, |one, two| one + two);
    sum.orders_overflowed = combine(sum.orders_overflowed, other.orders_overflowed, |one, two| one + two);
    sum.broke_off = combine(sum.broke_off.take(), other.broke_off, |one, two| format!("{one}; {two}"));
}

fn combine<T>(one: Option<T>, two: Option<T>, both: fn(T, T) -> T) -> Option<T> {
    match (one, two) {
        (Some(one), Some(two)) => Some(both(one, two)),
        (one, two) => one.or(two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_adds_thread_reports() {
        let mut counters = Counters::default();
        counters.begin();
        counters.report.orders = 2;
        counters.report.own_delay.record_ns(1000);
        counters.end_reasons.insert("it rained".into(), 3);
        let mut sum = counters.report(vec![SourceSent::default()]);
        assert!(sum.busiest.is_some_and(|busiest| (0.0..=1.5).contains(&busiest)) && sum.cpu_s >= 0.0);
        let other = SourcesReport { orders: 5, sources: vec![SourceSent::default()], ..Default::default() };
        merge(&mut sum, other);
        assert_eq!((sum.orders, sum.sources.len(), sum.own_delay.count()), (7, 2, 1));
        assert_eq!(sum.broke_off.as_deref(), Some("3 connections: it rained"));
    }
}
