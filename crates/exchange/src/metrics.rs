//! The numbers of a trial: those of response times are of the most urgent class.

use base::metric::Better::{Higher, Lower, Neither};
use base::metric::{MetricSpec, Metrics, metric};

use crate::report::{BackgroundReport, ClassReport, ClientsReport};
use crate::settings::Class;

/// Every number of a trial: its own, and what the samplers add.
pub const METRICS: &[MetricSpec] = &[
    metric("response_mean_ms", "ms", Lower, "mean time from intended sending to the end of the reply"),
    metric("response_p50_ms", "ms", Lower, "median of these times"),
    metric("response_p99_ms", "ms", Lower, "99th percentile of these times"),
    metric("response_max_ms", "ms", Lower, "the longest of these times"),
    metric("in_time_ratio", "", Higher, "share of due messages whose reply came within the target"),
    metric("messages_per_s", "1/s", Higher, "answered messages per second, all clients together"),
    metric("wait_mean_ms", "ms", Lower, "mean time that a due message waited for earlier ones"),
    metric("connect_mean_ms", "ms", Lower, "mean time of the handshake before a message"),
    metric("write_mean_ms", "ms", Lower, "mean time in write() until the last byte was accepted"),
    metric("write_p99_ms", "ms", Lower, "99th percentile of these times"),
    metric(
        "network_mean_ms",
        "ms",
        Lower,
        "mean time from there to the reply, server time deducted if known",
    ),
    metric("server_mean_ms", "ms", Lower, "mean processing time, as kagiri's server reports it"),
    metric("answered", "", Neither, "answered messages"),
    metric("errors", "", Lower, "messages that ended in an error"),
    metric("error_ratio", "", Lower, "errors divided by due messages"),
    metric("goodput_bit_per_s", "bit/s", Higher, "payload of answered messages, all classes"),
    metric("background_bit_per_s", "bit/s", Neither, "background payload that arrived"),
    metric("background_sent_bit_per_s", "bit/s", Neither, "background payload that was sent"),
    metric("link_used_ratio", "", Neither, "share of the link's rate that messages and background used"),
    metric("socket_memory_max_bytes", "B", Lower, "most kernel memory of all client sockets together"),
    metric("socket_memory_client_max_bytes", "B", Lower, "most kernel memory of one client's socket"),
    metric("busy_ratio", "", Neither, "share of time in which connections had data in flight"),
    metric("rwnd_limited_ratio", "", Lower, "share of that in which the receiver's window was full"),
    metric("sndbuf_limited_ratio", "", Lower, "share of that in which the send buffer was too small"),
    metric("retransmits", "", Lower, "segments that the clients' TCP retransmitted"),
    metric("streams_max", "", Neither, "most streams of HTTP/2 in use at a time on one connection"),
    metric("late_ratio", "", Lower, "share of messages that the clients sent late"),
    metric("late_max_ms", "ms", Lower, "the most by which a message was sent late"),
    metric("player_cpu_percent", "%", Lower, "the clients' busiest thread, busiest second, in % of its core"),
    metric("server_cpu_percent", "%", Lower, "CPU of the server's processes, in % of one core"),
    metric("server_memory_bytes", "B", Lower, "resident memory of the server's processes, added up"),
    metric("disk_bit_per_s", "bit/s", Neither, "read from the server's disk"),
    metric("network_bit_per_s", "bit/s", Neither, "carried by the server's network device"),
];

/// The headline metrics of one load, the main one first.
pub const HEADLINE: &[&str] =
    &["response_mean_ms", "response_p50_ms", "response_p99_ms", "write_mean_ms", "messages_per_s"];

/// The same where messages have a target.
pub const HEADLINE_OF_TARGET: &[&str] =
    &["in_time_ratio", "response_mean_ms", "response_p50_ms", "response_p99_ms", "write_mean_ms"];

/// The same where other traffic shares the path.
pub const HEADLINE_OF_SHARED_PATH: &[&str] = &[
    "in_time_ratio",
    "response_p99_ms",
    "background_bit_per_s",
    "link_used_ratio",
    "response_p50_ms",
    "response_mean_ms",
];

/// The most urgent class: of equal ones the first.
pub fn most_urgent(classes: &[Class]) -> Option<&Class> {
    classes.iter().min_by_key(|class| class.priority)
}

/// All numbers of one class but those that concern the trial as a whole.
fn of_class(class: &Class, report: &ClassReport) -> Vec<(&'static str, Option<f64>)> {
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let due = report.due() as f64;
    let share = |count: u64| (due > 0.0).then(|| count as f64 / due);
    vec![
        ("response_mean_ms", report.response_mean_ms()),
        ("response_p50_ms", ms(report.response.percentile_ns(50.0))),
        ("response_p99_ms", ms(report.response.percentile_ns(99.0))),
        ("response_max_ms", ms(report.response.max_ns())),
        ("in_time_ratio", report.in_time_ratio().filter(|_| class.target.is_some())),
        ("wait_mean_ms", report.mean_ms(report.wait_ns)),
        ("connect_mean_ms", report.mean_ms(report.connect_ns)),
        ("write_mean_ms", report.mean_ms(report.write_ns)),
        ("write_p99_ms", ms(report.write.percentile_ns(99.0))),
        ("network_mean_ms", report.mean_ms(report.network_ns)),
        ("server_mean_ms", report.server.as_ref().and_then(|_| report.mean_ms(report.server_ns))),
        ("answered", Some(report.answered as f64)),
        ("errors", Some(report.errors as f64)),
        ("error_ratio", share(report.errors)),
        ("late_ratio", share(report.late)),
        ("late_max_ms", ms(Some(report.late_ns_max))),
    ]
}

/// Names that also stand in the metrics for each of several classes, after the class's name.
const PER_CLASS: [&str; 5] =
    ["response_mean_ms", "response_p50_ms", "response_p99_ms", "in_time_ratio", "write_mean_ms"];

pub fn of(classes: &[Class], report: &ClientsReport, background: Option<&BackgroundReport>) -> Metrics {
    let mut metrics = Metrics::new();
    let found = |name: &str| report.classes.iter().find(|one| one.name == name);
    for class in classes {
        let Some(own) = found(&class.name).filter(|_| classes.len() > 1) else { continue };
        let of_class = of_class(class, own).into_iter().filter(|(name, _)| PER_CLASS.contains(name));
        metrics.extend(of_class.map(|(name, value)| (format!("{}_{name}", class.name), value)));
    }
    if let Some((class, own)) = most_urgent(classes).and_then(|class| Some((class, found(&class.name)?))) {
        metrics.extend(of_class(class, own).into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    let mut set = |name: &str, value: Option<f64>| metrics.insert(name.to_owned(), value);
    let hold_s = (report.hold_s.1 - report.hold_s.0).max(1e-3);
    let sum = |of: fn(&ClassReport) -> u64| report.classes.iter().map(of).sum::<u64>() as f64;
    set("messages_per_s", Some(sum(|class| class.answered) / hold_s));
    set("goodput_bit_per_s", Some(sum(|class| class.bytes) * 8.0 / hold_s));
    let (total, most) = memory(report);
    set("socket_memory_max_bytes", total);
    set("socket_memory_client_max_bytes", most);
    let busy_us = sum(|class| class.waits.busy_us);
    let clients = sum(|class| class.clients);
    let of_busy = |us: f64| (busy_us > 0.0).then(|| us / busy_us);
    set("busy_ratio", (clients > 0.0).then(|| (busy_us / 1e6 / clients / hold_s).min(1.0)));
    set("rwnd_limited_ratio", of_busy(sum(|class| class.waits.rwnd_limited_us)));
    set("sndbuf_limited_ratio", of_busy(sum(|class| class.waits.sndbuf_limited_us)));
    set("retransmits", Some(sum(|class| class.waits.retransmits)));
    let streams = report.classes.iter().filter_map(|class| class.streams).max();
    set("streams_max", streams.map(|streams| streams as f64));
    set("player_cpu_percent", report.busiest.map(|share| 100.0 * share));
    if let Some(background) = background {
        set("background_bit_per_s", delivered_bit_per_s(background));
        let sent = background.sent_bytes as f64 * 8.0 / background.elapsed_s;
        set("background_sent_bit_per_s", Some(sent).filter(|rate| rate.is_finite()));
    }
    metrics
}

/// The rate at which the background arrived.
pub fn delivered_bit_per_s(background: &BackgroundReport) -> Option<f64> {
    let delivered = background.delivered.as_ref()?;
    let s = (delivered.elapsed_ns as f64 / 1e9).max(background.elapsed_s);
    (s > 0.0).then(|| delivered.bytes as f64 * 8.0 / s)
}

/// The most memory of all sockets together at a moment, and of one.
fn memory(report: &ClientsReport) -> (Option<f64>, Option<f64>) {
    let longest = report.classes.iter().map(|class| class.memory.len()).max().unwrap_or(0);
    let of_class = |class: &ClassReport, at: usize| class.memory.get(at).map_or(0, |one| one.total_bytes);
    let total = |at: usize| report.classes.iter().map(|class| of_class(class, at)).sum::<u64>();
    let totals = (0..longest).map(|at| total(at) as f64);
    let each = report.classes.iter().flat_map(|class| &class.memory).map(|sample| sample.max_bytes as f64);
    (totals.max_by(f64::total_cmp), each.max_by(f64::total_cmp))
}
