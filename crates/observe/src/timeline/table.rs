//! The table: how long calls and softirqs took, by name and state.

use std::collections::BTreeMap;

use base::timeline::{CallRow, CallState, SoftirqRow, Times, UnfinishedRow, softirq_name};
use sys::trace::{Tallied, Tally};

use super::calls::Call;

#[derive(Debug, Default)]
struct CallsOfKind {
    times: Times,
    preempted: u64,
    returned: u64,
}

#[derive(Debug, Default)]
struct Unfinished {
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    began_before: u64,
}

#[derive(Debug, Default)]
struct SoftirqTimes {
    run: Times,
    period: Times,
    last_from_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Table {
    calls: BTreeMap<(u16, CallState), CallsOfKind>,
    softirqs: BTreeMap<(u32, u32), SoftirqTimes>,
    unfinished: BTreeMap<u16, Unfinished>,
}

impl Table {
    pub fn called(&mut self, number: u16, state: CallState, ns: u64, preempted: bool, returned: i64) {
        let calls = self.calls.entry((number, state)).or_default();
        calls.times.add(ns);
        calls.preempted += u64::from(preempted);
        calls.returned += u64::try_from(returned).unwrap_or(0);
    }

    /// A call that did not end, with its time so far; longer if it began before the trace.
    pub fn unfinished(&mut self, number: u16, ns: u64, began_before: bool) {
        let calls = self.unfinished.entry(number).or_default();
        calls.count += 1;
        calls.total_ns += ns;
        calls.longest_ns = ns.max(calls.longest_ns);
        calls.began_before += u64::from(began_before);
    }

    pub fn softirq(&mut self, cpu: u32, vector: u32, from_ns: u64, to_ns: u64) {
        let times = self.softirqs.entry((vector, cpu)).or_default();
        times.run.add(to_ns.saturating_sub(from_ns));
        if let Some(last_ns) = times.last_from_ns.replace(from_ns) {
            times.period.add(from_ns.saturating_sub(last_ns));
        }
    }

    /// Softirqs of this CPU were lost: the time from the last to the next one is no period.
    pub fn softirqs_lost(&mut self, cpu: u32) {
        for (_, times) in self.softirqs.iter_mut().filter(|((_, its), _)| *its == cpu) {
            times.last_from_ns = None;
        }
    }

    /// Adds what the tracer counted in the kernel.
    pub fn tally(&mut self, tally: &Tally) {
        let times = match tally.of {
            Tallied::Call { number, away } => {
                let state = if away { CallState::Blocked } else { CallState::Ready };
                let calls = self.calls.entry((number, state)).or_default();
                calls.preempted += tally.preempted;
                calls.returned += tally.returned;
                &mut calls.times
            }
            Tallied::SoftirqRun { cpu, vector } => &mut self.softirqs.entry((vector, cpu)).or_default().run,
            Tallied::SoftirqPeriod { cpu, vector } => {
                &mut self.softirqs.entry((vector, cpu)).or_default().period
            }
        };
        times.add_counted(&tally.durations, tally.total_ns, tally.max_ns);
    }

    pub fn calls(&self) -> u64 {
        self.calls.values().map(|calls| calls.times.count()).sum()
    }

    /// The rows of calls, the one that took the most time first.
    pub fn call_rows(&self, calls: &[Call], wall_ns: u64) -> Vec<CallRow> {
        let row = |(&(number, state), of): (&(u16, CallState), &CallsOfKind)| CallRow {
            preempted: Some(of.preempted),
            returned: of.returned,
            ..of.times.row(name_of(calls, number), state, wall_ns)
        };
        let mut rows: Vec<CallRow> = self.calls.iter().map(row).collect();
        rows.sort_by(|a, b| b.wall_share.total_cmp(&a.wall_share));
        rows
    }

    pub fn softirq_rows(&self, wall_ns: u64) -> Vec<SoftirqRow> {
        let row = |(&(vector, cpu), times): (&(u32, u32), &SoftirqTimes)| {
            let period = Some(&times.period).filter(|period| period.count() > 0);
            SoftirqRow {
                name: softirq_name(vector).to_owned(),
                cpu,
                count: times.run.count(),
                period_p50_us: period.map(|period| period.percentile_us(50.0)),
                period_mean_us: period.map(Times::mean_us),
                period_p99_us: period.map(|period| period.percentile_us(99.0)),
                run_p50_us: times.run.percentile_us(50.0),
                run_mean_us: times.run.mean_us(),
                run_p99_us: times.run.percentile_us(99.0),
                wall_share: times.run.share_of(wall_ns),
            }
        };
        self.softirqs.iter().map(row).collect()
    }

    /// The rows of calls without an end, the one that took the most time first.
    pub fn unfinished_rows(&self, calls: &[Call], wall_ns: u64) -> Vec<UnfinishedRow> {
        let row = |(&number, of): (&u16, &Unfinished)| UnfinishedRow {
            name: name_of(calls, number),
            count: of.count,
            longest_s: of.longest_ns as f64 / 1e9,
            began_before: of.began_before,
            wall_share: of.total_ns as f64 / wall_ns.max(1) as f64,
        };
        let mut rows: Vec<UnfinishedRow> = self.unfinished.iter().map(row).collect();
        rows.sort_by(|a, b| b.wall_share.total_cmp(&a.wall_share));
        rows
    }
}

fn name_of(calls: &[Call], number: u16) -> String {
    let known = calls.iter().find(|call| call.number == number);
    known.map_or_else(|| format!("call {number}"), |call| call.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::calls::usual;

    #[test]
    fn states_are_separate_rows_sorted_by_time() {
        let mut table = Table::default();
        let number = usual()[0].number;
        for ns in [1000, 3000] {
            table.called(number, CallState::Ready, ns, false, 10);
        }
        table.called(number, CallState::Blocked, 96_000, true, -11);
        let rows = table.call_rows(&usual(), 200_000);
        assert_eq!((rows[0].state, rows[0].count, rows[0].preempted), (CallState::Blocked, 1, Some(1)));
        assert_eq!((rows[1].mean_us, rows[1].max_us, rows[1].returned), (2.0, 3.0, 20));
        assert_eq!(rows[0].wall_share, 0.48);
        assert_eq!(table.calls(), 3);
    }

    #[test]
    fn softirq_period_does_not_span_a_loss() {
        let mut table = Table::default();
        for from_ns in [0, 10_000, 20_000] {
            table.softirq(1, 3, from_ns, from_ns + 900);
        }
        table.softirqs_lost(1);
        table.softirq(1, 3, 900_000, 900_900);
        table.softirq(1, 3, 910_000, 910_900);
        let rows = table.softirq_rows(1_000_000);
        assert_eq!((rows[0].name.as_str(), rows[0].cpu, rows[0].count), ("NET_RX", 1, 5));
        assert_eq!((rows[0].period_mean_us, rows[0].run_mean_us), (Some(10.0), 0.9));
    }
}
