//! The reports of all hosts added up.

use std::collections::BTreeMap;

use base::histogram::Histogram;

use crate::engine::report::{CpuReport, Durable, Ended, RowReport};
use crate::report::{ObjectsReport, WorkersReport};

/// All hosts of a trial together.
pub(crate) struct Totals {
    pub reports: Vec<WorkersReport>,
    pub rows: Vec<RowReport>,
    /// Times of the operations that count.
    pub times: Histogram,
    pub operations: u64,
    pub bytes: u64,
    pub reads: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    pub writes: u64,
    pub sum_ns: u64,
    pub errors: BTreeMap<String, u64>,
    pub threads: u64,
    pub hanging: u64,
    pub cpu: CpuReport,
    pub cpus: u64,
    /// CPUs that control groups allow, where they do not allow all.
    pub cpu_quota: Option<f64>,
    /// The judged time: of several hosts the longest.
    pub from_s: f64,
    pub to_s: f64,
    /// Of an object store.
    pub objects: Option<ObjectsReport>,
}

impl Totals {
    pub(crate) fn of(reports: Vec<WorkersReport>) -> Self {
        let mut all = Self {
            rows: Vec::new(),
            times: Histogram::default(),
            operations: 0,
            bytes: 0,
            reads: 0,
            read_bytes: 0,
            writes: 0,
            sum_ns: 0,
            errors: BTreeMap::new(),
            threads: 0,
            hanging: 0,
            cpu: CpuReport { ready_s: Some(0.0), ..CpuReport::default() },
            cpus: 0,
            cpu_quota: cpu_quota(&reports),
            from_s: reports.first().map_or(0.0, |report| report.run.from_s),
            to_s: 0.0,
            objects: None,
            reports,
        };
        for run in all.reports.iter().map(|report| &report.run) {
            for row in &run.rows {
                match all.rows.iter_mut().find(|known| (&known.name, &known.kind) == (&row.name, &row.kind)) {
                    Some(known) => add(known, row),
                    None => all.rows.push(row.clone()),
                }
            }
            all.threads += run.threads;
            all.hanging += run.hanging;
            all.cpus += run.cpus;
            all.to_s = all.to_s.max(run.to_s);
            all.cpu.user_s += run.cpu.user_s;
            all.cpu.system_s += run.cpu.system_s;
            all.cpu.waits += run.cpu.waits;
            all.cpu.preemptions += run.cpu.preemptions;
            all.cpu.ready_s = all.cpu.ready_s.zip(run.cpu.ready_s).map(|(sum, own)| sum + own);
        }
        for own in all.reports.iter().filter_map(|report| report.objects.as_ref()) {
            let sum = all.objects.get_or_insert_with(|| ObjectsReport {
                endpoint: own.endpoint.clone(),
                ..ObjectsReport::default()
            });
            sum.requests += own.requests;
            sum.failed += own.failed;
            sum.slow_downs += own.slow_downs;
            sum.retries += own.retries;
            sum.waited_s += own.waited_s;
            sum.first_byte.merge(&own.first_byte);
        }
        for row in &all.rows {
            for (message, count) in &row.errors {
                *all.errors.entry(format!("{} ({})", message, row.name)).or_default() += count;
            }
            if row.is_counted {
                all.times.merge(&row.times);
                all.operations += row.count;
                all.bytes += row.bytes;
                all.sum_ns += row.sum_ns;
                all.reads += if row.reads { row.count } else { 0 };
                all.read_bytes += if row.reads { row.bytes } else { 0 };
                all.writes += if row.writes { row.count } else { 0 };
            }
        }
        all
    }

    pub(crate) fn elapsed_s(&self) -> Option<f64> {
        Some(self.to_s - self.from_s).filter(|s| *s > 0.0)
    }

    pub(crate) fn per_s(&self, count: u64) -> Option<f64> {
        self.elapsed_s().map(|s| count as f64 / s)
    }

    pub(crate) fn per_operation(&self, sum: f64) -> Option<f64> {
        (self.operations > 0).then(|| sum / self.operations as f64)
    }

    /// Time of a thread on average in a state, as a share of the judged time.
    pub(crate) fn thread_share(&self, sum_s: f64) -> Option<f64> {
        let all_s = self.elapsed_s()? * self.threads as f64;
        (all_s > 0.0).then(|| sum_s / all_s)
    }

    /// Mean share of the time that a worker waited for answers.
    pub(crate) fn waiting_share(&self) -> Option<f64> {
        let share = self.thread_share(self.objects.as_ref()?.waited_s)?;
        Some(share.min(1.0))
    }

    /// All CPUs that may be used; a control group may allow a part of one.
    pub(crate) fn usable_cpus(&self) -> f64 {
        self.cpu_quota.unwrap_or(f64::INFINITY).min(self.cpus as f64)
    }

    /// CPU time as a share of all CPUs that may be used.
    pub(crate) fn cpu_share(&self) -> Option<f64> {
        let all_s = self.elapsed_s()? * self.usable_cpus();
        (all_s > 0.0).then(|| (self.cpu.user_s + self.cpu.system_s) / all_s)
    }

    /// The largest value of any host; `None`: unknown on all.
    pub(crate) fn most(&self, value: impl Fn(&WorkersReport) -> Option<f64>) -> Option<f64> {
        self.reports.iter().filter_map(value).max_by(f64::total_cmp)
    }

    /// Until everything was durable, on the slowest host.
    pub(crate) fn durable_after_s(&self) -> Option<f64> {
        let after = self.reports.iter().map(|report| match &report.run.durable {
            Durable::After { s } => Some(*s),
            _ => None,
        });
        after.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
    }

    /// Share of the bytes read that did not come from storage; `None`: unknown, or nothing was read. Storage
    /// also gives what is read ahead, and directories.
    pub(crate) fn cached_read_share(&self) -> Option<f64> {
        let from_storage: Option<u64> = self.reports.iter().map(|report| report.run.storage_read_bytes).sum();
        let share = 1.0 - from_storage? as f64 / self.read_bytes as f64;
        (self.read_bytes > 0).then_some(share.max(0.0))
    }

    /// How long a host did not run within the judged time: of several hosts the longest.
    pub(crate) fn paused_s(&self) -> f64 {
        self.most(|report| Some(report.run.paused_s)).unwrap_or(0.0)
    }

    /// Whether it is unknown when the storage behind a mount has everything.
    pub(crate) fn is_behind_mount(&self) -> bool {
        self.reports.iter().any(|report| matches!(report.run.durable, Durable::BehindMount { .. }))
    }

    /// Why the run ended before its time, for a reason that spoils it.
    pub(crate) fn broke_off(&self) -> Option<String> {
        self.reports.iter().find_map(|report| match &report.run.ended {
            Ended::Exhausted(why) | Ended::Failed(why) => Some(why.clone()),
            _ => None,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.reports.iter().any(|report| report.run.ended == Ended::Stopped)
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.reports.iter().map(|report| report.data_bytes).sum()
    }

    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.reports.iter().map(|report| report.surroundings.memory_bytes).sum()
    }

    pub(crate) fn late_share(&self) -> Option<f64> {
        let rounds: u64 = self.reports.iter().map(|report| report.run.rounds).sum();
        let late: u64 = self.reports.iter().map(|report| report.run.late_rounds).sum();
        let has_rate = self.reports.iter().any(|report| report.run.rate_per_s.is_some());
        (has_rate && rounds > 0).then(|| late as f64 / rounds as f64)
    }
}

/// CPUs of all hosts that may be used, if a quota lessens them.
fn cpu_quota(reports: &[WorkersReport]) -> Option<f64> {
    let quota = |report: &WorkersReport| report.surroundings.cpu_quota_percent.map(|percent| percent / 100.0);
    reports.iter().any(|report| quota(report).is_some()).then_some(())?;
    let cpus = |report: &WorkersReport| {
        let all = report.run.cpus as f64;
        quota(report).map_or(all, |quota| quota.min(all))
    };
    Some(reports.iter().map(cpus).sum())
}

fn add(all: &mut RowReport, own: &RowReport) {
    all.count += own.count;
    all.bytes += own.bytes;
    all.sum_ns += own.sum_ns;
    all.all_count += own.all_count;
    all.times.merge(&own.times);
    for (message, count) in &own.errors {
        *all.errors.entry(message.clone()).or_default() += count;
    }
}
