//! The numbers of a trial.

use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use crate::totals::Totals;

/// Every number of a trial: the workload's own, and what the samplers add.
#[rustfmt::skip]
pub const METRICS: &[MetricSpec] = &[
    metric("ops_per_s", "1/s", Higher, "operations per second: all calls on files and directories"),
    metric("mb_per_s", "MiB/s", Higher, "bytes read and written per second, in MiB (2^20 bytes)"),
    metric("op_mean_ms", "ms", Lower, "mean latency of these operations"),
    metric("p50_ms", "ms", Lower, "median of these latencies"),
    metric("p90_ms", "ms", Lower, "90th percentile of these latencies"),
    metric("p99_ms", "ms", Lower, "99th percentile of these latencies"),
    metric("p999_ms", "ms", Lower, "99.9th percentile of these latencies"),
    metric("op_max_ms", "ms", Lower, "the longest of these latencies"),
    metric("cpu_user_us_per_op", "us", Lower, "CPU time of the load generator per operation (getrusage)"),
    metric("cpu_system_us_per_op", "us", Lower, "CPU time of the kernel per operation, within the calls"),
    metric("durable_after_s", "s", Lower, "from the end of the run until all is durable"),
    metric("durable_ops_per_s", "1/s", Higher, "operations per second, that time included"),
    metric("reads_per_s", "1/s", Higher, "reads per second"),
    metric("writes_per_s", "1/s", Higher, "writes per second"),
    metric("operations", "", Neither, "operations in the judged time"),
    metric("errors", "", Lower, "calls that failed"),
    metric("threads", "", Neither, "threads that worked on the files"),
    metric("data_bytes", "B", Neither, "size of the files at the beginning"),
    metric("data_ram_percent", "%", Neither, "the same, in % of the host's memory"),
    metric("cached_percent", "%", Neither, "share of a sample of the files in the page cache at the start"),
    metric("reads_cached_percent", "%", Neither, "bytes read that did not come from storage (/proc/self/io)"),
    metric("dirty_bytes", "B", Neither, "not yet on the disk at the end of the run, whole host"),
    metric("waits_per_op", "", Lower, "waits of threads in the kernel per operation"),
    metric("preemptions_per_op", "", Lower, "preemptions of threads per operation"),
    metric("ready_percent", "%", Lower, "mean time of a thread ready to run without a CPU"),
    metric("blocked_percent", "%", Lower, "mean time of a thread blocked in calls"),
    metric("late_percent", "%", Lower, "rounds that began later than intended, with --rate"),
    metric("disk_busy_percent", "%", Neither, "time of the disk with requests under way"),
    metric("requests_per_s", "1/s", Higher, "requests to the object store that were answered, per second"),
    metric("requests", "", Neither, "requests of the workers that were sent, also outside the judged time"),
    metric("slow_downs", "", Lower, "requests that the object store refused: there were too many (503)"),
    metric("retries", "", Lower, "requests that were sent again while objects were made; others are not"),
    metric("first_byte_p50_ms", "ms", Lower, "median time from a GET to the head of its answer"),
    metric("first_byte_p99_ms", "ms", Lower, "99th percentile of this time"),
    metric("waiting_percent", "%", Neither, "mean time of a worker that waited for answers"),
    metric("populate_s", "s", Neither, "time to make the files"),
    metric("clock_bound_us", "us", Lower, "bound on the error of the common start, of several hosts"),
    metric("start_skew_us", "us", Lower, "first to last start, of several hosts"),
    metric("server_cpu_percent", "%", Lower, "CPU of the threads with the kernel's share, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of this program"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the disk"),
    metric("network_bit_per_s", "bit/s", Neither, "carried by the network device"),
];

/// The metrics that summarise one load, the main one first.
pub const HEADLINE: &[&str] = &["ops_per_s", "mb_per_s", "op_mean_ms", "p99_ms", "durable_after_s"];

/// The same of an object store: what was answered is durable.
pub const HEADLINE_OF_OBJECTS: &[&str] = &["ops_per_s", "mb_per_s", "op_mean_ms", "p99_ms", "errors"];

pub(crate) fn of(totals: &Totals) -> Metrics {
    let mut metrics = Metrics::new();
    let mut set = |name: &str, value: Option<f64>| metrics.insert(name.to_owned(), value);
    let ms = |percent| totals.times.percentile_ns(percent).map(|ns| ns as f64 / 1e6);
    let cpu = &totals.cpu;
    set("ops_per_s", totals.per_s(totals.operations));
    set("mb_per_s", totals.per_s(totals.bytes).map(|bytes| bytes / f64::from(1 << 20)));
    set("op_mean_ms", totals.per_operation(totals.sum_ns as f64 / 1e6));
    for (name, percent) in [("p50_ms", 50.0), ("p90_ms", 90.0), ("p99_ms", 99.0), ("p999_ms", 99.9)] {
        set(name, ms(percent));
    }
    set("op_max_ms", totals.times.max_ns().map(|ns| ns as f64 / 1e6));
    set("cpu_user_us_per_op", totals.per_operation(cpu.user_s * 1e6));
    set("cpu_system_us_per_op", totals.per_operation(cpu.system_s * 1e6));
    let durable_s = totals.durable_after_s();
    set("durable_after_s", durable_s);
    let until_durable = totals.elapsed_s().zip(durable_s).map(|(s, after_s)| s + after_s);
    set("durable_ops_per_s", until_durable.map(|s| totals.operations as f64 / s));
    set("reads_per_s", totals.per_s(totals.reads));
    set("writes_per_s", totals.per_s(totals.writes));
    set("operations", Some(totals.operations as f64));
    set("errors", Some(totals.errors.values().sum::<u64>() as f64));
    set("threads", Some(totals.threads as f64));
    set("data_bytes", Some(totals.data_bytes() as f64));
    let memory = totals.memory_bytes().filter(|bytes| *bytes > 0);
    set("data_ram_percent", memory.map(|bytes| 100.0 * totals.data_bytes() as f64 / bytes as f64));
    set("waits_per_op", totals.per_operation(cpu.waits as f64));
    set("preemptions_per_op", totals.per_operation(cpu.preemptions as f64));
    let ready = cpu.ready_s.and_then(|s| totals.thread_share(s));
    set("ready_percent", ready.map(|share| 100.0 * share));
    set("blocked_percent", blocked_share(totals).map(|share| 100.0 * share));
    set("late_percent", totals.late_share().map(|share| 100.0 * share));
    set("cached_percent", totals.most(|report| report.surroundings.cached_percent));
    set("reads_cached_percent", totals.cached_read_share().map(|share| 100.0 * share));
    set("dirty_bytes", totals.most(|report| report.surroundings.dirty_bytes.map(|bytes| bytes as f64)));
    set("disk_busy_percent", totals.most(|report| report.surroundings.disk_busy_percent));
    set("populate_s", totals.most(|report| Some(report.populate_s)));
    if let Some(objects) = &totals.objects {
        let ms = |percent| objects.first_byte.percentile_ns(percent).map(|ns| ns as f64 / 1e6);
        set("requests_per_s", totals.per_s(totals.operations));
        set("requests", Some(objects.requests as f64));
        set("slow_downs", Some(objects.slow_downs as f64));
        set("retries", Some(objects.retries as f64));
        set("first_byte_p50_ms", ms(50.0));
        set("first_byte_p99_ms", ms(99.0));
        set("waiting_percent", totals.waiting_share().map(|share| 100.0 * share));
    }
    metrics
}

/// Mean share of the time that a thread neither ran nor was ready to.
pub(crate) fn blocked_share(totals: &Totals) -> Option<f64> {
    let running = totals.thread_share(totals.cpu.user_s + totals.cpu.system_s)?;
    let ready = totals.thread_share(totals.cpu.ready_s?)?;
    Some((1.0 - running - ready).clamp(0.0, 1.0))
}
