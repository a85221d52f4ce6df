//! What limited a run, by the threads' own counters and the disk's. Pure.

use base::format::{fixed, number};
use base::limit_rules::{CEILING, THREAD, THREAD_SIGN, WAITING};
use base::outcome::{Certainty, Evidence, Limit, Resource};

use crate::metrics::blocked_share;
use crate::presentation::FILE_CALLS;
use crate::totals::Totals;

/// Time of the disk with requests under way, from which on it is the limit if threads wait.
const DISK_BUSY_PERCENT: f64 = 90.0;

pub(crate) fn of(totals: &Totals) -> Limit {
    let cpu = totals.cpu_share();
    let blocked = blocked_share(totals);
    let disk = totals.reports.first().and_then(|report| report.surroundings.disk_busy_percent);
    let has_rate = totals.reports.iter().any(|report| report.run.rate_per_s.is_some());
    let is_late = totals.late_share().is_some_and(|share| share > 0.1);
    let evidence = Evidences { totals, cpu, blocked, disk };
    let is_cpu = cpu.is_some_and(|share| CEILING.is_used_up(share.min(1.0)));
    // Threads that run or wait for a CPU wait for nothing else.
    let is_waiting = blocked.is_some_and(|share| THREAD.is_used_up(1.0 - share));
    let is_blocked = blocked.is_some_and(|share| WAITING.is_used_up(share));
    let is_disk = disk.is_some_and(|percent| percent >= DISK_BUSY_PERCENT);
    let (resource, certainty) = match () {
        () if has_rate && !is_late => (Resource::None, Certainty::Confirmed),
        () if is_cpu || is_waiting => (Resource::Cpu, Certainty::Confirmed),
        () if is_disk && is_blocked => (Resource::Disk, Certainty::Confirmed),
        () if is_blocked => (Resource::Workload(&FILE_CALLS), Certainty::Predicted),
        () if cpu.is_some_and(|share| THREAD_SIGN.is_used_up(share)) => (Resource::Cpu, Certainty::Predicted),
        () => (Resource::None, Certainty::Unknown),
    };
    Limit { resource, certainty, evidence: evidence.all(resource) }
}

struct Evidences<'a> {
    totals: &'a Totals,
    cpu: Option<f64>,
    blocked: Option<f64>,
    disk: Option<f64>,
}

impl Evidences<'_> {
    /// The one of the limiting resource first.
    fn all(&self, resource: Resource) -> Vec<Evidence> {
        let mut all: Vec<Evidence> =
            [self.of_cpu(), self.of_disk(), self.of_waits()].into_iter().flatten().collect();
        all.sort_by_key(|evidence| evidence.resource != resource);
        all
    }

    fn of_cpu(&self) -> Option<Evidence> {
        let share = 100.0 * self.cpu?;
        let Totals { cpus, threads, cpu, .. } = self.totals;
        let all_s = cpu.user_s + cpu.system_s;
        let of_kernel = if all_s > 0.0 { 100.0 * cpu.system_s / all_s } else { 0.0 };
        let statement = format!(
            "the {threads} threads used {} % of {cpus} CPUs, {} % of that in the kernel (getrusage){}",
            number(share),
            number(of_kernel),
            self.of_ready().unwrap_or_default()
        );
        Some(Evidence::counted(Resource::Cpu, statement).with("used_percent", share))
    }

    fn of_ready(&self) -> Option<String> {
        let share = self.totals.thread_share(self.totals.cpu.ready_s?)?;
        Some(format!(", and were ready without a CPU {} % of the time (schedstat)", number(100.0 * share)))
    }

    fn of_disk(&self) -> Option<Evidence> {
        let percent = self.disk?;
        let statement =
            format!("the disk had requests under way {} % of the time (diskstats)", number(percent));
        Some(Evidence::counted(Resource::Disk, statement).with("busy_percent", percent))
    }

    fn of_waits(&self) -> Option<Evidence> {
        let percent = 100.0 * self.blocked?;
        let waits = self.totals.per_operation(self.totals.cpu.waits as f64)?;
        let statement = format!(
            "a thread was blocked in calls {} % of the time, {} waits per operation (schedstat, getrusage)",
            number(percent),
            fixed(waits, 3)
        );
        Some(Evidence::inferred(Resource::Workload(&FILE_CALLS), statement).with("blocked_percent", percent))
    }
}
