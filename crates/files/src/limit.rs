//! What limited a run: where its threads queued, by their own counters and the kernel's. Pure.

use base::format::{fixed, number, quantity};
use base::limit_rules::{CEILING, THREAD, THREAD_SIGN, WAITING};
use base::outcome::{Certainty, Evidence, Limit, Resource};

use crate::metrics::blocked_share;
use crate::presentation::{FILE_CALLS, JOURNAL, LOCKS, MOUNT_PROGRAM, RESPONSES};
use crate::report::DiskQuota;
use crate::totals::Totals;
use crate::waits::{Wait, Waits};

/// Time of the disk with requests under way, from which on it is the limit if threads wait.
const DISK_BUSY_PERCENT: f64 = 90.0;
/// Time of the disk with requests under way, from which on waits for the journal are waits for the disk.
const COMMIT_BUSY_PERCENT: f64 = 50.0;
/// Threads that wait for the disk on average, from which on a busy disk is why the others wait: the holder of
/// a lock that waits for the disk is one.
const DISK_WAITERS: f64 = 0.5;
/// What threads wait for less than this share of the time is not shown.
const SHOWN: f64 = 0.05;

pub(crate) fn of(totals: &Totals) -> Limit {
    let cpu = totals.cpu_share();
    let blocked = blocked_share(totals);
    let waits = Waits::of(totals, blocked);
    // What the fullest host has used: the others wait for it, or do less than they could.
    let disk = totals.most(|report| report.surroundings.disk_busy_percent);
    let quota = fullest(totals.reports.iter().flat_map(|report| &report.surroundings.disk_quotas));
    let has_rate = totals.reports.iter().any(|report| report.run.rate_per_s.is_some());
    let is_late = totals.late_share().is_some_and(|share| share > 0.1);
    let evidence = Evidences { totals, cpu, blocked, disk, quota, waits: waits.as_ref() };
    let is_cpu = cpu.is_some_and(|share| CEILING.is_used_up(share.min(1.0)));
    // Threads that run or wait for a CPU wait for nothing else.
    let is_ready = blocked.is_some_and(|share| THREAD.is_used_up(1.0 - share));
    let is_blocked = blocked.is_some_and(|share| WAITING.is_used_up(share));
    let waiting = totals.waiting_share();
    let network = of_network(totals);
    let is_network = network.is_some_and(|(share, _)| CEILING.is_used_up(share));
    let of_disk = waits.as_ref().map(|waits| waits.share(Wait::Device) + waits.share(Wait::Journal));
    let waits_for_disk = of_disk.is_none_or(|share| share * totals.threads as f64 >= DISK_WAITERS);
    let is_disk = disk.is_some_and(|percent| percent >= DISK_BUSY_PERCENT) && waits_for_disk;
    let is_quota = quota.is_some_and(|quota| CEILING.is_used_up(quota.used / quota.allowed));
    let is_held_by = |wait| waits.as_ref().is_some_and(|waits| WAITING.is_used_up(waits.share(wait)));
    let workload = |spec| Resource::Workload(spec);
    let (resource, certainty) = match () {
        () if has_rate && !is_late => (Resource::None, Certainty::Confirmed),
        () if is_ready && others_had_cpus(totals) => (Resource::Cpu, Certainty::Predicted),
        () if is_ready => (Resource::Cpu, Certainty::Confirmed),
        () if (is_disk || is_quota) && is_blocked => (Resource::Disk, Certainty::Confirmed),
        // The CPUs may be full as well: who spins for a lock uses one.
        () if is_held_by(Wait::Lock) => (workload(&LOCKS), Certainty::Confirmed),
        () if is_cpu => (Resource::Cpu, Certainty::Confirmed),
        () if is_network => (Resource::Network, Certainty::Confirmed),
        () if is_held_by(Wait::MountProgram) => (workload(&MOUNT_PROGRAM), Certainty::Confirmed),
        // A commit is on its way to the disk for most of the time: the disk is why it takes so long.
        () if is_held_by(Wait::Journal) && disk.is_some_and(|percent| percent >= COMMIT_BUSY_PERCENT) => {
            (Resource::Disk, Certainty::Predicted)
        }
        () if is_held_by(Wait::Journal) => (workload(&JOURNAL), Certainty::Confirmed),
        () if is_held_by(Wait::Device) => (Resource::Disk, Certainty::Predicted),
        // Its own pauses and rates: it asked for no more.
        () if is_held_by(Wait::Own) => (Resource::None, Certainty::Confirmed),
        () if waiting.is_some_and(|share| WAITING.is_used_up(share)) => {
            (workload(&RESPONSES), Certainty::Predicted)
        }
        () if is_blocked => (mostly(waits.as_ref()), Certainty::Predicted),
        () if cpu.is_some_and(|share| THREAD_SIGN.is_used_up(share)) => (Resource::Cpu, Certainty::Predicted),
        () => (Resource::None, Certainty::Unknown),
    };
    Limit { resource, certainty, evidence: evidence.all(resource) }
}

/// Whether the threads got less than half of the CPU time that they could use: others had the rest. More CPUs
/// may help then, but so does ending the others.
fn others_had_cpus(totals: &Totals) -> bool {
    let cpus = totals.usable_cpus();
    let usable = cpus.min(totals.threads as f64);
    totals.cpu_share().is_some_and(|share| share * cpus < 0.5 * usable)
}

/// What the blocked threads waited for most of their waits, where that is known.
fn mostly(waits: Option<&Waits>) -> Resource {
    match waits.and_then(Waits::mostly) {
        Some(Wait::Lock) => Resource::Workload(&LOCKS),
        Some(Wait::Journal) => Resource::Workload(&JOURNAL),
        Some(Wait::Device) => Resource::Disk,
        Some(Wait::MountProgram) => Resource::Workload(&MOUNT_PROGRAM),
        Some(Wait::Own | Wait::Other) | None => Resource::Workload(&FILE_CALLS),
    }
}

/// The quota of the disk of which most is used.
fn fullest<'a>(quotas: impl Iterator<Item = &'a DiskQuota>) -> Option<&'a DiskQuota> {
    let share = |quota: &DiskQuota| quota.used / quota.allowed;
    quotas.filter(|quota| quota.allowed > 0.0).max_by(|a, b| share(a).total_cmp(&share(b)))
}

/// Share of the link toward an object store that was used, and how fast the link is: of the host with the
/// largest share.
fn of_network(totals: &Totals) -> Option<(f64, f64)> {
    let used = totals.reports.iter().filter_map(|report| {
        let objects = report.objects.as_ref()?;
        let link = objects.link_bit_per_s.filter(|link| *link > 0.0)?;
        Some((objects.network_bit_per_s? / link, link))
    });
    used.max_by(|a, b| a.0.total_cmp(&b.0))
}

struct Evidences<'a> {
    totals: &'a Totals,
    cpu: Option<f64>,
    blocked: Option<f64>,
    disk: Option<f64>,
    quota: Option<&'a DiskQuota>,
    waits: Option<&'a Waits>,
}

impl Evidences<'_> {
    /// The one of the limiting resource first.
    fn all(&self, resource: Resource) -> Vec<Evidence> {
        let whole = [
            self.of_cpu(),
            self.of_disk(),
            self.of_disk_quota(),
            self.of_network(),
            self.of_calls(),
            self.of_responses(),
        ];
        let mut all: Vec<Evidence> = whole.into_iter().flatten().chain(self.of_waits()).collect();
        all.sort_by_key(|evidence| evidence.resource != resource);
        all
    }

    fn of_cpu(&self) -> Option<Evidence> {
        let share = 100.0 * self.cpu?;
        let Totals { threads, cpu, .. } = self.totals;
        let all_s = cpu.user_s + cpu.system_s;
        let of_kernel = if all_s > 0.0 { 100.0 * cpu.system_s / all_s } else { 0.0 };
        let who = match self.totals.objects {
            Some(_) => "this program".to_owned(),
            None => format!("the {threads} threads"),
        };
        let statement = format!(
            "{who} used {} % of {}, {} % of that in the kernel (getrusage){}",
            number(share),
            self.whole_cpu(),
            number(of_kernel),
            self.of_ready().unwrap_or_default()
        );
        Some(Evidence::counted(Resource::Cpu, statement).with("used_percent", share))
    }

    fn whole_cpu(&self) -> String {
        let Totals { cpus, cpu_quota, .. } = self.totals;
        match cpu_quota {
            Some(quota) if *quota < *cpus as f64 => format!("the quota of {} CPUs (cgroup)", number(*quota)),
            _ => format!("{cpus} CPUs"),
        }
    }

    fn of_ready(&self) -> Option<String> {
        let share = self.totals.thread_share(self.totals.cpu.ready_s?)?;
        let who = if THREAD.is_used_up(share) && others_had_cpus(self.totals) {
            "; others had the CPUs"
        } else {
            ""
        };
        Some(format!(", and waited for a CPU {} % of the time (schedstat){who}", number(100.0 * share)))
    }

    fn of_disk(&self) -> Option<Evidence> {
        let percent = self.disk?;
        let statement =
            format!("the disk had requests under way {} % of the time (diskstats)", number(percent));
        Some(Evidence::counted(Resource::Disk, statement).with("busy_percent", percent))
    }

    fn of_disk_quota(&self) -> Option<Evidence> {
        let DiskQuota { verb, unit, used, allowed } = self.quota?;
        let statement = format!(
            "the disk {verb} {}, where control groups allow {} (diskstats)",
            quantity(Some(*used), unit),
            quantity(Some(*allowed), unit)
        );
        Some(Evidence::counted(Resource::Disk, statement).with("quota_used_percent", 100.0 * used / allowed))
    }

    fn of_network(&self) -> Option<Evidence> {
        let (share, link) = of_network(self.totals)?;
        let statement = format!(
            "the network device toward the server carried {} % of {} (its counters)",
            number(100.0 * share),
            quantity(Some(link), "bit/s")
        );
        Some(Evidence::counted(Resource::Network, statement).with("used_percent", 100.0 * share))
    }

    fn of_responses(&self) -> Option<Evidence> {
        let objects = self.totals.objects.as_ref()?;
        let percent = 100.0 * self.totals.waiting_share()?;
        let first_byte = objects.first_byte.percentile_ns(50.0).map(|ns| ns as f64 / 1e9);
        let first_byte = match first_byte {
            Some(s) => {
                format!("; half of the GETs had the head of their answer within {}", quantity(Some(s), "s"))
            }
            None => String::new(),
        };
        let statement = format!("a worker waited for answers {} % of the time{first_byte}", number(percent));
        Some(Evidence::inferred(Resource::Workload(&RESPONSES), statement).with("waiting_percent", percent))
    }

    /// What threads waited for in 5 % of the time and more.
    fn of_waits(&self) -> Vec<Evidence> {
        let Some(waits) = self.waits else { return Vec::new() };
        let kinds = [
            (Wait::Lock, Resource::Workload(&LOCKS), "for a lock of a file or directory"),
            (Wait::Journal, Resource::Workload(&JOURNAL), "for the file system's journal"),
            (Wait::Device, Resource::Disk, "for the disk"),
            (Wait::MountProgram, Resource::Workload(&MOUNT_PROGRAM), "for the program that serves the mount"),
            (Wait::Own, Resource::None, "in pauses of the program itself"),
            (Wait::Other, Resource::Workload(&FILE_CALLS), "for something else in the kernel"),
        ];
        let evidence = |(wait, resource, words)| {
            let share = waits.share(wait);
            let statement = format!(
                "a thread waited {words} {} % of the time, mostly in {} (wchan, {} samples)",
                number(100.0 * share),
                waits.most_often(wait)?,
                waits.looks()
            );
            let evidence = Evidence::counted(resource, statement).with("waiting_percent", 100.0 * share);
            (share >= SHOWN).then_some(evidence)
        };
        kinds.into_iter().filter_map(evidence).collect()
    }

    fn of_calls(&self) -> Option<Evidence> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::report::{CpuReport, Durable, Ended, RunReport, WaitSamples};
    use crate::report::{Surroundings, WorkersReport};

    /// Twenty threads for 10 s on two CPUs: how long they ran and were ready, added up, and where looks found
    /// them waiting.
    fn totals(run_s: f64, ready_s: f64, waits: &[(&str, u64)], surroundings: Surroundings) -> Totals {
        let by_function = waits.iter().map(|(function, count)| ((*function).to_owned(), *count)).collect();
        let run = RunReport {
            threads: 20,
            hanging: 0,
            ended: Ended::Time,
            from_s: 0.0,
            to_s: 10.0,
            rows: Vec::new(),
            cpu: CpuReport { system_s: run_s, ready_s: Some(ready_s), ..CpuReport::default() },
            cpus: 2,
            intervals: Vec::new(),
            interval_s: 1.0,
            late_rounds: 0,
            rounds: 0,
            rate_per_s: None,
            waits: WaitSamples { looks: 1000, by_function },
            durable: Durable::Unknown,
            paused_s: 0.0,
            storage_read_bytes: None,
        };
        let notes = Vec::new();
        let mut totals = Totals::of(vec![WorkersReport {
            run,
            files: 1,
            dirs: 1,
            data_bytes: 1,
            populate_s: 0.0,
            surroundings,
            notes,
            objects: None,
        }]);
        totals.operations = 1000;
        totals
    }

    fn busy(percent: f64) -> Surroundings {
        Surroundings { disk_busy_percent: Some(percent), ..Surroundings::default() }
    }

    #[test]
    fn limit_is_where_the_threads_queue() {
        let quota = |used| Surroundings {
            disk_quotas: vec![DiskQuota { verb: "read".into(), unit: "B/s".into(), used, allowed: 100.0 }],
            ..busy(2.0)
        };
        let cpu_quota = Surroundings { cpu_quota_percent: Some(40.0), ..Surroundings::default() };
        for (run_s, ready_s, waits, surroundings, resource, certainty) in [
            // Ready all the time.
            (19.5, 170.0, &[][..], Surroundings::default(), "cpu", Certainty::Confirmed),
            // Ready all the time, too, but others have the CPUs.
            (3.0, 190.0, &[], Surroundings::default(), "cpu", Certainty::Predicted),
            // Spinning for a lock takes all CPUs, and yet more of them would not help.
            (19.5, 10.0, &[("do_unlinkat", 900)], Surroundings::default(), "locks", Certainty::Confirmed),
            (19.5, 90.0, &[("do_unlinkat", 300)], Surroundings::default(), "cpu", Certainty::Confirmed),
            // The disk writes back what no thread waits for.
            (5.0, 0.0, &[("ext4_buffered_write_iter", 900)], busy(99.0), "locks", Certainty::Confirmed),
            // The holder of the lock waits for the disk.
            (
                5.0,
                0.0,
                &[("ext4_buffered_write_iter", 900), ("folio_wait_bit", 50)],
                busy(99.0),
                "disk",
                Certainty::Confirmed,
            ),
            (2.0, 0.0, &[("blk_io_schedule", 900)], busy(99.0), "disk", Certainty::Confirmed),
            // Without looks the disk's counter alone.
            (2.0, 0.0, &[], busy(99.0), "disk", Certainty::Confirmed),
            // A control group holds requests back before the disk has them.
            (2.0, 0.0, &[("blk_io_schedule", 900)], quota(99.0), "disk", Certainty::Confirmed),
            (2.0, 0.0, &[("blk_io_schedule", 900)], quota(20.0), "disk", Certainty::Predicted),
            (2.0, 0.0, &[("jbd2_log_wait_commit", 900)], busy(30.0), "journal", Certainty::Confirmed),
            (2.0, 0.0, &[("jbd2_log_wait_commit", 900)], busy(70.0), "disk", Certainty::Predicted),
            (1.0, 0.0, &[("request_wait_answer", 900)], busy(0.0), "mount_program", Certainty::Confirmed),
            // The program asked for no more.
            (1.0, 0.0, &[("hrtimer_nanosleep", 900)], busy(0.0), "none", Certainty::Confirmed),
            (1.0, 0.0, &[("rpc_wait_bit_killable", 900)], busy(0.0), "file_calls", Certainty::Predicted),
            (1.0, 0.0, &[], Surroundings::default(), "file_calls", Certainty::Predicted),
            // No reason takes half of the time, one takes most of the waits.
            (
                9.0,
                71.0,
                &[("do_unlinkat", 400), ("futex_wait_queue", 200)],
                busy(0.0),
                "locks",
                Certainty::Predicted,
            ),
            (3.9, 50.0, &[("do_unlinkat", 200)], cpu_quota, "locks", Certainty::Confirmed),
            (5.0, 100.0, &[], Surroundings::default(), "none", Certainty::Unknown),
        ] {
            let limit = of(&totals(run_s, ready_s, waits, surroundings));
            let words = format!("{run_s} {ready_s} {waits:?}: {limit:?}");
            assert_eq!((limit.resource.word(), limit.certainty), (resource, certainty), "{words}");
            let first = limit.evidence.first().map(|evidence| evidence.resource);
            let is_held = matches!(limit.certainty, Certainty::Unknown) || first == Some(limit.resource);
            assert!(is_held, "no evidence of its own: {words}");
        }
    }

    #[test]
    fn cpu_quota_is_what_cpu_time_is_compared_with() {
        let quota = Surroundings { cpu_quota_percent: Some(40.0), ..Surroundings::default() };
        let limit = of(&totals(3.9, 100.0, &[], quota));
        assert_eq!((limit.resource, limit.certainty), (Resource::Cpu, Certainty::Confirmed));
        let evidence = &limit.evidence[0].statement;
        assert!(evidence.contains("used 97.5 % of the quota of 0.4 CPUs (cgroup)"), "{evidence}");
    }
}
